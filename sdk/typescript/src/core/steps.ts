import { pause } from './backoff.js';
import { contextOf, type ExecLogger, type PluginContext } from './context.js';
import { messageOf, RpcError } from './errors.js';
import { StepFailure, toStepError } from './failure.js';
import type { PluginLog } from './log.js';
import type { StepIdentity, StepReport, Told } from './reporter.js';
import type { ExecutorTask } from './task.js';

/** The part of a reporter that steps need. */
export interface ReportSink {
  send(step: StepIdentity, report: StepReport, signal?: AbortSignal): Promise<Told>;
  deliver(step: StepIdentity, report: StepReport, signal?: AbortSignal): Promise<Told>;
}

/** Tells the platform that work on a step has begun; resolves when that is known or given up. */
export type StepStarted = (
  step: StepIdentity & { startedAt: string },
  signal: AbortSignal,
) => Promise<Told | void> | Told | void;

/** The work of one node type. `inputs` of the context are as they came. */
export type StepWork = (context: PluginContext) => unknown;

/** How steps are worked on; times in milliseconds. */
export interface StepsOptions {
  /** The work for a node type; undefined when the plugin has none. */
  find(nodeType: string): StepWork | undefined;
  reporter: ReportSink;
  log: PluginLog;
  /** Absent: nothing is said when work begins. */
  started?: StepStarted;
  heartbeatMs: number;
  maxInFlight: number;
  /** How long a given-up step may take to return before its outcome is not waited for any more. */
  cancelGraceMs?: number;
  /** The shortest time between two heartbeats that carry progress. */
  progressIntervalMs?: number;
}

/** How many attempts are remembered, so that a task delivered twice is not done twice. */
const REMEMBERED = 4096;

/** The reply to a delivered task. Neither `status` nor `outputs`: those would make it the result. */
export const DELIVERED = Object.freeze({ delivered: true });

/** The steps of one plugin: from a task to its answered result. */
export class Steps {
  private readonly seen = new Set<string>();
  private readonly running = new Set<Promise<void>>();
  private readonly abandoned = new AbortController();
  private draining = false;

  constructor(private readonly options: StepsOptions) {}

  /**
   * Takes a task and starts its work; returning means delivered. A task that was delivered before is
   * delivered again and starts nothing.
   *
   * @throws {RpcError} `node_type_unknown`, `overloaded`, or `unavailable` while the plugin stops.
   */
  take(task: ExecutorTask): typeof DELIVERED {
    const work = this.options.find(task.nodeType);
    if (!work)
      throw new RpcError(
        'node_type_unknown',
        `this plugin has no node type "${task.nodeType}"; publish its present version`,
      );
    if (this.seen.has(task.executionId)) return DELIVERED;
    if (this.draining) throw new RpcError('unavailable', 'the plugin is stopping; deliver the task again', true);
    const { maxInFlight } = this.options;
    if (this.running.size >= maxInFlight) {
      throw new RpcError(
        'overloaded',
        `${maxInFlight} steps are under way, which is the limit (PLUGIN_MAX_IN_FLIGHT); deliver the task again later`,
        true,
      );
    }
    this.remember(task.executionId);
    const step = new Step(task, work, this.options, this.abandoned.signal)
      .run()
      .finally(() => this.running.delete(step));
    this.running.add(step);
    return DELIVERED;
  }

  /** Steps whose result is not yet answered. */
  get inFlight(): number {
    return this.running.size;
  }

  /** Is the plugin stopping? */
  get isDraining(): boolean {
    return this.draining;
  }

  /** Takes no more tasks and waits until what is under way is reported, at most for the time given. */
  async drain(limitMs: number): Promise<void> {
    this.draining = true;
    if (this.running.size === 0) return;
    this.options.log.info('plugin_draining', 'waiting for running steps', {
      steps: this.running.size,
      limit_ms: limitMs,
    });
    const timer = setTimeout(() => this.abandoned.abort(new Error('the time to stop is over')), limitMs);
    await Promise.all(this.running);
    clearTimeout(timer);
  }

  private remember(executionId: string): void {
    this.seen.add(executionId);
    if (this.seen.size <= REMEMBERED) return;
    // A set iterates in the order of insertion: the first is the oldest.
    for (const oldest of this.seen) {
      this.seen.delete(oldest);
      break;
    }
  }
}

