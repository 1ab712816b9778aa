#!/usr/bin/env node
// Builds the package twice, as CommonJS and as ES modules, each with its own types.
import { execFileSync } from 'node:child_process';
import { mkdirSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const root = join(import.meta.dirname, '..');
const tsc = createRequire(import.meta.url).resolve('typescript/bin/tsc');
const compile = (...options) => execFileSync(process.execPath, [tsc, '-p', root, ...options], { stdio: 'inherit' });

rmSync(join(root, 'dist'), { recursive: true, force: true });
compile('--outDir', join(root, 'dist/cjs'));
compile('--outDir', join(root, 'dist/esm'), '--module', 'ES2022', '--moduleResolution', 'Bundler');
for (const [folder, type] of [
  ['cjs', 'commonjs'],
  ['esm', 'module'],
]) {
  mkdirSync(join(root, 'dist', folder), { recursive: true });
  writeFileSync(join(root, 'dist', folder, 'package.json'), `${JSON.stringify({ type, sideEffects: false })}\n`);
}
