/** Fields of a log line: identifiers and numbers with their unit in the name, never a secret. */
export type LogFields = Readonly<Record<string, unknown>>;

/** Where the SDK logs. `event` is a stable name to search for, `message` is for people. */
export interface PluginLog {
  debug(event: string, message: string, fields?: LogFields): void;
  info(event: string, message: string, fields?: LogFields): void;
  warn(event: string, message: string, fields?: LogFields): void;
  error(event: string, message: string, fields?: LogFields): void;
}

const LEVELS = ['debug', 'info', 'warn', 'error'] as const;

/** Writes one JSON object a line to stderr, from the level that `LOG_LEVEL` names (`info` when it names none). */
export function jsonLog(env: NodeJS.ProcessEnv = process.env): PluginLog {
  const least = LEVELS.indexOf((env.LOG_LEVEL?.trim().toLowerCase() || 'info') as (typeof LEVELS)[number]);
  const write = (level: (typeof LEVELS)[number]) => {
    if (LEVELS.indexOf(level) < least) return () => undefined;
    return (event: string, message: string, fields: LogFields = {}) => {
      const line = { time: new Date().toISOString(), level, event, message, ...fields };
      process.stderr.write(`${JSON.stringify(line)}\n`);
    };
  };
  return { debug: write('debug'), info: write('info'), warn: write('warn'), error: write('error') };
}

/** Says nothing: for tests. */
export const silentLog: PluginLog = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};
