#!/usr/bin/env node
// Packs the package and uses the tarball as others do: the published shape is linted, a NestJS plugin
// is built with it under another package name, bundled and started, and the template is created,
// tested and started. Needs `npm test` before: the scripted peers come from its build.
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const require = createRequire(import.meta.url);
const { Peer, COMMITTED, call, pluginEnv, task } = require(join(root, '.test-build/test/peers.js'));
const { devDependencies: versions } = require(join(root, 'package.json'));
const npmFlags = ['--no-audit', '--no-fund', '--prefer-offline', '--loglevel=error'];
const scratch = mkdtempSync(join(tmpdir(), 'plugin-sdk-pack-'));
const run = (command, args, cwd) => execFileSync(command, args, { cwd, stdio: ['ignore', 'inherit', 'inherit'] });
const bin = (name) => join(root, 'node_modules/.bin', name);
/** The name under which existing plugins import their SDK. */
const ALIAS = '@kosolapus/plugin-ts-sdk';

const tarball = join(
  scratch,
  execFileSync('npm', ['pack', '--ignore-scripts', '--loglevel=error', '--silent', '--pack-destination', scratch], {
    cwd: root,
    encoding: 'utf8',
  })
    .trim()
    .split('\n')
    .at(-1),
);

/** Starts a plugin between scripted peers and has it do one task. */
async function proveItRuns(args, cwd, nodeType, inputs, expected) {
  const pm = await new Peer(() => COMMITTED).listen();
  const cp = await new Peer().listen();
  const child = spawn(process.execPath, args, {
    cwd,
    env: { PATH: process.env.PATH, ...pluginEnv(pm, cp) },
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  const { data } = await pm.hears('manifest_request_v2');
  await call(data.pull.port, 'executor_batch_pull', { token: 'ingress' });
  await call(data.pull.port, 'executor.task', task(nodeType, inputs));
  const { outputs } = (await cp.hears('step_result')).data;
  if (outputs.text !== expected && outputs.greeting !== expected)
    throw new Error(`unexpected outputs ${JSON.stringify(outputs)}`);
  const code = new Promise((ended) => child.once('exit', ended));
  child.kill('SIGTERM');
  if ((await code) !== 0) throw new Error(`the plugin ended with ${await code}`);
  await Promise.all([pm.close(), cp.close()]);
}

function lint() {
  run(bin('publint'), ['run', '--strict', tarball], root);
  run(bin('attw'), ['--no-color', '--format', 'ascii', tarball], root);
}

/** Sources that name another package, compiled and bundled as existing plugins are. */
async function dropIn() {
  const dir = join(scratch, 'drop-in');
  mkdirSync(join(dir, 'src'), { recursive: true });
  const from = (name) => readFileSync(join(root, 'test', name), 'utf8').replaceAll("'../src/index'", `'${ALIAS}'`);
  for (const name of ['fixtures.ts', 'fixture-main.ts']) writeFileSync(join(dir, 'src', name), from(name));
  const peers = [
    '@nestjs/common',
    '@nestjs/core',
    '@nestjs/microservices',
    'class-transformer',
    'class-validator',
    'reflect-metadata',
    'rxjs',
    'typescript',
    '@types/node',
    'esbuild',
  ];
  const dependencies = {
    [ALIAS]: `file:${tarball}`,
    ...Object.fromEntries(peers.map((name) => [name, versions[name]])),
  };
  writeFileSync(join(dir, 'package.json'), JSON.stringify({ name: 'drop-in', private: true, dependencies }));
  const compilerOptions = {
    module: 'commonjs',
    target: 'ES2023',
    outDir: 'dist',
    rootDir: 'src',
    experimentalDecorators: true,
    emitDecoratorMetadata: true,
    strict: true,
    esModuleInterop: true,
    skipLibCheck: false,
    types: ['node'],
  };
  writeFileSync(join(dir, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['src/**/*'] }));
  run('npm', ['install', ...npmFlags], dir);
  run(join(dir, 'node_modules/.bin/tsc'), [], dir);
  const work = ['echo', { token: 's', text: 'ab', times: 2 }, 'abab'];
  await proveItRuns(['dist/fixture-main.js'], dir, ...work);
  const optional = [
    'amqplib',
    'amqp-connection-manager',
    'kafkajs',
    'mqtt',
    'ioredis',
    'nats',
    '@grpc/grpc-js',
    '@grpc/proto-loader',
    '@nestjs/websockets/socket-module',
    '@nestjs/platform-express',
    '@nestjs/websockets',
  ];
  run(
    join(dir, 'node_modules/.bin/esbuild'),
    [
      'dist/fixture-main.js',
      '--bundle',
      '--platform=node',
      '--format=cjs',
      '--outfile=dist/run.cjs',
      '--log-level=error',
      ...optional.map((name) => `--external:${name}`),
    ],
    dir,
  );
  await proveItRuns(['dist/run.cjs'], dir, ...work);
}

/** The template, created by the tarball's own command. */
async function template() {
  const dir = join(scratch, 'my-first');
  const tool = join(scratch, 'tool');
  mkdirSync(tool);
  run('tar', ['xzf', tarball, '-C', tool], root);
  run(process.execPath, [join(tool, 'package/scripts/create-plugin.mjs'), 'my-first', dir], scratch);
  run('npm', ['install', ...npmFlags, tarball], dir);
  for (const name of ['@nestjs/common', '@nestjs/core']) {
    try {
      createRequire(join(dir, 'package.json')).resolve(name);
    } catch {
      continue;
    }
    throw new Error(`a light plugin must not need ${name}`);
  }
  run('npm', ['test', '--silent'], dir);
  await proveItRuns(['dist/src/main.js'], dir, 'plugin.my-first.greet', { name: 'Ada' }, 'Hello, Ada!');
}

try {
  lint();
  await dropIn();
  await template();
  console.log('the package works as it is published');
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
