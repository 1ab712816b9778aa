import type { Socket } from 'node:net';
import { DEFAULT_MAX_FRAME, encodeFrame, FrameDecoder, FrameError } from './codec.js';
import { messageOf, NO_HANDLER, RpcError } from './errors.js';
import { createListener, listenOn, type Listener } from './listener.js';
import type { PluginLog } from './log.js';
import type { TlsServerSettings } from './tls.js';

/** A packet as it came: with `id` a request, without one an event. */
export interface InboundPacket {
  pattern: unknown;
  data: unknown;
  /** Echoed in the reply as it is. Absent in events. */
  id?: unknown;
}

/** One reply packet, without its id. */
export interface ReplyPacket {
  response?: unknown;
  err?: unknown;
  isDisposed?: boolean;
}

/** Handles one packet: calls `reply` once or (streams) several times. Returns false when nobody serves the pattern. */
export type PacketHandler = (packet: InboundPacket, reply: (packet: ReplyPacket) => void, peer: Socket) => boolean;

/** Limits of a listener; times in milliseconds. */
export interface WireServerOptions {
  log: PluginLog;
  /** Speak TLS and nothing else; plain TCP when absent. */
  tls?: TlsServerSettings;
  /** Pause between looks at the files of the certificates. */
  tlsReloadMs?: number;
  /** Largest frame, in UTF-16 code units. */
  maxFrame?: number;
  /** Connections at once; more are closed at once. */
  maxConnections?: number;
  /** Time for the rest of a frame that has begun, and for the first byte of a connection. */
  frameTimeoutMs?: number;
  /** UTF-16 code units of unfinished frames over all connections. */
  maxBuffered?: number;
  /** Unsent bytes for one peer after which it is cut off. */
  maxUnsentBytes?: number;
}

/**
 * A listener for NestJS TCP frames. Differs from Nest's own on purpose: limits stand before
 * buffering, replies to good frames are sent although a bad one follows, reading never waits for
 * writing (two sides that both wait would wait for ever), and a stop lets replies out.
 */
export class WireServer {
  private readonly listener: Listener;
  private readonly peers = new Set<Socket>();
  /** UTF-16 code units of unfinished frames, over all connections. */
  private buffered = 0;

  constructor(
    private readonly handler: PacketHandler,
    private readonly options: WireServerOptions,
  ) {
    const { log, tls, maxConnections = 1024, frameTimeoutMs = 10_000, tlsReloadMs = 10_000 } = options;
    this.listener = createListener(
      { log, tls, maxConnections, handshakeTimeoutMs: frameTimeoutMs, tlsReloadMs },
      (socket) => this.serve(socket),
    );
  }

  /** Starts to listen; port 0 takes a free one. Returns the port. */
  listen(port: number, host: string): Promise<number> {
    return listenOn(this.listener.server, port, host, 'PLUGIN_TCP_PORT');
  }

  /** Takes no more connections, lets what was replied go out, and closes. */
  close(): Promise<void> {
    return new Promise((resolve) => {
      this.listener.server.close(() => resolve());
      this.listener.stop();
      for (const peer of this.peers) peer.end(() => peer.destroy());
    });
  }

  private serve(socket: Socket): void {
    this.peers.add(socket);
    const decoder = new FrameDecoder(this.options.maxFrame ?? DEFAULT_MAX_FRAME);
    const deadline = this.frameDeadline(socket);
    deadline.start();
    socket.on('data', (bytes: Buffer) => {
      const { inFrame, buffered } = decoder;
      let frames = 0;
      try {
        for (const json of decoder.push(bytes)) {
          frames += 1;
          this.receive(socket, json);
        }
        this.keepToBudget(decoder.buffered - buffered);
      } catch (error) {
        deadline.stop();
        this.buffered -= buffered;
        socket.removeAllListeners('data').resume();
        return this.refuse(socket, error);
      }
      // A frame that drips in byte by byte does not get more time with each byte.
      if (!decoder.inFrame) deadline.stop();
      else if (frames > 0 || !inFrame) deadline.start();
    });
    socket.on('error', (error) =>
      this.options.log.debug('plugin_peer_error', 'a connection failed', {
        peer: socket.remoteAddress,
        reason: error.message,
      }),
    );
    socket.once('close', () => {
      deadline.stop();
      // Refused connections have given back their share already.
      if (socket.listenerCount('data') > 0) this.buffered -= decoder.buffered;
      this.peers.delete(socket);
    });
  }

