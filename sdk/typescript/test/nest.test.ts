import 'reflect-metadata';
import { Logger, type INestMicroservice } from '@nestjs/common';
import { ClientProxyFactory, Transport } from '@nestjs/microservices';
import assert from 'node:assert/strict';
import { after, before, beforeEach, describe, it } from 'node:test';
import { lastValueFrom } from 'rxjs';
import {
  bootstrapPluginExecutorMicroservice,
  executorsFromClasses,
  FieldDecorator,
  Executor,
  loadHelpFromFile,
  PluginHostPorts,
  SettingsError,
} from '../src/index';
import { paramsOfDto } from '../src/nest/decorators';
import { EchoInput, FixtureModule, seenRequests } from './fixtures';
import { call, COMMITTED, Peer, pluginEnv, task, TRACE, traceIn } from './peers';

Logger.overrideLogger(false);

describe('a plugin on NestJS', () => {
  let pm: Peer;
  let cp: Peer;
  let app: INestMicroservice;
  const saved = { ...process.env };
  const ports = () => app.get(PluginHostPorts, { strict: false }).current ?? { tcp: 0 };
  const port = () => ports().tcp;

  before(async () => {
    pm = await new Peer(() => COMMITTED).listen();
    cp = await new Peer().listen();
    Object.assign(process.env, pluginEnv(pm, cp, { PLUGIN_HEALTH_HTTP_PORT: '0', PLUGIN_PUBLICATION_VERSION: '7' }));
    app = await bootstrapPluginExecutorMicroservice(FixtureModule, { handleSignals: false });
  });

  beforeEach(() => void (cp.heard.length = 0));

  after(async () => {
    await app.close();
    await Promise.all([pm.close(), cp.close()]);
    process.env = saved;
  });

  const result = async (nodeType: string, inputs: Record<string, unknown>, more: Record<string, unknown> = {}) => {
    assert.deepEqual(await call(port(), 'executor.task', task(nodeType, inputs, more)), { delivered: true });
    return (await cp.hears('step_result')).data;
  };

  it('publishes its manifest once it listens, with the token and real ports', async () => {
    const { pattern, data } = await pm.hears('manifest_request_v2');
    assert.equal(pattern, 'manifest_request_v2');
    assert.deepEqual([data.token, data.pluginId, data.publicationVersion], ['ingress', 'fixture', '7']);
    assert.deepEqual(data.pull, { host: '127.0.0.1', port: port() });
    assert.equal(data.staticAssets[0].url, `http://127.0.0.1:${ports().http}/assets/ui.form.go`);
  });

  it('answers the batch pull with items in the order of its classes', async () => {
    const { items } = await call(port(), 'executor_batch_pull', {
      kind: 'executor_batch_pull_v2',
      token: 'ingress',
      pluginId: 'fixture',
      nodeTypes: [],
      cursor: null,
    });
    assert.deepEqual(
      items.map((item: { nodeType: string }) => item.nodeType),
      ['plugin.fixture.echo', 'data.open', 'plugin.fixture.greet', 'plugin.fixture.wait'],
    );
    assert.deepEqual(items[0], {
      nodeType: 'plugin.fixture.echo',
      name: 'Echo',
      description: 'Echoes',
      help: '# Echo',
      pluginId: 'fixture',
      pluginLabel: 'Fixture',
      inputs: [
        { name: 'text', type: 'string', label: 'Text', isPrimary: true, canBePort: true, isPort: true, required: true },
        { name: 'times', type: 'number', label: 'Times', default: 1 },
        { name: 'rows', type: 'keyvalue', label: 'Rows' },
      ],
      outputs: [
        { name: 'text', type: 'string', label: 'Text' },
        { name: 'seen', type: 'keyvalue', label: 'Seen' },
      ],
      transport: { type: 'tcp', params: { host: '127.0.0.1', port: port() } },
      tags: ['echo'],
      sectionPath: ['fixture'],
    });
    assert.deepEqual([items[1].inputs, items[1].pluginId], [null, 'fixture']);
  });

  it('answers only for the wanted node types', async () => {
    const { items } = await call(port(), 'executor_batch_pull', { token: 'ingress', nodeTypes: ['data.open'] });
    assert.deepEqual(
      items.map((item: { nodeType: string }) => item.nodeType),
      ['data.open'],
    );
  });

  it('never shows the token to the batch source, which may log its request', () => {
    assert.ok(seenRequests.length > 0);
    assert.ok(!JSON.stringify(seenRequests).includes('ingress'));
  });

  it('refuses a batch pull with a wrong token', async () => {
    await assert.rejects(call(port(), 'executor_batch_pull', { token: 'no' }), {
      code: 'unauthorized',
      message: 'unauthorized',
    });
  });

  it('gives execute(ctx, input) one DTO instance with all values unchanged, undecorated ones too', async () => {
    const inputs = { token: 's', text: 'a', rows: [[], [[1]]], extra: { deep: [null] } };
    const { status, outputs } = await result('plugin.fixture.echo', inputs);
    assert.equal(status, 'ok');
    assert.deepEqual(outputs, { text: 'a', seen: { same: true, isDto: true, inputs } });
  });

  it('acknowledges through the notifier of the environment', async () => {
    await result('data.open', {});
    const { data } = await cp.hears('step_ack');
    assert.deepEqual([data.key, data.nodeType], ['cp-key', 'data.open']);
  });

  it('sends the trace context of a task back with ack and result', async () => {
    await result('data.open', {}, TRACE);
    assert.deepEqual(traceIn(await cp.hears('step_ack')), [TRACE.traceparent, TRACE.tracestate]);
    assert.deepEqual(traceIn(await cp.hears('step_result')), [TRACE.traceparent, TRACE.tracestate]);
  });

  it('takes numbers as text and optional ones as nothing, as the editor stores them, and delivers them unchanged', async () => {
    const { outputs } = await result('plugin.fixture.echo', { token: 's', text: 'ab', times: '2' });
    assert.equal(outputs.text, 'abab');
    assert.equal(outputs.seen.inputs.times, '2');
    cp.heard.length = 0;
    assert.equal((await result('plugin.fixture.echo', { token: 's', text: 'ab', times: '' })).status, 'ok');
  });

  it('fails a step whose inputs break the DTO, inherited rules too, and names every field', async () => {
    const { status, error } = await result('plugin.fixture.echo', { token: '', times: '0' });
    assert.equal(status, 'error');
    assert.deepEqual([error.code, error.retryable], ['invalid_node_input', false]);
    assert.deepEqual([...new Set(error.details.faults.map((fault: { path: string }) => fault.path))].sort(), [
      '$.inputs.text',
      '$.inputs.times',
      '$.inputs.token',
    ]);
    assert.match(error.message, /input "token": token must be longer than or equal to 1 characters/);
  });

  it('gives an open input set everything', async () => {
    const inputs = { 'любое имя': 1, b: [[]] };
    assert.deepEqual((await result('data.open', inputs)).outputs, { seen: inputs });
  });

  it('makes an executor with what it injects, nested DTOs as their classes, and defaults of the class', async () => {
    assert.equal((await result('plugin.fixture.greet', { person: { name: 'ann' } })).outputs.text, 'Hello ANN!');
    cp.heard.length = 0;
    const { error } = await result('plugin.fixture.greet', { person: { name: '' } });
    assert.equal(error.details.faults[0].path, '$.inputs.person.name');
  });

  it('finds a node type also without its prefix', async () => {
    assert.equal((await result('echo', { token: 's', text: 'x' })).status, 'ok');
  });

  it('refuses what it does not have', async () => {
    await assert.rejects(call(port(), 'executor.task', task('plugin.other')), { code: 'node_type_unknown' });
    await assert.rejects(call(port(), 'executor.task', { nodeType: 'data.open' }), { code: 'invalid_request' });
  });

  it('takes tasks as events too, and from a real Nest client', async () => {
    const client = ClientProxyFactory.create({
      transport: Transport.TCP,
      options: { host: '127.0.0.1', port: port() },
    });
    assert.deepEqual(
      await lastValueFrom(client.send({ cmd: 'executor.task' }, task('data.open', { via: 'request' }))),
      { delivered: true },
    );
    await cp.hears('step_result');
    await lastValueFrom(client.emit('executor.task', task('data.open', { via: 'event' })), { defaultValue: undefined });
    assert.deepEqual((await cp.hears('step_result', 2)).data.outputs.seen, { via: 'event' });
    await client.close();
  });

  it('serves health and assets', async () => {
    const base = `http://127.0.0.1:${ports().http}`;
    assert.deepEqual(await (await fetch(`${base}/health`)).json(), { status: 'ok', pluginId: 'fixture', steps: 0 });
    assert.equal((await fetch(`${base}/assets/ui.form.go`)).status, 200);
  });
});

