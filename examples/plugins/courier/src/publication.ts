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
import { getCourierExecutors } from './executors.index';

@Injectable()
export class CourierBatchSource implements PluginExecutorBatchSource {
  async buildBatch(request: PluginExecutorPullBatchRequest): Promise<PluginExecutorPullBatchResponse> {
    return buildExecutorBatchPullResponseFromEntries({
      entries: getCourierExecutors(),
      request,
      defaults: { pluginId: 'courier', pluginLabel: 'Courier' },
    });
  }
}

@Injectable()
export class CourierManifestBuilder implements PluginManifestOnInitBuilder {
  buildManifestRequest(): PluginManifestRequestV2 {
    return {
      kind: 'plugin_manifest_request_v2',
      pluginId: 'courier',
      publicationVersion: process.env.PLUGIN_PUBLICATION_VERSION?.trim() ?? '0.0.1',
      label: 'Courier',
      description: 'HTTP calls with a secret: one node fails the step, the other tells the error as an output',
      variables: [],
      staticAssets: [],
      executors: getCourierExecutors().map((entry) => ({ nodeType: entry.nodeType })),
      pull: pullEndpoint(),
    };
  }
}
