import { ExecContext, Executor, FieldDecorator, StepFailure } from '@kosolapus/plugin-ts-sdk';
import { IsString, MinLength } from 'class-validator';
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

  @FieldDecorator({ type: 'keyvalue', label: 'Findings', canBePort: true, isPort: true })
  findings?: string[];
}

class OutputDto {
  @FieldDecorator({ type: 'string', label: 'Text' })
  text?: string;

  @FieldDecorator({ type: 'string', label: 'Model' })
  model?: string;

  @FieldDecorator({ type: 'keyvalue', label: 'Usage' })
  usage?: { findings: number };
}

/** Returns only the outputs that the process uses. */
@Executor<InputDto, OutputDto>({
  nodeType: 'plugin.research.answer',
  name: 'Research: answer',
  description: 'Makes an answer of findings',
  pluginId: 'research',
  inputs: InputDto,
  outputs: OutputDto,
  transport,
})
export class AnswerExecutor {
  async execute(ctx: ExecContext<InputDto>): Promise<OutputDto> {
    const { question, findings = [] } = ctx.inputs;
    if (findings.length === 0)
      throw new StepFailure(`nothing was found for "${question}"`, { code: 'no_findings', retryable: false });
    const values: Record<string, () => unknown> = {
      text: () => `${question}: ${findings.join('; ')}`,
      model: () => process.env.RESEARCH_MODEL ?? 'none',
      usage: () => ({ findings: findings.length }),
    };
    return (ctx.outputs ?? []).reduce<Record<string, unknown>>((chosen, name) => {
      chosen[name] = values[name]?.();
      return chosen;
    }, {}) as OutputDto;
  }
}
