// Certificates for tests, made here: an authority and what it has signed, in as little X.509 as TLS needs.
import { createSign, generateKeyPairSync, randomBytes, type KeyObject } from 'node:crypto';
import { isIP } from 'node:net';

/** A certificate and its key, in PEM. */
export interface Identity {
  certificate: string;
  key: string;
}

const tlv = (tag: number, ...parts: Buffer[]): Buffer => {
  const body = Buffer.concat(parts);
  const { length } = body;
  const size = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), body]);
};
const sequence = (...parts: Buffer[]) => tlv(0x30, ...parts);
const oid = (hex: string) => tlv(0x06, Buffer.from(hex, 'hex'));
const ECDSA_SHA256 = sequence(oid('2a8648ce3d040302'));
const nameOf = (text: string) => sequence(tlv(0x31, sequence(oid('550403'), tlv(0x0c, Buffer.from(text)))));
const extension = (hex: string, value: Buffer) => sequence(oid(hex), tlv(0x04, value));
const VALIDITY = sequence(tlv(0x17, Buffer.from('200101000000Z')), tlv(0x17, Buffer.from('491231235959Z')));

function pem(der: Buffer): string {
  const lines = der.toString('base64').match(/.{1,64}/g) ?? [];
  return `-----BEGIN CERTIFICATE-----\n${lines.join('\n')}\n-----END CERTIFICATE-----\n`;
}

/** An authority of its own. */
export class Authority {
  readonly certificate: string;
  private readonly keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });

  constructor(private readonly name = 'test authority') {
    const isAuthority = extension('551d13', sequence(tlv(0x01, Buffer.from([0xff]))));
    this.certificate = this.issue(name, this.keys.publicKey, isAuthority);
  }

  /** Signs a certificate for a host name or address. */
  sign(host: string): Identity {
    const keys = generateKeyPairSync('ec', { namedCurve: 'P-256' });
    const named = isIP(host) ? tlv(0x87, Buffer.from(host.split('.').map(Number))) : tlv(0x82, Buffer.from(host));
    return {
      certificate: this.issue(host, keys.publicKey, extension('551d11', sequence(named))),
      key: keys.privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
    };
  }

  private issue(subject: string, key: KeyObject, ...extensions: Buffer[]): string {
    const body = sequence(
      tlv(0xa0, tlv(0x02, Buffer.from([2]))),
      tlv(0x02, Buffer.concat([Buffer.from([1]), randomBytes(8)])),
      ECDSA_SHA256,
      nameOf(this.name),
      VALIDITY,
      nameOf(subject),
      key.export({ type: 'spki', format: 'der' }),
      tlv(0xa3, sequence(...extensions)),
    );
    const signature = createSign('sha256').update(body).sign(this.keys.privateKey);
    return pem(sequence(body, ECDSA_SHA256, tlv(0x03, Buffer.from([0]), signature)));
  }
}
