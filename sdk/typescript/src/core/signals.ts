import type { PluginLog } from './log.js';

/**
 * Runs `stop` at the first SIGTERM or SIGINT and ends the process after it. A second signal ends it
 * at once. Returns a function that takes the handlers off again.
 */
export function stopOnSignals(stop: () => Promise<void>, log: PluginLog): () => void {
  let stopping = false;
  const handle = (signal: NodeJS.Signals) => {
    if (stopping) process.exit(1);
    stopping = true;
    log.info('plugin_stopping', 'the plugin was told to stop', { signal });
    stop().then(
      () => process.exit(0),
      (error: unknown) => {
        log.error('plugin_stop_failed', 'stopping failed', { reason: String(error) });
        process.exit(1);
      },
    );
  };
  process.on('SIGTERM', handle);
  process.on('SIGINT', handle);
  return () => {
    process.off('SIGTERM', handle);
    process.off('SIGINT', handle);
  };
}
