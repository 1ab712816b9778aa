/** Where the platform reaches this plugin. */
export function pullEndpoint(): { host: string; port: number } {
  const { PLUGIN_TCP_PORT, EXECUTOR_TCP_PORT, PORT, PLUGIN_PULL_ADVERTISED_HOST, PLUGIN_PULL_ADVERTISED_PORT } =
    process.env;
  const listenPort = PLUGIN_TCP_PORT ?? EXECUTOR_TCP_PORT ?? PORT ?? '9420';
  return {
    host: PLUGIN_PULL_ADVERTISED_HOST?.trim() ?? '127.0.0.1',
    port: Number(PLUGIN_PULL_ADVERTISED_PORT || listenPort),
  };
}

/** The same as every executor's transport. */
export const transport = { type: 'tcp' as const, params: pullEndpoint() };
