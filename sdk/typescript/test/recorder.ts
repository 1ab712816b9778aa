// Records the frames of a plugin's life as they cross the wire, and makes them the same each time:
// what is random is replaced by text of the same length, so that frame lengths stay true.
import { EventEmitter, once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import { z } from 'zod';
import { WireClient } from '../src/core/client';
import { FrameDecoder } from '../src/core/codec';
import { RpcError } from '../src/core/errors';
import { silentLog } from '../src/core/log';
import { readSettings } from '../src/core/settings';
import { defineNode, definePlugin } from '../src/light/index';
import { COMMITTED, Peer, type Script } from './peers';

/** Frames as they went: `>` from the side that asks, `<` back. */
export type Frames = string[];

/** A wire tap: forwards to a port and keeps whole frames. */
async function tap(target: () => number) {
  const frames: Frames = [];
  const news = new EventEmitter();
  const server = createServer((near) => {
    const far = connect(target(), '127.0.0.1');
    for (const [from, to, mark] of [
      [near, far, '>'],
      [far, near, '<'],
    ] as const) {
      const decoder = new FrameDecoder();
      from.on('data', (bytes) => {
        for (const json of decoder.push(bytes)) frames.push(`${mark} ${json.length}#${json}`);
        to.write(bytes);
        news.emit('frames');
      });
      from.on('close', () => to.destroy());
      from.on('error', () => undefined);
    }
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  /** All frames so far, once so many of a pattern's exchanges have crossed. */
  const taken = async (word: string, count: number): Promise<Frames> => {
    while (exchangeOf(frames, word).length < count) await once(news, 'frames');
    return frames.splice(0);
  };
  return { port: (server.address() as AddressInfo).port, frames, taken, close: () => server.close() };
}

const RUN = '0193a5c0-7d1e-7c3a-9b52-3f6f1d2c4b5a';
const STEP = '0193a5c0-7d2f-7e4b-8c63-4a7b2e3d5c6b';

/** The node goes on when its heartbeat was recorded. */
let goOn: () => void = () => undefined;
const heartbeatSeen = new Promise<void>((resolve) => (goOn = resolve));

const greet = defineNode({
  nodeType: 'plugin.demo.greet',
  name: 'Greet',
  inputs: z.object({ name: z.string().min(1).meta({ title: 'Name' }) }),
  outputs: z.object({ greeting: z.string().meta({ title: 'Greeting' }) }),
  run: async ({ name }, context) => {
    context.progress(0.5, 'half way');
    await heartbeatSeen;
    await context.partial({ greeting: 'Привет' });
    return { greeting: `Привет, ${name} 😀` };
  },
});

const demo = definePlugin({ id: 'demo', version: '0.1.0', label: 'Demo', description: 'For the docs', nodes: [greet] });

const publicationReply = {
  ...COMMITTED,
  pluginId: 'demo',
  publicationVersion: '0.1.0',
  publicationId: '0193a5c0-6b0c-7a18-8a30-1d4e9f0a2b38',
  digest: 'e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855',
};

const report =
  (words: string): Script =>
  (heard, count) => {
    if (words === 'superseded' && heard.pattern.endsWith('step_result'))
      return new RpcError('superseded', 'a newer attempt of the step exists', false, { previousState: 'timed_out' });
    if (heard.pattern.endsWith('step_result') && count === 1 && words === 'away')
      return new RpcError('engine_unavailable', 'the engine cannot be reached now; send the report again', true);
    return { status: heard.pattern.endsWith('step_result') && count > 1 ? 'duplicate' : 'applied' };
  };

/** All exchanges that the docs show, by name. */
export async function record(): Promise<Record<string, Frames>> {
  const pm = await new Peer(() => publicationReply).listen();
  const cp = await new Peer(report('away')).listen();
  const toPm = await tap(() => pm.port);
  const toCp = await tap(() => cp.port);
  const settings = readSettings({
    CONVEYOR_BIND: '127.0.0.1',
    PLUGIN_TCP_PORT: '0',
    PLUGIN_PULL_ADVERTISED_HOST: '10.0.0.7',
    PLUGIN_PULL_ADVERTISED_PORT: '9420',
    PLUGIN_MANAGER_RPC_PORT: String(toPm.port),
    PLUGIN_MANAGER_INGRESS_TOKEN: 'demo-plugin-ingress',
    RUNTIME_CONTROL_PLANE_TCP_PORT: String(toCp.port),
    PLUGIN_CONTROL_PLANE_KEY: 'demo-internal-key',
    PLUGIN_HEARTBEAT_MS: '1',
  });
  const running = await demo.start({ settings, log: silentLog });
  await running.published;
  const toPlugin = await tap(() => running.port);
  const client = new WireClient({ host: '127.0.0.1', port: toPlugin.port });
  const sent: Record<string, Frames> = {};
  const ask = async (name: string, pattern: string, data: unknown) => {
    await client.call(pattern, data, 5_000).catch(() => undefined);
    sent[name] = toPlugin.frames.splice(0);
  };
  const pull = {
    kind: 'executor_batch_pull_v2',
    token: 'demo-plugin-ingress',
    pluginId: 'demo',
    publicationVersion: '0.1.0',
    nodeTypes: ['plugin.demo.greet'],
    cursor: null,
  };
  const task = {
    runId: RUN,
    executionId: STEP,
    nodeId: 'w-greet',
    nodePath: 'w-greet',
    nodeType: 'plugin.demo.greet',
    attempt: 1,
    inputs: { name: 'Ада' },
    outputs: ['greeting'],
    deadline: 1_796_050_800_000,
    workspaceId: 'default',
    userId: 'local',
    diagramId: '0193a5bf-0000-7000-8000-000000000001',
    traceparent: '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01',
  };
  await ask('pull', 'executor_batch_pull', pull);
  await ask('unauthorized', 'executor_batch_pull', { ...pull, token: 'wrong' });
  await ask('unknown', 'plugin.demo.greet', {});
  await ask('task', 'executor.task', task);
  await cp.hears('step_heartbeat');
  goOn();
  await cp.hears('step_result', 2);
  const reports = await toCp.taken('step_result', 4);
  cp.answerBy(report('superseded'));
  await ask('again', 'executor.task', { ...task, executionId: STEP.replace('7d2f', '7d30'), inputs: { name: '' } });
  const failed = await toCp.taken('step_result', 2);
  client.close();
  await running.stop();
  await Promise.all([pm.close(), cp.close()]);
  for (const one of [toPm, toCp, toPlugin]) one.close();
  return steady({
    publication: toPm.frames,
    ...pick(sent, 'pull', 'unauthorized', 'unknown', 'task'),
    ...byReport(reports),
    failure: exchangeOf(failed, 'step_result'),
  });
}

const pick = (all: Record<string, Frames>, ...names: string[]) =>
  Object.fromEntries(names.map((name) => [name, all[name] ?? []]));

/** Request ids of the SDK's client: 21 hexadecimal digits. */
const ID = /"id":"([0-9a-f]{21})"/;
const idOf = (frame: string) => ID.exec(frame)?.[1];

/** The requests under a pattern, each followed by its answer. */
function exchangeOf(frames: Frames, word: string): Frames {
  const asked = frames.filter((frame) => frame.startsWith('>') && frame.includes(`${word}","data"`));
  return asked.flatMap((frame) => [
    frame,
    ...frames.filter((other) => other.startsWith('<') && idOf(other) === idOf(frame)),
  ]);
}

function byReport(frames: Frames): Record<string, Frames> {
  return {
    ack: exchangeOf(frames, 'step_ack'),
    heartbeat: exchangeOf(frames, 'step_heartbeat').slice(0, 2),
    partial: exchangeOf(frames, 'step_partial'),
    result: exchangeOf(frames, 'step_result'),
  };
}

/** Replaces request ids and times by fixed ones of the same length. */
function steady(all: Record<string, Frames>): Record<string, Frames> {
  const ids = new Map<string, string>();
  const fixedId = (id: string) => {
    if (!ids.has(id)) ids.set(id, (ids.size + 1).toString(16).padStart(id.length, '0'));
    return ids.get(id) ?? id;
  };
  const fix = (frame: string) =>
    frame
      .replace(ID, (_, id: string) => `"id":"${fixedId(id)}"`)
      .replace(/"startedAt":"[^"]{24}"/, '"startedAt":"2026-11-30T15:00:00.000Z"');
  return Object.fromEntries(Object.entries(all).map(([name, frames]) => [name, frames.map(fix)]));
}
