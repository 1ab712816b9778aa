import { messageOf, RpcError } from './errors.js';

/** `error` of a step result (protocol section 3). */
export interface StepErrorBody {
  code?: string;
  message: string;
  /** false is never retried; absent leaves it to the platform. */
  retryable?: boolean;
  details?: unknown;
}

/**
 * Throw it to fail a step with a code of your own, or to say whether a retry makes sense. Any other
 * error fails the step with its message.
 */
export class StepFailure extends Error {
  override readonly name = 'StepFailure';
  readonly code: string | undefined;
  readonly retryable: boolean | undefined;
  readonly details: unknown;

  constructor(
    message: string,
    options: { code?: string; retryable?: boolean; details?: unknown; cause?: unknown } = {},
  ) {
    super(message, options.cause === undefined ? undefined : { cause: options.cause });
    this.code = options.code;
    this.retryable = options.retryable;
    this.details = options.details;
  }
}

/** One wrong input of a step. */
export interface InputFault {
  /** `$.inputs.<name>`, deeper for nested values. */
  path: string;
  /** The rule, such as `isString` or `too_small`. */
  code: string;
  message: string;
}

/** Inputs that do not fit: the message names each field, `details.faults` lists them. Never retried. */
export function invalidInputs(faults: readonly InputFault[]): StepFailure {
  const named = faults.map((fault) => `input "${fault.path.replace(/^\$\.inputs\.?/, '')}": ${fault.message}`);
  return new StepFailure(named.join('; '), { code: 'invalid_node_input', retryable: false, details: { faults } });
}

/** What a step that threw this ends with. Error codes of Node (`ECONNREFUSED`) are kept. */
export function toStepError(thrown: unknown): StepErrorBody {
  const body: StepErrorBody = { message: messageOf(thrown) };
  if (thrown instanceof StepFailure || thrown instanceof RpcError) {
    if (thrown.code !== undefined) body.code = thrown.code;
    if (thrown.retryable !== undefined) body.retryable = thrown.retryable;
    if (thrown.details !== undefined) body.details = thrown.details;
  } else if (thrown instanceof Error && typeof (thrown as { code?: unknown }).code === 'string') {
    body.code = (thrown as unknown as { code: string }).code;
  }
  return body;
}