  /** The time for the rest of a frame, and for the first byte of a connection. */
  private frameDeadline(socket: Socket) {
    const late = () => this.refuse(socket, new FrameError('invalid_request', 'the frame was not finished in time'));
    let timer: NodeJS.Timeout | undefined;
    const stop = () => clearTimeout(timer);
    const start = () => {
      stop();
      timer = setTimeout(late, this.options.frameTimeoutMs ?? 10_000).unref();
    };
    return { start, stop };
  }

  /** Unfinished frames of all connections together have a limit too. */
  private keepToBudget(more: number): void {
    const limit = this.options.maxBuffered ?? 4 * DEFAULT_MAX_FRAME;
    if (more > 0 && this.buffered + more > limit) {
      throw new FrameError(
        'overloaded',
        `unfinished frames have ${this.buffered + more} UTF-16 units, the limit is ${limit}`,
      );
    }
    this.buffered += more;
  }

  private receive(socket: Socket, json: string): void {
    let packet: InboundPacket;
    try {
      const parsed: unknown = JSON.parse(json);
      packet = (typeof parsed === 'object' && parsed !== null ? parsed : {}) as InboundPacket;
    } catch {
      // The parser's own message quotes the text, which may hold secrets.
      throw new FrameError('malformed', 'the frame is no JSON text');
    }
    const isRequest = 'id' in packet;
    const reply = (answer: ReplyPacket) => {
      if (isRequest) this.send(socket, { ...answer, id: packet.id });
    };
    if (!this.handler(packet, reply, socket) && isRequest) {
      this.send(socket, { id: packet.id, status: 'error', err: NO_HANDLER });
    }
  }

  private send(socket: Socket, packet: object): void {
    if (socket.destroyed || !socket.writable) return;
    socket.write(encodeFrame(toJson(packet)));
    if (socket.writableLength > (this.options.maxUnsentBytes ?? 64 * 1024 * 1024)) {
      this.options.log.warn('plugin_peer_cut_off', 'a peer does not read its replies', {
        peer: socket.remoteAddress,
        unsent_bytes: socket.writableLength,
      });
      socket.destroy();
    }
  }

  /**
   * The end of the connection. A peer that broke a limit is told so in an error frame; one whose bytes
   * are no frames is told nothing, as by NestJS.
   */
  private refuse(socket: Socket, error: unknown): void {
    const refusal =
      error instanceof FrameError
        ? new RpcError(error.code, error.message, error.code === 'overloaded')
        : new RpcError('internal', 'the frame could not be handled');
    this.options.log.warn('plugin_frame_refused', refusal.message, { peer: socket.remoteAddress, code: refusal.code });
    if (!socket.writable) return;
    if (refusal.code !== 'malformed')
      socket.write(encodeFrame(JSON.stringify({ err: refusal.body(), isDisposed: true })));
    socket.end(() => socket.destroy());
  }
}

/** A reply that cannot be written as JSON becomes an error reply: nobody may wait in vain. */
function toJson(packet: object): string {
  try {
    return JSON.stringify(packet);
  } catch (error) {
    const { id } = packet as { id?: unknown };
    return JSON.stringify({
      err: new RpcError('internal', `the reply cannot be written as JSON: ${messageOf(error)}`).body(),
      isDisposed: true,
      id,
    });
  }
}
