import { ExecContext, Executor, FieldDecorator } from '@kosolapus/plugin-ts-sdk';
import { Type } from 'class-transformer';
import { IsArray, IsOptional, IsString, MinLength, ValidateNested } from 'class-validator';
import { WithConnection, type Connection } from '../connection-fields';
import { transport } from '../endpoint';
import { IssueStore } from '../issues/issue.store';

class LabelDto {
  @IsString()
  @MinLength(1)
  name!: string;

  slug(): string {
    return this.name.trim().toLowerCase().replace(/\s+/g, '-');
  }
}

@WithConnection()
class InputDto implements Connection {
  baseUrl!: string;
  apiKey!: string;

  @IsString()
  @MinLength(1)
  @FieldDecorator({ type: 'string', label: 'Title', canBePort: true, isPort: true, isPrimary: true, required: true })
  title!: string;

  @IsOptional()
  @IsArray()
  @ValidateNested({ each: true })
  @Type(() => LabelDto)
  @FieldDecorator({ type: 'keyvalue', label: 'Labels', description: 'Array of {name}', canBePort: true, isPort: false })
  labels?: LabelDto[];
}

class OutputDto {
  @FieldDecorator({ type: 'number', label: 'Id' })
  id!: number;

  @FieldDecorator({ type: 'keyvalue', label: 'Issue' })
  data!: unknown;
}

@Executor<InputDto, OutputDto>({
  nodeType: 'plugin.tracker.issue.create',
  name: 'Tracker: create an issue',
  description: 'Creates an issue',
  pluginId: 'tracker',
  inputs: InputDto,
  outputs: OutputDto,
  transport,
})
export class IssueCreateExecutor {
  constructor(private readonly store: IssueStore) {}

  execute(ctx: ExecContext<InputDto>): OutputDto {
    const { baseUrl, title, labels = [] } = ctx.inputs;
    const issue = this.store.create(
      baseUrl,
      title,
      labels.map((label) => label.slug()),
    );
    return { id: issue.id, data: issue };
  }
}
