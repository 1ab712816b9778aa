import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { call, COMMITTED, HANG_UP, Peer, pluginEnv, task, TRACE, traceIn } from './peers';
import { record } from './recorder';

const path = join(process.cwd(), '../../docs/plugin-protocol.md');
const BLOCK = /<!-- frames: (\w+) -->\n```text\n([\s\S]*?)```/g;

describe('the frames in docs/plugin-protocol.md', () => {
  it('are those of a real exchange (UPDATE_DOCS=1 writes them)', async () => {
    const frames = await record();
    const doc = readFileSync(path, 'utf8');
    const shown = [...doc.matchAll(BLOCK)].map(([, name]) => name);
    assert.deepEqual([...shown].sort(), Object.keys(frames).sort());
    const updated = doc.replace(
      BLOCK,
      (_, name: string) => `<!-- frames: ${name} -->\n\`\`\`text\n${(frames[name] ?? []).join('\n')}\n\`\`\``,
    );
    if (process.env.UPDATE_DOCS === '1') writeFileSync(path, updated);
    else assert.equal(updated, doc, 'run the tests with UPDATE_DOCS=1');
  });

  it('have true lengths', () => {
    const frames = [...readFileSync(path, 'utf8').matchAll(/^(?:[<>] )?(\d+)#(\{.*\})$/gm)];
    assert.ok(frames.length > 20);
    for (const [frame, length, json] of frames) {
      assert.equal(Number(length), json?.length, frame);
      JSON.parse(json ?? '');
    }
  });
});

const hasPython = spawnSync('python3', ['-c', 'import sys; assert sys.version_info >= (3, 9)']).status === 0;

describe('the Python plugin that was made from it', { skip: hasPython ? false : 'no python3 here' }, () => {
  it('publishes, is pulled, works on a task and reports until it is answered', async () => {
    const pm = await new Peer(() => COMMITTED).listen();
    const cp = await new Peer((heard, count) =>
      heard.pattern.endsWith('step_result') && count === 1 ? HANG_UP : { status: 'applied' },
    ).listen();
    const child = spawn('python3', [join(process.cwd(), '../../examples/plugins/python-minimal/plugin.py')], {
      env: { PATH: process.env.PATH, ...pluginEnv(pm, cp) },
      stdio: ['ignore', 'inherit', 'inherit'],
    });
    const { data } = await pm.hears('manifest_request_v2');
    const { port } = data.pull;
    const node = 'plugin.python-minimal.count';
    await assert.rejects(call(port, 'executor_batch_pull', { token: 'wrong' }), { code: 'unauthorized' });
    const { items } = await call(port, 'executor_batch_pull', { token: 'ingress', nodeTypes: [] });
    assert.equal(items[0].nodeType, node);
    await call(port, 'executor.task', task(node, { text: 'Ада и 😀' }, TRACE));
    assert.deepEqual(traceIn(await cp.hears('step_ack')), [TRACE.traceparent, TRACE.tracestate]);
    const told = await cp.hears('step_result', 2);
    assert.deepEqual([told.data.outputs, ...traceIn(told)], [{ words: 3 }, TRACE.traceparent, TRACE.tracestate]);
    await call(port, 'executor.task', task(node, {}));
    const { error } = (await cp.hears('step_result', 3)).data;
    assert.deepEqual([error.code, error.retryable], ['invalid_node_input', false]);
    await assert.rejects(call(port, 'nope', {}), { code: 'unknown_pattern' });
    child.kill('SIGTERM');
    assert.equal(((await once(child, 'exit')) as [number])[0], 0);
    await Promise.all([pm.close(), cp.close()]);
  });
});
