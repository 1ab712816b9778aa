/**
 * The error object of the platform (protocol section 1): `err` of a TCP reply, and what a plugin
 * answers with.
 */
export interface RpcErrorBody {
  status: 'error';
  /** Stable, snake_case. */
  code: string;
  /** For people: names the thing and the remedy, never a secret. */
  message: string;
  details?: unknown;
  /** Can the same call succeed later without being changed? */
  retryable: boolean;
}

/** A refusal that was answered by, or is to be answered to, the other side. */
export class RpcError extends Error {
  override readonly name = 'RpcError';

  constructor(
    readonly code: string,
    message: string,
    readonly retryable = false,
    readonly details?: unknown,
  ) {
    super(message);
  }

  /** The error as it stands on the wire. */
  body(): RpcErrorBody {
    const body: RpcErrorBody = { status: 'error', code: this.code, message: this.message, retryable: this.retryable };
    if (this.details !== undefined) body.details = this.details;
    return body;
  }
}

/** No answer: the other side could not be reached, went away, or did not answer in time. */
export class UnansweredError extends Error {
  override readonly name = 'UnansweredError';
  readonly retryable = true;
}

/** What the server of `@nestjs/microservices` answers to an unknown pattern. */
export const NO_HANDLER = 'There is no matching message handler defined in the remote service.';

/**
 * Reads the `err` of a reply. Our platform sends code and `retryable`; an answer without a code
 * comes from a proxy or a crashed handler, says nothing about the call, and may be tried again.
 */
export function readRpcError(err: unknown): RpcError {
  if (err === NO_HANDLER) {
    return new RpcError('unknown_pattern', `${NO_HANDLER} Check that the address is that of the right service.`);
  }
  if (typeof err === 'string') return new RpcError('remote_error', err, true);
  const body = (typeof err === 'object' && err !== null ? err : {}) as Record<string, unknown>;
  const code = typeof body.code === 'string' ? body.code : undefined;
  const message = typeof body.message === 'string' ? body.message : 'the other side gave no reason';
  const retryable = typeof body.retryable === 'boolean' ? body.retryable : code === undefined;
  return new RpcError(code ?? 'remote_error', message, retryable, body.details);
}

/** May the call that failed so be tried again unchanged? */
export function isRetryable(error: unknown): boolean {
  return error instanceof UnansweredError || (error instanceof RpcError && error.retryable);
}

/** The text of anything that was thrown. */
export function messageOf(error: unknown): string {
  if (error instanceof Error) return error.message || error.name;
  return typeof error === 'string' ? error : String(error);
}
