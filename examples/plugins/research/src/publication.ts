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
import { getResearchExecutors } from './executors.index';
import { staticAssets, UI_KEYS, uiForms } from './ui-manifest';
import { VARIABLES } from './variables';

@Injectable()
export class ResearchBatchSource implements PluginExecutorBatchSource {
  async buildBatch(request: PluginExecutorPullBatchRequest): Promise<PluginExecutorPullBatchResponse> {
    return buildExecutorBatchPullResponseFromEntries({
      entries: getResearchExecutors(),
      request,
      defaults: { pluginId: 'research', pluginLabel: 'Research' },
    });
  }
}

@Injectable()
export class ResearchManifestBuilder implements PluginManifestOnInitBuilder {
  buildManifestRequest(): PluginManifestRequestV2 {
    const assets = staticAssets();
    return {
      kind: 'plugin_manifest_request_v2',
      pluginId: 'research',
      publicationVersion: process.env.PLUGIN_PUBLICATION_VERSION?.trim() ?? '0.0.1',
      label: 'Research',
      description: 'Long work, partial outputs, open inputs, forms and widgets',
      variables: VARIABLES,
      staticAssets: assets,
      ...(assets.length > 0 ? { ui: uiForms() } : {}),
      executors: getResearchExecutors().map(({ nodeType }) => ({
        nodeType,
        ...(assets.length > 0 && nodeType === 'plugin.research.survey'
          ? { requiredTemplateKeys: [UI_KEYS.surveyWidget] }
          : {}),
      })),
      pull: pullEndpoint(),
    };
  }
}
