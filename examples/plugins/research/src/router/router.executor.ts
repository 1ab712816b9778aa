import { ExecContext, Executor, FieldDecorator } from '@kosolapus/plugin-ts-sdk';
import { transport } from '../endpoint';

class OutputDto {
  @FieldDecorator({ type: 'textarea', label: 'Tools', description: 'JSON text of all inputs that came' })
  tools!: string;
}

/** Open inputs: whatever is wired to the node arrives, under the names that the process gives. */
@Executor<Record<string, unknown>, OutputDto>({
  nodeType: 'plugin.research.tool.router',
  name: 'Research: tool router',
  description: 'Collects whatever is wired to it',
  pluginId: 'research',
  inputs: null,
  outputs: OutputDto,
  transport,
})
export class ToolRouterExecutor {
  execute(ctx: ExecContext<Record<string, unknown>>): OutputDto {
    return { tools: JSON.stringify(ctx.inputs) };
  }
}
