import { ExecContext, Executor, FieldDecorator, loadHelpFromFile } from '@kosolapus/plugin-ts-sdk';
import { IsIn, IsOptional, IsString, MinLength } from 'class-validator';
import { setTimeout as pause } from 'node:timers/promises';
import { transport } from '../endpoint';
import { callJson } from '../http';

const ATTEMPTS = 3;

class InputDto {
  @IsString()
  @MinLength(1)
  @FieldDecorator({
    type: 'ref',
    label: 'Token',
    description: 'Reference to the secret',
    required: true,
    static: true,
    secretKind: 'API_TOKEN',
  })
  botToken!: string;

  @IsString()
  @MinLength(1)
  @FieldDecorator({ type: 'string', label: 'URL', canBePort: true, isPort: true, required: true })
  url!: string;

  @IsString()
  @MinLength(1)
  @FieldDecorator({ type: 'textarea', label: 'Text', canBePort: true, isPort: true, isPrimary: true, required: true })
  text!: string;

  @IsOptional()
  @IsIn(['plain', 'markdown'])
  @FieldDecorator({ type: 'select', label: 'Format', static: true, default: 'plain', options: ['plain', 'markdown'] })
  parseMode?: string;

  @IsOptional()
  @FieldDecorator({ type: 'number', label: 'Pause between tries, ms', static: true, default: 3000 })
  retryDelayMs?: number;
}

class OutputDto {
  @FieldDecorator({ type: 'keyvalue', label: 'Answer' })
  result!: unknown;

  @FieldDecorator({ type: 'string', label: 'Status' })
  status!: string;
}

@Executor<InputDto, OutputDto>({
  nodeType: 'plugin.courier.post',
  name: 'Courier: post',
  description: 'Posts a text with a token; tries three times, then the step fails',
  help: loadHelpFromFile(__dirname),
  pluginId: 'courier',
  inputs: InputDto,
  outputs: OutputDto,
  transport,
  tags: ['http', 'message'],
})
export class CourierPostExecutor {
  async execute(ctx: ExecContext<InputDto>): Promise<OutputDto> {
    const { botToken, url, text, parseMode = 'plain' } = ctx.inputs;
    const retryDelayMs = Number(ctx.inputs.retryDelayMs ?? 3000);
    for (let attempt = 1; ; attempt += 1) {
      try {
        const result = await callJson(url, {
          method: 'POST',
          headers: { 'content-type': 'application/json', authorization: `Bearer ${botToken}` },
          body: JSON.stringify({ text, parseMode }),
          signal: ctx.signal,
        });
        return { result, status: 'sent' };
      } catch (error) {
        if (attempt >= ATTEMPTS || ctx.signal?.aborted) throw error;
        ctx.logger.info(`attempt ${attempt} failed`, error instanceof Error ? error.message : error);
        await pause(retryDelayMs, undefined, { signal: ctx.signal });
      }
    }
  }
}
