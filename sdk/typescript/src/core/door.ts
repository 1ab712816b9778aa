import { sameSecret, takeToken } from './credentials.js';
import { messageOf, RpcError } from './errors.js';
import type { PluginLog } from './log.js';
import {
  itemsWithBoundPort,
  type PluginExecutorPullBatchRequest,
  type PluginExecutorPullBatchResponse,
} from './manifest.js';
import { BATCH_PULL_PATTERNS, patternName, TASK_PATTERNS } from './pattern.js';
import type { PacketHandler } from './server.js';
import type { Steps } from './steps.js';
import { readTask } from './task.js';

/**
 * Checks who pulls the batch and gives back the request without its token. Without a token of our
 * own everybody may pull.
 *
 * @throws {RpcError} `unauthorized`; nothing else is said.
 */
export function authorizePull(
  data: unknown,
  token: string | undefined,
  log: PluginLog,
): PluginExecutorPullBatchRequest {
  const { token: presented, rest } = takeToken(data);
  if (token !== undefined && (presented === undefined || !sameSecret(presented, token))) {
    log.warn('plugin_batch_pull_unauthorized', 'a batch pull with a wrong token was refused');
    throw new RpcError('unauthorized', 'unauthorized');
  }
  return rest;
}

/** What a refusal or a bug is answered with. */
export function toRpcError(thrown: unknown): RpcError {
  return thrown instanceof RpcError ? thrown : new RpcError('internal', messageOf(thrown));
}

/** What answers at a plugin's TCP door. */
export interface DoorOptions {
  token: string | undefined;
  log: PluginLog;
  steps: Steps;
  /** The port that is listened on, once it is known. */
  port(): number;
  buildBatch(request: PluginExecutorPullBatchRequest): PluginExecutorPullBatchResponse;
}

/** Serves batch pulls of plugin-manager and tasks of the control plane. */
export function door(options: DoorOptions): PacketHandler {
  const { log, steps } = options;
  const serve = (name: string, data: unknown): unknown => {
    if (TASK_PATTERNS.includes(name)) return steps.take(readTask(data));
    const request = authorizePull(data, options.token, log);
    const response = itemsWithBoundPort(options.buildBatch(request), options.port());
    log.info('plugin_batch_pulled', '[registration] executor batch pull <- plugin-manager', {
      items: response.items.length,
    });
    return response;
  };
  return (packet, reply) => {
    const name = patternName(packet.pattern);
    if (!TASK_PATTERNS.includes(name) && !BATCH_PULL_PATTERNS.includes(name)) return false;
    try {
      reply({ response: serve(name, packet.data), isDisposed: true });
    } catch (error) {
      const refusal = toRpcError(error);
      log.warn('plugin_request_refused', refusal.message, { pattern: name, code: refusal.code });
      reply({ err: refusal.body(), isDisposed: true });
    }
    return true;
  };
}
