// A NestJS client and a NestJS plugin at the real control plane, in plain JavaScript.
//   node door.js                 asks what stands on standard input, one JSON object a line, and
//                                prints what a Nest client and fetch see, one JSON line each
//   node door.js plugin PORT     a microservice with the handlers of a plugin; prints each task
// Run it with a working directory that holds the version's node_modules.
'use strict';
const readline = require('node:readline');
const load = (name) => require(require.resolve(name, { paths: [process.cwd()] }));
load('reflect-metadata');
const { ClientProxyFactory, Transport, MessagePattern, RpcException } = load('@nestjs/microservices');
const { Controller, Module } = load('@nestjs/common');
const { NestFactory } = load('@nestjs/core');
const { lastValueFrom, defaultIfEmpty } = load('rxjs');

const print = (line) => process.stdout.write(JSON.stringify(line) + '\n');

/** What came of it: the value and the error as the caller's own code would get them. */
const outcome = (promise) => promise.then((value) => ({ value }), (error) => ({ error: error instanceof Error ? String(error) : error }));

async function overHttp({ url, key, body }) {
  const headers = { 'content-type': 'application/json', ...(key === undefined ? {} : { authorization: `Bearer ${key}` }) };
  const response = await fetch(url, { method: 'POST', headers, body: JSON.stringify(body) });
  return { status: response.status, retryAfter: response.headers.get('retry-after'), body: await response.json() };
}

async function client() {
  const peers = new Map();
  const peer = (port) => {
    if (!peers.has(port)) peers.set(port, ClientProxyFactory.create({ transport: Transport.TCP, options: { host: '127.0.0.1', port } }));
    return peers.get(port);
  };
  const asks = {
    send: ({ port, pattern, data }) => outcome(lastValueFrom(peer(port).send(pattern, data).pipe(defaultIfEmpty('nothing')))),
    emit: ({ port, pattern, data }) => outcome(lastValueFrom(peer(port).emit(pattern, data).pipe(defaultIfEmpty('nothing')))),
    post: (ask) => outcome(overHttp(ask)),
  };
  print({ ready: true });
  for await (const line of readline.createInterface({ input: process.stdin })) {
    const ask = JSON.parse(line);
    print({ n: ask.n, ...(await asks[ask.how](ask)) });
  }
  peers.forEach((each) => each.close());
}

/** How the plugin answers a task: as the field `value` of its trigger says. */
const ANSWERS = {
  // A handler that returns nothing: delivered, the result comes by itself.
  nothing: () => undefined,
  // A handler whose return value is the result.
  result: () => ({ status: 'ok', outputs: { text: 'by reply' } }),
  // A handler that throws what a retry does not help.
  refuses: () => { throw new RpcException({ code: 'bad_input', message: 'cannot do that', retryable: false }); },
  // A handler that throws anything: Nest tells no detail.
  throws: () => { throw new Error('secret detail'); },
  // A handler that answers never (acks off, the result comes by itself).
  never: () => new Promise(() => undefined),
};

async function plugin(port) {
  class Plugin {
    pull() {
      const text = (name) => ({ name, type: 'string', label: name, isPort: true });
      return { items: [{ nodeType: 'plugin.nest.work', name: 'Work', inputs: [text('how')], outputs: [text('text')] }] };
    }
    task(task) {
      print({ task });
      return ANSWERS[task.inputs.how]();
    }
  }
  const on = (pattern, method) => MessagePattern(pattern)(Plugin.prototype, method, Object.getOwnPropertyDescriptor(Plugin.prototype, method));
  on('executor_batch_pull', 'pull');
  on('executor.task', 'task');
  Controller()(Plugin);
  class App {}
  Module({ controllers: [Plugin] })(App);
  const app = await NestFactory.createMicroservice(App, { transport: Transport.TCP, options: { host: '127.0.0.1', port: Number(port) }, logger: false });
  await app.listen();
  print({ ready: true });
}

const [role, ...rest] = process.argv.slice(2);
(role === 'plugin' ? plugin(rest[0]) : client()).catch((error) => { console.error(error); process.exit(1); });
