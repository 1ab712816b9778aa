import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { z } from 'zod';
import { WireClient } from '../src/core/client';
import { UnansweredError } from '../src/core/errors';
import { silentLog, type PluginLog } from '../src/core/log';
import { WireServer } from '../src/core/server';
import { readSettings, SettingsError } from '../src/core/settings';
import type { Pem, TlsClientSettings, TlsServerSettings } from '../src/core/tls';
import { defineNode, definePlugin } from '../src/light/index';
import { Authority, type Identity } from './certificates';
import { COMMITTED, Peer, pluginEnv, task } from './peers';

const authority = new Authority();
const text = (pem: string): Pem => ({ file: undefined, read: () => pem });
const shown = ({ certificate, key }: Identity) => ({ certificate: text(certificate), key: text(key) });
const trusting = (more: Partial<TlsClientSettings> = {}, ca = authority): TlsClientSettings => ({
  ca: text(ca.certificate),
  ...more,
});

async function door(tls: TlsServerSettings, more: { log?: PluginLog; tlsReloadMs?: number } = {}) {
  const server = new WireServer((packet, reply) => (reply({ response: packet.data, isDisposed: true }), true), {
    log: silentLog,
    tls,
    ...more,
  });
  const port = await server.listen(0, '127.0.0.1');
  const ask = async (client: TlsClientSettings | undefined, data: unknown = 'Привет 😀') => {
    const wire = new WireClient({ host: '127.0.0.1', port, tls: client });
    try {
      return await wire.call('echo', data, 10_000);
    } finally {
      wire.close();
    }
  };
  return { server, port, ask };
}

/** A folder for files, and the settings that name them. */
function files(identity: Identity) {
  const dir = mkdtempSync(join(tmpdir(), 'tls-'));
  const write = (name: string, content: string) => {
    writeFileSync(join(dir, name), content);
    return join(dir, name);
  };
  const paths = {
    ca: write('ca.pem', authority.certificate),
    certificate: write('cert.pem', identity.certificate),
    key: write('key.pem', identity.key),
  };
  return { dir, write, paths };
}

