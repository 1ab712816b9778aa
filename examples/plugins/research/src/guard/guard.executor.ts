import { ExecContext, Executor, FieldDecorator } from '@kosolapus/plugin-ts-sdk';
import { IsOptional } from 'class-validator';
import { transport } from '../endpoint';

const REMEMBERED_RUNS = 1000;
const turnsByRun = new Map<string, number>();

class InputDto {
  @IsOptional()
  @FieldDecorator({ type: 'textarea', label: 'Answer', canBePort: true, isPort: true })
  answer?: string;

  @IsOptional()
  @FieldDecorator({ type: 'number', label: 'Turns at most', static: true, default: 6 })
  maxTurns?: number;
}

class OutputDto {
  @FieldDecorator({ type: 'boolean', label: 'Go on', description: 'For system.output in the body of a loop' })
  continueLoop!: boolean;

  @FieldDecorator({ type: 'number', label: 'Turn' })
  turn!: number;
}

/** Counts the turns of a run: `runId` is the same in all iterations of a loop. */
@Executor<InputDto, OutputDto>({
  nodeType: 'plugin.research.guard',
  name: 'Research: guard',
  description: 'Ends a loop when there is an answer or the turns are used up',
  pluginId: 'research',
  inputs: InputDto,
  outputs: OutputDto,
  transport,
})
export class GuardExecutor {
  execute(ctx: ExecContext<InputDto>): OutputDto {
    const turn = (turnsByRun.get(ctx.runId) ?? 0) + 1;
    turnsByRun.delete(ctx.runId);
    turnsByRun.set(ctx.runId, turn);
    const [oldest] = turnsByRun.keys();
    if (turnsByRun.size > REMEMBERED_RUNS && oldest !== undefined) turnsByRun.delete(oldest);
    return { continueLoop: !ctx.inputs.answer && turn < Number(ctx.inputs.maxTurns ?? 6), turn };
  }
}
