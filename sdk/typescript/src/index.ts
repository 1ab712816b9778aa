/// <reference path="./markdown.d.ts" preserve="true" />
/**
 * Plugins for Conveyor on NestJS.
 *
 * @packageDocumentation
 */
export { PluginAssetHttpModule } from './nest/assets.js';
export { bootstrapPluginExecutorMicroservice, type BootstrapOptions } from './nest/bootstrap.js';
export {
  BulkExecutorRouterService,
  BulkExecutorTaskHandler,
  ExecutorTaskTcpController,
  type BulkExecutorRouterOptions,
} from './nest/bulk.js';
export { Executor, FieldDecorator, type DtoClass, type ExecutorOptions } from './nest/decorators.js';
export {
  buildExecutorBatchPullResponseFromEntries,
  executorsFromClasses,
  type ExecutorBatchOptions,
  type ExecutorClass,
  type ExecutorEntry,
  type ExecutorInstance,
} from './nest/entries.js';
export { loadHelpFromFile } from './nest/help.js';
export { TcpControlPlaneOutputRouter, type OutputRouter } from './nest/output-router.js';
export {
  PluginExecutorBatchPullTcpController,
  PluginHostPorts,
  PluginManifestSendOnInitService,
  PluginPublicationTcpHostModule,
  type PluginExecutorBatchSource,
  type PluginManifestOnInitBuilder,
  type PluginPublicationOptions,
} from './nest/publication.js';
export { DefaultRegistry, DefaultTransportAdapter, type Registry, type TransportAdapter } from './nest/registry.js';
export {
  buildExecutorStepAckNotifierFromEnv,
  type ExecutorStepAckNotifier,
  type StartedStep,
} from './nest/step-ack.js';
export { PluginTcpServer, type PluginTcpOptions } from './nest/tcp-strategy.js';
export {
  BULK_EXECUTOR_ROUTER_OPTIONS,
  OUTPUT_ROUTER,
  PLUGIN_ASSETS,
  PLUGIN_EXECUTOR_BATCH_SOURCE,
  PLUGIN_MANIFEST_BUILDER,
  REGISTRY,
  TRANSPORT_ADAPTER,
} from './nest/tokens.js';
export type { ExecContext, ExecLogger } from './core/context.js';
export { RpcError, UnansweredError } from './core/errors.js';
export { StepFailure, type InputFault, type StepErrorBody } from './core/failure.js';
export type { PluginAsset, PluginAssets } from './core/http.js';
export type {
  BoundPorts,
  ExecutorItem,
  ExecutorTransport,
  NamedParam,
  ParamDef,
  ParamType,
  PluginExecutorPullBatchRequest,
  PluginExecutorPullBatchResponse,
  PluginManifestRequestV2,
  PluginStaticAsset,
  PluginUiForm,
  PluginVariable,
} from './core/manifest.js';
export type { PublicationReply } from './core/publisher.js';
export type { StepIdentity, StepReport, Told } from './core/reporter.js';
export { readSettings, SettingsError, type PluginSettings } from './core/settings.js';
export type { ReportSink } from './core/steps.js';
export type { ExecutorTask } from './core/task.js';
