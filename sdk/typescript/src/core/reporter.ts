import { Backoff, pause } from './backoff.js';
import { WireClient } from './client.js';
import { isRetryable, messageOf, RpcError } from './errors.js';
import type { StepErrorBody } from './failure.js';
import type { PluginLog } from './log.js';
import { PATTERN } from './pattern.js';
import type { TlsClientSettings } from './tls.js';

/** Which attempt a report is about. */
export interface StepIdentity {
  runId: string;
  executionId: string;
  nodeId?: string;
  nodeType?: string;
  /** W3C trace context of the task: it goes back with ack and result. */
  traceparent?: string;
  tracestate?: string;
}

/** One report about a step (protocol section 3). */
export type StepReport =
  | { kind: 'ack'; startedAt?: string }
  | { kind: 'heartbeat'; progress?: number; message?: string }
  | { kind: 'partial'; sequence: number; outputs: Record<string, unknown> }
  | { kind: 'result'; status: 'ok' | 'error'; outputs?: Record<string, unknown>; error?: StepErrorBody };

/**
 * What a reporter was told. `stale`: nobody waits for this attempt any more, its work is to be given
 * up. `refused`: for good, the reason names the remedy.
 */
export type Told = { kind: 'accepted'; status: string } | { kind: 'stale' | 'refused'; error: RpcError };

/** Where reports go, and how. Times in milliseconds. */
export interface ReporterOptions {
  host: string;
  port: number;
  /** Speak TLS; plain TCP when absent. */
  tls?: TlsClientSettings;
  /** The control plane's key. */
  key: string | undefined;
  log: PluginLog;
  maxFrame?: number;
  /** How long one try may take until its answer. */
  answerTimeoutMs?: number;
  /** Ceiling of the first pause between tries, and of the longest. */
  firstPauseMs?: number;
  longestPauseMs?: number;
  /** Replaces the client's request ids. */
  nextId?: () => string;
}

const PATTERNS = {
  ack: PATTERN.stepAck,
  heartbeat: PATTERN.stepHeartbeat,
  partial: PATTERN.stepPartial,
  result: PATTERN.stepResult,
};
const STALE = new Set(['superseded', 'run_terminal']);

/** The trace context as it came. Heartbeats and partials carry none. */
function traceOf(kind: StepReport['kind'], { traceparent, tracestate }: StepIdentity) {
  return kind === 'ack' || kind === 'result' ? { traceparent, tracestate } : {};
}

/** Sends reports to the control plane over one connection. */
export class Reporter {
  private readonly client: WireClient;

  constructor(private readonly options: ReporterOptions) {
    const { host, port, tls, maxFrame, nextId } = options;
    this.client = new WireClient({ host, port, tls, maxFrame, nextId });
  }

  /**
   * Sends the report until it is answered, with growing pauses: an absent control plane or engine
   * loses nothing. The platform knows a report that it has already (`duplicate`).
   *
   * @throws The signal's reason or an `UnansweredError`, when the signal gives it up.
   */
  async deliver(step: StepIdentity, report: StepReport, signal?: AbortSignal): Promise<Told> {
    const { firstPauseMs = 100, longestPauseMs = 10_000, log } = this.options;
    const backoff = new Backoff(firstPauseMs, longestPauseMs);
    for (;;) {
      try {
        return await this.send(step, report, signal);
      } catch (error) {
        if (signal?.aborted) throw error;
        const retryInMs = backoff.next();
        log.warn('step_report_retried', 'a report was not answered; it is sent again', {
          executionId: step.executionId,
          kind: report.kind,
          retry_in_ms: retryInMs,
          reason: messageOf(error),
        });
        await pause(retryInMs, signal);
      }
    }
  }

  /**
   * Sends the report once.
   *
   * @throws {UnansweredError | RpcError} There is no answer, or it asks for a later try.
   */
  async send(step: StepIdentity, report: StepReport, signal?: AbortSignal): Promise<Told> {
    const { kind, ...fields } = report;
    const { runId, executionId, nodeId, nodeType } = step;
    // The key comes first, so that it is found before the payload.
    const data = { key: this.options.key, executionId, runId, nodeId, nodeType, ...traceOf(kind, step), ...fields };
    try {
      const answer = await this.client.call(PATTERNS[kind], data, this.options.answerTimeoutMs ?? 15_000, signal);
      const status = (answer as { status?: unknown } | null | undefined)?.status;
      return { kind: 'accepted', status: typeof status === 'string' ? status : 'applied' };
    } catch (error) {
      if (isRetryable(error) || !(error instanceof RpcError)) throw error;
      return { kind: STALE.has(error.code) ? 'stale' : 'refused', error };
    }
  }

  /** Closes the connection; reports under way fail. */
  close(): void {
    this.client.close();
  }
}
