import type { ExecutorTransport, NamedParam, ParamDef } from '../core/manifest.js';

/** A DTO class. */
export type DtoClass<T = unknown> = new (...args: any[]) => T;

/** What `@Executor` says about a node type. */
export interface ExecutorOptions<I = unknown, O = unknown> {
  /** Unique among plugins; need not begin with the plugin's id. */
  nodeType: string;
  /** Display name. */
  name: string;
  description: string;
  /** Markdown; see {@link loadHelpFromFile}. */
  help?: string;
  /** Owner; filled in from the batch's defaults when absent. */
  pluginId?: string;
  /** DTO of the inputs, or null for an open set: every input name is accepted and delivered. */
  inputs: DtoClass<I> | null;
  /** DTO of the outputs: each decorated field is a port. */
  outputs: DtoClass<O>;
  /** How the platform reaches the executor; the manifest's `pull` address when absent. */
  transport?: ExecutorTransport;
  /** Search words. */
  tags?: readonly string[];
  /** Section of the palette. */
  sectionPath?: readonly string[];
}

// Own properties under registered symbols: a class has its own metadata and never its base's, and
// the CommonJS and ESM builds of this package see each other's.
const FIELDS = Symbol.for('conveyor.plugin-sdk.fields');
const EXECUTOR = Symbol.for('conveyor.plugin-sdk.executor');

/**
 * Declares a property of a DTO as an input or output. Metadata belong to the class that is
 * decorated: a DTO that extends another offers only its own decorated fields.
 */
export function FieldDecorator(options: ParamDef) {
  return (target: object, property: string | symbol): void => {
    const dto = target.constructor;
    const fields = ownMetadata<Map<string, ParamDef>>(dto, FIELDS) ?? new Map<string, ParamDef>();
    fields.set(String(property), { ...options });
    define(dto, FIELDS, fields);
  };
}

/** Declares a class with an `execute` method as the executor of a node type. */
export function Executor<I = unknown, O = unknown>(options: ExecutorOptions<I, O>): ClassDecorator {
  return (target) => define(target, EXECUTOR, options);
}

/** The decorated fields of a DTO in the order of declaration, without those of its base classes. */
export function paramsOfDto(dto: DtoClass): NamedParam[] {
  const fields = ownMetadata<Map<string, ParamDef>>(dto, FIELDS) ?? new Map<string, ParamDef>();
  return [...fields].map(([name, options]) => ({ name, ...options }));
}

/** What `@Executor` said about the class. */
export function executorOptions(executor: object): ExecutorOptions | undefined {
  return ownMetadata<ExecutorOptions>(executor, EXECUTOR);
}

function ownMetadata<T>(target: object, key: symbol): T | undefined {
  return Object.getOwnPropertyDescriptor(target, key)?.value as T | undefined;
}

function define(target: object, key: symbol, value: unknown): void {
  Object.defineProperty(target, key, { value, configurable: true, enumerable: false, writable: true });
}
