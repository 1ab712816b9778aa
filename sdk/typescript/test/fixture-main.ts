// The fixture as a process of its own, as plugins are started.
import 'reflect-metadata';
import { Logger } from '@nestjs/common';
import { bootstrapPluginExecutorMicroservice } from '../src/index';
import { FixtureModule } from './fixtures';

void (async () => {
  await bootstrapPluginExecutorMicroservice(FixtureModule);
})().catch((error: unknown) => {
  new Logger('Fixture').error(error instanceof Error ? error.message : String(error));
  process.exitCode = 1;
});
