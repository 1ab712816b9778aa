/** Value kinds and editor controls of a field. `keyvalue` carries objects and arrays, `ref` as an input is a secret. */
export type ParamType = 'string' | 'textarea' | 'number' | 'boolean' | 'select' | 'keyvalue' | 'ref';

/** What is declared of one input or output. */
export interface ParamDef {
  type: ParamType;
  /** What people see. */
  label: string;
  description?: string;
  /** Must have a value. */
  required?: boolean;
  /** The value when none is given. */
  default?: unknown;
  /** A setting of the node, never a port. */
  static?: boolean;
  /** May be turned into an input port. */
  canBePort?: boolean;
  /** Is a port by default. */
  isPort?: boolean;
  /** The node's main field. */
  isPrimary?: boolean;
  /** Kind of secret that a `ref` input wants, such as `API_TOKEN`. */
  secretKind?: string;
  /** Choices of a `select`. */
  options?: unknown;
}

/** A declared input or output with its name, as it stands in an executor item. */
export interface NamedParam extends ParamDef {
  name: string;
}

/** How a plugin's executor is reached. */
export interface ExecutorTransport {
  type: 'tcp';
  params: { host: string; port: number };
}

/** One node type in the answer to a batch pull. */
export interface ExecutorItem {
  nodeType: string;
  name: string;
  description?: string;
  /** Markdown. */
  help?: string;
  pluginId: string;
  pluginLabel: string;
  /** null: any input name is accepted. */
  inputs: NamedParam[] | null;
  outputs: NamedParam[];
  transport?: ExecutorTransport;
  tags?: readonly string[];
  sectionPath?: readonly string[];
}

/** What plugin-manager asks for. Its token is checked and taken out before a plugin sees the request. */
export interface PluginExecutorPullBatchRequest {
  kind?: string;
  pluginId?: string;
  publicationVersion?: string;
  /** Wanted node types; absent or empty means all. */
  nodeTypes?: string[];
  cursor?: unknown;
  [field: string]: unknown;
}

/** The answer to a batch pull. */
export interface PluginExecutorPullBatchResponse {
  items: ExecutorItem[];
  /** Asks plugin-manager to pull again with this cursor. */
  nextCursor?: unknown;
}

/** A variable on the plugin's card. Never a secret, never injected into tasks. */
export interface PluginVariable {
  key: string;
  label: string;
  description: string;
}

/** A UI bundle that plugin-manager fetches at publication. */
export interface PluginStaticAsset {
  key: string;
  url: string;
  mediaType: string;
}

/** A form of the plugin; `assetKey` names its bundle. */
export interface PluginUiForm {
  id: string;
  label: string;
  description?: string;
  assetKey: string;
  icon?: string;
}

/** What a plugin publishes about itself (protocol section 3). */
export interface PluginManifestRequestV2 {
  kind: 'plugin_manifest_request_v2';
  pluginId: string;
  publicationVersion: string;
  label: string;
  description: string;
  variables: PluginVariable[];
  staticAssets: PluginStaticAsset[];
  ui?: { forms: PluginUiForm[] };
  executors: { nodeType: string; requiredTemplateKeys?: string[] }[];
  /** Where plugin-manager pulls the batch: must be reachable from there. */
  pull: { host: string; port: number };
}

/** The ports that are really listened on. */
export interface BoundPorts {
  tcp: number;
  http?: number;
}

/** Port 0 in a manifest means "the one I got": puts it in, also into asset URLs. */
export function withBoundPorts(manifest: PluginManifestRequestV2, bound: BoundPorts): PluginManifestRequestV2 {
  const { http } = bound;
  return {
    ...manifest,
    pull: { ...manifest.pull, port: manifest.pull.port || bound.tcp },
    staticAssets: manifest.staticAssets.map((asset) =>
      http === undefined ? asset : { ...asset, url: asset.url.replace(/^(https?:\/\/[^/]+):0(?=\/|$)/, `$1:${http}`) },
    ),
  };
}

/** The same for the transports of a batch. */
export function itemsWithBoundPort(
  response: PluginExecutorPullBatchResponse,
  tcp: number,
): PluginExecutorPullBatchResponse {
  const items = response.items.map((item) => {
    const { transport } = item;
    return transport && !transport.params.port
      ? { ...item, transport: { ...transport, params: { ...transport.params, port: tcp } } }
      : item;
  });
  return { ...response, items };
}
