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
import { getLettersExecutors } from './executors.index';

@Injectable()
export class LettersBatchSource implements PluginExecutorBatchSource {
  async buildBatch(request: PluginExecutorPullBatchRequest): Promise<PluginExecutorPullBatchResponse> {
    return buildExecutorBatchPullResponseFromEntries({
      entries: getLettersExecutors(),
      request,
      defaults: { pluginId: 'letters', pluginLabel: 'Letters' },
    });
  }
}

@Injectable()
export class LettersManifestBuilder implements PluginManifestOnInitBuilder {
  buildManifestRequest(): PluginManifestRequestV2 {
    return {
      kind: 'plugin_manifest_request_v2',
      pluginId: 'letters',
      publicationVersion: process.env.PLUGIN_PUBLICATION_VERSION?.trim() ?? '0.0.1',
      label: 'Letters',
      description: 'Mail messages; node types without the id of the plugin',
      variables: [],
      staticAssets: [],
      executors: getLettersExecutors().map((entry) => ({ nodeType: entry.nodeType })),
      pull: pullEndpoint(),
    };
  }
}
