import assert from 'node:assert/strict';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import { RpcError } from '../src/core/errors';
import { StepFailure } from '../src/core/failure';
import { silentLog } from '../src/core/log';
import { Reporter } from '../src/core/reporter';
import { Steps, type StepsOptions, type StepWork } from '../src/core/steps';
import { HANG_UP, Peer, SILENCE, task, type Script } from './peers';

/** Steps whose reports go to a scripted control plane. */
async function between(work: StepWork, script?: Script, more: Partial<StepsOptions> = {}) {
  const cp = await new Peer(script).listen();
  const reporter = new Reporter({
    host: '127.0.0.1',
    port: cp.port,
    key: 'cp-key',
    log: silentLog,
    firstPauseMs: 1,
    longestPauseMs: 2,
    answerTimeoutMs: 500,
  });
  const steps = new Steps({
    find: (nodeType) => (nodeType === 'n' ? work : undefined),
    reporter,
    log: silentLog,
    started: ({ startedAt, ...step }, signal) => reporter.deliver(step, { kind: 'ack', startedAt }, signal),
    heartbeatMs: 0,
    maxInFlight: 8,
    progressIntervalMs: 1,
    ...more,
  });
  const end = async () => {
    await steps.drain(5_000);
    reporter.close();
    await cp.close();
  };
  return { cp, steps, end };
}

/** Resolves from outside. */
function gate<T = void>() {
  let open: (value: T) => void = () => undefined;
  const passed = new Promise<T>((resolve) => (open = resolve));
  return { open, passed };
}

describe('a task', () => {
  it('is delivered at once, acknowledged, and its result reported with the key', async () => {
    const { open, passed } = gate();
    const { cp, steps, end } = await between(async (context) => {
      await passed;
      return { text: String(context.inputs.text).toUpperCase(), gone: undefined };
    });
    const sent = task('n', { text: 'ю😀' });
    assert.deepEqual(steps.take(sent), { delivered: true });
    const ack = await cp.hears('step_ack');
    assert.equal(ack.pattern, 'plugin.executor.step_ack');
    const { startedAt, ...told } = ack.data;
    assert.deepEqual(told, {
      key: 'cp-key',
      executionId: sent.executionId,
      runId: sent.runId,
      nodeId: 'w-1',
      nodeType: 'n',
    });
    assert.match(startedAt, /^\d{4}-\d\d-\d\dT/);
    open();
    const result = await cp.hears('step_result');
    assert.deepEqual(result.data, {
      key: 'cp-key',
      executionId: sent.executionId,
      runId: sent.runId,
      nodeId: 'w-1',
      nodeType: 'n',
      status: 'ok',
      outputs: { text: 'Ю😀' },
    });
    await end();
  });

  it('that is delivered twice is done once', async () => {
    let runs = 0;
    const { cp, steps, end } = await between(() => ({ runs: (runs += 1) }));
    const sent = task('n');
    steps.take(sent);
    await cp.hears('step_result');
    assert.deepEqual(steps.take(sent), { delivered: true });
    await end();
    assert.equal(runs, 1);
  });

  it('for an unknown node type is refused with the remedy', async () => {
    const { steps, end } = await between(() => ({}));
    assert.throws(
      () => steps.take(task('other')),
      (error: RpcError) => error.code === 'node_type_unknown' && !error.retryable,
    );
    await end();
  });

  it('beyond the limit is refused as retryable', async () => {
    const { open, passed } = gate();
    const { steps, end } = await between(() => passed, undefined, { maxInFlight: 1 });
    steps.take(task('n'));
    assert.throws(() => steps.take(task('n')), { code: 'overloaded', retryable: true });
    open();
    await end();
  });

  it('is refused as retryable while the plugin stops, and running steps are waited for', async () => {
    const { open, passed } = gate();
    const { cp, steps, end } = await between(() => passed);
    steps.take(task('n'));
    await cp.hears('step_ack');
    const ended = end();
    assert.throws(() => steps.take(task('n')), { code: 'unavailable', retryable: true });
    open();
    await ended;
    assert.equal(cp.of('step_result').length, 1);
  });
});

