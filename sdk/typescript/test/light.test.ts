import assert from 'node:assert/strict';
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { z } from 'zod';
import { RpcError } from '../src/core/errors';
import { silentLog } from '../src/core/log';
import { readSettings, SettingsError, warnIfInsecure } from '../src/core/settings';
import { defineNode, definePlugin } from '../src/light/index';
import { call, COMMITTED, Peer, pluginEnv, task, TRACE, traceIn, type Script } from './peers';

const count = defineNode({
  nodeType: 'plugin.text.count',
  name: 'Count words',
  description: 'Counts',
  inputs: z.object({
    text: z.string().min(1).meta({ title: 'Text', description: 'What to count' }),
    least: z.coerce.number().int().default(2),
    mode: z.enum(['words', 'letters']).optional(),
    token: z.string().optional(),
    rows: z
      .array(z.object({ a: z.number() }))
      .nullable()
      .optional(),
  }),
  outputs: z.object({ words: z.number().meta({ title: 'Words' }) }),
  fields: { text: { type: 'textarea', isPrimary: true }, token: { type: 'ref', secretKind: 'API_TOKEN' } },
  run: ({ text, least }) => ({ words: text.split(/\s+/).filter((word) => word.length >= least).length }),
});

const open = defineNode({
  nodeType: 'any.open',
  name: 'Open',
  inputs: null,
  outputs: z.object({ all: z.unknown() }),
  run: (input) => ({ all: input }),
});

const dir = mkdtempSync(join(tmpdir(), 'assets-'));
writeFileSync(join(dir, 'form.mjs'), 'export default {}');
writeFileSync(join(dir, 'secret.txt'), 'no');

const plugin = definePlugin({
  id: 'text',
  version: '0.1.0',
  label: 'Текст',
  nodes: [count, open],
  ui: {
    assetsDir: dir,
    assets: { 'ui.form.go': { file: 'form.mjs' }, out: { file: '../escape.mjs' } },
    forms: [{ id: 'go', label: 'Go', assetKey: 'ui.form.go' }],
  },
});

async function started(pmScript: Script = () => COMMITTED, env: Record<string, string> = {}) {
  const pm = await new Peer(pmScript).listen();
  const cp = await new Peer().listen();
  const running = await plugin.start({ settings: readSettings(pluginEnv(pm, cp, env)), log: silentLog });
  const end = async () => {
    await running.stop();
    await Promise.all([pm.close(), cp.close()]);
  };
  return { pm, cp, running, end };
}

describe('publication', () => {
  it('sends the manifest with the token and the port that is listened on', async () => {
    const { pm, running, end } = await started();
    assert.deepEqual(await running.published, COMMITTED);
    const { pattern, data } = await pm.hears('manifest_request_v2');
    assert.equal(pattern, 'manifest_request_v2');
    assert.deepEqual(data, {
      token: 'ingress',
      kind: 'plugin_manifest_request_v2',
      pluginId: 'text',
      publicationVersion: '0.1.0',
      label: 'Текст',
      description: '',
      variables: [],
      staticAssets: [],
      executors: [{ nodeType: 'plugin.text.count' }, { nodeType: 'any.open' }],
      pull: { host: '127.0.0.1', port: running.port },
    });
    await end();
  });

  it('is tried again while plugin-manager is away or asks for it', async () => {
    const script: Script = (_, n) => (n < 3 ? new RpcError('batch_pull_failed', 'not reachable', true) : COMMITTED);
    const { pm, running, end } = await started(script);
    await running.published;
    assert.equal(pm.heard.length, 3);
    await end();
  });

  it('stops at a refusal, and the plugin serves all the same', async () => {
    const { pm, running, end } = await started(() => new RpcError('unauthorized', 'unauthorized'));
    assert.equal(await running.published, undefined);
    assert.equal(pm.heard.length, 1);
    assert.deepEqual(await call(running.port, 'executor.task', task('any.open')), { delivered: true });
    await end();
  });

  it('stops after the tries that it is given', async () => {
    const { pm, running, end } = await started(() => new RpcError('unavailable', 'no', true), {
      PLUGIN_MANAGER_MANIFEST_ON_INIT_MAX_ATTEMPTS: '2',
    });
    assert.equal(await running.published, undefined);
    assert.equal(pm.heard.length, 2);
    await end();
  });

  it('can be turned off', async () => {
    const { pm, running, end } = await started(undefined, { PLUGIN_MANAGER_MANIFEST_ON_INIT_DISABLED: 'true' });
    assert.equal(await running.published, undefined);
    assert.equal(pm.heard.length, 0);
    await end();
  });
});

