import { createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { createServer as createTlsServer, type Server as TlsServer } from 'node:tls';
import { messageOf } from './errors.js';
import type { PluginLog } from './log.js';
import { isFromFiles, serverOptions, type TlsServerSettings } from './tls.js';

/** What a door needs to accept connections; times in milliseconds. */
export interface ListenerOptions {
  log: PluginLog;
  maxConnections: number;
  /** Speak TLS and nothing else; plain TCP when absent. */
  tls?: TlsServerSettings;
  /** Time for the TLS handshake. */
  handshakeTimeoutMs: number;
  /** Pause between looks at the files of the certificates. */
  tlsReloadMs: number;
}

/** A server, and what has to end with it. */
export interface Listener {
  server: Server;
  /** Cuts off handshakes under way and looks at certificate files no more. */
  stop(): void;
}

/**
 * Starts to listen; port 0 takes a free one. Returns the port.
 *
 * @throws The address cannot be listened on; when it is taken, the variable that names another is told.
 */
export function listenOn(server: Server, port: number, host: string, variable: string): Promise<number> {
  return new Promise((resolve, reject) => {
    const failed = (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EADDRINUSE') return reject(error);
      const message = `${host}:${port} is taken; is another plugin there? Set ${variable} to another port`;
      reject(new Error(message, { cause: error }));
    };
    server.once('error', failed);
    server.listen(port, host, () => {
      server.off('error', failed);
      resolve((server.address() as AddressInfo).port);
    });
  });
}

const TCP = { noDelay: true, keepAlive: true, keepAliveInitialDelay: 15_000 };

/**
 * A listener in plain TCP or TLS. Certificates whose files change are taken up for the connections
 * that follow; files that cannot be used leave the old ones in place.
 *
 * @throws The certificates cannot be used.
 */
export function createListener(options: ListenerOptions, serve: (socket: Socket) => void): Listener {
  const { tls, maxConnections } = options;
  const listener = tls ? listenTls(tls, options, serve) : { server: createServer(TCP, serve), stop: () => undefined };
  listener.server.maxConnections = maxConnections;
  return listener;
}

function listenTls(tls: TlsServerSettings, options: ListenerOptions, serve: (socket: Socket) => void): Listener {
  const { log, handshakeTimeoutMs: handshakeTimeout } = options;
  // The socket inside TLS is another object: both ends of the connection tell which it is.
  const shaking = new Map<string, Socket>();
  const nameOf = (socket: Socket) => `${socket.remoteAddress} ${socket.remotePort}`;
  // Before they are used: what changes in between is seen at the first look.
  const texts = readTexts(tls);
  const server = createTlsServer({ ...TCP, handshakeTimeout, ...serverOptions(tls) }, (socket) => {
    shaking.delete(nameOf(socket));
    serve(socket);
  });
  server.on('connection', (socket: Socket) => {
    const name = nameOf(socket);
    shaking.set(name, socket);
    socket.once('close', () => {
      if (shaking.get(name) === socket) shaking.delete(name);
    });
  });
  server.on('tlsClientError', (error, socket) => {
    log.warn('plugin_tls_handshake_failed', 'a TLS handshake failed; this door speaks TLS only', {
      peer: socket.remoteAddress,
      reason: error.message,
    });
    socket.destroy();
  });
  const unwatch = watchCertificates(server, tls, texts, options);
  const stop = () => {
    unwatch();
    for (const socket of shaking.values()) socket.destroy();
  };
  return { server, stop };
}

/** Looks at the files again and again; returns what ends it. */
function watchCertificates(
  server: TlsServer,
  tls: TlsServerSettings,
  texts: string,
  options: ListenerOptions,
): () => void {
  if (!isFromFiles(tls)) return () => undefined;
  const { log, tlsReloadMs } = options;
  let seen = texts;
  const renew = () => {
    let reason = '';
    try {
      const found = readTexts(tls);
      if (found === seen) return;
      seen = found;
      server.setSecureContext(serverOptions(tls));
    } catch (error) {
      reason = messageOf(error);
    }
    // Certificate and key are replaced one after the other: between the two they do not fit.
    if (reason)
      log.warn('plugin_tls_reload_failed', 'the changed certificates cannot be used; the old ones stay', { reason });
    else log.info('plugin_tls_reloaded', 'new certificates are used from now on');
  };
  const timer = setInterval(renew, tlsReloadMs).unref();
  return () => clearInterval(timer);
}

function readTexts({ certificate, key, clientCa }: TlsServerSettings): string {
  return [certificate, key, clientCa].map((pem) => pem?.read()).join();
}
