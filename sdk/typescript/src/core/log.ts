/** Fields of a log line: identifiers and numbers with their unit in the name, never a secret. */
export type LogFields = Readonly<Record<string, unknown>>;

/** Where the SDK logs. `event` is a stable name to search for, `message` is for people. */
export interface PluginLog {
  debug(event: string, message: string, fields?: LogFields): void;
  info(event: string, message: string, fields?: LogFields): void;
  warn(event: string, message: string, fields?: LogFields): void;
  error(event: string, message: string, fields?: LogFields): void;
}

/** Writes one JSON object a line to stderr; debug lines only with `LOG_LEVEL=debug`. */
export function jsonLog(env: NodeJS.ProcessEnv = process.env): PluginLog {
  const verbose = env.LOG_LEVEL?.trim().toLowerCase() === 'debug';
  const write =
    (level: string) =>
    (event: string, message: string, fields: LogFields = {}) => {
      process.stderr.write(`${JSON.stringify({ time: new Date().toISOString(), level, event, message, ...fields })}\n`);
    };
  return {
    debug: verbose ? write('debug') : () => undefined,
    info: write('info'),
    warn: write('warn'),
    error: write('error'),
  };
}

/** Says nothing: for tests. */
export const silentLog: PluginLog = {
  debug: () => undefined,
  info: () => undefined,
  warn: () => undefined,
  error: () => undefined,
};
