#!/usr/bin/env node
// Compiles sources and tests and runs the tests, on this Node and, with --all-nodes, on those of test/nodes
// too; other arguments choose test files by name.
import { execFileSync, spawnSync } from 'node:child_process';
import { existsSync, readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { arch } from 'node:os';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const built = join(root, '.test-build');
const words = process.argv.slice(2);
const wanted = words.filter((word) => !word.startsWith('--'));

/** The Nodes that `npm ci` brings for this machine; there must be one of each version. */
function otherNodes() {
  return ['node22', 'node24'].map((name) => {
    const path = join(root, `test/nodes/node_modules/${name}-${arch()}/bin/node`);
    if (existsSync(path)) return path;
    console.error(`${path} is missing: run "npm ci" in test/nodes (Linux on x64 and arm64)`);
    process.exit(1);
  });
}

const nodes = [process.execPath, ...(words.includes('--all-nodes') ? otherNodes() : [])];
rmSync(built, { recursive: true, force: true });
execFileSync(
  process.execPath,
  [createRequire(import.meta.url).resolve('typescript/bin/tsc'), '-p', join(root, 'tsconfig.test.json')],
  { stdio: 'inherit' },
);
const files = readdirSync(join(built, 'test'))
  .filter((name) => name.endsWith('.test.js') && (wanted.length === 0 || wanted.some((word) => name.includes(word))))
  .map((name) => join(built, 'test', name));
for (const node of nodes) {
  console.log(`# Node ${execFileSync(node, ['--version'], { encoding: 'utf8' }).trim()}`);
  const { status } = spawnSync(node, ['--enable-source-maps', '--test', '--test-timeout=60000', ...files], {
    stdio: 'inherit',
    cwd: root,
  });
  if (status !== 0) process.exit(status ?? 1);
}
