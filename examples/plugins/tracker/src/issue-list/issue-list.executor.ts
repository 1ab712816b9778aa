import { ExecContext, Executor } from '@kosolapus/plugin-ts-sdk';
import { transport } from '../endpoint';
import { IssueStore } from '../issues/issue.store';
import { ListOutputDto, ListStepDto } from './dto';

@Executor<ListStepDto, ListOutputDto>({
  nodeType: 'plugin.tracker.issue.list',
  name: 'Tracker: list issues',
  description: 'Lists issues by status',
  pluginId: 'tracker',
  inputs: ListStepDto,
  outputs: ListOutputDto,
  transport,
})
export class IssueListExecutor {
  constructor(private readonly store: IssueStore) {}

  /** The connection comes by the context, what is searched for by the second argument: one object. */
  async execute(ctx: ExecContext<ListStepDto>, input: ListStepDto): Promise<ListOutputDto> {
    const statuses = input.statuses ?? [];
    const issues = this.store.list(
      ctx.inputs.baseUrl,
      Array.isArray(statuses) ? statuses : [statuses],
      Number(input.maxResults ?? 50),
    );
    return { issues, total: issues.length };
  }
}
