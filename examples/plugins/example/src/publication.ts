import { buildExecutorBatchPullResponseFromEntries } from '@kosolapus/plugin-ts-sdk';
import type {
  PluginExecutorBatchSource,
  PluginExecutorPullBatchRequest,
  PluginExecutorPullBatchResponse,
  PluginManifestOnInitBuilder,
  PluginManifestRequestV2,
} from '@kosolapus/plugin-ts-sdk';
import { Injectable } from '@nestjs/common';
import { pullEndpoint } from './endpoint';
import { getExampleExecutors } from './executors.index';

@Injectable()
export class ExampleBatchSource implements PluginExecutorBatchSource {
  async buildBatch(request: PluginExecutorPullBatchRequest): Promise<PluginExecutorPullBatchResponse> {
    return buildExecutorBatchPullResponseFromEntries({
      entries: getExampleExecutors(),
      request,
      defaults: { pluginId: 'example', pluginLabel: 'Example' },
    });
  }
}

@Injectable()
export class ExampleManifestBuilder implements PluginManifestOnInitBuilder {
  buildManifestRequest(): PluginManifestRequestV2 {
    return {
      kind: 'plugin_manifest_request_v2',
      pluginId: 'example',
      publicationVersion: process.env.PLUGIN_PUBLICATION_VERSION?.trim() ?? '0.0.1',
      label: 'Example',
      description: 'The smallest plugin: one node that echoes its text',
      variables: [],
      staticAssets: [],
      executors: getExampleExecutors().map((entry) => ({ nodeType: entry.nodeType })),
      pull: pullEndpoint(),
    };
  }
}
