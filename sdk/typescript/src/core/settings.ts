import { readFileSync } from 'node:fs';
import { DEFAULT_MAX_FRAME } from './codec.js';
import { messageOf } from './errors.js';
import type { PluginLog } from './log.js';
import { clientOptions, serverOptions, type Pem, type TlsClientSettings, type TlsServerSettings } from './tls.js';

/** An address of a service. */
export interface ServiceAddress {
  host: string;
  port: number;
}

/** What a plugin is told by its environment; times in milliseconds. */
export interface PluginSettings {
  /** Address to listen on (`CONVEYOR_BIND`). */
  bind: string;
  /** Port to listen on; 0 takes a free one. */
  port: number;
  /** TLS of the plugin's TCP door; undefined means plain TCP. */
  tls: TlsServerSettings | undefined;
  /** Where the platform reaches the plugin; port 0 means the port that is listened on. */
  advertised: ServiceAddress;
  /** Port of health and assets; undefined means no HTTP. */
  healthPort: number | undefined;
  /** Replaces the version that the code gives. */
  publicationVersion: string | undefined;
  publication: PublicationSettings;
  controlPlane: ServiceAddress & { key: string | undefined; tls: TlsClientSettings | undefined };
  steps: StepSettings;
  /** How long running steps may take to finish and report after SIGTERM. */
  drainMs: number;
  /** Largest frame, in UTF-16 code units. */
  maxFrame: number;
}

/** How a plugin makes itself known. */
export interface PublicationSettings extends ServiceAddress {
  enabled: boolean;
  /** Opens plugin-manager's door; plugin-manager presents the same one when it pulls. */
  token: string | undefined;
  /** How plugin-manager is spoken to; undefined means plain TCP. */
  tls: TlsClientSettings | undefined;
  /** Tries before the plugin gives up publishing and only serves. */
  maxAttempts: number;
  /** Ceiling of the first pause between tries; it doubles up to a minute. */
  retryBaseMs: number;
}

/** How a plugin works on steps. */
export interface StepSettings {
  /** Tell the platform when work on a step begins. */
  ack: boolean;
  /** Pause between heartbeats of a step; 0 sends them only with progress. */
  heartbeatMs: number;
  /** Steps under way at once; more are answered with `overloaded`. */
  maxInFlight: number;
}

/** Every fault of the environment at once: which variable, which value, what is expected. */
export class SettingsError extends Error {
  override readonly name = 'SettingsError';

  constructor(readonly faults: readonly string[]) {
    super(`the plugin cannot start with this environment:\n${faults.map((fault) => `  ${fault}`).join('\n')}`);
  }
}

/** Reads variables and collects their faults. An empty variable counts as unset, as in Compose files. */
class Reader {
  readonly faults: string[] = [];

  constructor(private readonly env: NodeJS.ProcessEnv) {}

  text(name: string): string | undefined {
    return this.env[name]?.trim() || undefined;
  }

  flag(name: string): boolean {
    const text = this.text(name)?.toLowerCase();
    if (text === undefined || ['false', '0', 'no', 'off'].includes(text)) return false;
    if (['true', '1', 'yes', 'on'].includes(text)) return true;
    this.faults.push(`${name}=${text} is neither true nor false`);
    return false;
  }

  whole(name: string, fallback: number, most = Number.MAX_SAFE_INTEGER): number {
    return this.optionalWhole(name, most) ?? fallback;
  }

  optionalWhole(name: string, most = Number.MAX_SAFE_INTEGER): number | undefined {
    const text = this.text(name);
    if (text === undefined) return undefined;
    const value = /^\d+$/.test(text) ? Number(text) : Number.NaN;
    if (Number.isSafeInteger(value) && value <= most) return value;
    this.faults.push(`${name}=${text} is no whole number from 0 to ${most}`);
    return undefined;
  }

  port(name: string, fallback: number): number {
    return this.whole(name, fallback, 65_535);
  }

