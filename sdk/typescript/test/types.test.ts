// What existing plugins and their tests write must compile: most of this file is checked by the compiler.
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import {
  ExecContext,
  executorsFromClasses,
  type ExecutorClass,
  type ExecutorEntry,
  type PluginExecutorBatchSource,
  type PluginExecutorPullBatchRequest,
  type PluginManifestRequestV2,
} from '../src/index';

/** A context made by hand has these four members. */
function contextOf<I>(inputs: I): ExecContext<I> {
  return {
    runId: 'run',
    inputs,
    outputs: [],
    logger: { debug: () => undefined, info: () => undefined, error: (...args: unknown[]) => console.error(...args) },
  };
}

/** Plugins that call their own executors look them up so. */
type Tool = { ctor: new (...args: unknown[]) => { execute: (...args: unknown[]) => unknown } };

const CLASSES = [] as const;

function entries(): ExecutorEntry[] {
  return executorsFromClasses(CLASSES as unknown as readonly ExecutorClass[]).map((entry) => ({
    ...entry,
    opts: { ...entry.opts, sectionPath: ['a'] as readonly string[] },
  }));
}

class Source implements PluginExecutorBatchSource {
  async buildBatch(request: PluginExecutorPullBatchRequest) {
    return Promise.resolve({ items: request.nodeTypes?.length ? [] : [] });
  }
}

function assets(): PluginManifestRequestV2['staticAssets'] {
  return [{ key: 'ui.form.a', url: 'http://127.0.0.1/assets/ui.form.a', mediaType: 'application/javascript' }];
}

function forms(): NonNullable<PluginManifestRequestV2['ui']> {
  return { forms: [{ id: 'a', label: 'A', assetKey: 'ui.form.a' }] };
}

describe('the types', () => {
  it('let a context be made by hand and wanted outputs be reduced', () => {
    const context = contextOf({ n: 1 });
    const chosen = (context.outputs ?? ['n']).reduce<Record<string, unknown>>(
      (all, name) => ({ ...all, [name]: 1 }),
      {},
    );
    assert.deepEqual(chosen, {});
  });

  it('let executors be found as tools', () => {
    const resolve: (nodeType: string) => Tool | undefined = (nodeType) =>
      entries().find((entry) => entry.nodeType === nodeType);
    assert.equal(resolve('none'), undefined);
  });

  it('let help texts be imported as existing plugins do', () => {
    const help: (typeof import('./help.md'))['default'] = '# Help';
    assert.equal(help.length, 6);
  });

  it('name the parts of a manifest', async () => {
    const manifest: PluginManifestRequestV2 = {
      kind: 'plugin_manifest_request_v2',
      pluginId: 'p',
      publicationVersion: '1',
      label: 'P',
      description: '',
      variables: [],
      staticAssets: assets(),
      ui: forms(),
      executors: entries().map((entry) => ({
        nodeType: entry.nodeType,
        ...(entry.nodeType === 'a' ? { requiredTemplateKeys: ['ui.widget.a'] } : {}),
      })),
      pull: { host: 'h', port: 1 },
    };
    assert.deepEqual([manifest.executors, await new Source().buildBatch({})], [[], { items: [] }]);
  });
});
