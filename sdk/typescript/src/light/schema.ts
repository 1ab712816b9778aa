import type { NamedParam, ParamDef, ParamType } from '../core/manifest.js';

/**
 * The part of the Standard Schema interface that is used here. zod 4.2 and later, and other
 * libraries, implement it; the SDK depends on none of them.
 */
export interface StandardSchema<Input = unknown, Output = Input> {
  readonly '~standard': {
    readonly version: 1;
    readonly vendor: string;
    readonly validate: (value: unknown, ...rest: never[]) => StandardResult<Output> | Promise<StandardResult<Output>>;
    readonly types?: { readonly input: Input; readonly output: Output } | undefined;
    /** Standard JSON Schema: from it the fields of the editor are made. */
    readonly jsonSchema?: {
      readonly input: (options: { target: 'draft-2020-12' }) => Record<string, unknown>;
      readonly output: (options: { target: 'draft-2020-12' }) => Record<string, unknown>;
    };
  };
}

/** What a validation gives. */
export type StandardResult<Output> =
  | { readonly value: Output; readonly issues?: undefined }
  | { readonly issues: readonly StandardIssue[] };

/** One fault of a value. */
export interface StandardIssue {
  readonly message: string;
  readonly path?: readonly (PropertyKey | { readonly key: PropertyKey })[] | undefined;
}

/** What the schema reads. */
export type SchemaInput<S> = S extends StandardSchema<infer Input, unknown> ? Input : never;

/** What the schema gives. */
export type SchemaOutput<S> =
  S extends StandardSchema<never, infer Output>
    ? Output
    : S extends StandardSchema<infer _, infer Output>
      ? Output
      : never;

/** Overrides of single params; what is absent comes from the schema. */
export type FieldOverrides<Values> = { readonly [Name in keyof Values]?: Partial<ParamDef> };

interface JsonSchema {
  type?: unknown;
  enum?: unknown[];
  anyOf?: JsonSchema[];
  title?: string;
  description?: string;
  default?: unknown;
  properties?: Record<string, JsonSchema>;
  required?: string[];
}

/**
 * The params of an object schema, in its order: type, label (`title`), description, default and
 * choices come from the schema. Required inputs are ports, other inputs may become ports.
 *
 * @throws {Error} The schema tells nothing of its fields and no override names them.
 */
export function paramsOf(
  schema: StandardSchema,
  side: 'input' | 'output',
  overrides: Record<string, Partial<ParamDef> | undefined>,
  where: string,
): NamedParam[] {
  const described = schema['~standard'].jsonSchema?.[side]({ target: 'draft-2020-12' }) as JsonSchema | undefined;
  const properties = described?.properties ?? {};
  const names = [...new Set([...Object.keys(properties), ...Object.keys(overrides)])];
  if (!described && names.length === 0) {
    throw new Error(
      `${where}: the schema library (${schema['~standard'].vendor}) gives no JSON Schema; name the fields yourself, or use zod 4.2 or later`,
    );
  }
  const required = new Set(described?.required);
  return names.map((name) => {
    const property = properties[name] ?? {};
    const override = overrides[name] ?? {};
    const param = fromProperty(name, property);
    return { ...param, ...(side === 'input' ? portsOf(required.has(name), override) : {}), ...override };
  });
}

function fromProperty(name: string, property: JsonSchema): NamedParam {
  const core = property.anyOf?.find((choice) => choice.type !== 'null') ?? property;
  const param: NamedParam = { name, type: typeOf(core), label: property.title ?? core.title ?? name };
  const description = property.description ?? core.description;
  if (description !== undefined) param.description = description;
  if (property.default !== undefined) param.default = property.default;
  if (core.enum) param.options = core.enum;
  return param;
}

function typeOf(schema: JsonSchema): ParamType {
  if (schema.enum) return 'select';
  switch (schema.type) {
    case 'string':
      return 'string';
    case 'number':
    case 'integer':
      return 'number';
    case 'boolean':
      return 'boolean';
    default:
      return 'keyvalue';
  }
}

/** Secrets and settings are no ports unless it is said. */
function portsOf(required: boolean, override: Partial<ParamDef>): Partial<ParamDef> {
  const setting = override.static ?? override.type === 'ref';
  const ports: Partial<ParamDef> = setting ? { static: true } : { canBePort: true, isPort: required };
  return required ? { required, ...ports } : ports;
}
