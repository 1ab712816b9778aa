// The reference peers of one NestJS version, in plain JavaScript so that nothing has to be compiled.
//   node peer.js client HOST PORT   plays every case against our server, prints one JSON line each
//   node peer.js server PORT        serves the handlers of the test vectors, prints "listening"
// With TLS_FOLDER in the environment both speak TLS: ca.pem is whom they trust, peer.pem and peer-key.pem are
// what they show. The server then lets in only clients with a certificate.
// Run it with a working directory that holds the version's node_modules.
'use strict';
const fs = require('node:fs');
const path = require('node:path');
const load = (name) => require(require.resolve(name, { paths: [process.cwd()] }));
load('reflect-metadata');
const { ClientProxyFactory, Transport, MessagePattern, EventPattern, RpcException } = load('@nestjs/microservices');
const { Controller, Module, Catch } = load('@nestjs/common');
const { NestFactory } = load('@nestjs/core');
const { firstValueFrom, lastValueFrom, toArray, of, concat, throwError, defaultIfEmpty } = load('rxjs');

const print = (line) => process.stdout.write(JSON.stringify(line) + '\n');
const TEXT = 'Привет, 😀 мир\u2028 \u0001 "\\/';

const folder = process.env.TLS_FOLDER;
const pem = (name) => fs.readFileSync(path.join(folder, name));
const tlsOptions = folder && { ca: pem('ca.pem'), cert: pem('peer.pem'), key: pem('peer-key.pem') };

async function client(host, port) {
  const connect = () => ClientProxyFactory.create({ transport: Transport.TCP, options: { host, port, ...(tlsOptions && { tlsOptions }) } });
  const peer = connect();
  const ask = (pattern, data) => lastValueFrom(peer.send(pattern, data).pipe(defaultIfEmpty('nothing')));
  const refused = (pattern) => ask(pattern, 1).then((value) => ({ value }), (error) => ({ error }));
  const cases = {
    unicode: async () => (await ask('echo', TEXT)) === TEXT,
    object_pattern: async () => (await ask({ cmd: 'sum' }, [1, 2, 3])) === 6,
    falsy_data: async () => (await ask('echo', 0)) === 0 && (await ask('echo', false)) === false && (await ask('echo', '')) === '',
    null_value: async () => (await ask('nullv', 1)) === null,
    no_value: async () => (await ask('undef', 1)) === 'nothing',
    stream: async () => JSON.stringify(await lastValueFrom(peer.send('obs.sync3', 1).pipe(toArray()))) === '[1,2,3]',
    error_object: async () => {
      const { error } = await refused('err.rpc.obj');
      return error.code === 401 && error.extra.a === 1;
    },
    platform_error: async () => {
      const { error } = await refused('err.platform');
      return error.status === 'error' && error.code === 'unauthorized' && error.retryable === false;
    },
    unknown_pattern: async () => /no matching message handler/.test(String((await refused('nope')).error)),
    many_in_flight: async () => {
      const answers = await Promise.all(Array.from({ length: 500 }, (_, i) => ask('echo', { i, TEXT })));
      return answers.every((answer, i) => answer.i === i && answer.TEXT === TEXT);
    },
    large_frame: async () => {
      const large = TEXT.repeat(100_000);
      return (await ask('echo', large)) === large;
    },
    event_then_request: async () => {
      await firstValueFrom(peer.emit({ evt: 'obj', b: 2 }, { n: 7 }).pipe(defaultIfEmpty(null)));
      // Events and requests run side by side: the count may be asked before the event was handled.
      for (let asked = 0; asked < 1000; asked += 1) if ((await ask('events', 1)) >= 1) return true;
      return false;
    },
    reconnects_by_itself: async () => {
      const other = connect();
      await lastValueFrom(other.send('echo', 1));
      await lastValueFrom(other.send('hang.up', 1)).catch(() => undefined);
      const again = await lastValueFrom(other.send('echo', 2));
      other.close();
      return again === 2;
    },
  };
  for (const [name, run] of Object.entries(cases)) {
    try {
      print({ case: name, passed: (await run()) === true });
    } catch (error) {
      print({ case: name, passed: false, error: String(error?.stack ?? JSON.stringify(error)) });
    }
  }
  peer.close();
}

async function server(port) {
  class Peer {
    events = 0;
    echo(data) { return data; }
    sum(data) { return data.reduce((a, b) => a + b, 0); }
    text() { throw new RpcException('Плохой токен'); }
    object() { throw new RpcException({ code: 401, message: 'bad token', extra: { a: 1 } }); }
    error() { throw new Error('secret detail'); }
    sync3() { return of(1, 2, 3); }
    broken() { return concat(of(1, 2), throwError(() => new RpcException('mid'))); }
    undef() { return undefined; }
    nullv() { return null; }
    evt() { this.events += 1; }
    count() { return this.events; }
    late(data) { return new Promise((done) => setTimeout(() => done(data), data)); }
  }
  const on = (decorator, method) => decorator(Peer.prototype, method, Object.getOwnPropertyDescriptor(Peer.prototype, method));
  for (const [pattern, method] of [
    ['echo', 'echo'], [{ cmd: 'sum' }, 'sum'], ['err.rpc.str', 'text'], ['err.rpc.obj', 'object'], ['err.error', 'error'],
    ['obs.sync3', 'sync3'], ['obs.err', 'broken'], ['undef', 'undef'], ['nullv', 'nullv'], ['events', 'count'], ['late', 'late'],
  ]) on(MessagePattern(pattern), method);
  on(EventPattern('evt'), 'evt');
  Controller()(Peer);
  class App {}
  Module({ controllers: [Peer] })(App);
  const options = { host: '127.0.0.1', port: Number(port) };
  if (tlsOptions) options.tlsOptions = { ...tlsOptions, requestCert: true, rejectUnauthorized: true };
  const app = await NestFactory.createMicroservice(App, { transport: Transport.TCP, options, logger: false });
  await app.listen();
  print({ listening: Number(port), version: require(path.join(process.cwd(), 'node_modules/@nestjs/microservices/package.json')).version });
}

const [role, ...rest] = process.argv.slice(2);
const main = role === 'server' ? server(rest[0]) : client(rest[0], Number(rest[1]));
main.catch((error) => { console.error(error); process.exit(1); });
