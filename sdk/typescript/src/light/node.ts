import type { PluginContext } from '../core/context.js';
import { invalidInputs, type InputFault } from '../core/failure.js';
import type { ExecutorItem } from '../core/manifest.js';
import type { StepWork } from '../core/steps.js';
import {
  paramsOf,
  type FieldOverrides,
  type SchemaInput,
  type SchemaOutput,
  type StandardIssue,
  type StandardSchema,
} from './schema.js';

type MaybePromise<T> = T | Promise<T>;

/** What a node says about itself beside its work. */
interface NodeFacts {
  /** Unique among plugins; `plugin.<plugin id>.<name>` is usual. */
  nodeType: string;
  /** Display name. */
  name: string;
  description?: string;
  /** Markdown. */
  help?: string;
  tags?: readonly string[];
  /** Section of the palette. */
  sectionPath?: readonly string[];
  /** Static asset keys of the node's widget. */
  requiredTemplateKeys?: string[];
}

/** A node with declared inputs; `inputs: null` instead takes whatever comes. */
export interface NodeDefinition<I extends StandardSchema | null, O extends StandardSchema> extends NodeFacts {
  /** An object schema, or null for an open set. */
  inputs: I;
  /** An object schema: each field is an output port. */
  outputs: O;
  /** What the schema cannot say of an input: `textarea`, `ref`, `static`, `secretKind`, ports. */
  fields?: I extends StandardSchema ? FieldOverrides<SchemaInput<I>> : undefined;
  /** The same for outputs. */
  outputFields?: FieldOverrides<SchemaInput<O>>;
  /** The work. Throw to fail the step. */
  run(
    input: I extends StandardSchema ? SchemaOutput<I> : Record<string, unknown>,
    context: PluginContext,
  ): MaybePromise<SchemaInput<O>>;
}

/** A node that a plugin can be made of. */
export interface PluginNode {
  readonly nodeType: string;
  readonly requiredTemplateKeys: string[] | undefined;
  /** Its item in a batch, without what the plugin adds. */
  readonly item: Omit<ExecutorItem, 'pluginId' | 'pluginLabel' | 'transport'>;
  readonly work: StepWork;
}

/**
 * Declares a node. Types of `run` follow the schemas.
 *
 * @throws {Error} The schemas do not tell the fields.
 */
export function defineNode<I extends StandardSchema | null, O extends StandardSchema>(
  definition: NodeDefinition<I, O>,
): PluginNode {
  const { nodeType, name, description, help, tags, sectionPath, inputs, outputs } = definition;
  const overrides = (definition.fields ?? {}) as Record<string, object>;
  return {
    nodeType,
    requiredTemplateKeys: definition.requiredTemplateKeys,
    item: {
      nodeType,
      name,
      description,
      help,
      tags,
      sectionPath,
      inputs: inputs && paramsOf(inputs, 'input', overrides, `inputs of ${nodeType}`),
      outputs: paramsOf(
        outputs,
        'output',
        (definition.outputFields ?? {}) as Record<string, object>,
        `outputs of ${nodeType}`,
      ),
    },
    work: async (context) => {
      const input = inputs ? await check(inputs, context.inputs) : context.inputs;
      return definition.run(input as Parameters<typeof definition.run>[0], context);
    },
  };
}

async function check(schema: StandardSchema, inputs: unknown): Promise<unknown> {
  const result = await schema['~standard'].validate(inputs);
  if (result.issues) throw invalidInputs(result.issues.map(fault));
  return result.value;
}

function fault(issue: StandardIssue): InputFault {
  const path = (issue.path ?? []).map((step) => String(typeof step === 'object' ? step.key : step));
  const code = (issue as { code?: unknown }).code;
  return {
    path: ['$.inputs', ...path].join('.'),
    code: typeof code === 'string' ? code : 'invalid',
    message: issue.message,
  };
}
