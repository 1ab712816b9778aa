import { ExecContext, Executor, FieldDecorator } from '@kosolapus/plugin-ts-sdk';
import { IsOptional, IsString, MinLength } from 'class-validator';
import { readFile } from 'node:fs/promises';
import { parseCsv, toRecords } from '../csv';
import { transport } from '../endpoint';
import { pathInWorkspace } from '../files';

class InputDto {
  @IsString()
  @MinLength(1)
  @FieldDecorator({ type: 'string', label: 'Путь', canBePort: true, isPort: true, isPrimary: true })
  path!: string;

  @IsOptional()
  @IsString()
  @FieldDecorator({ type: 'string', label: 'Папка', static: true, default: '' })
  basePath?: string;

  @IsOptional()
  @IsString()
  @FieldDecorator({ type: 'string', label: 'Разделитель', static: true, default: ',' })
  separator?: string;
}

class OutputDto {
  @FieldDecorator({ type: 'keyvalue', label: 'Строки' })
  rows!: Record<string, string>[];

  @FieldDecorator({ type: 'number', label: 'Число строк' })
  rowCount!: number;
}

@Executor<InputDto, OutputDto>({
  nodeType: 'system.tables.csv.read',
  name: 'CSV: чтение',
  description: 'Читает строки файла CSV',
  pluginId: 'tables',
  inputs: InputDto,
  outputs: OutputDto,
  transport,
  tags: ['csv', 'file'],
})
export class CsvReadExecutor {
  async execute(ctx: ExecContext<InputDto>): Promise<OutputDto> {
    const { path, basePath, separator } = ctx.inputs;
    const rows = toRecords(parseCsv(await readFile(pathInWorkspace(basePath, path), 'utf8'), separator));
    return { rows, rowCount: rows.length };
  }
}
