/**
 * Plugins for Conveyor without a framework: declare nodes with schemas, and call one function.
 *
 * @packageDocumentation
 */
export { defineNode, type NodeDefinition, type PluginNode } from './node.js';
export { definePlugin, type Plugin, type PluginDefinition, type RunningPlugin, type StartOptions } from './plugin.js';
export type {
  FieldOverrides,
  SchemaInput,
  SchemaOutput,
  StandardIssue,
  StandardResult,
  StandardSchema,
} from './schema.js';
export type { ExecLogger, PluginContext } from '../core/context.js';
export { RpcError, UnansweredError } from '../core/errors.js';
export { StepFailure, type InputFault, type StepErrorBody } from '../core/failure.js';
export type { PluginAsset, PluginAssets } from '../core/http.js';
export { jsonLog, silentLog, type LogFields, type PluginLog } from '../core/log.js';
export type {
  ExecutorItem,
  NamedParam,
  ParamDef,
  ParamType,
  PluginManifestRequestV2,
  PluginUiForm,
  PluginVariable,
} from '../core/manifest.js';
export type { PublicationReply } from '../core/publisher.js';
export { readSettings, SettingsError, type PluginSettings } from '../core/settings.js';