describe('a result', () => {
  it('is sent again until it is answered', async () => {
    const script: Script = (heard, count) => {
      if (!heard.pattern.endsWith('step_result')) return { status: 'applied' };
      return [HANG_UP, new RpcError('engine_unavailable', 'no engine', true), { status: 'duplicate' }][count - 1];
    };
    const { cp, steps, end } = await between(() => ({ n: 1 }), script);
    steps.take(task('n'));
    await cp.hears('step_result', 3);
    await end();
    const [first, second, third] = cp.of('step_result');
    assert.deepEqual(first?.data, second?.data);
    assert.deepEqual(first?.data, third?.data);
  });

  it('is sent again when its answer is lost', async () => {
    const script: Script = (heard, count) =>
      heard.pattern.endsWith('step_result') && count === 1 ? SILENCE : { status: 'duplicate' };
    const { cp, steps, end } = await between(() => ({ n: 1 }), script);
    steps.take(task('n'));
    await cp.hears('step_result', 2);
    await end();
  });

  it('that is too large becomes the failure that says so', async () => {
    const script: Script = (heard) =>
      heard.data.status === 'ok' ? new RpcError('payload_too_large', 'limit 10 bytes') : { status: 'applied' };
    const { cp, steps, end } = await between(() => ({ big: 'x' }), script);
    steps.take(task('n'));
    const { data } = await cp.hears('step_result', 2);
    assert.deepEqual(
      [data.status, data.error],
      ['error', { code: 'payload_too_large', message: 'limit 10 bytes', retryable: false }],
    );
    await end();
  });

  for (const [name, work, error] of [
    ['of a thrown error is its message', () => Promise.reject(new Error('HTTP 503')), { message: 'HTTP 503' }],
    [
      'of a synchronous throw is its message',
      () => {
        throw new Error('no');
      },
      { message: 'no' },
    ],
    ['of a thrown text is the text', () => Promise.reject('plain'), { message: 'plain' }],
    [
      'of a StepFailure has its code',
      () => {
        throw new StepFailure('later', { code: 'busy', retryable: true, details: { a: 1 } });
      },
      { message: 'later', code: 'busy', retryable: true, details: { a: 1 } },
    ],
    [
      'that is no object is a failure',
      () => 5,
      {
        message: 'the node must return an object keyed by output name, not a number',
        code: 'step_failed',
        retryable: false,
      },
    ],
  ] as [string, StepWork, object][]) {
    it(name, async () => {
      const { cp, steps, end } = await between(work);
      steps.take(task('n'));
      const { data } = await cp.hears('step_result');
      assert.equal(data.status, 'error');
      assert.deepEqual(data.error, error);
      await end();
    });
  }

  it('that cannot be written as JSON is a failure', async () => {
    const { cp, steps, end } = await between(() => ({ big: 1n }));
    steps.take(task('n'));
    assert.match((await cp.hears('step_result')).data.error.message, /cannot be written as JSON/);
    await end();
  });

  it('of nothing at all is empty', async () => {
    const { cp, steps, end } = await between(() => undefined);
    steps.take(task('n'));
    assert.deepEqual((await cp.hears('step_result')).data.outputs, {});
    await end();
  });
});

describe('long work', () => {
  it('sends heartbeats, with the newest progress', async () => {
    const { open, passed } = gate();
    const { cp, steps, end } = await between(
      async (context) => {
        context.progress(0.25, 'reading');
        await passed;
        return {};
      },
      undefined,
      { heartbeatMs: 2 },
    );
    const sent = task('n');
    steps.take(sent);
    await cp.hears('step_heartbeat', 3);
    open();
    await end();
    assert.deepEqual(cp.of('step_heartbeat')[2]?.data, {
      key: 'cp-key',
      executionId: sent.executionId,
      runId: sent.runId,
      nodeId: 'w-1',
      nodeType: 'n',
      progress: 0.25,
      message: 'reading',
    });
  });

  it('sends progress at once also without regular heartbeats', async () => {
    const { open, passed } = gate();
    const { cp, steps, end } = await between((context) => {
      context.progress(7);
      return passed;
    });
    steps.take(task('n'));
    assert.equal((await cp.hears('step_heartbeat')).data.progress, 1);
    open();
    await end();
  });

  it('is cancelled when a heartbeat is answered with superseded', async () => {
    const script: Script = (heard) =>
      heard.pattern.endsWith('step_heartbeat')
        ? new RpcError('superseded', 'a newer attempt exists')
        : { status: 'applied' };
    const { cp, steps, end } = await between(
      async (context) => {
        await once(context.signal, 'abort');
        throw context.signal.reason;
      },
      script,
      { heartbeatMs: 1 },
    );
    steps.take(task('n'));
    const { data } = await cp.hears('step_result');
    assert.deepEqual([data.status, data.error.code], ['error', 'superseded']);
    await end();
  });

  it('that does not heed its signal is not waited for', async () => {
    const script: Script = (heard) =>
      heard.pattern.endsWith('step_ack') ? new RpcError('run_terminal', 'the run has ended') : { status: 'applied' };
    const { cp, steps, end } = await between(() => new Promise(() => undefined), script, { cancelGraceMs: 1 });
    steps.take(task('n'));
    assert.equal((await cp.hears('step_result')).data.error.code, 'superseded');
    await end();
  });

  it('reports partial outputs in order', async () => {
    const { cp, steps, end } = await between(async (context) => {
      await context.partial({ text: 'a' });
      await context.partial({ text: 'ab' });
      return { text: 'abc' };
    });
    steps.take(task('n'));
    await end();
    assert.deepEqual(
      cp.of('step_partial').map(({ data }) => [data.sequence, data.outputs]),
      [
        [1, { text: 'a' }],
        [2, { text: 'ab' }],
      ],
    );
  });

  it('is given up when the time to stop is over', async () => {
    const { cp, steps } = await between(() => new Promise(() => undefined));
    steps.take(task('n'));
    await cp.hears('step_ack');
    await steps.drain(1);
    assert.equal(steps.inFlight, 0);
    await cp.close();
  });
});
