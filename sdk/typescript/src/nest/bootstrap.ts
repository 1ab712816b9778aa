import type { INestMicroservice, Type } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { PluginHttp, type PluginAssets } from '../core/http.js';
import { readSettings, warnIfInsecure, type PluginSettings } from '../core/settings.js';
import { stopOnSignals } from '../core/signals.js';
import { BulkExecutorTaskHandler, type BulkExecutorRouterOptions } from './bulk.js';
import { nestLog } from './log.js';
import { PluginHostPorts } from './publication.js';
import { PluginTcpServer } from './tcp-strategy.js';
import { BULK_EXECUTOR_ROUTER_OPTIONS, PLUGIN_ASSETS } from './tokens.js';

/** What a plugin may want to differ. */
export interface BootstrapOptions {
  /** Port when the environment names none; else that of the first executor's transport. */
  defaultPort?: number;
  /** Stop on SIGTERM and SIGINT and end the process; on by default. */
  handleSignals?: boolean;
}

/**
 * Starts a plugin: its TCP listener, its HTTP with health and assets when `PLUGIN_HEALTH_HTTP_PORT` is
 * set, then the publication. On SIGTERM it takes no more tasks, waits for running steps to be
 * reported within `PLUGIN_DRAIN_MS`, and ends. The application's `PluginHostPorts` tells the ports.
 *
 * @throws {SettingsError} The environment is wrong; every fault is named.
 * @throws {Error} The application cannot be made, or a port is taken.
 */
export async function bootstrapPluginExecutorMicroservice(
  module: Type<unknown>,
  options: BootstrapOptions = {},
): Promise<INestMicroservice> {
  const log = nestLog();
  let app: INestMicroservice | undefined;
  let http: PluginHttp | undefined;
  const settings = readSettings(process.env, options.defaultPort);
  warnIfInsecure(settings, log);
  const strategy = new PluginTcpServer({
    host: settings.bind,
    port: () => listenPort(settings, options, find<BulkExecutorRouterOptions>(app, BULK_EXECUTOR_ROUTER_OPTIONS)),
    log,
    maxFrame: settings.maxFrame,
    tls: settings.tls,
    beforeClose: async () => {
      await find(app, BulkExecutorTaskHandler)?.drain(settings.drainMs);
      await http?.close();
    },
  });
  const created = (app = await NestFactory.createMicroservice(module, { strategy, abortOnError: false }));
  const ports = find(app, PluginHostPorts);
  ports?.expect();
  try {
    http = startHttp(app, settings, log);
    const httpPort = await http?.listen(settings.healthPort ?? 0, settings.bind);
    await created.listen();
    log.info('plugin_listening', 'the plugin listens', { port: strategy.port, http_port: httpPort });
    ports?.bound({ tcp: strategy.port, http: httpPort });
    if (options.handleSignals ?? true) stopOnSignals(() => created.close(), log);
    return created;
  } catch (error) {
    await created.close();
    throw error;
  }
}

function startHttp(
  app: INestMicroservice,
  settings: PluginSettings,
  log: ReturnType<typeof nestLog>,
): PluginHttp | undefined {
  if (settings.healthPort === undefined) return undefined;
  const handler = find(app, BulkExecutorTaskHandler);
  const pluginId = find<BulkExecutorRouterOptions>(app, BULK_EXECUTOR_ROUTER_OPTIONS)?.pluginId;
  return new PluginHttp({
    log,
    assets: find<PluginAssets>(app, PLUGIN_ASSETS) ?? { assetsDir: '.', assets: {} },
    health: () => ({ ok: !handler?.isDraining, pluginId, steps: handler?.inFlight ?? 0 }),
  });
}

/**
 * Existing plugins fall back to a port of their own for what they advertise and leave the listener to
 * the SDK: without a variable it listens where the executors say.
 */
function listenPort(
  settings: PluginSettings,
  options: BootstrapOptions,
  router: BulkExecutorRouterOptions | undefined,
): number {
  const named = ['PLUGIN_TCP_PORT', 'EXECUTOR_TCP_PORT', 'PORT', 'PLUGIN_PULL_ADVERTISED_PORT'].some((name) =>
    process.env[name]?.trim(),
  );
  if (named || options.defaultPort !== undefined) return settings.port;
  return router?.getExecutors()[0]?.opts.transport?.params.port ?? settings.port;
}

function find<T>(app: INestMicroservice | undefined, token: Type<T> | symbol): T | undefined {
  try {
    return app?.get<T>(token, { strict: false });
  } catch {
    // The application does without it.
    return undefined;
  }
}
