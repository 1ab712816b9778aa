// Every plugin as a process between a scripted plugin-manager and control plane: publication, batch
// pull, and each node from task to result. The peers come from the SDK's tests (`npm test` there).
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, it } from 'node:test';

const root = join(import.meta.dirname, '..');
const { Peer, COMMITTED, call, pluginEnv, task } = createRequire(import.meta.url)(
  join(root, '../../sdk/typescript/.test-build/test/peers.js'),
);

/** A plugin that runs while the tests of its suite do. */
function plugin(name, env = {}) {
  const running = {};
  before(async () => {
    running.pm = await new Peer(() => COMMITTED).listen();
    running.cp = await new Peer().listen();
    running.child = spawn(process.execPath, ['dist/main.js'], {
      cwd: join(root, name),
      env: { PATH: process.env.PATH, ...pluginEnv(running.pm, running.cp, env) },
      stdio: 'ignore',
    });
    running.manifest = (await running.pm.hears('manifest_request_v2')).data;
    const { items } = await call(running.manifest.pull.port, 'executor_batch_pull', {
      kind: 'executor_batch_pull_v2',
      token: 'ingress',
      nodeTypes: [],
      cursor: null,
    });
    running.items = Object.fromEntries(items.map((item) => [item.nodeType, item]));
    assert.deepEqual(
      Object.keys(running.items),
      running.manifest.executors.map((executor) => executor.nodeType),
    );
  });
  after(async () => {
    running.child.kill('SIGTERM');
    const [code] = await once(running.child, 'exit');
    await Promise.all([running.pm.close(), running.cp.close()]);
    assert.equal(code, 0);
  });
  running.run = async (nodeType, inputs, more = {}) => {
    running.cp.heard.length = 0;
    await call(running.manifest.pull.port, 'executor.task', task(nodeType, inputs, more));
    return (await running.cp.hears('step_result')).data;
  };
  return running;
}

