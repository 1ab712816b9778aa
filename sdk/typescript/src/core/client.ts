import { randomBytes } from 'node:crypto';
import { connect, type Socket } from 'node:net';
import { DEFAULT_MAX_FRAME, encodeFrame, FrameDecoder } from './codec.js';
import { messageOf, readRpcError, RpcError, UnansweredError } from './errors.js';

/** How a client behaves; times in milliseconds. */
export interface WireClientOptions {
  host: string;
  port: number;
  /** Time for the TCP connection. */
  connectTimeoutMs?: number;
  /** Largest frame, in UTF-16 code units. */
  maxFrame?: number;
  /** Makes the ids of requests; they must be unique on a connection. */
  nextId?: () => string;
}

type CallState = 'waiting' | 'late' | 'given up';

interface Pending {
  resolve(response: unknown): void;
  reject(error: Error): void;
}

/** Silence on the line after which the kernel asks whether the peer still lives. */
const KEEPALIVE_MS = 15_000;

/**
 * Requests over one connection that is opened when it is needed and opened anew after a loss. Many
 * requests share it; answers may come in any order. A request is never sent twice by the client:
 * whoever calls knows whether that is allowed.
 */
export class WireClient {
  private readonly pending = new Map<string, Pending>();
  private readonly nextId: () => string;
  private connection: Promise<Socket> | undefined;
  private socket: Socket | undefined;
  private closed = false;
  /** Chunks received on the present connection: tells a slow peer from a dead one. */
  private heard = 0;

  constructor(private readonly options: WireClientOptions) {
    const prefix = randomBytes(6).toString('hex');
    let count = 0;
    this.nextId = options.nextId ?? (() => `${prefix}${(count++).toString(16)}`);
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
    const id = this.nextId();
    const json = JSON.stringify({ pattern, data, id });
    const limit = this.options.maxFrame ?? DEFAULT_MAX_FRAME;
    if (json.length > limit) {
      throw new RpcError('payload_too_large', `the message has ${json.length} UTF-16 units, the limit is ${limit} (CONVEYOR_MAX_FRAME_BYTES)`);
    }
    return this.within(id, timeoutMs, signal, async (state) => {
      const socket = await this.open();
      if (state() !== 'waiting') return undefined;
      const heardBefore = this.heard;
      try {
        return await this.exchange(socket, id, json);
      } finally {
        // Nothing at all came since the request went out: the line may be dead, do not reuse it.
        if (state() === 'late' && this.socket === socket && this.heard === heardBefore) socket.destroy();
      }
    });
  }

  /** Closes the connection; requests under way fail, later ones are refused. */
  close(): void {
    this.closed = true;
    this.socket?.destroy();
    this.failAll('the client was closed');
  }

  private exchange(socket: Socket, id: string, json: string): Promise<unknown> {
    return new Promise((resolve, reject) => {
      this.pending.set(id, { resolve, reject });
      socket.ref();
      socket.write(encodeFrame(json));
    });
  }

  private within<T>(id: string, timeoutMs: number, signal: AbortSignal | undefined, work: (state: () => CallState) => Promise<T>): Promise<T> {
    return new Promise<T>((resolve, reject) => {
      let state: CallState = 'waiting';
      const end = (how: CallState, error: Error) => {
        state = how;
        this.settle(id)?.reject(error);
        reject(error);
      };
      const abort = () => end('given up', new UnansweredError('the request was given up'));
      if (signal?.aborted) return abort();
      const timer = setTimeout(() => end('late', new UnansweredError(`${this.address} did not answer within ${timeoutMs} ms`)), timeoutMs);
      signal?.addEventListener('abort', abort, { once: true });
      work(() => state).then(resolve, reject).finally(() => {
        clearTimeout(timer);
        signal?.removeEventListener('abort', abort);
      });
    });
  }

  private open(): Promise<Socket> {
    if (this.closed) return Promise.reject(new UnansweredError('the client was closed'));
    this.connection ??= this.connect();
    return this.connection;
  }

  private connect(): Promise<Socket> {
    const { host, port, connectTimeoutMs = 5_000 } = this.options;
    return new Promise((resolve, reject) => {
      const socket = connect({ host, port, noDelay: true, keepAlive: true, keepAliveInitialDelay: KEEPALIVE_MS });
      const decoder = new FrameDecoder(this.options.maxFrame);
      let reason = 'the connection was closed';
      const timer = setTimeout(() => socket.destroy(new Error(`no connection within ${connectTimeoutMs} ms`)), connectTimeoutMs);
      socket.once('connect', () => {
        clearTimeout(timer);
        this.socket = socket;
        resolve(socket);
      });
      socket.on('data', (bytes: Buffer) => {
        this.heard += 1;
        try {
          for (const json of decoder.push(bytes)) this.receive(json);
        } catch (error) {
          socket.destroy(error instanceof Error ? error : new Error(messageOf(error)));
        }
      });
      socket.on('error', (error) => {
        reason = error.message;
      });
      socket.once('close', () => {
        clearTimeout(timer);
        this.connection = undefined;
        this.socket = undefined;
        reject(new UnansweredError(`${this.address}: ${reason}`));
        this.failAll(reason);
      });
    });
  }

  private receive(json: string): void {
    const packet = JSON.parse(json) as { id?: unknown; err?: unknown; response?: unknown; isDisposed?: unknown } | null;
    if (typeof packet?.id !== 'string') return;
    const pending = this.settle(packet.id);
    if (packet.err) pending?.reject(readRpcError(packet.err));
    else pending?.resolve(packet.response);
  }

  private settle(id: string): Pending | undefined {
    const pending = this.pending.get(id);
    this.pending.delete(id);
    // An idle connection must not keep the process alive.
    if (this.pending.size === 0) this.socket?.unref();
    return pending;
  }

  private failAll(reason: string): void {
    const waiting = [...this.pending.values()];
    this.pending.clear();
    for (const { reject } of waiting) reject(new UnansweredError(`${this.address}: ${reason}`));
  }
}
