import { ExecContext, Executor, FieldDecorator, loadHelpFromFile } from '@kosolapus/plugin-ts-sdk';
import { IsString, MinLength } from 'class-validator';
import { transport } from '../endpoint';

class InputDto {
  @IsString()
  @MinLength(1)
  @FieldDecorator({
    type: 'string',
    label: 'Text',
    description: 'What to echo',
    isPrimary: true,
    canBePort: true,
    isPort: true,
    required: true,
  })
  text!: string;
}

class OutputDto {
  @FieldDecorator({ type: 'string', label: 'Text' })
  text!: string;

  @FieldDecorator({ type: 'number', label: 'Length' })
  length!: number;
}

@Executor<InputDto, OutputDto>({
  nodeType: 'plugin.example.echo',
  name: 'Example: echo',
  description: 'Gives the text back, without the white space around it, and its length',
  help: loadHelpFromFile(__dirname),
  pluginId: 'example',
  inputs: InputDto,
  outputs: OutputDto,
  transport,
})
export class ExampleEchoExecutor {
  execute(ctx: ExecContext<InputDto>): OutputDto {
    const text = ctx.inputs.text.trim();
    return { text, length: text.length };
  }
}
