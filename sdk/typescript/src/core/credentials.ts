import { createHash, timingSafeEqual } from 'node:crypto';

const TOKEN_FIELDS = ['token', 'ingressToken', 'authToken'];

/** Compares in a time that tells nothing of where the texts differ. */
export function sameSecret(one: string, other: string): boolean {
  const digest = (text: string) => createHash('sha256').update(text).digest();
  return timingSafeEqual(digest(one), digest(other));
}

/** Splits the ingress token off a batch pull (protocol section 1): top level first, then `auth.token`. */
export function takeToken(data: unknown): { token: string | undefined; rest: Record<string, unknown> } {
  if (typeof data !== 'object' || data === null || Array.isArray(data)) return { token: undefined, rest: {} };
  const rest = { ...(data as Record<string, unknown>) };
  const auth = rest.auth as { token?: unknown } | undefined;
  const found = [...TOKEN_FIELDS.map((field) => rest[field]), auth?.token].find((value) => typeof value === 'string');
  for (const field of [...TOKEN_FIELDS, 'auth']) delete rest[field];
  return { token: found as string | undefined, rest };
}
