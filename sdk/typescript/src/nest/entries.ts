import type {
  ExecutorItem,
  PluginExecutorPullBatchRequest,
  PluginExecutorPullBatchResponse,
} from '../core/manifest.js';
import { executorOptions, paramsOfDto, type ExecutorOptions } from './decorators.js';

/** What the SDK needs of an executor: `execute(ctx)` or `execute(ctx, input)`, synchronous or not. */
export interface ExecutorInstance {
  execute(...args: any[]): unknown;
}

/** A class decorated with `@Executor`. */
export type ExecutorClass = new (...args: any[]) => ExecutorInstance;

/** An executor and what it says about itself. */
export interface ExecutorEntry {
  nodeType: string;
  opts: ExecutorOptions;
  ctor: ExecutorClass;
}

/**
 * The executors of a plugin, in the order of the classes.
 *
 * @throws {Error} A class is not decorated, or two have the same node type.
 */
export function executorsFromClasses(classes: readonly ExecutorClass[]): ExecutorEntry[] {
  const seen = new Map<string, string>();
  return classes.map((ctor) => {
    const opts = executorOptions(ctor);
    if (!opts) throw new Error(`${ctor.name} is not decorated with @Executor`);
    const other = seen.get(opts.nodeType);
    if (other !== undefined) throw new Error(`${ctor.name} and ${other} both declare the node type "${opts.nodeType}"`);
    seen.set(opts.nodeType, ctor.name);
    return { nodeType: opts.nodeType, opts, ctor };
  });
}

/** What a batch is built from. */
export interface ExecutorBatchOptions {
  entries: readonly ExecutorEntry[];
  /** The request as `buildBatch` got it: only the node types that it names are answered. */
  request: PluginExecutorPullBatchRequest;
  /** For executors that do not name their plugin. */
  defaults: { pluginId: string; pluginLabel: string };
}

/** The answer to a batch pull: one item for each wanted executor, in the order of the entries. */
export function buildExecutorBatchPullResponseFromEntries(
  options: ExecutorBatchOptions,
): PluginExecutorPullBatchResponse {
  const { entries, request, defaults } = options;
  const wanted = request?.nodeTypes;
  const chosen = wanted?.length ? entries.filter((entry) => wanted.includes(entry.nodeType)) : entries;
  return { items: chosen.map((entry) => toItem(entry, defaults)) };
}

function toItem({ nodeType, opts }: ExecutorEntry, defaults: ExecutorBatchOptions['defaults']): ExecutorItem {
  const { name, description, help, pluginId, inputs, outputs, transport, tags, sectionPath } = opts;
  return {
    nodeType,
    name,
    description,
    help,
    pluginId: pluginId ?? defaults.pluginId,
    pluginLabel: defaults.pluginLabel,
    inputs: inputs && paramsOfDto(inputs),
    outputs: paramsOfDto(outputs),
    transport,
    tags,
    sectionPath,
  };
}