  /** The variable, else the file that `NAME_FILE` names. */
  secret(name: string, required: boolean): string | undefined {
    const text = this.pem(name)?.read() || undefined;
    if (text === undefined && required && !this.faults.some((fault) => fault.startsWith(`${name}_FILE=`)))
      this.faults.push(`${name} is missing; set it, or CONVEYOR_INSECURE_DEV=true on a machine of your own`);
    return text;
  }

  /** The same, read again whenever it is needed. A file that cannot be read now is a fault. */
  pem(name: string): Pem | undefined {
    const text = this.text(name);
    if (text !== undefined) return { file: undefined, read: () => text };
    const file = this.text(`${name}_FILE`);
    if (file === undefined) return undefined;
    const read = () => readFileSync(file, 'utf8').trim();
    if (this.tries(`${name}_FILE=${file}`, read)) return { file, read };
    return undefined;
  }

  /** Does it work? What it throws is a fault of the setting. */
  tries(setting: string, work: () => unknown): boolean {
    try {
      work();
      return true;
    } catch (error) {
      this.faults.push(`${setting} cannot be used: ${messageOf(error)}`);
      return false;
    }
  }

  /** A certificate with its key; both or neither. */
  identity(certificateName: string, keyName: string): { certificate: Pem; key: Pem } | undefined {
    const [certificate, key] = [this.pem(certificateName), this.pem(keyName)];
    if (certificate && key) return { certificate, key };
    if (certificate || key) {
      const [set, missing] = certificate ? [certificateName, keyName] : [keyName, certificateName];
      this.faults.push(`${set} is set, but ${missing}_FILE is not; set both, or neither for plain TCP`);
    }
    return undefined;
  }

  /** TLS of a door (`NAME_CERT`, `NAME_KEY`, `NAME_CLIENT_CA`). */
  tlsServer(name: string): TlsServerSettings | undefined {
    const before = this.faults.length;
    const identity = this.identity(`${name}_CERT`, `${name}_KEY`);
    const clientCa = this.pem(`${name}_CLIENT_CA`);
    if (this.faults.length > before) return undefined;
    if (!identity) {
      if (clientCa) this.faults.push(`${name}_CLIENT_CA is set, but ${name}_CERT_FILE is not; set both, or neither`);
      return undefined;
    }
    const tls = { ...identity, clientCa };
    return this.tries(`TLS of the door (${name}_CERT, ${name}_KEY, ${name}_CLIENT_CA)`, () => serverOptions(tls))
      ? tls
      : undefined;
  }

  /** TLS towards a service (`NAME_CA`, `NAME_CLIENT_CERT`, `NAME_CLIENT_KEY`, `NAME_SERVER_NAME`). */
  tlsClient(name: string): TlsClientSettings | undefined {
    const before = this.faults.length;
    const ca = this.pem(`${name}_CA`);
    const identity = this.identity(`${name}_CLIENT_CERT`, `${name}_CLIENT_KEY`);
    const serverName = this.text(`${name}_SERVER_NAME`);
    if (this.faults.length > before) return undefined;
    if (!ca) {
      const lonely = identity ? `${name}_CLIENT_CERT` : serverName && `${name}_SERVER_NAME`;
      if (lonely) this.faults.push(`${lonely} is set, but ${name}_CA_FILE is not; set both, or neither for plain TCP`);
      return undefined;
    }
    const tls = { ca, identity, serverName };
    return this.tries(`TLS towards the service (${name}_CA, ${name}_CLIENT_CERT, ${name}_CLIENT_KEY)`, () =>
      clientOptions(tls, 'localhost'),
    )
      ? tls
      : undefined;
  }
}

/**
 * Reads the environment (facts of each variable: `docs/plugin-authors.md`).
 *
 * @throws {SettingsError} Names every variable that is wrong or missing.
 */
