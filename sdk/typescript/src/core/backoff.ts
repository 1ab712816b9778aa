/** Pauses between tries: exponential with full jitter, so that many plugins do not return at once. */
export class Backoff {
  private ceilingMs: number;

  constructor(
    firstMs: number,
    private readonly longestMs: number,
    private readonly random: () => number = Math.random,
  ) {
    this.ceilingMs = Math.min(Math.max(firstMs, 1), longestMs);
  }

  /** A random pause up to a ceiling that doubles from the first to the longest, in milliseconds. */
  next(): number {
    const ceiling = this.ceilingMs;
    this.ceilingMs = Math.min(ceiling * 2, this.longestMs);
    return Math.max(1, Math.round(this.random() * ceiling));
  }
}

/** Resolves after the pause; rejects with the signal's reason when it is aborted before. */
export function pause(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) return reject(signal.reason as Error);
    const stop = () => {
      clearTimeout(timer);
      reject(signal?.reason as Error);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener('abort', stop);
      resolve();
    }, ms);
    signal?.addEventListener('abort', stop, { once: true });
  });
}
