#!/usr/bin/env node
// Packs the package and uses the tarball as others do: the published shape is linted, a NestJS plugin
// is built with it under another package name, bundled and started, and the template is created,
// tested and started. Needs `npm test` before: the scripted peers come from its build.
//
// Other packages are linked from here, as the lock file has them. With PACKAGE_CHECK_INSTALL=1 npm
// installs everything from the registry, as it does for a new user.
import { execFileSync, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';

const root = join(import.meta.dirname, '..');
const require = createRequire(import.meta.url);
const { Peer, COMMITTED, call, pluginEnv, task } = require(join(root, '.test-build/test/peers.js'));
const { devDependencies: versions } = require(join(root, 'package.json'));
const scratch = mkdtempSync(join(tmpdir(), 'plugin-sdk-pack-'));
const run = (command, args, cwd) => execFileSync(command, args, { cwd, stdio: ['ignore', 'inherit', 'inherit'] });
const bin = (name) => join(root, 'node_modules/.bin', name);
/** The name under which existing plugins import their SDK. */
const ALIAS = '@kosolapus/plugin-ts-sdk';

const packed = execFileSync('npm', ['pack', '--ignore-scripts', '--silent', '--pack-destination', scratch], {
  cwd: root,
  encoding: 'utf8',
});
const tarball = join(scratch, packed.trim().split('\n').at(-1));

/** Gives a folder the tarball under a name, and the packages that are named. */
function provide(dir, name, packages) {
  if (process.env.PACKAGE_CHECK_INSTALL === '1') {
    const wanted = packages.map((one) => `${one}@${versions[one]}`);
    return run(
      'npm',
      ['install', '--no-audit', '--no-fund', '--loglevel=error', `${name}@file:${tarball}`, ...wanted],
      dir,
    );
  }
  const modules = join(dir, 'node_modules');
  mkdirSync(dirname(join(modules, name)), { recursive: true });
  run('tar', ['xzf', tarball, '-C', modules]);
  renameSync(join(modules, 'package'), join(modules, name));
  for (const one of packages) {
    mkdirSync(dirname(join(modules, one)), { recursive: true });
    symlinkSync(join(root, 'node_modules', one), join(modules, one));
  }
}

/** Starts a plugin between scripted peers and has it do one task. */
async function proveItRuns(args, cwd, nodeType, inputs, expected) {
  const pm = await new Peer(() => COMMITTED).listen();
  const cp = await new Peer().listen();
  const env = { PATH: process.env.PATH, ...pluginEnv(pm, cp) };
  const child = spawn(process.execPath, args, { cwd, env, stdio: ['ignore', 'ignore', 'inherit'] });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  const { data } = await Promise.race([
    pm.hears('manifest_request_v2'),
    ended.then((code) => Promise.reject(new Error(`${args} ended with ${code} before it was published`))),
  ]);
  await call(data.pull.port, 'executor_batch_pull', { token: 'ingress' });
  await call(data.pull.port, 'executor.task', task(nodeType, inputs));
  const { outputs } = (await cp.hears('step_result')).data;
  if (outputs.text !== expected && outputs.greeting !== expected)
    throw new Error(`unexpected outputs ${JSON.stringify(outputs)}`);
  child.kill('SIGTERM');
  if ((await ended) !== 0) throw new Error(`the plugin ended with ${await ended}`);
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
  writeFileSync(join(dir, 'package.json'), JSON.stringify({ name: 'drop-in', private: true }));
  writeFileSync(join(dir, 'tsconfig.json'), JSON.stringify({ compilerOptions, include: ['src/**/*'] }));
  const nest = ['@nestjs/common', '@nestjs/core', '@nestjs/microservices'];
  provide(dir, ALIAS, [...nest, 'class-transformer', 'class-validator', 'reflect-metadata', 'rxjs', '@types/node']);
  run(bin('tsc'), ['-p', dir], dir);
  const work = ['echo', { token: 's', text: 'ab', times: 2 }, 'abab'];
  await proveItRuns(['dist/fixture-main.js'], dir, ...work);
  // Transports that NestJS loads only when they are used.
  const lazy = [
    'amqplib',
    'amqp-connection-manager',
    'kafkajs',
    'mqtt',
    'ioredis',
    'nats',
    '@grpc/*',
    '@nestjs/websockets',
    '@nestjs/platform-express',
  ];
  const external = [...lazy, '@nestjs/websockets/socket-module'].map((name) => `--external:${name}`);
  const options = ['--bundle', '--platform=node', '--format=cjs', '--outfile=dist/run.cjs', '--log-level=error'];
  run(bin('esbuild'), ['dist/fixture-main.js', ...options, ...external], dir);
  await proveItRuns(['dist/run.cjs'], dir, ...work);
}

/** The template, created by the tarball's own command. A light plugin must not need NestJS: it is not there. */
async function template() {
  const dir = join(scratch, 'my-first');
  run('tar', ['xzf', tarball, '-C', scratch]);
  run(process.execPath, [join(scratch, 'package/scripts/create-plugin.mjs'), 'my-first', dir], scratch);
  provide(dir, '@conveyor/plugin-sdk', ['zod', 'typescript', '@types/node']);
  run(bin('tsc'), ['-p', dir], dir);
  run(process.execPath, ['--test', 'dist/test/plugin.test.js'], dir);
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
