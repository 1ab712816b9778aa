import { Server, TcpContext, Transport, type CustomTransportStrategy, type WritePacket } from '@nestjs/microservices';
import { isObservable } from 'rxjs';
import { messageOf } from '../core/errors.js';
import { patternName } from '../core/pattern.js';
import { WireServer, type InboundPacket, type ReplyPacket, type WireServerOptions } from '../core/server.js';

/** How the plugin's listener is set up. */
export interface PluginTcpOptions extends WireServerOptions {
  host: string;
  /** Asked when the application starts to listen; 0 takes a free port. */
  port(): number;
  /** Runs before the listener closes: running steps are waited for here. */
  beforeClose(): Promise<void>;
}

/**
 * NestJS TCP on the SDK's own listener. All message and event handlers of the application work on
 * it, guards, pipes, filters and interceptors included.
 */
export class PluginTcpServer extends Server implements CustomTransportStrategy {
  override readonly transportId = Transport.TCP;
  private readonly wire: WireServer;
  private bound = 0;

  constructor(private readonly options: PluginTcpOptions) {
    super();
    this.wire = new WireServer(
      (packet, reply, peer) => this.handle(packet, reply, new TcpContext([peer as never, patternName(packet.pattern)])),
      options,
    );
  }

  /** The port that is listened on. */
  get port(): number {
    return this.bound;
  }

  listen(callback: (error?: unknown) => void): void {
    this.wire.listen(this.options.port(), this.options.host).then((port) => {
      this.bound = port;
      callback();
    }, callback);
  }

  async close(): Promise<void> {
    await this.options.beforeClose();
    if (this.bound !== 0) await this.wire.close();
    this.bound = 0;
  }

  on(): never {
    throw new Error('the plugin listener emits no events');
  }

  unwrap<T>(): T {
    return this.wire as T;
  }

  private handle(packet: InboundPacket, reply: (packet: ReplyPacket) => void, context: TcpContext): boolean {
    const handler =
      this.getHandlerByPattern(this.getPatternAsString(packet.pattern)) ??
      this.getHandlerByPattern(context.getPattern());
    if (!handler) {
      if (!('id' in packet))
        this.options.log.warn('plugin_event_unknown', 'an event has no handler', { pattern: context.getPattern() });
      return false;
    }
    void this.onProcessingStartHook(this.transportId, context, async () => {
      try {
        const result = this.transformToObservable(await handler(packet.data, context));
        const sent = this.send(result, (answer: WritePacket) => reply(replyOf(answer)));
        sent.add(() => this.onProcessingEndHook?.(this.transportId, context));
      } catch (error) {
        reply({ err: { status: 'error', message: 'Internal server error' }, isDisposed: true });
        this.options.log.error('plugin_handler_failed', messageOf(error), { pattern: context.getPattern() });
      }
    });
    return true;
  }
}

/** Exactly the keys that Nest's own server writes: an error ends the request. */
function replyOf({ err, response, isDisposed }: WritePacket): ReplyPacket {
  if (err) return { err, isDisposed: true };
  const packet: ReplyPacket = response === undefined || isObservable(response) ? {} : { response };
  return isDisposed ? { ...packet, isDisposed: true } : packet;
}
