#!/usr/bin/env node
// Compiles every plugin to its dist folder and copies what is no TypeScript: help.md and UI bundles.
import { execFileSync } from 'node:child_process';
import { cpSync, existsSync, readFileSync, rmSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const require = createRequire(import.meta.url);
const tsc = require.resolve('typescript/bin/tsc');
const copyHelp = join(require.resolve('@kosolapus/plugin-ts-sdk/package.json'), '../scripts/copy-executor-help-md.cjs');

for (const name of JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')).workspaces) {
  const cwd = join(root, name);
  rmSync(join(cwd, 'dist'), { recursive: true, force: true });
  execFileSync(process.execPath, [tsc, '-p', cwd], { stdio: 'inherit' });
  execFileSync(process.execPath, [copyHelp, 'src', 'dist'], { cwd, stdio: ['ignore', 'ignore', 'inherit'] });
  if (existsSync(join(cwd, 'ui'))) cpSync(join(cwd, 'ui'), join(cwd, 'dist/ui'), { recursive: true });
}
