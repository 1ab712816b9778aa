import { ExecContext, Executor, FieldDecorator } from '@kosolapus/plugin-ts-sdk';
import { IsInt } from 'class-validator';
import { WithConnection, type Connection } from '../connection-fields';
import { transport } from '../endpoint';
import { IssueStore } from '../issues/issue.store';

@WithConnection()
class InputDto implements Connection {
  baseUrl!: string;
  apiKey!: string;

  @IsInt()
  @FieldDecorator({ type: 'number', label: 'Id', canBePort: true, isPort: true, isPrimary: true, required: true })
  id!: number;
}

class OutputDto {
  @FieldDecorator({ type: 'keyvalue', label: 'Issue' })
  data!: unknown;

  @FieldDecorator({ type: 'string', label: 'Status' })
  status!: string;
}

@Executor<InputDto, OutputDto>({
  nodeType: 'plugin.tracker.issue.get',
  name: 'Tracker: get an issue',
  description: 'Gets one issue; that it is missing is told by the output status',
  pluginId: 'tracker',
  inputs: InputDto,
  outputs: OutputDto,
  transport,
})
export class IssueGetExecutor {
  constructor(private readonly store: IssueStore) {}

  execute(ctx: ExecContext<InputDto>): OutputDto {
    const issue = this.store.find(ctx.inputs.baseUrl, Number(ctx.inputs.id));
    return issue ? { data: issue, status: 'ok' } : { data: null, status: 'error: 404 - Not Found' };
  }
}
