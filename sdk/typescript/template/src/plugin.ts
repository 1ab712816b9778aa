import { defineNode, definePlugin } from '@conveyor/plugin-sdk/light';
import { z } from 'zod';

/** Greets a person, as often as asked. */
export const greet = defineNode({
  nodeType: 'plugin.my-plugin.greet',
  name: 'Greet',
  description: 'Greets a person',
  inputs: z.object({
    name: z.string().min(1).meta({ title: 'Name', description: 'Whom to greet' }),
    // Numbers may arrive as text: `coerce` reads both.
    times: z.coerce.number().int().min(1).max(10).default(1).meta({ title: 'Times' }),
  }),
  outputs: z.object({
    greeting: z.string().meta({ title: 'Greeting' }),
  }),
  run: ({ name, times }) => ({ greeting: Array.from({ length: times }, () => `Hello, ${name}!`).join(' ') }),
});

export const plugin = definePlugin({
  id: 'my-plugin',
  version: '0.1.0',
  label: 'My plugin',
  nodes: [greet],
});
