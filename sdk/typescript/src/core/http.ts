import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http';
import { resolve, sep } from 'node:path';
import { pipeline } from 'node:stream/promises';
import { listenOn } from './listener.js';
import type { PluginLog } from './log.js';

/** One file that the plugin serves. */
export interface PluginAsset {
  /** Path below the assets folder. */
  file: string;
  /** `application/javascript` when absent. */
  mediaType?: string;
}

/** The UI bundles of a plugin. */
export interface PluginAssets {
  /** Folder of the files. */
  assetsDir: string;
  assets: Record<string, PluginAsset>;
}

/** What the plugin's HTTP tells. */
export interface PluginHttpOptions {
  log: PluginLog;
  assets: PluginAssets;
  /** Answer of `GET /health`; `ok: false` makes it a 503. */
  health(): { ok: boolean } & Record<string, unknown>;
}

/** `GET /health` and `GET /assets/:key`, on a port of its own. */
export class PluginHttp {
  private readonly server: Server;

  constructor(private readonly options: PluginHttpOptions) {
    this.server = createServer({ requestTimeout: 10_000, headersTimeout: 10_000 }, (request, response) => {
      this.answer(request, response).catch((error: unknown) => {
        this.options.log.warn('plugin_http_failed', 'an HTTP request failed', {
          path: request.url,
          reason: String(error),
        });
        response.destroy();
      });
    });
    this.server.maxConnections = 256;
  }

  /** Starts to listen; port 0 takes a free one. Returns the port. */
  listen(port: number, host: string): Promise<number> {
    return listenOn(this.server, port, host, 'PLUGIN_HEALTH_HTTP_PORT');
  }

  /** Stops to listen and closes what is idle. */
  close(): Promise<void> {
    return new Promise((done) => {
      this.server.close(() => done());
      this.server.closeAllConnections();
    });
  }

  private async answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const path = new URL(request.url ?? '/', 'http://plugin').pathname;
    if (request.method !== 'GET' && request.method !== 'HEAD')
      return sendJson(
        response,
        405,
        { error: { code: 'method_not_allowed', message: 'use GET' } },
        { allow: 'GET, HEAD' },
      );
    if (path === '/health') {
      const { ok, ...facts } = this.options.health();
      return sendJson(response, ok ? 200 : 503, { status: ok ? 'ok' : 'stopping', ...facts });
    }
    if (path.startsWith('/assets/')) return this.sendAsset(decode(path.slice('/assets/'.length)), request, response);
    sendJson(response, 404, { error: { code: 'not_found', message: 'there are /health and /assets/:key' } });
  }

  private async sendAsset(key: string, request: IncomingMessage, response: ServerResponse): Promise<void> {
    const { assetsDir, assets } = this.options.assets;
    const asset = Object.hasOwn(assets, key) ? assets[key] : undefined;
    const root = resolve(assetsDir);
    const file = asset && resolve(root, asset.file);
    const found = file?.startsWith(root + sep) ? await stat(file).catch(() => undefined) : undefined;
    if (!asset || !file || !found?.isFile()) {
      return sendJson(response, 404, { error: { code: 'not_found', message: `there is no asset "${key}"` } });
    }
    response.writeHead(200, {
      'content-type': contentType(asset.mediaType ?? 'application/javascript'),
      'content-length': found.size,
      'cache-control': 'no-cache',
    });
    if (request.method === 'HEAD') return void response.end();
    await pipeline(createReadStream(file), response);
  }
}

/** Text of ours is UTF-8; anything else says for itself what it is. */
function contentType(mediaType: string): string {
  return /^(text\/|application\/(javascript|json)$)/.test(mediaType) ? `${mediaType}; charset=utf-8` : mediaType;
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function sendJson(response: ServerResponse, status: number, body: unknown, headers: Record<string, string> = {}): void {
  response.writeHead(status, { 'content-type': 'application/json; charset=utf-8', ...headers });
  response.end(JSON.stringify(body));
}