describe('TLS', () => {
  it('carries the same frames, large ones too', async () => {
    const { server, ask } = await door(shown(authority.sign('127.0.0.1')));
    assert.equal(await ask(trusting()), 'Привет 😀');
    const large = 'ж😀x'.repeat(300_000);
    assert.equal(await ask(trusting(), large), large);
    await server.close();
  });

  it('trusts the named authorities only, and only for the host that is connected to', async () => {
    const { server, ask } = await door(shown(authority.sign('127.0.0.1')));
    await assert.rejects(ask(trusting({}, new Authority())), UnansweredError);
    await assert.rejects(ask(trusting({ serverName: 'plugin-manager' })), /plugin-manager/);
    await assert.rejects(ask(undefined), UnansweredError);
    await server.close();
    const elsewhere = await door(shown(authority.sign('plugin-manager')));
    await assert.rejects(elsewhere.ask(trusting()), UnansweredError);
    assert.equal(await elsewhere.ask(trusting({ serverName: 'plugin-manager' })), 'Привет 😀');
    await elsewhere.server.close();
  });

  it('with client authorities lets in only clients that show a certificate of theirs', async () => {
    const clients = new Authority('clients');
    const { server, ask } = await door({
      ...shown(authority.sign('127.0.0.1')),
      clientCa: text(clients.certificate),
    });
    assert.equal(await ask(trusting({ identity: shown(clients.sign('plugin')) })), 'Привет 😀');
    await assert.rejects(ask(trusting()), UnansweredError);
    await assert.rejects(ask(trusting({ identity: shown(authority.sign('plugin')) })), UnansweredError);
    await server.close();
  });

  it('does not let a handshake that is never finished hold up the stop', async () => {
    const { server, port } = await door(shown(authority.sign('127.0.0.1')));
    const silent = connect(port, '127.0.0.1');
    silent.write(Buffer.from([0x16, 3, 1, 2, 0]));
    await once(silent, 'connect');
    silent.on('error', () => undefined);
    const closed = new Promise((resolve) => silent.once('close', resolve));
    await server.close();
    await closed;
  });

  it('takes up renewed certificates for the connections that follow, and keeps the old ones while the new do not fit', async () => {
    const { dir, write, paths } = files(authority.sign('127.0.0.1'));
    const told: string[] = [];
    const waiting: (() => void)[] = [];
    const note = (event: string) => (told.push(event), waiting.splice(0).forEach((go) => go()));
    const tells = async (event: string) => {
      while (!told.includes(event)) await new Promise<void>((go) => waiting.push(go));
    };
    const settings = readSettings({
      CONVEYOR_INSECURE_DEV: 'true',
      PLUGIN_TLS_CERT_FILE: paths.certificate,
      PLUGIN_TLS_KEY_FILE: paths.key,
    });
    assert.ok(settings.tls);
    const { server, ask } = await door(settings.tls, {
      log: { ...silentLog, info: note, warn: note },
      tlsReloadMs: 20,
    });
    const next = authority.sign('next.test');
    write('cert.pem', next.certificate);
    await tells('plugin_tls_reload_failed');
    assert.equal(await ask(trusting()), 'Привет 😀');
    write('key.pem', next.key);
    await tells('plugin_tls_reloaded');
    assert.equal(await ask(trusting({ serverName: 'next.test' })), 'Привет 😀');
    await server.close();
    rmSync(dir, { recursive: true });
  });

  it('reads the authorities of a client anew for every connection', async () => {
    const { dir, write } = files(authority.sign('127.0.0.1'));
    write('ca.pem', new Authority().certificate);
    const { publication } = readSettings({
      CONVEYOR_INSECURE_DEV: 'true',
      PLUGIN_MANAGER_TLS_CA_FILE: join(dir, 'ca.pem'),
    });
    const { server, port } = await door(shown(authority.sign('127.0.0.1')));
    const client = new WireClient({ host: '127.0.0.1', port, tls: publication.tls });
    await assert.rejects(client.call('echo', 1, 10_000), UnansweredError);
    rmSync(join(dir, 'ca.pem'));
    await assert.rejects(client.call('echo', 1, 10_000), /TLS settings cannot be used/);
    write('ca.pem', authority.certificate);
    assert.equal(await client.call('echo', 1, 10_000), 1);
    client.close();
    await server.close();
    rmSync(dir, { recursive: true });
  });
});

