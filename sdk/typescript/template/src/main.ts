import { plugin } from './plugin.js';

await plugin.main();
