import { FieldDecorator } from '@kosolapus/plugin-ts-sdk';
import { IsString, MinLength } from 'class-validator';

/** What every node needs to reach the tracker. */
export interface Connection {
  baseUrl: string;
  apiKey: string;
}

/**
 * Declares the connection on a DTO: the fields that the editor shows belong to the class that is
 * decorated, so each DTO declares them for itself.
 */
export function WithConnection(): ClassDecorator {
  return (dto) => {
    const target = dto.prototype as object;
    for (const field of ['baseUrl', 'apiKey']) {
      IsString()(target, field);
      MinLength(1)(target, field);
    }
    FieldDecorator({
      type: 'string',
      label: 'URL',
      description: 'Address of the tracker',
      required: true,
      static: true,
    })(target, 'baseUrl');
    FieldDecorator({ type: 'ref', label: 'API key', required: true, static: true, secretKind: 'API_TOKEN' })(
      target,
      'apiKey',
    );
  };
}