describe('TLS settings', () => {
  const faults = (env: Record<string, string>): readonly string[] => {
    try {
      readSettings({ CONVEYOR_INSECURE_DEV: 'true', ...env });
      return [];
    } catch (error) {
      assert.ok(error instanceof SettingsError);
      return error.faults;
    }
  };
  const identity = authority.sign('127.0.0.1');

  it('come as texts or files, and are none when nothing is set', () => {
    const { dir, paths } = files(identity);
    const fromFiles = readSettings({
      CONVEYOR_INSECURE_DEV: 'true',
      PLUGIN_TLS_CERT_FILE: paths.certificate,
      PLUGIN_TLS_KEY_FILE: paths.key,
      PLUGIN_TLS_CLIENT_CA: authority.certificate,
      CONTROL_PLANE_TLS_CA: authority.certificate,
      CONTROL_PLANE_TLS_SERVER_NAME: 'control-plane',
    });
    assert.equal(fromFiles.tls?.certificate.file, paths.certificate);
    assert.equal(fromFiles.controlPlane.tls?.serverName, 'control-plane');
    assert.equal(fromFiles.publication.tls, undefined);
    assert.equal(readSettings({ CONVEYOR_INSECURE_DEV: 'true' }).tls, undefined);
    rmSync(dir, { recursive: true });
  });

  it('that do not fit refuse the start and name the variable, never a key', () => {
    const cases: [Record<string, string>, RegExp][] = [
      [{ PLUGIN_TLS_CERT: identity.certificate }, /^PLUGIN_TLS_CERT is set, but PLUGIN_TLS_KEY_FILE is not/],
      [{ PLUGIN_TLS_KEY: identity.key }, /^PLUGIN_TLS_KEY is set, but PLUGIN_TLS_CERT_FILE is not/],
      [{ PLUGIN_TLS_CLIENT_CA: authority.certificate }, /^PLUGIN_TLS_CLIENT_CA is set/],
      [{ CONTROL_PLANE_TLS_SERVER_NAME: 'x' }, /^CONTROL_PLANE_TLS_SERVER_NAME is set, but CONTROL_PLANE_TLS_CA_FILE/],
      [
        { PLUGIN_MANAGER_TLS_CA_FILE: '/nowhere/ca.pem' },
        /^PLUGIN_MANAGER_TLS_CA_FILE=\/nowhere\/ca.pem cannot be used/,
      ],
      [{ PLUGIN_MANAGER_TLS_CA: 'nothing' }, /PLUGIN_MANAGER_TLS_CA.*no certificate in PEM form/],
      [{ PLUGIN_TLS_CERT: identity.certificate, PLUGIN_TLS_KEY: authority.sign('a').key }, /PLUGIN_TLS_CERT.*key/i],
    ];
    for (const [env, expected] of cases) {
      const found = faults(env);
      assert.equal(found.length, 1, found.join());
      assert.match(found[0] ?? '', expected);
      assert.ok(!found.join().includes('PRIVATE KEY'));
    }
  });

  it('of the key and the token too may be files', () => {
    const { dir, write } = files(identity);
    const { publication } = readSettings({
      PLUGIN_MANAGER_INGRESS_TOKEN_FILE: write('token', 's3cret\n'),
      PLUGIN_CONTROL_PLANE_KEY: 'key',
    });
    assert.equal(publication.token, 's3cret');
    const unreadable = faults({
      CONVEYOR_INSECURE_DEV: '',
      PLUGIN_MANAGER_INGRESS_TOKEN_FILE: '/no',
      PLUGIN_CONTROL_PLANE_KEY: 'k',
    });
    assert.equal(unreadable.length, 1);
    assert.match(unreadable[0] ?? '', /^PLUGIN_MANAGER_INGRESS_TOKEN_FILE=\/no cannot be used/);
    rmSync(dir, { recursive: true });
  });
});

it('a plugin publishes, takes tasks and reports in TLS, with certificates on both sides', async () => {
  const { dir, paths } = files(authority.sign('127.0.0.1'));
  const peers: TlsServerSettings = { ...shown(authority.sign('127.0.0.1')), clientCa: text(authority.certificate) };
  const pm = await new Peer(() => COMMITTED, peers).listen();
  const cp = await new Peer(undefined, peers).listen();
  const towards = (name: string) => ({
    [`${name}_CA_FILE`]: paths.ca,
    [`${name}_CLIENT_CERT_FILE`]: paths.certificate,
    [`${name}_CLIENT_KEY_FILE`]: paths.key,
  });
  const env = pluginEnv(pm, cp, {
    ...towards('PLUGIN_MANAGER_TLS'),
    ...towards('CONTROL_PLANE_TLS'),
    PLUGIN_TLS_CERT_FILE: paths.certificate,
    PLUGIN_TLS_KEY_FILE: paths.key,
    PLUGIN_TLS_CLIENT_CA_FILE: paths.ca,
  });
  const outputs = z.object({ text: z.string() });
  const node = defineNode({ nodeType: 'tls.a', name: 'A', inputs: null, outputs, run: () => ({ text: 'Ж' }) });
  const running = await definePlugin({ id: 'tls', version: '1', nodes: [node] }).start({
    settings: readSettings(env),
    log: silentLog,
  });
  assert.deepEqual(await running.published, COMMITTED);
  const tls = trusting({ identity: shown(authority.sign('cp')) });
  const platform = new WireClient({ host: '127.0.0.1', port: running.port, tls });
  await platform.call('executor.task', task('tls.a'), 10_000);
  assert.deepEqual((await cp.hears('step_result')).data.outputs, { text: 'Ж' });
  platform.close();
  await running.stop();
  await Promise.all([pm.close(), cp.close()]);
  rmSync(dir, { recursive: true });
});