describe('example', () => {
  const example = plugin('example');

  it('echoes the trimmed text and its length', async () => {
    assert.deepEqual((await example.run('plugin.example.echo', { text: '  привет ' })).outputs, {
      text: 'привет',
      length: 6,
    });
  });

  it('has help', () => assert.match(example.items['plugin.example.echo'].help, /^# Echo/));
});

describe('courier', () => {
  const courier = plugin('courier');
  const calls = [];
  const answers = [];
  const server = createServer(async (request, response) => {
    let body = '';
    for await (const chunk of request) body += chunk;
    calls.push({ authorization: request.headers.authorization, body });
    const [status, text] = answers.shift() ?? [200, '{"ok":true}'];
    response.writeHead(status).end(text);
  });
  let url;
  before(async () => {
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    url = `http://127.0.0.1:${server.address().port}/`;
  });
  after(() => server.close());

  it('posts with the secret as its token, after a failed try', async () => {
    answers.push([503, 'busy']);
    const { outputs } = await courier.run('plugin.courier.post', {
      botToken: 's3cret',
      url,
      text: 'hi',
      retryDelayMs: 1,
    });
    assert.deepEqual(outputs, { result: { ok: true }, status: 'sent' });
    assert.deepEqual(calls.at(-1), { authorization: 'Bearer s3cret', body: '{"text":"hi","parseMode":"plain"}' });
  });

  it('fails the step after three tries', async () => {
    answers.push([500, 'a'], [500, 'b'], [500, 'down']);
    const { status, error } = await courier.run('plugin.courier.post', {
      botToken: 's',
      url,
      text: 'hi',
      retryDelayMs: '1',
    });
    assert.deepEqual([status, error.message], ['error', '500 - down']);
  });

  it('fails a step whose secret is missing, by the name of the field', async () => {
    const { error } = await courier.run('plugin.courier.post', { url, text: 'hi' });
    assert.equal(error.code, 'invalid_node_input');
    assert.match(error.message, /input "botToken"/);
  });

  it('tells an HTTP error as an output', async () => {
    answers.push([404, 'gone']);
    assert.deepEqual((await courier.run('plugin.courier.fetch', { url })).outputs, {
      data: null,
      status: 'error: 404 - gone',
    });
  });

  it('declares its secret', () => {
    const [token] = courier.items['plugin.courier.post'].inputs;
    assert.deepEqual([token.type, token.static, token.secretKind], ['ref', true, 'API_TOKEN']);
  });
});

describe('letters', () => {
  const letters = plugin('letters');

  it('has node types without its prefix, and an owner that its executors do not name', () => {
    const item = letters.items['data.letter.compose'];
    assert.deepEqual([item.pluginId, item.pluginLabel], ['letters', 'Letters']);
  });

  it('composes a message with attachments, whether a flag comes as text or not', async () => {
    for (const important of [true, 'true']) {
      const { outputs } = await letters.run('data.letter.compose', {
        subject: 'Тема',
        to: 'a@example.org',
        body: '<b>hi</b>',
        from: 'b@example.org',
        important,
        attachment: { filename: 'a.txt', base64: 'YQ==' },
      });
      assert.ok(outputs.result.includes(`Subject: =?UTF-8?B?${Buffer.from('‼ Тема').toString('base64')}?=`));
      assert.ok(outputs.result.includes('YQ=='));
      assert.equal(outputs.size, Buffer.byteLength(outputs.result));
    }
  });
});

describe('tables', () => {
  const folder = mkdtempSync(join(tmpdir(), 'tables-'));
  const tables = plugin('tables', { RUN_WORKSPACE_PATH: folder });

  it('writes rows and reads them again', async () => {
    const rows = [
      { имя: 'Ада', note: 'a "b", c' },
      { имя: 'Боб', note: 'two\nlines' },
    ];
    const written = await tables.run('system.tables.csv.write', { rows: JSON.stringify(rows), path: 'out/t.csv' });
    assert.equal(
      Buffer.from(written.outputs.file.base64, 'base64').toString(),
      readFileSync(join(folder, 'out/t.csv'), 'utf8'),
    );
    assert.deepEqual((await tables.run('system.tables.csv.read', { path: 't.csv', basePath: 'out' })).outputs, {
      rows,
      rowCount: 2,
    });
  });

  it('reads nothing outside its folder', async () => {
    assert.match(
      (await tables.run('system.tables.csv.read', { path: '../../etc/passwd' })).error.message,
      /leaves the folder/,
    );
  });

  it('fails with the code of the system', async () => {
    assert.equal((await tables.run('system.tables.csv.read', { path: 'nope.csv' })).error.code, 'ENOENT');
  });

  it('has sections and tags in the palette', () => {
    const { sectionPath, tags, pluginLabel } = tables.items['system.tables.csv.read'];
    assert.deepEqual([sectionPath, tags, pluginLabel], [['csv'], ['csv', 'file'], 'Таблицы']);
  });
});

describe('tracker', () => {
  const tracker = plugin('tracker');
  const connection = { baseUrl: 'memory:a', apiKey: 'k' };

  it('creates, lists and gets issues', async () => {
    const { outputs } = await tracker.run('plugin.tracker.issue.create', {
      ...connection,
      title: 'Fix',
      labels: [{ name: 'Good First' }],
    });
    const issue = { id: 1, title: 'Fix', status: 'open', labels: ['good-first'] };
    assert.deepEqual(outputs, { id: 1, data: issue });
    assert.deepEqual(
      (await tracker.run('plugin.tracker.issue.list', { ...connection, statuses: ['open'], maxResults: '5' })).outputs,
      { issues: [issue], total: 1 },
    );
    assert.deepEqual((await tracker.run('plugin.tracker.issue.get', { ...connection, id: '1' })).outputs, {
      data: issue,
      status: 'ok',
    });
    assert.equal(
      (await tracker.run('plugin.tracker.issue.get', { ...connection, id: 9 })).outputs.status,
      'error: 404 - Not Found',
    );
  });

  it('names the nested field that is wrong', async () => {
    const { error } = await tracker.run('plugin.tracker.issue.create', {
      ...connection,
      title: 'x',
      labels: [{ name: '' }],
    });
    assert.equal(error.details.faults[0].path, '$.inputs.labels.0.name');
  });

  it('shows the fields of each DTO itself, not those it inherits', () => {
    assert.deepEqual(
      tracker.items['plugin.tracker.issue.list'].inputs.map((input) => input.name),
      ['baseUrl', 'apiKey'],
    );
    assert.equal(tracker.items['plugin.tracker.issue.list'].outputs[0].type, 'ref');
  });
});

describe('research', () => {
  const research = plugin('research', { PLUGIN_HEALTH_HTTP_PORT: '0', PLUGIN_HEARTBEAT_MS: '1' });

  it('publishes a form and a widget that can be fetched', async () => {
    const { manifest } = research;
    assert.deepEqual(manifest.executors[0], {
      nodeType: 'plugin.research.survey',
      requiredTemplateKeys: ['ui.widget.research.survey'],
    });
    assert.equal(manifest.ui.forms[0].assetKey, manifest.staticAssets[0].key);
    for (const asset of manifest.staticAssets) {
      assert.match(await (await fetch(asset.url)).text(), /export default/);
    }
  });

  it('works long, with heartbeats and partial outputs', async () => {
    const { outputs } = await research.run('plugin.research.survey', {
      question: 'rust',
      sources: ['Rust is', 'no', 'in rust'],
      pauseMs: 20,
    });
    assert.deepEqual(outputs, { findings: ['Rust is', 'in rust'], read: 3 });
    assert.ok(research.cp.of('step_heartbeat').length > 0);
    assert.deepEqual(
      research.cp.of('step_partial').map(({ data }) => data.outputs.findings.length),
      [1, 2],
    );
  });

  it('may return what is no port', async () => {
    assert.deepEqual((await research.run('plugin.research.survey', { question: 'x', sources: '[]' })).outputs, {
      findings: [],
      read: 0,
      skipped: true,
    });
  });

  it('takes any input where the set is open', async () => {
    assert.equal(research.items['plugin.research.tool.router'].inputs, null);
    assert.deepEqual(
      JSON.parse((await research.run('plugin.research.tool.router', { любой: [1], b: { c: null } })).outputs.tools),
      { любой: [1], b: { c: null } },
    );
  });

  it('counts the turns of a run', async () => {
    const turn = async () => (await research.run('plugin.research.guard', { maxTurns: 2 })).outputs;
    assert.deepEqual(
      [await turn(), await turn()],
      [
        { continueLoop: true, turn: 1 },
        { continueLoop: false, turn: 2 },
      ],
    );
  });

  it('returns the outputs that are asked for', async () => {
    const inputs = { question: 'q', findings: ['a'] };
    assert.deepEqual((await research.run('plugin.research.answer', inputs, { outputs: ['text', 'usage'] })).outputs, {
      text: 'q: a',
      usage: { findings: 1 },
    });
    assert.deepEqual((await research.run('plugin.research.answer', inputs)).outputs, {});
    assert.deepEqual((await research.run('plugin.research.answer', { question: 'q' })).error, {
      message: 'nothing was found for "q"',
      code: 'no_findings',
      retryable: false,
    });
  });

  it('uses every field type but select, which courier and tracker have', () => {
    const types = new Set(
      Object.values(research.items)
        .flatMap((item) => [...(item.inputs ?? []), ...item.outputs])
        .map((param) => param.type),
    );
    assert.deepEqual([...types].sort(), ['boolean', 'keyvalue', 'number', 'ref', 'string', 'textarea']);
  });
});
