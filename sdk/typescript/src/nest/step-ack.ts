import type { Reporter, StepIdentity, Told } from '../core/reporter.js';
import { readSettings } from '../core/settings.js';
import { reporterFromEnv } from './output-router.js';

/** A step whose work begins. */
export type StartedStep = StepIdentity & { startedAt?: string };

/** Tells the platform that work on a step has begun. */
export interface ExecutorStepAckNotifier {
  (step: StartedStep, signal?: AbortSignal): Promise<Told | void>;
  /** Closes its connection. */
  close?(): void;
}

/**
 * A notifier to the control plane that the environment names; with `DISABLE_RUNTIME_STEP_ACK=true` it
 * says nothing. The environment is read at the first step, so that the order of imports is free.
 */
export function buildExecutorStepAckNotifierFromEnv(env: NodeJS.ProcessEnv = process.env): ExecutorStepAckNotifier {
  let enabled: boolean | undefined;
  let reporter: Reporter | undefined;
  const notify: ExecutorStepAckNotifier = async ({ startedAt, ...step }, signal) => {
    enabled ??= readSettings(env).steps.ack;
    if (!enabled) return undefined;
    reporter ??= reporterFromEnv(env);
    return reporter.deliver(step, { kind: 'ack', startedAt }, signal);
  };
  notify.close = () => reporter?.close();
  return notify;
}
