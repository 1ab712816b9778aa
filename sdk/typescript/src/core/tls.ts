import { isIP } from 'node:net';
import {
  checkServerIdentity,
  createSecureContext,
  type ConnectionOptions,
  type SecureContextOptions,
  type TlsOptions,
} from 'node:tls';

/**
 * A text in PEM. One that came from a file is read anew whenever it is needed, so that a renewed
 * certificate counts without a restart.
 */
export interface Pem {
  /** The file it is in; undefined when it was given as a text. */
  readonly file: string | undefined;
  /** @throws The file cannot be read. */
  read(): string;
}

/** What a TLS door shows of itself and demands of its clients. */
export interface TlsServerSettings {
  certificate: Pem;
  key: Pem;
  /** Only clients that show a certificate of these authorities get in. */
  clientCa?: Pem;
}

/** Whom a TLS client trusts, and what it shows of itself. */
export interface TlsClientSettings {
  /** These authorities count, and no others. */
  ca: Pem;
  /** Shown to servers that ask for a certificate. */
  identity?: { certificate: Pem; key: Pem };
  /** The name that the server's certificate must have; the host that is connected to when absent. */
  serverName?: string;
}

/**
 * Options of the door's server.
 *
 * @throws A file cannot be read, a text is no PEM, or the key is not the certificate's.
 */
export function serverOptions({ certificate, key, clientCa }: TlsServerSettings): TlsOptions {
  return {
    ...usable({ cert: certificate.read(), key: key.read(), ...(clientCa && { ca: clientCa.read() }) }),
    ...(clientCa && { requestCert: true, rejectUnauthorized: true }),
  };
}

/**
 * Options of a connection to `host`.
 *
 * @throws A file cannot be read, a text is no PEM, or the key is not the certificate's.
 */
export function clientOptions({ ca, identity, serverName }: TlsClientSettings, host: string): ConnectionOptions {
  const name = serverName ?? host;
  return {
    ...usable({ ca: ca.read(), ...(identity && { cert: identity.certificate.read(), key: identity.key.read() }) }),
    // An address is checked against the addresses of the certificate, but is no name that TLS can send.
    servername: isIP(name) ? '' : name,
    checkServerIdentity: (_host, certificate) => checkServerIdentity(name, certificate),
  };
}

/** May the texts change while the plugin runs? */
export function isFromFiles({ certificate, key, clientCa }: TlsServerSettings): boolean {
  return [certificate, key, clientCa].some((pem) => pem?.file !== undefined);
}

/** Tries the texts before they are used: a text that is no certificate is ignored by Node when it is an authority. */
function usable<T extends SecureContextOptions>(texts: T): T {
  for (const text of [texts.cert, texts.ca]) {
    if (typeof text === 'string' && !text.includes('-----BEGIN CERTIFICATE-----'))
      throw new Error('there is no certificate in PEM form');
  }
  createSecureContext(texts);
  return texts;
}
