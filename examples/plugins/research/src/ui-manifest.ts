import type { PluginManifestRequestV2 } from '@kosolapus/plugin-ts-sdk';

/** Keys of the UI bundles: forms are `ui.form.<id>`, widgets `ui.widget.<id>`. */
export const UI_KEYS = { askForm: 'ui.form.ask', surveyWidget: 'ui.widget.research.survey' } as const;

/** Files of the bundles below `dist/ui`. */
export function assetEntries(): Record<string, { file: string; mediaType?: string }> {
  return {
    [UI_KEYS.askForm]: { file: 'ask.mjs' },
    [UI_KEYS.surveyWidget]: { file: 'survey.mjs', mediaType: 'application/javascript' },
  };
}

/** Bundles as plugin-manager fetches them; without the plugin's HTTP there are none. */
export function staticAssets(): PluginManifestRequestV2['staticAssets'] {
  const port = process.env.PLUGIN_HEALTH_HTTP_PORT;
  if (!port) return [];
  const host = process.env.PLUGIN_PULL_ADVERTISED_HOST?.trim() ?? '127.0.0.1';
  return Object.values(UI_KEYS).map((key) => ({
    key,
    url: `http://${host}:${port}/assets/${key}`,
    mediaType: 'application/javascript',
  }));
}

/** Forms on those bundles. */
export function uiForms(): NonNullable<PluginManifestRequestV2['ui']> {
  return {
    forms: [
      {
        id: 'ask',
        label: 'Ask',
        description: 'Asks a question and shows the answer',
        assetKey: UI_KEYS.askForm,
        icon: 'i-lucide-search',
      },
    ],
  };
}
