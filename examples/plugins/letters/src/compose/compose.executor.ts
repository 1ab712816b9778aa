import { ExecContext, Executor, FieldDecorator, loadHelpFromFile } from '@kosolapus/plugin-ts-sdk';
import { IsOptional, IsString } from 'class-validator';
import { transport } from '../endpoint';
import { composeMessage, type Attachment } from './message';

class InputDto {
  @IsString()
  @FieldDecorator({ type: 'string', label: 'Тема', description: 'Тема письма' })
  subject!: string;

  @IsString()
  @FieldDecorator({ type: 'string', label: 'Кому', description: 'Адрес получателя' })
  to!: string;

  @IsString()
  @IsOptional()
  @FieldDecorator({ type: 'textarea', label: 'Текст' })
  text?: string;

  @IsString()
  @FieldDecorator({ type: 'textarea', label: 'HTML', canBePort: true, isPort: true, isPrimary: true })
  body!: string;

  @IsOptional()
  @FieldDecorator({
    type: 'keyvalue',
    label: 'Вложение',
    description: '{filename?, base64}',
    isPort: true,
    canBePort: true,
  })
  attachment?: Attachment;

  @IsOptional()
  @FieldDecorator({
    type: 'keyvalue',
    label: 'Вложения',
    description: 'Массив {filename?, base64}',
    isPort: true,
    canBePort: true,
  })
  attachments?: Attachment[];

  // The editor stores a flag or its text: both keep this rule.
  @IsString()
  @FieldDecorator({ type: 'boolean', label: 'Важное', static: true, default: false })
  important!: boolean;

  @IsString()
  @FieldDecorator({ type: 'string', label: 'От кого', static: true })
  from!: string;
}

class OutputDto {
  @IsString()
  @FieldDecorator({ type: 'textarea', label: 'Письмо', description: 'RFC 5322' })
  result!: string;

  @FieldDecorator({ type: 'number', label: 'Размер, байт' })
  size!: number;
}

/** No `pluginId`: the batch's defaults fill it in. The node type does not begin with the plugin's id. */
@Executor<InputDto, OutputDto>({
  nodeType: 'data.letter.compose',
  name: 'Письмо',
  description: 'Составляет письмо с вложениями',
  help: loadHelpFromFile(__dirname),
  inputs: InputDto,
  outputs: OutputDto,
  transport,
})
export class LetterComposeExecutor {
  async execute(ctx: ExecContext<InputDto>): Promise<OutputDto> {
    const { subject, to, from, text, body, attachment, attachments, important } = ctx.inputs;
    const mark = String(important) === 'true' ? '‼ ' : '';
    const message = composeMessage({
      from,
      to,
      subject: mark + subject,
      text,
      html: body,
      attachments: [...(attachment ? [attachment] : []), ...(attachments ?? [])],
    });
    return { result: message, size: Buffer.byteLength(message) };
  }
}
