import { randomBytes } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { DEFAULT_MAX_FRAME, encodeFrame, FrameDecoder, FrameError } from './codec.js';
import { messageOf, readRpcError, RpcError, UnansweredError } from './errors.js';
import { clientOptions, type TlsClientSettings } from './tls.js';

/** How a client behaves; times in milliseconds. */
export interface WireClientOptions {
  host: string;
  port: number;
  /** Speak TLS; plain TCP when absent. */
  tls?: TlsClientSettings;
  /** Time for the connection, TLS handshake included. */
  connectTimeoutMs?: number;
  /** Largest frame, in UTF-16 code units. */
  maxFrame?: number;
  /** Makes the ids of requests; they must be unique on a connection. */
  nextId?: () => string;
}

/**
 * Requests over one connection that is opened when it is needed and opened anew after a loss. Many
 * requests share it; answers may come in any order. A request is never sent twice by the client:
 * whoever calls knows whether that is allowed.
 */
export class WireClient {
  private readonly nextId: () => string;
  private readonly maxFrame: number;
  private line: Line | undefined;
  private closed = false;

  constructor(private readonly options: WireClientOptions) {
    const prefix = randomBytes(6).toString('hex');
    let count = 0;
    this.nextId = options.nextId ?? (() => `${prefix}${(count++).toString(16).padStart(9, '0')}`);
    this.maxFrame = options.maxFrame ?? DEFAULT_MAX_FRAME;
  }

  /** `host:port`, for logs. */
  get address(): string {
    return `${this.options.host}:${this.options.port}`;
  }

  /**
   * Sends a request and waits for its answer, connecting included, at most for `timeoutMs`.
   *
   * @throws {RpcError} The answer was an error, or the request is too large to be sent.
   * @throws {UnansweredError} There was no answer.
   */
  async call(pattern: string, data: unknown, timeoutMs: number, signal?: AbortSignal): Promise<unknown> {
    if (this.closed) throw new UnansweredError('the client was closed');
    if (signal?.aborted) throw new UnansweredError('the request was given up');
    const id = this.nextId();
    const json = JSON.stringify({ pattern, data, id });
    if (json.length > this.maxFrame) {
      throw new RpcError(
        'payload_too_large',
        `the message has ${json.length} UTF-16 units, the limit is ${this.maxFrame} (CONVEYOR_MAX_FRAME_BYTES)`,
      );
    }
    const line = this.open();
    const heardBefore = line.heard;
    const giveUp = () => line.fail(id, 'the request was given up');
    const timer = setTimeout(() => {
      line.fail(id, `did not answer within ${timeoutMs} ms`);
      // Nothing at all came since the request went out: the line may be dead, do not use it again.
      if (line.heard === heardBefore) line.destroy();
    }, timeoutMs);
    signal?.addEventListener('abort', giveUp, { once: true });
    try {
      return await line.exchange(id, json);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener('abort', giveUp);
    }
  }

  private open(): Line {
    if (this.line?.usable) return this.line;
    try {
      return (this.line = new Line(this.options, this.address, this.maxFrame));
    } catch (error) {
      // A certificate file that is being replaced: it may be whole the next time.
      throw new UnansweredError(`${this.address}: the TLS settings cannot be used: ${messageOf(error)}`);
    }
  }

  /** Closes the connection; requests under way fail, later ones are refused. */
  close(): void {
    this.closed = true;
    this.line?.destroy();
  }
}

interface Pending {
  resolve(response: unknown): void;
  reject(error: Error): void;
}

/** Silence on the line after which the kernel asks whether the peer still lives. */
const KEEPALIVE_MS = 15_000;

/** One connection and the requests under way on it. */
class Line {
  private readonly socket: Socket;
  private readonly decoder: FrameDecoder;
  private readonly pending = new Map<string, Pending>();
  private reason = 'the connection was closed';
  /** Chunks received: tells a slow peer from a dead one. */
  heard = 0;

  constructor(
    { host, port, tls, connectTimeoutMs = 5_000 }: WireClientOptions,
    private readonly address: string,
    maxFrame: number,
  ) {
    this.decoder = new FrameDecoder(maxFrame);
    this.socket = tls ? connectTls({ host, port, ...clientOptions(tls, host) }) : connect({ host, port });
    this.socket.setNoDelay(true).setKeepAlive(true, KEEPALIVE_MS);
    const timer = setTimeout(
      () => this.socket.destroy(new Error(`no connection within ${connectTimeoutMs} ms`)),
      connectTimeoutMs,
    );
    this.socket.once(tls ? 'secureConnect' : 'connect', () => clearTimeout(timer));
    this.socket.on('data', (bytes: Buffer) => this.receive(bytes));
    this.socket.on('error', (error) => (this.reason = error.message));
    this.socket.once('close', () => {
      clearTimeout(timer);
      for (const id of [...this.pending.keys()]) this.fail(id, this.reason);
    });
  }

  /** May a request be put on it? A peer that has said goodbye answers nothing more. */
  get usable(): boolean {
    return !this.socket.destroyed && !this.socket.readableEnded;
  }

  /** Sends a request, once connected; settles with its answer or the end of the line. */
  exchange(id: string, json: string): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.pending.set(id, { resolve, reject });
      this.socket.ref();
      this.socket.write(encodeFrame(json));
    });
  }

  fail(id: string, reason: string): void {
    this.settle(id)?.reject(new UnansweredError(`${this.address}: ${reason}`));
  }

  destroy(): void {
    this.socket.destroy();
  }

  private receive(bytes: Buffer): void {
    this.heard += 1;
    try {
      for (const json of this.decoder.push(bytes)) this.answer(json);
    } catch (error) {
      // A parser's message would quote the answer.
      this.socket.destroy(error instanceof FrameError ? error : new Error('the answer is no JSON text'));
    }
  }

  private answer(json: string): void {
    const packet = JSON.parse(json) as { id?: unknown; err?: unknown; response?: unknown } | null;
    if (typeof packet?.id !== 'string') return;
    const pending = this.settle(packet.id);
    if (packet.err) pending?.reject(readRpcError(packet.err));
    else pending?.resolve(packet.response);
  }

  private settle(id: string): Pending | undefined {
    const pending = this.pending.get(id);
    this.pending.delete(id);
    // An idle connection must not keep the process alive.
    if (this.pending.size === 0) this.socket.unref();
    return pending;
  }
}
