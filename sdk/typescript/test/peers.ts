// The other side of the wire, scripted: a service that plugins call, and a caller of plugins.
import { EventEmitter, once } from 'node:events';
import { WireClient } from '../src/core/client';
import { RpcError } from '../src/core/errors';
import { silentLog } from '../src/core/log';
import { patternName } from '../src/core/pattern';
import { WireServer } from '../src/core/server';
import type { TlsServerSettings } from '../src/core/tls';

/** One request that a peer got. */
export interface Heard {
  pattern: string;
  data: any;
}

/** Answers a request: a value, an `RpcError`, or SILENCE for no answer at all. */
export type Script = (heard: Heard, count: number) => unknown;

/** The request stays without an answer and its connection is cut. */
export const HANG_UP = Symbol('hang up');
/** The request stays without an answer. */
export const SILENCE = Symbol('silence');

/** A service that answers by a script and remembers what it heard. */
export class Peer extends EventEmitter {
  readonly heard: Heard[] = [];
  port = 0;
  private readonly server: WireServer;

  constructor(
    private script: Script = () => ({ status: 'applied' }),
    tls?: TlsServerSettings,
  ) {
    super();
    this.setMaxListeners(100);
    this.server = new WireServer(
      (packet, reply, socket) => {
        const heard = { pattern: patternName(packet.pattern), data: packet.data as any };
        this.heard.push(heard);
        void Promise.resolve()
          .then(() => this.script(heard, this.heard.filter((one) => one.pattern === heard.pattern).length))
          .then((answer) => {
            if (answer === HANG_UP) socket.destroy();
            else if (answer instanceof RpcError) reply({ err: answer.body(), isDisposed: true });
            else if (answer !== SILENCE) reply({ response: answer, isDisposed: true });
            this.emit('heard', heard);
          });
        return true;
      },
      { log: silentLog, tls },
    );
  }

  async listen(port = 0): Promise<this> {
    this.port = await this.server.listen(port, '127.0.0.1');
    return this;
  }

  answerBy(script: Script): void {
    this.script = script;
  }

  /** What was heard under the pattern (by its last word). */
  of(word: string): Heard[] {
    return this.heard.filter((heard) => heard.pattern.endsWith(word));
  }

  /** Waits until the pattern was heard so many times and gives the last. */
  async hears(word: string, count = 1): Promise<Heard> {
    while (this.of(word).length < count) await once(this, 'heard');
    return this.of(word)[count - 1] as Heard;
  }

  close(): Promise<void> {
    return this.server.close();
  }
}

let executions = 0;

/** A task as the control plane sends it. */
export function task(nodeType: string, inputs: Record<string, unknown> = {}, more: Record<string, unknown> = {}) {
  executions += 1;
  return {
    runId: '019364f1-0000-7000-8000-00000000000a',
    executionId: `019364f1-0000-7000-8000-${String(executions).padStart(12, '0')}`,
    nodeId: 'w-1',
    nodePath: 'w-1',
    nodeType,
    attempt: 1,
    inputs,
    outputs: [] as string[],
    deadline: 1_900_000_000_000,
    workspaceId: 'default',
    userId: 'local',
    diagramId: 'd-1',
    ...more,
  };
}

/** The trace context of a task, both parts. */
export const TRACE = {
  traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
  tracestate: 'rojo=00f067aa0ba902b7,congo=t61rcWkgMzE',
};

/** What of the trace context a report carries. */
export const traceIn = ({ data }: Heard) => [data.traceparent, data.tracestate];

/** Calls a plugin once. */
export async function call(port: number, pattern: string, data: unknown): Promise<any> {
  const client = new WireClient({ host: '127.0.0.1', port });
  try {
    return await client.call(pattern, data, 10_000);
  } finally {
    client.close();
  }
}

/** The environment of a plugin between two peers. */
export function pluginEnv(pm: Peer, cp: Peer, more: Record<string, string> = {}): Record<string, string> {
  return {
    CONVEYOR_BIND: '127.0.0.1',
    PLUGIN_TCP_PORT: '0',
    PLUGIN_MANAGER_RPC_HOST: '127.0.0.1',
    PLUGIN_MANAGER_RPC_PORT: String(pm.port),
    PLUGIN_MANAGER_INGRESS_TOKEN: 'ingress',
    PLUGIN_MANAGER_MANIFEST_ON_INIT_RETRY_BASE_MS: '1',
    CONTROL_PLANE_TCP_HOST: '127.0.0.1',
    RUNTIME_CONTROL_PLANE_TCP_PORT: String(cp.port),
    PLUGIN_CONTROL_PLANE_KEY: 'cp-key',
    ...more,
  };
}

/** plugin-manager's answer to a publication. */
export const COMMITTED = {
  ok: true,
  status: 'committed',
  pluginId: 'p',
  publicationVersion: '1',
  publicationId: 'x',
  digest: 'd',
  warnings: [],
};
