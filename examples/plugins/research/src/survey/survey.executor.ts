import { ExecContext, Executor, FieldDecorator, loadHelpFromFile } from '@kosolapus/plugin-ts-sdk';
import { Allow, IsOptional, IsString, Min, MinLength } from 'class-validator';
import { setTimeout as pause } from 'node:timers/promises';
import { transport } from '../endpoint';

class InputDto {
  @IsString()
  @MinLength(1)
  @FieldDecorator({
    type: 'textarea',
    label: 'Question',
    canBePort: true,
    isPort: true,
    isPrimary: true,
    required: true,
  })
  question!: string;

  @Allow()
  @FieldDecorator({
    type: 'keyvalue',
    label: 'Sources',
    description: 'Array of texts',
    canBePort: true,
    isPort: true,
    required: true,
  })
  sources!: string[] | string;

  @IsOptional()
  @Min(0)
  @FieldDecorator({ type: 'number', label: 'Time for one source, ms', static: true, default: 1000 })
  pauseMs?: number;

  @IsOptional()
  @FieldDecorator({ type: 'boolean', label: 'Report findings early', static: true, default: true })
  partial?: boolean;

  @IsOptional()
  @IsString()
  @FieldDecorator({ type: 'ref', label: 'Key', static: true, secretKind: 'OPENAI_API_KEY' })
  apiKey?: string;
}

class OutputDto {
  @FieldDecorator({ type: 'keyvalue', label: 'Findings' })
  findings!: string[];

  @FieldDecorator({ type: 'number', label: 'Sources read' })
  read!: number;

  /** No port: tells people why nothing was done. */
  skipped?: boolean;
}

@Executor<InputDto, OutputDto>({
  nodeType: 'plugin.research.survey',
  name: 'Research: survey',
  description: 'Reads sources one after the other and keeps those that mention the question',
  help: loadHelpFromFile(__dirname),
  pluginId: 'research',
  inputs: InputDto,
  outputs: OutputDto,
  transport,
  tags: ['research', 'long'],
  sectionPath: ['research', 'search'],
})
export class SurveyExecutor {
  async execute(ctx: ExecContext<InputDto>): Promise<OutputDto> {
    const { question, pauseMs = 1000, partial = true } = ctx.inputs;
    const sources =
      typeof ctx.inputs.sources === 'string' ? (JSON.parse(ctx.inputs.sources) as string[]) : ctx.inputs.sources;
    if (sources.length === 0) return { findings: [], read: 0, skipped: true };
    const findings: string[] = [];
    for (const [index, source] of sources.entries()) {
      ctx.progress?.(index / sources.length, `reading source ${index + 1} of ${sources.length}`);
      await pause(Number(pauseMs), undefined, { signal: ctx.signal });
      if (!source.toLowerCase().includes(question.toLowerCase())) continue;
      findings.push(source);
      if (String(partial) === 'true') await ctx.partial?.({ findings });
    }
    return { findings, read: sources.length };
  }
}
