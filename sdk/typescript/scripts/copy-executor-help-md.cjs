#!/usr/bin/env node
// copy-executor-help-md.cjs SRC DIST: copies every help.md below SRC to the same place below DIST, where
// loadHelpFromFile(__dirname) of the compiled executor finds it.
const { copyFileSync, mkdirSync, readdirSync } = require('node:fs');
const { dirname, join } = require('node:path');

const [source, target] = process.argv.slice(2);
if (!source || !target) {
  console.error('usage: copy-executor-help-md.cjs SRC DIST');
  process.exit(2);
}
let copied = 0;
for (const name of readdirSync(source, { recursive: true, encoding: 'utf8' })) {
  if (!/(^|[\\/])help\.md$/.test(name)) continue;
  mkdirSync(dirname(join(target, name)), { recursive: true });
  copyFileSync(join(source, name), join(target, name));
  copied += 1;
}
console.log(`help.md: ${copied} copied from ${source} to ${target}`);