export function readSettings(env: NodeJS.ProcessEnv = process.env, defaultPort = 9400): PluginSettings {
  const reader = new Reader(env);
  const port = listenPort(reader, defaultPort);
  const secured = !reader.flag('CONVEYOR_INSECURE_DEV');
  const settings: PluginSettings = {
    bind: reader.text('CONVEYOR_BIND') ?? '0.0.0.0',
    port,
    tls: reader.tlsServer('PLUGIN_TLS'),
    advertised: {
      host: reader.text('PLUGIN_PULL_ADVERTISED_HOST') ?? '127.0.0.1',
      port: reader.port('PLUGIN_PULL_ADVERTISED_PORT', port),
    },
    healthPort: reader.optionalWhole('PLUGIN_HEALTH_HTTP_PORT', 65_535),
    publicationVersion: reader.text('PLUGIN_PUBLICATION_VERSION'),
    publication: {
      enabled: !reader.flag('PLUGIN_MANAGER_MANIFEST_ON_INIT_DISABLED'),
      host: reader.text('PLUGIN_MANAGER_RPC_HOST') ?? '127.0.0.1',
      port: reader.port('PLUGIN_MANAGER_RPC_PORT', 4016),
      token: reader.secret('PLUGIN_MANAGER_INGRESS_TOKEN', secured),
      tls: reader.tlsClient('PLUGIN_MANAGER_TLS'),
      maxAttempts: reader.whole('PLUGIN_MANAGER_MANIFEST_ON_INIT_MAX_ATTEMPTS', 30),
      retryBaseMs: reader.whole('PLUGIN_MANAGER_MANIFEST_ON_INIT_RETRY_BASE_MS', 2_000),
    },
    controlPlane: {
      host: reader.text('CONTROL_PLANE_TCP_HOST') ?? reader.text('RUNTIME_ENGINE_TCP_HOST') ?? '127.0.0.1',
      port: reader.port('RUNTIME_CONTROL_PLANE_TCP_PORT', 4021),
      key: reader.secret('PLUGIN_CONTROL_PLANE_KEY', secured),
      tls: reader.tlsClient('CONTROL_PLANE_TLS'),
    },
    steps: {
      ack: !reader.flag('DISABLE_RUNTIME_STEP_ACK'),
      heartbeatMs: reader.whole('PLUGIN_HEARTBEAT_MS', 10_000),
      maxInFlight: Math.max(1, reader.whole('PLUGIN_MAX_IN_FLIGHT', 256)),
    },
    drainMs: reader.whole('PLUGIN_DRAIN_MS', 30_000),
    maxFrame: reader.whole('CONVEYOR_MAX_FRAME_BYTES', DEFAULT_MAX_FRAME),
  };
  if (settings.healthPort === port && port !== 0) {
    reader.faults.push(`PLUGIN_HEALTH_HTTP_PORT=${port} is also the TCP port; give them different ports`);
  }
  if (reader.faults.length > 0) throw new SettingsError(reader.faults);
  return settings;
}

/** Says at every start that doors stand open (`CONVEYOR_INSECURE_DEV`). */
export function warnIfInsecure(settings: PluginSettings, log: PluginLog): void {
  const missing = [
    ...(settings.publication.token === undefined ? ['PLUGIN_MANAGER_INGRESS_TOKEN'] : []),
    ...(settings.controlPlane.key === undefined ? ['PLUGIN_CONTROL_PLANE_KEY'] : []),
  ];
  if (missing.length === 0) return;
  log.warn('plugin_insecure', 'the plugin runs without credentials because of CONVEYOR_INSECURE_DEV', { missing });
}

/** The first that is set, in the order that existing plugins use. */
function listenPort(reader: Reader, fallback: number): number {
  const ports = ['PLUGIN_TCP_PORT', 'EXECUTOR_TCP_PORT', 'PORT'].map((name) => reader.optionalWhole(name, 65_535));
  return ports.find((port) => port !== undefined) ?? fallback;
}
