/** Rows of a CSV text (RFC 4180): fields may be quoted and hold separators and line breaks. */
export function parseCsv(text: string, separator = ','): string[][] {
  const rows: string[][] = [];
  let row: string[] = [];
  let field = '';
  let quoted = false;
  const endField = () => {
    row.push(field);
    field = '';
  };
  const endRow = () => {
    endField();
    rows.push(row);
    row = [];
  };
  for (let at = 0; at < text.length; at += 1) {
    const char = text[at];
    if (quoted) {
      if (char !== '"') field += char;
      else if (text[at + 1] === '"') field += text[(at += 1)];
      else quoted = false;
    } else if (char === '"') quoted = true;
    else if (char === separator) endField();
    else if (char === '\n') endRow();
    else if (char !== '\r') field += char;
  }
  if (field !== '' || row.length > 0) endRow();
  return rows;
}

/** Rows as objects by the names in the first row. */
export function toRecords(rows: string[][]): Record<string, string>[] {
  const [names = [], ...rest] = rows;
  return rest.map((row) => Object.fromEntries(names.map((name, column) => [name, row[column] ?? ''])));
}

/** Objects as CSV, with a first row of all names. */
export function toCsv(records: Record<string, unknown>[], separator = ','): string {
  const names = [...new Set(records.flatMap((record) => Object.keys(record)))];
  const cell = (value: unknown) => {
    const text =
      value === null || value === undefined ? '' : typeof value === 'object' ? JSON.stringify(value) : String(value);
    return text.includes(separator) || /["\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  };
  return [names, ...records.map((record) => names.map((name) => record[name]))]
    .map((row) => `${row.map(cell).join(separator)}\n`)
    .join('');
}
