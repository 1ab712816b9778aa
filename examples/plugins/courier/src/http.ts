/** An answer that is no success. */
export class HttpError extends Error {
  constructor(
    readonly status: number,
    readonly text: string,
  ) {
    super(`${status} - ${text}`);
  }
}

/** One call; the body is read as JSON where it is some. */
export async function callJson(url: string, init: RequestInit): Promise<unknown> {
  const response = await fetch(url, init);
  const text = await response.text();
  if (!response.ok) throw new HttpError(response.status, text.slice(0, 200) || response.statusText);
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return { text };
  }
}
