#!/usr/bin/env node
// Packs the package and uses the tarball as others do, in fresh folders and installed by npm: the
// published shape is linted, an example plugin is built from its unchanged sources, which import the
// SDK under its old name, bundled and started, the template is created, tested and started, and what
// is not imported is shown to be left out of bundles. Needs `npm test` before: the scripted peers come
// from its build.
import { execFileSync, spawn } from 'node:child_process';
import { cpSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

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

/** Has npm install the tarball under a name, and the packages that are named. */
function install(dir, name, packages) {
  const wanted = packages.map((one) => `${one}@${versions[one]}`);
  const quiet = ['--no-audit', '--no-fund', '--loglevel=error', '--prefer-offline'];
  run('npm', ['install', ...quiet, `${name}@file:${tarball}`, ...wanted], dir);
}

/** Starts a plugin between scripted peers and has it do one task. */
async function proveItRuns(args, cwd, nodeType, inputs, isExpected) {
  const pm = await new Peer(() => COMMITTED).listen();
  const cp = await new Peer().listen();
  const env = { PATH: process.env.PATH, ...pluginEnv(pm, cp) };
  const child = spawn(process.execPath, args, { cwd, env, stdio: ['ignore', 'ignore', 'inherit'] });
  const ended = new Promise((resolve) => child.once('exit', resolve));
  try {
    const { data } = await Promise.race([
      pm.hears('manifest_request_v2'),
      ended.then((code) => Promise.reject(new Error(`${args} ended with ${code} before it was published`))),
    ]);
    await call(data.pull.port, 'executor_batch_pull', { token: 'ingress' });
    await call(data.pull.port, 'executor.task', task(nodeType, inputs));
    const { outputs = {}, error } = (await cp.hears('step_result')).data;
    if (!isExpected(outputs)) throw new Error(`unexpected result ${JSON.stringify({ outputs, error })}`);
  } finally {
    child.kill('SIGTERM');
    await Promise.all([ended, pm.close(), cp.close()]);
  }
  if ((await ended) !== 0) throw new Error(`the plugin ended with ${await ended}`);
}

function lint() {
  run(bin('publint'), ['run', '--strict', tarball], root);
  run(bin('attw'), ['--no-color', '--format', 'ascii', tarball], root);
}

/** An example's sources as they are, compiled and bundled as existing plugins are. */
async function dropIn() {
  const dir = join(scratch, 'drop-in');
  const examples = join(root, '../../examples/plugins');
  cpSync(join(examples, 'letters/src'), join(dir, 'src'), { recursive: true });
  const { compilerOptions } = JSON.parse(readFileSync(join(examples, 'tsconfig.base.json'), 'utf8'));
  const strict = { ...compilerOptions, skipLibCheck: false, rootDir: 'src', outDir: 'dist' };
  writeFileSync(join(dir, 'src/shown.ts'), "import help from './compose/help.md';\nconsole.log(help);\n");
  writeFileSync(join(dir, 'package.json'), JSON.stringify({ name: 'drop-in', private: true }));
  writeFileSync(join(dir, 'tsconfig.json'), JSON.stringify({ compilerOptions: strict, include: ['src'] }));
  const nest = ['@nestjs/common', '@nestjs/core', '@nestjs/microservices'];
  const types = ['@types/node', 'typescript'];
  install(dir, ALIAS, [...nest, 'class-transformer', 'class-validator', 'reflect-metadata', 'rxjs', ...types]);
  run(process.execPath, ['node_modules/typescript/bin/tsc'], dir);
  run(process.execPath, [join('node_modules', ALIAS, 'scripts/copy-executor-help-md.cjs'), 'src', 'dist'], dir);
  const letter = { subject: 'S', to: 'a@example.org', from: 'b@example.org', body: 'hi', important: false };
  const work = ['data.letter.compose', letter, (outputs) => outputs.result?.includes('To: a@example.org')];
  await proveItRuns(['dist/main.js'], dir, ...work);
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
  run(bin('esbuild'), ['dist/main.js', ...options, ...external], dir);
  await proveItRuns(['dist/run.cjs'], dir, ...work);
  // Existing plugins import help texts, too; the SDK's types know them.
  run(bin('esbuild'), ['dist/shown.js', '--bundle', '--outfile=dist/help.cjs', '--loader:.md=text'], dir);
  const shown = execFileSync(process.execPath, ['dist/help.cjs'], { cwd: dir, encoding: 'utf8' });
  if (shown.trim() !== readFileSync(join(dir, 'src/compose/help.md'), 'utf8').trim()) throw new Error(`help: ${shown}`);
  leftOut(dir, ALIAS, 'loadHelpFromFile', 'PluginTcpServer', 'no JSON text');
}

/** The template, created by the tarball's own command. A light plugin must not need NestJS: it is not there. */
async function template() {
  const dir = join(scratch, 'my-first');
  run('tar', ['xzf', tarball, '-C', scratch]);
  run(process.execPath, [join(scratch, 'package/scripts/create-plugin.mjs'), 'my-first', dir], scratch);
  install(dir, '@conveyor/plugin-sdk', ['zod', 'typescript', '@types/node']);
  run('npm', ['test', '--silent'], dir);
  const greeted = ({ greeting }) => greeting === 'Hello, Ada!';
  await proveItRuns(['dist/src/main.js'], dir, 'plugin.my-first.greet', { name: 'Ada' }, greeted);
  leftOut(dir, '@conveyor/plugin-sdk/light', 'StepFailure', 'definePlugin', 'no JSON text');
}

/** What a bundle does not import is not in it: `part` comes with the export `whole`, not with `wanted`. */
function leftOut(dir, name, wanted, whole, part) {
  const external = ['@nestjs/*', 'rxjs', 'class-validator', 'class-transformer', 'reflect-metadata', 'zod'];
  const options = ['--bundle', '--platform=node', '--format=esm', ...external.map((one) => `--external:${one}`)];
  const holds = (names) => {
    const input = `import { ${names} } from '${name}'; console.log(${names});`;
    return execFileSync(bin('esbuild'), options, { cwd: dir, input, encoding: 'utf8' }).includes(part);
  };
  if (!holds(whole) || holds(wanted)) throw new Error(`a bundle with ${wanted} of ${name} holds "${part}", too`);
}

try {
  lint();
  await dropIn();
  await template();
  console.log('the package works as it is published');
} finally {
  rmSync(scratch, { recursive: true, force: true });
}
