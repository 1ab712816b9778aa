import type { PluginContext } from '../core/context.js';
import { door } from '../core/door.js';
import { messageOf } from '../core/errors.js';
import { PluginHttp, type PluginAssets } from '../core/http.js';
import { jsonLog, silentLog, type PluginLog } from '../core/log.js';
import {
  withBoundPorts,
  type PluginExecutorPullBatchResponse,
  type PluginManifestRequestV2,
  type PluginUiForm,
  type PluginVariable,
} from '../core/manifest.js';
import { publish, type PublicationReply } from '../core/publisher.js';
import { Reporter } from '../core/reporter.js';
import { WireServer } from '../core/server.js';
import { readSettings, warnIfInsecure, type PluginSettings } from '../core/settings.js';
import { stopOnSignals } from '../core/signals.js';
import { Steps } from '../core/steps.js';
import type { PluginNode } from './node.js';

/** What a plugin is made of. */
export interface PluginDefinition {
  /** The plugin's name in the catalogue. */
  id: string;
  /** Its version; `PLUGIN_PUBLICATION_VERSION` replaces it. */
  version: string;
  /** Display name; the id when absent. */
  label?: string;
  description?: string;
  variables?: PluginVariable[];
  nodes: readonly PluginNode[];
  /** UI bundles, served on `PLUGIN_HEALTH_HTTP_PORT`, and the forms that use them. */
  ui?: PluginAssets & { forms?: PluginUiForm[] };
  /** Port when the environment names none. */
  defaultPort?: number;
}

/** Replaces what `start` takes from its surroundings. */
export interface StartOptions {
  settings?: PluginSettings;
  log?: PluginLog;
}

/** A plugin that serves. */
export interface RunningPlugin {
  /** The TCP port that is listened on. */
  readonly port: number;
  /** The HTTP port, when there is one. */
  readonly httpPort: number | undefined;
  /** plugin-manager's answer; undefined when the plugin was not published. */
  readonly published: Promise<PublicationReply | undefined>;
  /** Takes no more tasks, waits for running steps within the drain time, and closes. */
  stop(): Promise<void>;
}

/** A declared plugin. */
export interface Plugin {
  readonly id: string;
  /** Listens, publishes in the background, and works on tasks. Rejects when it cannot listen. */
  start(options?: StartOptions): Promise<RunningPlugin>;
  /** The whole `main`: starts from the environment and stops on SIGTERM. Faults end the process with 1. */
  main(): Promise<void>;
  /** Runs one node in the process, inputs checked as in earnest: for tests. */
  run(
    nodeType: string,
    inputs: Record<string, unknown>,
    context?: Partial<PluginContext>,
  ): Promise<Record<string, unknown>>;
}

/**
 * Declares a plugin.
 *
 * @throws {Error} Two nodes have the same type, or a required widget bundle is not among the assets.
 */
export function definePlugin(definition: PluginDefinition): Plugin {
  const nodes = byType(definition);
  return {
    id: definition.id,
    start: (options = {}) => start(definition, nodes, options),
    main: () => main(definition, nodes),
    run: async (nodeType, inputs, context = {}) => {
      const node = nodes.get(nodeType);
      if (!node) throw new Error(`plugin "${definition.id}" has no node type "${nodeType}"`);
      return (await node.work({ ...testContext(node), ...context, inputs })) as Record<string, unknown>;
    },
  };
}

function byType(definition: PluginDefinition): Map<string, PluginNode> {
  const nodes = new Map<string, PluginNode>();
  for (const node of definition.nodes) {
    if (nodes.has(node.nodeType)) throw new Error(`node type "${node.nodeType}" is declared twice`);
    const missing = node.requiredTemplateKeys?.find((key) => !definition.ui?.assets[key]);
    if (missing)
      throw new Error(`node type "${node.nodeType}" requires the asset "${missing}", which ui.assets does not have`);
    nodes.set(node.nodeType, node);
  }
  return nodes;
}

