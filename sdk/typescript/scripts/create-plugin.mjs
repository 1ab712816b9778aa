#!/usr/bin/env node
// create-conveyor-plugin NAME [FOLDER]: a new plugin from the template.
import { cpSync, existsSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { join, resolve } from 'node:path';

const [name, folder = name] = process.argv.slice(2);
if (!name || !/^[a-z][a-z0-9-]*$/.test(name)) {
  console.error('usage: create-conveyor-plugin NAME [FOLDER]   NAME: lower-case letters, digits and "-"');
  process.exit(2);
}
const target = resolve(folder);
if (existsSync(target) && readdirSync(target).length > 0) {
  console.error(`${target} is not empty`);
  process.exit(1);
}
cpSync(join(import.meta.dirname, '..', 'template'), target, {
  recursive: true,
  filter: (path) => !/[\\/](node_modules|dist|package-lock\.json)$/.test(path),
});
renameSync(join(target, 'gitignore'), join(target, '.gitignore'));
const label = `${name[0].toUpperCase()}${name.slice(1).replaceAll('-', ' ')}`;
for (const file of readdirSync(target, { recursive: true, encoding: 'utf8' })) {
  const path = join(target, file);
  if (!statSync(path).isFile()) continue;
  const text = readFileSync(path, 'utf8');
  const filled = text.replaceAll('my-plugin', name).replaceAll('My plugin', label);
  if (filled !== text) writeFileSync(path, filled);
}
console.log(`created ${target}\nnext: cd ${folder} && npm install && npm test`);
