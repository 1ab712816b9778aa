import { StringDecoder } from 'node:string_decoder';

/** Largest frame accepted and sent, in UTF-16 code units of its JSON text: 16 MiB. */
export const DEFAULT_MAX_FRAME = 16 * 1024 * 1024;

/** Ten digits reach far beyond every limit; senders may write zeros before them and a fraction behind. */
const MAX_DIGITS = 10;
const MAX_HEADER = 16;

/**
 * Why a connection's bytes are no frames. The connection has to be closed; a peer that writes no frames
 * at all (`malformed`) is told nothing, as by NestJS.
 */
export class FrameError extends Error {
  override readonly name = 'FrameError';

  constructor(
    readonly code: 'malformed' | 'invalid_request' | 'payload_too_large' | 'overloaded',
    message: string,
  ) {
    super(message);
  }
}

/**
 * One frame: `<length>#<json>`, the length counted in UTF-16 code units of the JSON text, which is
 * JavaScript's `length` (not bytes, not characters).
 */
export function encodeFrame(json: string): string {
  return `${json.length}#${json}`;
}

/**
 * Cuts a byte stream into frames. Feed it what the socket gives, in whatever pieces; it holds at
 * most one unfinished frame and refuses a length beyond the limit before the frame is there.
 */
export class FrameDecoder {
  private readonly utf8 = new StringDecoder('utf8');
  private parts: string[] = [];
  private held = 0;
  /** Length of the frame under way; undefined while its header is read. */
  private wanted: number | undefined;

  constructor(private readonly maxFrame = DEFAULT_MAX_FRAME) {}

  /** Is a frame begun and not finished? */
  get inFrame(): boolean {
    return this.held > 0 || this.wanted !== undefined;
  }

  /** UTF-16 code units of the unfinished frame that are here. */
  get buffered(): number {
    return this.held;
  }

  /**
   * The JSON texts that these bytes finish.
   *
   * @throws {FrameError} Bytes that are no frame, or a frame beyond the limit.
   */
  *push(bytes: Buffer): Generator<string, void> {
    this.hold(this.utf8.write(bytes));
    for (;;) {
      this.wanted ??= this.readHeader();
      if (this.wanted === undefined || this.held < this.wanted) return;
      const text = this.join();
      const json = text.slice(0, this.wanted);
      this.hold(text.slice(this.wanted));
      this.wanted = undefined;
      yield json;
    }
  }

  private hold(text: string): void {
    if (text.length === 0) return;
    this.parts.push(text);
    this.held += text.length;
  }

  private join(): string {
    const text = this.parts.length === 1 ? (this.parts[0] ?? '') : this.parts.join('');
    this.parts = [];
    this.held = 0;
    return text;
  }

  private readHeader(): number | undefined {
    if (this.held === 0) return undefined;
    const text = this.join();
    // Senders may put white space between frames; it counts as nothing.
    const start = text.search(/\S/);
    if (start < 0) return undefined;
    const end = text.indexOf('#', start);
    const header = end < 0 ? text.slice(start) : text.slice(start, end);
    if (header.length > MAX_HEADER) {
      throw new FrameError('invalid_request', `no "#" within ${MAX_HEADER} characters of the frame's length`);
    }
    if (end < 0) {
      this.hold(header);
      return undefined;
    }
    const length = parseLength(header);
    if (length > this.maxFrame) {
      throw new FrameError(
        'payload_too_large',
        `the frame has ${length} UTF-16 units, the limit is ${this.maxFrame} (CONVEYOR_MAX_FRAME_BYTES)`,
      );
    }
    this.hold(text.slice(end + 1));
    return length;
  }
}

/** Reads a length as NestJS does, with `parseInt`: what stands behind the digits counts as nothing. */
function parseLength(header: string): number {
  const length = Number.parseInt(header, 10);
  if (Number.isNaN(length))
    throw new FrameError('malformed', 'no frame: expected a length and "#" before the JSON text');
  // No text at all is no JSON text.
  if (length <= 0) throw new FrameError('malformed', 'the frame is no JSON text');
  if (length >= 10 ** MAX_DIGITS) {
    throw new FrameError('invalid_request', `the frame's length has more than ${MAX_DIGITS} digits`);
  }
  return length;
}
