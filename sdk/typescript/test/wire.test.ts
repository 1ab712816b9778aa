import assert from 'node:assert/strict';
import { connect } from 'node:net';
import { once } from 'node:events';
import { describe, it } from 'node:test';
import { WireClient } from '../src/core/client';
import { encodeFrame, FrameDecoder, FrameError } from '../src/core/codec';
import { UnansweredError } from '../src/core/errors';
import { silentLog } from '../src/core/log';
import { patternName } from '../src/core/pattern';
import { WireServer } from '../src/core/server';
import { HANG_UP, Peer, SILENCE } from './peers';

const decodeAll = (decoder: FrameDecoder, ...pieces: (string | Buffer)[]) =>
  pieces.flatMap((piece) => [...decoder.push(Buffer.from(piece as string))]);

describe('frames', () => {
  it('count their length in UTF-16 units, not bytes and not characters', () => {
    assert.equal(encodeFrame('"hi"'), '4#"hi"');
    assert.equal(encodeFrame('"Привет"'), '8#"Привет"');
    assert.equal(encodeFrame('"😀"'), '4#"😀"');
  });

  it('are found however the bytes are cut', () => {
    const bytes = Buffer.from(`${encodeFrame('{"a":"Ж😀"}')}${encodeFrame('[]')}`);
    for (let cut = 0; cut <= bytes.length; cut += 1) {
      assert.deepEqual(decodeAll(new FrameDecoder(), bytes.subarray(0, cut), bytes.subarray(cut)), [
        '{"a":"Ж😀"}',
        '[]',
      ]);
    }
    assert.deepEqual(decodeAll(new FrameDecoder(), ...[...bytes].map((byte) => Buffer.from([byte]))), [
      '{"a":"Ж😀"}',
      '[]',
    ]);
  });

  it('may have white space between them', () => {
    const decoder = new FrameDecoder();
    assert.deepEqual(decodeAll(decoder, '2#[]\r\n2#{}\n'), ['[]', '{}']);
    assert.equal(decoder.inFrame, false);
  });

  it('have a length that is read as parseInt reads it', () => {
    for (const length of ['4', '+4', '0004', '4.9', '4abc', '4 ', ' 4', '\r\n 4', '\ufeff4']) {
      assert.deepEqual(decodeAll(new FrameDecoder(), `${length}#"hi"2#[]`), ['"hi"', '[]'], length);
    }
  });

  it('are refused when the header is none, before anything is buffered', () => {
    for (const header of ['abc#{}', '#{}', '-5#{}', '0#', '0x28#{}']) {
      assert.throws(() => decodeAll(new FrameDecoder(), header), { code: 'malformed' }, header);
    }
    for (const header of ['12345678901#', 'GET / HTTP/1.1\r\nHost: x', '0'.repeat(17)]) {
      assert.throws(() => decodeAll(new FrameDecoder(), header), { code: 'invalid_request' }, header);
    }
    assert.throws(
      () => decodeAll(new FrameDecoder(100), '101#'),
      (error: FrameError) =>
        error.code === 'payload_too_large' && error.message.includes('101') && error.message.includes('100'),
    );
  });

  it('with their patterns match in every spelling', () => {
    assert.equal(patternName('executor.task'), 'executor.task');
    assert.equal(patternName({ cmd: 'executor.task' }), 'executor.task');
    assert.equal(patternName('{ "cmd" : "executor.task" }'), 'executor.task');
    assert.equal(patternName(7), '7');
  });
});

