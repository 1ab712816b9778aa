import { randomUUID } from 'node:crypto';

/** A file in a message. */
export interface Attachment {
  filename?: string;
  base64?: string;
}

/** What a message is made of. */
export interface Letter {
  from: string;
  to: string;
  subject: string;
  text?: string;
  html: string;
  attachments: Attachment[];
}

const encoded = (text: string) => `=?UTF-8?B?${Buffer.from(text).toString('base64')}?=`;
const wrapped = (base64: string) => base64.replace(/\s+/g, '').replace(/.{1,76}/g, '$&\r\n');
const part = (type: string, base64: string, ...headers: string[]) =>
  [`Content-Type: ${type}`, 'Content-Transfer-Encoding: base64', ...headers, '', wrapped(base64)].join('\r\n');
const body = (type: string, text: string) => part(`${type}; charset=utf-8`, Buffer.from(text).toString('base64'));
/** A line break in a header would begin another header. */
const oneLine = (text: string) => text.replace(/[\r\n]+/g, ' ');

/** The letter as an RFC 5322 message. */
export function composeMessage(letter: Letter): string {
  const boundary = randomUUID();
  const parts = [
    ...(letter.text ? [body('text/plain', letter.text)] : []),
    body('text/html', letter.html),
    ...letter.attachments.map(({ filename = 'file', base64 = '' }) =>
      part(
        'application/octet-stream',
        base64,
        `Content-Disposition: attachment; filename="${encoded(oneLine(filename))}"`,
      ),
    ),
  ];
  return [
    `From: ${oneLine(letter.from)}`,
    `To: ${oneLine(letter.to)}`,
    `Subject: ${encoded(letter.subject)}`,
    'MIME-Version: 1.0',
    `Content-Type: multipart/mixed; boundary="${boundary}"`,
    '',
    ...parts.map((text) => `--${boundary}\r\n${text}`),
    `--${boundary}--`,
    '',
  ].join('\r\n');
}
