/** Where executors' reports go: bind to {@link TcpControlPlaneOutputRouter}. */
export const OUTPUT_ROUTER = Symbol.for('conveyor.plugin-sdk.OUTPUT_ROUTER');
/** Reads what the transport delivers: bind to {@link DefaultTransportAdapter}. */
export const TRANSPORT_ADAPTER = Symbol.for('conveyor.plugin-sdk.TRANSPORT_ADAPTER');
/** The plugin's executors by node type: bind to {@link DefaultRegistry}. */
export const REGISTRY = Symbol.for('conveyor.plugin-sdk.REGISTRY');
/** Options of the bulk router: {@link BulkExecutorRouterOptions}. */
export const BULK_EXECUTOR_ROUTER_OPTIONS = Symbol.for('conveyor.plugin-sdk.BULK_EXECUTOR_ROUTER_OPTIONS');
/** The batch source that `PluginPublicationTcpHostModule.forRoot` was given. */
export const PLUGIN_EXECUTOR_BATCH_SOURCE = Symbol.for('conveyor.plugin-sdk.PLUGIN_EXECUTOR_BATCH_SOURCE');
/** The manifest builder that `PluginPublicationTcpHostModule.forRoot` was given. */
export const PLUGIN_MANIFEST_BUILDER = Symbol.for('conveyor.plugin-sdk.PLUGIN_MANIFEST_BUILDER');
/** The UI bundles that `PluginAssetHttpModule.forRoot` was given. */
export const PLUGIN_ASSETS = Symbol.for('conveyor.plugin-sdk.PLUGIN_ASSETS');
