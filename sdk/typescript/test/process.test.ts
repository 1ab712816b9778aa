import assert from 'node:assert/strict';
import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { call, COMMITTED, Peer, pluginEnv, task } from './peers';

async function startFixture(
  more: Record<string, string> = {},
): Promise<{ pm: Peer; cp: Peer; child: ChildProcess; port: number }> {
  const pm = await new Peer(() => COMMITTED).listen();
  const cp = await new Peer().listen();
  const child = fork(join(__dirname, 'fixture-main.js'), {
    env: { PATH: process.env.PATH, ...pluginEnv(pm, cp, more) },
    stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
  });
  const { data } = await pm.hears('manifest_request_v2');
  return { pm, cp, child, port: data.pull.port };
}

describe('a plugin process', () => {
  it('on SIGTERM refuses new tasks, finishes and reports the running step, and ends with 0', async () => {
    const { pm, cp, child, port } = await startFixture();
    await call(port, 'executor.task', task('plugin.fixture.wait'));
    await cp.hears('step_ack');
    child.kill('SIGTERM');
    const refused = async (): Promise<unknown> =>
      call(port, 'executor.task', task('data.open')).then(refused, (error: unknown) => error);
    assert.match(String(await refused()), /the plugin is stopping/);
    assert.equal(cp.of('step_result').filter(({ data }) => data.nodeType === 'plugin.fixture.wait').length, 0);
    child.send('go on');
    const [code] = (await once(child, 'exit')) as [number];
    assert.equal(code, 0);
    assert.equal(cp.of('step_result').at(-1)?.data.outputs.text, 'done 019364f1-0000-7000-8000-00000000000a');
    await Promise.all([pm.close(), cp.close()]);
  });

  it('does not wait longer than PLUGIN_DRAIN_MS', async () => {
    const { pm, cp, child, port } = await startFixture({ PLUGIN_DRAIN_MS: '1' });
    await call(port, 'executor.task', task('plugin.fixture.wait'));
    await cp.hears('step_ack');
    child.kill('SIGTERM');
    assert.equal(((await once(child, 'exit')) as [number])[0], 0);
    await Promise.all([pm.close(), cp.close()]);
  });

  it('reports to a control plane that comes back', async () => {
    const { pm, cp, child, port } = await startFixture();
    const { port: cpPort } = cp;
    await call(port, 'executor.task', task('plugin.fixture.wait'));
    await cp.hears('step_ack');
    await cp.close();
    child.send('go on');
    const again = await new Peer().listen(cpPort);
    assert.equal((await again.hears('step_result')).data.status, 'ok');
    child.kill('SIGTERM');
    await once(child, 'exit');
    await Promise.all([pm.close(), again.close()]);
  });

  it('without its keys ends with 1', async () => {
    const child = fork(join(__dirname, 'fixture-main.js'), {
      env: { PATH: process.env.PATH },
      stdio: ['ignore', 'ignore', 'ignore', 'ipc'],
    });
    assert.equal(((await once(child, 'exit')) as [number])[0], 1);
  });
});
