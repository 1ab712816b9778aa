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
import { getTablesExecutors } from './executors.index';

@Injectable()
export class TablesBatchSource implements PluginExecutorBatchSource {
  async buildBatch(request: PluginExecutorPullBatchRequest): Promise<PluginExecutorPullBatchResponse> {
    return buildExecutorBatchPullResponseFromEntries({
      entries: getTablesExecutors(),
      request,
      defaults: { pluginId: 'tables', pluginLabel: 'Таблицы' },
    });
  }
}

@Injectable()
export class TablesManifestBuilder implements PluginManifestOnInitBuilder {
  buildManifestRequest(): PluginManifestRequestV2 {
    return {
      kind: 'plugin_manifest_request_v2',
      pluginId: 'tables',
      publicationVersion: process.env.PLUGIN_PUBLICATION_VERSION?.trim() ?? '0.0.1',
      label: 'Таблицы',
      description: 'CSV files in the folder of the run',
      variables: [],
      staticAssets: [],
      executors: getTablesExecutors().map((entry) => ({ nodeType: entry.nodeType })),
      pull: pullEndpoint(),
    };
  }
}
