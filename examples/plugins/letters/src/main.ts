import 'reflect-metadata';
import { bootstrapPluginExecutorMicroservice } from '@kosolapus/plugin-ts-sdk';
import { Logger } from '@nestjs/common';
import { AppModule } from './app.module';

const logger = new Logger('PluginLetters');

void (async () => {
  await bootstrapPluginExecutorMicroservice(AppModule);
})().catch((error: unknown) => {
  logger.error(error instanceof Error ? error.stack : String(error));
  process.exitCode = 1;
});