/** One step: its work, what is told meanwhile, and its result. */
class Step {
  private readonly cancelled = new AbortController();
  private readonly done = new AbortController();
  /** Names the step in logs. */
  private readonly identity: StepIdentity;
  /** The same with its trace, for those who are told. */
  private readonly step: StepIdentity;
  private sequence = 0;
  private news: { progress?: number; message?: string } = {};
  /** Is there progress that no heartbeat has carried? */
  private fresh = false;
  private wake: () => void = () => undefined;

  constructor(
    private readonly task: ExecutorTask,
    private readonly work: StepWork,
    private readonly options: StepsOptions,
    private readonly abandoned: AbortSignal,
  ) {
    const { runId, executionId, nodeId, nodeType } = task;
    this.identity = { runId, executionId, nodeId, nodeType };
    this.step = { ...this.identity, ...traceOf(task) };
  }

  async run(): Promise<void> {
    const { log, reporter } = this.options;
    const startedAt = Date.now();
    log.info('step_started', 'step started', { ...this.identity, attempt: this.task.attempt });
    const stop = () => this.done.abort();
    this.abandoned.addEventListener('abort', stop, { once: true });
    void this.tell();
    const result = await this.outcome();
    stop();
    this.abandoned.removeEventListener('abort', stop);
    log.info('step_done', 'step done', {
      ...this.identity,
      status: result.status,
      code: result.error?.code,
      duration_ms: Date.now() - startedAt,
    });
    try {
      this.noteResult(await this.deliverResult(reporter, result));
    } catch (error) {
      log.error('step_abandoned', 'a step was not finished and reported within the time to stop', {
        ...this.identity,
        reason: messageOf(error),
      });
    }
  }

  private async deliverResult(reporter: ReportSink, result: StepReport & { kind: 'result' }): Promise<Told> {
    const told = await reporter.deliver(this.step, result, this.abandoned);
    if (told.kind !== 'refused' || told.error.code !== 'payload_too_large') return told;
    // Without its payload the step at least ends with its reason.
    const error = { code: 'payload_too_large', message: told.error.message, retryable: false };
    return reporter.deliver(this.step, { kind: 'result', status: 'error', error }, this.abandoned);
  }

  private async outcome(): Promise<StepReport & { kind: 'result' }> {
    try {
      const outputs = readOutputs(await Promise.race([this.execute(), this.givenUp()]));
      return { kind: 'result', status: 'ok', outputs };
    } catch (error) {
      return { kind: 'result', status: 'error', error: toStepError(error) };
    }
  }

  /** Runs synchronous and asynchronous work alike. */
  private async execute(): Promise<unknown> {
    const context = contextOf(this.task, this.task.inputs, {
      logger: stepLogger(this.options.log, this.identity),
      signal: this.cancelled.signal,
      progress: (part, message) => this.tellProgress(part, message),
      partial: (outputs) => this.reportPartial(outputs),
    });
    return this.work(context);
  }

  /** Rejects some time after the step was given up, and at once when the plugin has no more time. */
  private async givenUp(): Promise<never> {
    const failure = new StepFailure('the step was given up by the platform', { code: 'superseded' });
    await new Promise<void>((resolve, reject) => {
      // Done before there is an outcome: the plugin has no more time.
      this.done.signal.addEventListener('abort', () => reject(failure), { once: true });
      this.cancelled.signal.addEventListener('abort', () => resolve(), { once: true });
    });
    await pause(this.options.cancelGraceMs ?? 5_000, this.done.signal).catch(() => undefined);
    throw failure;
  }

  /** Says that work has begun, then sends heartbeats until the step is done. */
  private async tell(): Promise<void> {
    const { started, log } = this.options;
    try {
      if (started) {
        const told = await started({ ...this.step, startedAt: new Date().toISOString() }, this.done.signal);
        if (told) this.heed(told, 'ack');
      }
      while (!this.done.signal.aborted) await this.beat();
    } catch (error) {
      if (!this.done.signal.aborted)
        log.warn('step_report_failed', 'telling about a step failed', { ...this.identity, reason: messageOf(error) });
    }
  }

  private async beat(): Promise<void> {
    await this.nextBeat();
    const { news } = this;
    this.fresh = false;
    try {
      this.heed(
        await this.options.reporter.send(this.step, { kind: 'heartbeat', ...news }, this.done.signal),
        'heartbeat',
      );
    } catch (error) {
      if (this.done.signal.aborted) throw error;
      this.options.log.debug('heartbeat_unanswered', 'a heartbeat was not answered', {
        ...this.identity,
        reason: messageOf(error),
      });
    }
  }