describe('the batch pull', () => {
  it('answers items whose fields follow the schemas', async () => {
    const { running, end } = await started();
    const { items } = await call(running.port, 'executor_batch_pull', {
      kind: 'executor_batch_pull_v2',
      token: 'ingress',
      nodeTypes: ['plugin.text.count'],
      cursor: null,
    });
    assert.deepEqual(items, [
      {
        nodeType: 'plugin.text.count',
        name: 'Count words',
        description: 'Counts',
        pluginId: 'text',
        pluginLabel: 'Текст',
        transport: { type: 'tcp', params: { host: '127.0.0.1', port: running.port } },
        inputs: [
          {
            name: 'text',
            type: 'textarea',
            label: 'Text',
            description: 'What to count',
            required: true,
            canBePort: true,
            isPort: true,
            isPrimary: true,
          },
          { name: 'least', type: 'number', label: 'least', default: 2, canBePort: true, isPort: false },
          {
            name: 'mode',
            type: 'select',
            label: 'mode',
            options: ['words', 'letters'],
            canBePort: true,
            isPort: false,
          },
          { name: 'token', type: 'ref', label: 'token', static: true, secretKind: 'API_TOKEN' },
          { name: 'rows', type: 'keyvalue', label: 'rows', canBePort: true, isPort: false },
        ],
        outputs: [{ name: 'words', type: 'number', label: 'Words' }],
      },
    ]);
    await end();
  });

  it('says null for an open input set, and all items when none is named', async () => {
    const { running, end } = await started();
    const { items } = await call(running.port, 'plugin.executor_batch_pull', { auth: { token: 'ingress' } });
    assert.deepEqual(
      items.map((item: { inputs: unknown }) => item.inputs === null),
      [false, true],
    );
    await end();
  });

  it('is refused without the token, and nothing else is said', async () => {
    const { running, end } = await started();
    await assert.rejects(call(running.port, 'executor_batch_pull', { token: 'wrong' }), {
      code: 'unauthorized',
      message: 'unauthorized',
    });
    await assert.rejects(call(running.port, 'executor_batch_pull', {}), { code: 'unauthorized' });
    await end();
  });
});

describe('a light node', () => {
  it('gets inputs as its schema reads them', async () => {
    const { cp, running, end } = await started();
    await call(running.port, 'executor.task', task('plugin.text.count', { text: 'a bb ccc', least: '3' }));
    assert.deepEqual((await cp.hears('step_result')).data.outputs, { words: 1 });
    await end();
  });

  it('fails with the name of the field that is wrong', async () => {
    const { cp, running, end } = await started();
    await call(running.port, 'executor.task', task('plugin.text.count', { text: '', mode: 'lines' }));
    const { error } = (await cp.hears('step_result')).data;
    assert.equal(error.code, 'invalid_node_input');
    assert.equal(error.retryable, false);
    assert.match(error.message, /^input "text": .*; input "mode": /);
    assert.deepEqual(
      error.details.faults.map((fault: { path: string }) => fault.path),
      ['$.inputs.text', '$.inputs.mode'],
    );
    await end();
  });

  it('with an open set gets every input unchanged', async () => {
    const { cp, running, end } = await started();
    const inputs = { имя: [[]], n: '5', deep: { a: [null, { b: 1.5 }] } };
    await call(running.port, 'executor.task', task('any.open', inputs));
    assert.deepEqual((await cp.hears('step_result')).data.outputs.all, inputs);
    await end();
  });

  it('sends no ack with DISABLE_RUNTIME_STEP_ACK=true', async () => {
    const { cp, running, end } = await started(undefined, { DISABLE_RUNTIME_STEP_ACK: 'true' });
    await call(running.port, 'executor.task', task('any.open'));
    await cp.hears('step_result');
    await end();
    assert.equal(cp.of('step_ack').length, 0);
  });

  it('sends the trace context of a task back with ack and result, and none that is not there', async () => {
    const { cp, running, end } = await started();
    await call(running.port, 'executor.task', task('any.open', {}, TRACE));
    assert.deepEqual(traceIn(await cp.hears('step_result')), [TRACE.traceparent, TRACE.tracestate]);
    assert.deepEqual(traceIn(await cp.hears('step_ack')), [TRACE.traceparent, TRACE.tracestate]);
    await call(running.port, 'executor.task', task('any.open', {}, { traceparent: 7, tracestate: undefined }));
    assert.deepEqual(traceIn(await cp.hears('step_result', 2)), [undefined, undefined]);
    await end();
  });

  it('runs in a test without any wire', async () => {
    assert.deepEqual(await plugin.run('plugin.text.count', { text: 'one two' }), { words: 2 });
    await assert.rejects(plugin.run('plugin.text.count', {}), /input "text"/);
  });

  it('that a task names wrongly is refused', async () => {
    const { running, end } = await started();
    await assert.rejects(call(running.port, 'executor.task', task('nope')), { code: 'node_type_unknown' });
    await assert.rejects(call(running.port, 'executor.task', { inputs: [] }), {
      code: 'invalid_request',
      message: /runId must be a string; executionId.*inputs must be an object/,
    });
    await end();
  });
});

