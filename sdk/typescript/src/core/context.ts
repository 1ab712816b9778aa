import type { ExecutorTask } from './task.js';

/** What an executor may log with; lines carry the step's ids. */
export interface ExecLogger {
  debug(...args: unknown[]): void;
  info(...args: unknown[]): void;
  warn?(...args: unknown[]): void;
  error(...args: unknown[]): void;
}

/**
 * The step that an executor works on. `runId`, `inputs` and `logger` are always there, so that a
 * test can write a context by hand; a context of the platform has all the rest too.
 */
export interface ExecContext<I = Record<string, unknown>> {
  /** The run; the same over all iterations of all loops of the run. */
  runId: string;
  /** Input values by name, as the platform sent them; secrets in plain text. */
  inputs: I;
  /** Names of the outputs that the process uses. What is returned beyond them reaches no node. */
  outputs?: string[];
  logger: ExecLogger;
  /** This attempt of the step. */
  executionId?: string;
  /** The node's id in the process. */
  nodeId?: string;
  /** The node's place in the run, with the iterations of the loops around it. */
  nodePath?: string;
  nodeType?: string;
  /** Counts from 1. */
  attempt?: number;
  /** When the platform gives the step up, milliseconds since the Unix epoch; heartbeats move it. */
  deadline?: number;
  workspaceId?: string;
  userId?: string;
  diagramId?: string;
  /** `GET {filesUrl}/{id}` gives the bytes of a file that an input refers to; absent where none does. */
  filesUrl?: string;
  /** W3C trace context, to pass on to other services. */
  traceparent?: string;
  /** What tracing systems add to it, to pass on too. */
  tracestate?: string;
  /** Aborted when nobody waits for the step any more; pass it to `fetch`, then return soon. */
  signal?: AbortSignal;
  /** Tells how far the work is (0 to 1) and what it does; sent with a heartbeat soon. */
  progress?(part: number, message?: string): void;
  /** Reports outputs before the end; resolves when they are stored. */
  partial?(outputs: Record<string, unknown>): Promise<void>;
}

/** A context that the platform made: nothing is absent but what the task may leave out. */
export type PluginContext<I = Record<string, unknown>> = ExecContext<I> &
  Required<Pick<ExecContext<I>, 'outputs' | 'executionId' | 'nodeType' | 'signal' | 'progress' | 'partial'>>;

/** The parts of a context that are the same for every task. */
export function contextOf<I>(
  task: ExecutorTask,
  inputs: I,
  parts: Pick<PluginContext<I>, 'logger' | 'signal' | 'progress' | 'partial'>,
): PluginContext<I> {
  const { inputs: _, ...rest } = task;
  return { ...rest, ...parts, inputs };
}
