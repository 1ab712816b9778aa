import assert from 'node:assert/strict';
import { test } from 'node:test';
import { plugin } from '../src/plugin.js';

test('greets as often as asked', async () => {
  const outputs = await plugin.run('plugin.my-plugin.greet', { name: 'Ada', times: '2' });
  assert.deepEqual(outputs, { greeting: 'Hello, Ada! Hello, Ada!' });
});

test('says which input is wrong', async () => {
  await assert.rejects(plugin.run('plugin.my-plugin.greet', { name: '' }), /input "name"/);
});