async function start(
  definition: PluginDefinition,
  nodes: Map<string, PluginNode>,
  options: StartOptions,
): Promise<RunningPlugin> {
  const { settings = readSettings(process.env, definition.defaultPort), log = jsonLog() } = options;
  const { controlPlane, publication, maxFrame } = settings;
  warnIfInsecure(settings, log);
  const reporter = new Reporter({ ...controlPlane, log, maxFrame });
  const steps = new Steps({
    find: (nodeType) => nodes.get(nodeType)?.work,
    reporter,
    log,
    started: settings.steps.ack
      ? ({ startedAt, ...step }, signal) => reporter.deliver(step, { kind: 'ack', startedAt }, signal)
      : undefined,
    ...settings.steps,
  });
  const bound = { tcp: 0, http: undefined as number | undefined };
  const health = () => ({ ok: !steps.isDraining, pluginId: definition.id, steps: steps.inFlight });
  const http =
    settings.healthPort === undefined
      ? undefined
      : new PluginHttp({ log, health, assets: definition.ui ?? { assetsDir: '.', assets: {} } });
  bound.http = await http?.listen(settings.healthPort ?? 0, settings.bind);
  const server = new WireServer(
    door({
      token: publication.token,
      log,
      steps,
      port: () => bound.tcp,
      buildBatch: (request) => buildBatch(definition, settings, request.nodeTypes),
    }),
    { log, maxFrame, tls: settings.tls },
  );
  bound.tcp = await server.listen(settings.port, settings.bind);
  log.info('plugin_listening', 'the plugin listens', {
    pluginId: definition.id,
    port: bound.tcp,
    http_port: bound.http,
  });
  const stopped = new AbortController();
  const manifest = withBoundPorts(buildManifest(definition, settings), bound);
  const published = publication.enabled
    ? publish(manifest, { settings: publication, log, signal: stopped.signal, maxFrame })
    : Promise.resolve(undefined);
  return {
    port: bound.tcp,
    httpPort: bound.http,
    published,
    stop: async () => {
      stopped.abort();
      await steps.drain(settings.drainMs);
      reporter.close();
      await Promise.all([server.close(), http?.close(), published]);
    },
  };
}

async function main(definition: PluginDefinition, nodes: Map<string, PluginNode>): Promise<void> {
  const log = jsonLog();
  try {
    const running = await start(definition, nodes, { log });
    stopOnSignals(() => running.stop(), log);
  } catch (error) {
    log.error('plugin_start_failed', messageOf(error), { pluginId: definition.id });
    process.exitCode = 1;
  }
}

function buildManifest(definition: PluginDefinition, settings: PluginSettings): PluginManifestRequestV2 {
  const { id, label = id, description = '', variables = [], nodes, ui } = definition;
  const base = `http://${settings.advertised.host}:${settings.healthPort ?? 0}`;
  const staticAssets =
    settings.healthPort === undefined
      ? []
      : Object.entries(ui?.assets ?? {}).map(([key, asset]) => ({
          key,
          url: `${base}/assets/${encodeURIComponent(key)}`,
          mediaType: asset.mediaType ?? 'application/javascript',
        }));
  return {
    kind: 'plugin_manifest_request_v2',
    pluginId: id,
    publicationVersion: settings.publicationVersion ?? definition.version,
    label,
    description,
    variables,
    staticAssets,
    ...(ui?.forms && staticAssets.length > 0 ? { ui: { forms: ui.forms } } : {}),
    executors: nodes.map((node) => ({
      nodeType: node.nodeType,
      ...(node.requiredTemplateKeys && staticAssets.length > 0
        ? { requiredTemplateKeys: node.requiredTemplateKeys }
        : {}),
    })),
    pull: settings.advertised,
  };
}

function buildBatch(
  definition: PluginDefinition,
  settings: PluginSettings,
  wanted: string[] | undefined,
): PluginExecutorPullBatchResponse {
  const { id, label = id } = definition;
  const nodes = wanted?.length ? definition.nodes.filter((node) => wanted.includes(node.nodeType)) : definition.nodes;
  return {
    items: nodes.map((node) => ({
      ...node.item,
      pluginId: id,
      pluginLabel: label,
      transport: { type: 'tcp', params: { ...settings.advertised } },
    })),
  };
}

function testContext(node: PluginNode): Omit<PluginContext, 'inputs'> {
  const { debug, info, warn, error } = silentLog;
  return {
    runId: '00000000-0000-7000-8000-000000000000',
    executionId: '00000000-0000-7000-8000-000000000001',
    nodeType: node.nodeType,
    outputs: node.item.outputs.map((output) => output.name),
    logger: {
      debug: () => debug('', ''),
      info: () => info('', ''),
      warn: () => warn('', ''),
      error: () => error('', ''),
    },
    signal: new AbortController().signal,
    progress: () => undefined,
    partial: () => Promise.resolve(),
  };
}
