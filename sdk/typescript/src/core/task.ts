import { RpcError } from './errors.js';

/** `executor.task` as it is delivered (protocol section 3): inputs are resolved, secrets in plain text. */
export interface ExecutorTask {
  /** The run; the same over all iterations of all loops. */
  runId: string;
  /** This attempt; every report carries it. */
  executionId: string;
  nodeId?: string;
  nodePath?: string;
  nodeType: string;
  /** Counts from 1. */
  attempt?: number;
  inputs: Record<string, unknown>;
  /** Names of the wanted outputs. */
  outputs: string[];
  /** When the platform gives the step up, milliseconds since the Unix epoch. */
  deadline?: number;
  workspaceId?: string;
  userId?: string;
  diagramId?: string;
  /** Where the bytes of files are that inputs refer to; absent where none does. */
  filesUrl?: string;
  /** W3C trace context; goes back with ack and result. */
  traceparent?: string;
  /** What tracing systems add to it. */
  tracestate?: string;
}

/**
 * Reads the payload of a task. Unknown fields are ignored, values stay as they are.
 *
 * @throws {RpcError} `invalid_request`, with the names of the fields and never their values.
 */
export function readTask(data: unknown): ExecutorTask {
  if (typeof data !== 'object' || data === null || Array.isArray(data)) {
    throw new RpcError('invalid_request', 'the task must be a JSON object');
  }
  const task = data as Partial<Record<keyof ExecutorTask, unknown>>;
  const faults: string[] = [];
  for (const key of ['runId', 'executionId', 'nodeType'] as const) {
    if (typeof task[key] !== 'string' || task[key] === '') faults.push(`${key} must be a string`);
  }
  const inputs = task.inputs ?? {};
  if (typeof inputs !== 'object' || Array.isArray(inputs)) faults.push('inputs must be an object');
  const outputs = task.outputs ?? [];
  if (!Array.isArray(outputs) || outputs.some((name) => typeof name !== 'string'))
    faults.push('outputs must be an array of strings');
  if (faults.length > 0) throw new RpcError('invalid_request', `the task is not valid: ${faults.join('; ')}`);
  return {
    ...(task as unknown as ExecutorTask),
    inputs: inputs as Record<string, unknown>,
    outputs: outputs as string[],
  };
}