describe('the listener', () => {
  const echo = () =>
    new WireServer((packet, reply) => (reply({ response: packet.data, isDisposed: true }), true), {
      log: silentLog,
      maxFrame: 1000,
      frameTimeoutMs: 20,
      maxConnections: 2,
    });
  const exchange = async (server: WireServer, text: string) => {
    const socket = connect(await server.listen(0, '127.0.0.1'), '127.0.0.1');
    let got = '';
    socket.on('data', (bytes) => (got += String(bytes)));
    socket.write(text);
    await once(socket, 'close');
    await server.close();
    return got;
  };

  it('answers the good frames before bytes that are none, and closes without a word', async () => {
    for (const bad of ['abc#', '3#abc']) {
      const got = await exchange(echo(), `36#{"pattern":"echo","data":1,"id":"a"}${bad}`);
      assert.equal(got, '41#{"response":1,"isDisposed":true,"id":"a"}', bad);
    }
  });

  it('answers the good frames before one beyond a limit, and says why it refuses', async () => {
    const got = await exchange(echo(), `36#{"pattern":"echo","data":1,"id":"a"}12345678901#`);
    assert.match(
      got,
      /^41#{"response":1,"isDisposed":true,"id":"a"}\d+#{"err":{"status":"error","code":"invalid_request"/,
    );
  });

  it('refuses a frame beyond the limit by its header', async () => {
    assert.match(await exchange(echo(), '99999#{'), /payload_too_large.*99999.*1000/);
  });

  it('refuses unfinished frames of many connections beyond their common limit', async () => {
    const server = new WireServer(() => true, { log: silentLog, maxBuffered: 100 });
    const port = await server.listen(0, '127.0.0.1');
    const [first, second] = [connect(port, '127.0.0.1'), connect(port, '127.0.0.1')];
    first.write(`1000#${'x'.repeat(70)}`);
    await once(first, 'connect');
    second.write(`1000#${'x'.repeat(70)}`);
    const [bytes] = (await Promise.race([once(first, 'data'), once(second, 'data')])) as [Buffer];
    assert.match(String(bytes), /"code":"overloaded".*140.*100/);
    first.destroy();
    second.destroy();
    await server.close();
  });

  it('takes whole messages that are no packets as events of no pattern', async () => {
    const server = new WireServer((packet, reply) => (reply({ response: packet.data, isDisposed: true }), true), {
      log: silentLog,
    });
    const socket = connect(await server.listen(0, '127.0.0.1'), '127.0.0.1');
    socket.write('1#53#"x"4#null2#[]36#{"pattern":"echo","data":1,"id":"1"}');
    const [bytes] = (await once(socket, 'data')) as [Buffer];
    assert.equal(String(bytes), '41#{"response":1,"isDisposed":true,"id":"1"}');
    socket.destroy();
    await server.close();
  });

  it('gives up on a frame that does not end', async () => {
    assert.match(await exchange(echo(), '500#{"pattern":'), /not finished in time/);
  });

  it('answers an unknown pattern as NestJS does, and an event never', async () => {
    const server = new WireServer(() => false, { log: silentLog });
    const socket = connect(await server.listen(0, '127.0.0.1'), '127.0.0.1');
    socket.write('27#{"pattern":"nope","data":1}36#{"pattern":"nope","data":1,"id":"1"}');
    const [bytes] = (await once(socket, 'data')) as [Buffer];
    assert.equal(
      String(bytes),
      '103#{"id":"1","status":"error","err":"There is no matching message handler defined in the remote service."}',
    );
    socket.destroy();
    await server.close();
  });
});

describe('the client', () => {
  it('shares one connection and takes answers in any order', async () => {
    const waiting: (() => void)[] = [];
    const peer = await new Peer((heard) => new Promise((resolve) => waiting.push(() => resolve(heard.data)))).listen();
    const client = new WireClient({ host: '127.0.0.1', port: peer.port });
    const calls = [1, 2, 3].map((data) => client.call('x', data, 5_000));
    await peer.hears('x', 0);
    while (waiting.length < 3) await new Promise((resolve) => setImmediate(resolve));
    waiting.reverse().forEach((answer) => answer());
    assert.deepEqual(await Promise.all(calls), [1, 2, 3]);
    client.close();
    await peer.close();
  });

  it('fails what was under way when the connection is lost, and connects again for the next', async () => {
    const peer = await new Peer((_, count) => (count === 1 ? HANG_UP : 'back')).listen();
    const client = new WireClient({ host: '127.0.0.1', port: peer.port });
    await assert.rejects(client.call('x', 1, 5_000), UnansweredError);
    assert.equal(await client.call('x', 1, 5_000), 'back');
    client.close();
    await peer.close();
  });

  it('waits no longer than its deadline and leaves a line that may be dead', async () => {
    const peer = await new Peer((_, count) => (count === 1 ? SILENCE : 'back')).listen();
    const client = new WireClient({ host: '127.0.0.1', port: peer.port });
    await assert.rejects(client.call('x', 1, 20), /did not answer within 20 ms/);
    assert.equal(await client.call('x', 1, 5_000), 'back');
    client.close();
    await peer.close();
  });

  it('refuses to send what the other side would refuse', async () => {
    const client = new WireClient({ host: '127.0.0.1', port: 1, maxFrame: 100 });
    await assert.rejects(client.call('x', 'x'.repeat(100), 5_000), { code: 'payload_too_large' });
  });
});