describe('health and assets', () => {
  it('are served on their own port, and the manifest names it', async () => {
    const { pm, running, end } = await started(undefined, { PLUGIN_HEALTH_HTTP_PORT: '0' });
    const base = `http://127.0.0.1:${running.httpPort}`;
    const { data } = await pm.hears('manifest_request_v2');
    assert.deepEqual(data.staticAssets[0], {
      key: 'ui.form.go',
      url: `${base}/assets/ui.form.go`,
      mediaType: 'application/javascript',
    });
    assert.deepEqual(data.ui, { forms: [{ id: 'go', label: 'Go', assetKey: 'ui.form.go' }] });
    const health = await fetch(`${base}/health`);
    assert.deepEqual([health.status, await health.json()], [200, { status: 'ok', pluginId: 'text', steps: 0 }]);
    const asset = await fetch(data.staticAssets[0].url as string);
    assert.deepEqual(
      [asset.headers.get('content-type'), await asset.text()],
      ['application/javascript; charset=utf-8', 'export default {}'],
    );
    for (const path of [
      '/assets/nope',
      '/assets/out',
      '/assets/secret.txt',
      '/assets/..%2fsecret.txt',
      '/assets/__proto__',
      '/',
    ]) {
      assert.equal((await fetch(base + path)).status, 404, path);
    }
    assert.equal((await fetch(base, { method: 'POST' })).status, 405);
    await end();
  });
});

describe('a port that is taken', () => {
  it('refuses the start with the variable that names another', async () => {
    const { pm, cp, running, end } = await started(undefined, { PLUGIN_HEALTH_HTTP_PORT: '0' });
    for (const [variable, port] of [
      ['PLUGIN_TCP_PORT', running.port],
      ['PLUGIN_HEALTH_HTTP_PORT', running.httpPort],
    ]) {
      const settings = readSettings(pluginEnv(pm, cp, { [variable as string]: String(port) }));
      await assert.rejects(plugin.start({ settings, log: silentLog }), new RegExp(`${port} is taken.*${variable}`));
    }
    await end();
  });
});

describe('settings', () => {
  const base = { PLUGIN_MANAGER_INGRESS_TOKEN: 't', PLUGIN_CONTROL_PLANE_KEY: 'k' };

  it('take the first port variable that is set', () => {
    assert.equal(readSettings({ ...base, PORT: '1', EXECUTOR_TCP_PORT: '2', PLUGIN_TCP_PORT: '3' }).port, 3);
    assert.equal(readSettings({ ...base, PORT: '1', EXECUTOR_TCP_PORT: '2', PLUGIN_TCP_PORT: '' }).port, 2);
    assert.equal(readSettings(base, 9409).port, 9409);
    assert.deepEqual(
      readSettings({ ...base, PORT: '1', PLUGIN_PULL_ADVERTISED_HOST: ' h ', PLUGIN_PULL_ADVERTISED_PORT: '' })
        .advertised,
      { host: 'h', port: 1 },
    );
  });

  it('know the other name of the control plane host', () => {
    assert.equal(readSettings({ ...base, RUNTIME_ENGINE_TCP_HOST: 'a' }).controlPlane.host, 'a');
    assert.equal(
      readSettings({ ...base, RUNTIME_ENGINE_TCP_HOST: 'a', CONTROL_PLANE_TCP_HOST: 'b' }).controlPlane.host,
      'b',
    );
  });

  it('name every fault at once, with variable and value', () => {
    assert.throws(
      () => readSettings({ PORT: 'x', PLUGIN_MAX_IN_FLIGHT: '-1', DISABLE_RUNTIME_STEP_ACK: 'maybe' }),
      (error: SettingsError) =>
        error.faults.length === 5 &&
        [
          'PORT=x',
          'PLUGIN_MAX_IN_FLIGHT=-1',
          'maybe',
          'PLUGIN_MANAGER_INGRESS_TOKEN',
          'PLUGIN_CONTROL_PLANE_KEY',
        ].every((word) => error.message.includes(word)),
    );
  });

  it('may leave credentials out on a machine of your own, which is said at every start', () => {
    const warned: unknown[] = [];
    const log = { ...silentLog, warn: (event: string, _: string, fields?: object) => warned.push([event, fields]) };
    warnIfInsecure(readSettings({ CONVEYOR_INSECURE_DEV: 'true' }), log);
    warnIfInsecure(readSettings(base), log);
    assert.deepEqual(warned, [
      ['plugin_insecure', { missing: ['PLUGIN_MANAGER_INGRESS_TOKEN', 'PLUGIN_CONTROL_PLANE_KEY'] }],
    ]);
  });
});
