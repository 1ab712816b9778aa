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
import { getTrackerExecutors } from './executors.index';

@Injectable()
export class TrackerBatchSource implements PluginExecutorBatchSource {
  async buildBatch(request: PluginExecutorPullBatchRequest): Promise<PluginExecutorPullBatchResponse> {
    return buildExecutorBatchPullResponseFromEntries({
      entries: getTrackerExecutors(),
      request,
      defaults: { pluginId: 'tracker', pluginLabel: 'Tracker' },
    });
  }
}

@Injectable()
export class TrackerManifestBuilder implements PluginManifestOnInitBuilder {
  buildManifestRequest(): PluginManifestRequestV2 {
    return {
      kind: 'plugin_manifest_request_v2',
      pluginId: 'tracker',
      publicationVersion: process.env.PLUGIN_PUBLICATION_VERSION?.trim() ?? '0.0.1',
      label: 'Tracker',
      description: 'An issue tracker in memory: shared connection fields, inherited inputs, injected services',
      variables: [],
      staticAssets: [],
      executors: getTrackerExecutors().map((entry) => ({ nodeType: entry.nodeType })),
      pull: pullEndpoint(),
    };
  }
}