  /** The regular interval, or news after a short one. Rejects when the step is done. */
  private async nextBeat(): Promise<void> {
    const { heartbeatMs, progressIntervalMs = 500 } = this.options;
    const round = new AbortController();
    const end = () => round.abort(new Error('the step is done'));
    this.done.signal.addEventListener('abort', end, { once: true });
    const news = new Promise<void>((resolve) => (this.wake = resolve));
    if (this.fresh) this.wake();
    const never = new Promise<never>((_, reject) =>
      round.signal.addEventListener('abort', () => reject(round.signal.reason as Error), { once: true }),
    );
    try {
      if (this.done.signal.aborted) end();
      const regular = heartbeatMs > 0 ? pause(heartbeatMs, round.signal) : never;
      const soon = news.then(() => pause(progressIntervalMs, round.signal));
      await Promise.race([regular, soon, never]);
    } finally {
      this.done.signal.removeEventListener('abort', end);
      never.catch(() => undefined);
      end();
    }
  }

  private tellProgress(part: number, message?: string): void {
    const progress = Number.isFinite(part) ? Math.min(Math.max(part, 0), 1) : 0;
    this.news = message === undefined ? { progress } : { progress, message };
    this.fresh = true;
    this.wake();
  }

  private async reportPartial(outputs: Record<string, unknown>): Promise<void> {
    const report: StepReport = { kind: 'partial', sequence: (this.sequence += 1), outputs: readOutputs(outputs) };
    const told = await this.options.reporter.deliver(this.step, report, this.abandoned);
    this.heed(told, 'partial');
    if (told.kind !== 'accepted') throw new StepFailure(told.error.message, { code: told.error.code });
  }

  private heed(told: Told, kind: string): void {
    const { log } = this.options;
    if (told.kind === 'accepted') return;
    const fields = { ...this.identity, kind, code: told.error.code, reason: told.error.message };
    if (told.kind === 'refused') return log.warn('step_report_refused', 'the control plane refused a report', fields);
    if (this.cancelled.signal.aborted) return;
    log.info('step_given_up', 'nobody waits for the step any more; it is cancelled', fields);
    this.cancelled.abort(new StepFailure('the step was given up by the platform', { code: told.error.code }));
  }

  private noteResult(told: Told): void {
    const { log } = this.options;
    if (told.kind === 'accepted')
      return log.debug('step_result_stored', 'result stored', { ...this.identity, status: told.status });
    log.warn('step_result_refused', 'the control plane did not take the result', {
      ...this.identity,
      code: told.error.code,
      reason: told.error.message,
    });
  }
}

/** The trace context of a task, as far as it is text. */
function traceOf({ traceparent, tracestate }: ExecutorTask): Pick<StepIdentity, 'traceparent' | 'tracestate'> {
  const text = (value: unknown) => (typeof value === 'string' ? value : undefined);
  return { traceparent: text(traceparent), tracestate: text(tracestate) };
}

/**
 * What a node returned, as outputs: an object whose values can be written as JSON. Nothing at all
 * means no outputs; keys with `undefined` vanish.
 */
function readOutputs(value: unknown): Record<string, unknown> {
  if (value === undefined || value === null) return {};
  if (typeof value !== 'object' || Array.isArray(value)) {
    throw new StepFailure(
      `the node must return an object keyed by output name, not ${Array.isArray(value) ? 'an array' : `a ${typeof value}`}`,
      { code: 'step_failed', retryable: false },
    );
  }
  try {
    JSON.stringify(value);
  } catch (error) {
    throw new StepFailure(`the outputs cannot be written as JSON: ${messageOf(error)}`, {
      code: 'step_failed',
      retryable: false,
    });
  }
  return value as Record<string, unknown>;
}

function stepLogger(log: PluginLog, identity: StepIdentity): ExecLogger {
  const line =
    (level: 'debug' | 'info' | 'warn' | 'error') =>
    (...args: unknown[]) => {
      const text = args
        .map((arg) =>
          typeof arg === 'string' ? arg : arg instanceof Error ? (arg.stack ?? arg.message) : JSON.stringify(arg),
        )
        .join(' ');
      log[level]('step_log', text, { ...identity });
    };
  return { debug: line('debug'), info: line('info'), warn: line('warn'), error: line('error') };
}
