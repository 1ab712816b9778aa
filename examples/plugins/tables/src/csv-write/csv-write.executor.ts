import { ExecContext, Executor, FieldDecorator } from '@kosolapus/plugin-ts-sdk';
import { Allow, IsOptional, IsString, MinLength } from 'class-validator';
import { mkdir, writeFile } from 'node:fs/promises';
import { basename, dirname } from 'node:path';
import { toCsv } from '../csv';
import { transport } from '../endpoint';
import { pathInWorkspace } from '../files';

class InputDto {
  @Allow()
  @FieldDecorator({ type: 'keyvalue', label: 'Строки', canBePort: true, isPort: true, isPrimary: true, required: true })
  rows!: Record<string, unknown>[] | string;

  @IsString()
  @MinLength(1)
  @FieldDecorator({ type: 'string', label: 'Путь', canBePort: true, isPort: false, default: 'table.csv' })
  path!: string;

  @IsOptional()
  @IsString()
  @FieldDecorator({ type: 'string', label: 'Папка', static: true, default: '' })
  basePath?: string;
}

class OutputDto {
  @FieldDecorator({ type: 'string', label: 'Путь' })
  path!: string;

  @FieldDecorator({ type: 'keyvalue', label: 'Файл', description: '{filename, base64}' })
  file!: { filename: string; base64: string };
}

@Executor<InputDto, OutputDto>({
  nodeType: 'system.tables.csv.write',
  name: 'CSV: запись',
  description: 'Пишет строки в файл CSV',
  pluginId: 'tables',
  inputs: InputDto,
  outputs: OutputDto,
  transport,
})
export class CsvWriteExecutor {
  async execute(ctx: ExecContext<InputDto>): Promise<OutputDto> {
    const { path, basePath } = ctx.inputs;
    // Rows may come as the text of a JSON array.
    const rows =
      typeof ctx.inputs.rows === 'string'
        ? (JSON.parse(ctx.inputs.rows) as Record<string, unknown>[])
        : ctx.inputs.rows;
    const text = toCsv(rows);
    const target = pathInWorkspace(basePath, path);
    await mkdir(dirname(target), { recursive: true });
    await writeFile(target, text);
    return { path, file: { filename: basename(target), base64: Buffer.from(text).toString('base64') } };
  }
}
