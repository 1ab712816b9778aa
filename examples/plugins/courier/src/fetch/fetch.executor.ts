import { ExecContext, Executor, FieldDecorator } from '@kosolapus/plugin-ts-sdk';
import { IsUrl } from 'class-validator';
import { transport } from '../endpoint';
import { callJson, HttpError } from '../http';

class InputDto {
  @IsUrl({ require_tld: false })
  @FieldDecorator({ type: 'string', label: 'URL', canBePort: true, isPort: true, isPrimary: true, required: true })
  url!: string;
}

class OutputDto {
  @FieldDecorator({ type: 'keyvalue', label: 'Data' })
  data!: unknown;

  @FieldDecorator({ type: 'string', label: 'Status' })
  status!: string;
}

@Executor<InputDto, OutputDto>({
  nodeType: 'plugin.courier.fetch',
  name: 'Courier: fetch',
  description: 'Gets JSON; an HTTP error is told as the output status, so that the process can decide',
  pluginId: 'courier',
  inputs: InputDto,
  outputs: OutputDto,
  transport,
})
export class CourierFetchExecutor {
  async execute(ctx: ExecContext<InputDto>): Promise<OutputDto> {
    try {
      return { data: await callJson(ctx.inputs.url, { signal: ctx.signal }), status: 'ok' };
    } catch (error) {
      if (error instanceof HttpError) return { data: null, status: `error: ${error.message}` };
      throw error;
    }
  }
}
