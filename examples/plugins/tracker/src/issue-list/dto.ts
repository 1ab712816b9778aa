import { FieldDecorator } from '@kosolapus/plugin-ts-sdk';
import { IsOptional } from 'class-validator';
import { WithConnection, type Connection } from '../connection-fields';
import type { Issue } from '../issues/issue.store';

/** What is searched for; also used where there is no connection. */
export class ListInputDto {
  @IsOptional()
  @FieldDecorator({ type: 'select', label: 'Statuses', required: false, options: ['open', 'done'] })
  statuses?: string[];

  @IsOptional()
  @FieldDecorator({ type: 'number', label: 'At most', required: false, default: 50 })
  maxResults?: number;
}

/** The step inherits rules and values of its base; the editor shows the fields declared here. */
@WithConnection()
export class ListStepDto extends ListInputDto implements Connection {
  baseUrl!: string;
  apiKey!: string;
}

export class ListOutputDto {
  @FieldDecorator({
    type: 'ref',
    label: 'Issues',
    description: 'Reference to a collection',
    required: true,
    static: false,
  })
  issues!: Issue[];

  @FieldDecorator({ type: 'number', label: 'Total' })
  total?: number;
}