describe('declarations', () => {
  it('belong to their own class and not to those that extend it', () => {
    assert.deepEqual(
      paramsOfDto(EchoInput).map((param) => param.name),
      ['text', 'times', 'rows'],
    );
  });

  it('can be made by a function for any class', () => {
    class Target {
      url!: string;
    }
    FieldDecorator({ type: 'string', label: 'URL' })(Target.prototype, 'url');
    assert.deepEqual(paramsOfDto(Target), [{ name: 'url', type: 'string', label: 'URL' }]);
  });

  it('that collide or are missing are named', () => {
    class Out {}
    @Executor({ nodeType: 'a', name: 'A', description: '', inputs: null, outputs: Out })
    class One {
      execute(): void {}
    }
    @Executor({ nodeType: 'a', name: 'B', description: '', inputs: null, outputs: Out })
    class Two {
      execute(): void {}
    }
    class Three {
      execute(): void {}
    }
    assert.throws(() => executorsFromClasses([One, Two]), /Two and One both declare the node type "a"/);
    assert.throws(() => executorsFromClasses([Three]), /Three is not decorated/);
  });

  it('have help from a file, or none', () => {
    assert.equal(loadHelpFromFile(__dirname), undefined);
    assert.match(loadHelpFromFile(__dirname, 'nest.test.js') ?? '', /loadHelpFromFile/);
  });
});

describe('the start', () => {
  it('is refused with every wrong variable named', async () => {
    const saved = process.env;
    process.env = { PATH: saved.PATH };
    await assert.rejects(bootstrapPluginExecutorMicroservice(FixtureModule), SettingsError);
    process.env = saved;
  });
});
