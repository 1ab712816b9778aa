#!/usr/bin/env node
// Compiles sources and tests and runs the tests; arguments choose test files by name.
import { execFileSync, spawnSync } from 'node:child_process';
import { readdirSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const built = join(root, '.test-build');
rmSync(built, { recursive: true, force: true });
execFileSync(
  process.execPath,
  [createRequire(import.meta.url).resolve('typescript/bin/tsc'), '-p', join(root, 'tsconfig.test.json')],
  { stdio: 'inherit' },
);

const wanted = process.argv.slice(2);
const files = readdirSync(join(built, 'test'))
  .filter((name) => name.endsWith('.test.js') && (wanted.length === 0 || wanted.some((word) => name.includes(word))))
  .map((name) => join(built, 'test', name));
const { status } = spawnSync(process.execPath, ['--enable-source-maps', '--test', '--test-timeout=60000', ...files], {
  stdio: 'inherit',
  cwd: root,
});
process.exit(status ?? 1);
