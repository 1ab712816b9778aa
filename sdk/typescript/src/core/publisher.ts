import { Backoff, pause } from './backoff.js';
import { WireClient } from './client.js';
import { isRetryable, messageOf, RpcError } from './errors.js';
import type { PluginLog } from './log.js';
import type { PluginManifestRequestV2 } from './manifest.js';
import { PATTERN } from './pattern.js';
import type { PublicationSettings } from './settings.js';

/** plugin-manager's answer to a publication. */
export interface PublicationReply {
  ok: true;
  status: 'committed' | 'unchanged';
  pluginId: string;
  publicationVersion: string;
  publicationId: string;
  digest: string;
  warnings: { path: string; message: string }[];
}

/** plugin-manager pulls the batch and fetches assets before it answers. */
const ANSWER_TIMEOUT_MS = 60_000;
const LONGEST_PAUSE_MS = 60_000;

/** What a publication needs beside its manifest. */
export interface PublishOptions {
  settings: PublicationSettings;
  log: PluginLog;
  /** Gives the publication up. */
  signal?: AbortSignal;
  maxFrame?: number;
  nextId?: () => string;
}

/**
 * Publishes until it is accepted, refused for good, or the tries are used up. The plugin serves in
 * any case: a later reconcile of plugin-manager may still find it. Returns undefined when it was not
 * published; the reason is logged.
 */
export async function publish(
  manifest: PluginManifestRequestV2,
  options: PublishOptions,
): Promise<PublicationReply | undefined> {
  const { settings, log, signal, maxFrame, nextId } = options;
  const client = new WireClient({ host: settings.host, port: settings.port, tls: settings.tls, maxFrame, nextId });
  const backoff = new Backoff(settings.retryBaseMs, LONGEST_PAUSE_MS);
  const where = {
    plugin_manager: client.address,
    pluginId: manifest.pluginId,
    publicationVersion: manifest.publicationVersion,
  };
  try {
    for (let attempt = 1; ; attempt += 1) {
      try {
        const data = { token: settings.token, ...manifest };
        return tellAccepted(
          log,
          where,
          (await client.call(PATTERN.manifest, data, ANSWER_TIMEOUT_MS, signal)) as PublicationReply | undefined,
        );
      } catch (error) {
        if (signal?.aborted) return undefined;
        if (!isRetryable(error) || attempt >= settings.maxAttempts) return tellRefused(log, where, attempt, error);
        const retryInMs = backoff.next();
        log.warn('plugin_wire_outbound_manifest_retry', 'not published yet', {
          ...where,
          attempt,
          max_attempts: settings.maxAttempts,
          retry_in_ms: retryInMs,
          reason: messageOf(error),
          ...(error instanceof RpcError ? { code: error.code } : {}),
        });
        await pause(retryInMs, signal).catch(() => undefined);
        if (signal?.aborted) return undefined;
      }
    }
  } finally {
    client.close();
  }
}

function tellAccepted(
  log: PluginLog,
  where: object,
  reply: PublicationReply | undefined,
): PublicationReply | undefined {
  log.info('plugin_wire_outbound_manifest_ok', 'published', {
    ...where,
    publicationId: reply?.publicationId,
    status: reply?.status,
  });
  for (const warning of reply?.warnings ?? []) {
    log.warn('plugin_publication_warning', 'plugin-manager remarks', { path: warning.path, warning: warning.message });
  }
  return reply;
}

function tellRefused(log: PluginLog, where: object, attempt: number, error: unknown): undefined {
  const details = error instanceof RpcError ? { code: error.code, details: error.details } : {};
  log.error('plugin_wire_outbound_manifest_failed', 'not published; the plugin serves without being known', {
    ...where,
    attempt,
    reason: messageOf(error),
    ...details,
  });
}
