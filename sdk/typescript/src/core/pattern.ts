/** Pattern names (protocol section 1): what is sent, and the spellings that a plugin answers to. */
export const PATTERN = {
  manifest: 'manifest_request_v2',
  stepAck: 'plugin.executor.step_ack',
  stepHeartbeat: 'plugin.executor.step_heartbeat',
  stepPartial: 'plugin.executor.step_partial',
  stepResult: 'plugin.executor.step_result',
} as const;

/** Spellings of the batch pull. */
export const BATCH_PULL_PATTERNS = ['executor_batch_pull', 'plugin.executor_batch_pull'];

/** Spellings of a task. */
export const TASK_PATTERNS = ['executor.task', 'plugin.executor.task'];

/**
 * The name that a packet's pattern stands for: a string is itself, `{"cmd": "x"}` (also written as a
 * JSON string) is `x`, anything else is its JSON text.
 */
export function patternName(pattern: unknown): string {
  if (typeof pattern === 'string') {
    if (!pattern.trimStart().startsWith('{')) return pattern;
    try {
      return patternName(JSON.parse(pattern) as unknown);
    } catch {
      return pattern;
    }
  }
  if (typeof pattern === 'object' && pattern !== null) {
    const keys = Object.keys(pattern);
    const { cmd } = pattern as { cmd?: unknown };
    if (keys.length === 1 && typeof cmd === 'string') return cmd;
  }
  return JSON.stringify(pattern) ?? 'undefined';
}
