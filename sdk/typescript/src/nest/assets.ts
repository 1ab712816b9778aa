import { Module, type DynamicModule } from '@nestjs/common';
import type { PluginAssets } from '../core/http.js';
import { PLUGIN_ASSETS } from './tokens.js';

/**
 * The plugin's UI bundles, served as `GET /assets/:key` by {@link bootstrapPluginExecutorMicroservice}
 * when `PLUGIN_HEALTH_HTTP_PORT` is set.
 */
@Module({})
export class PluginAssetHttpModule {
  static forRoot(assets: PluginAssets): DynamicModule {
    return {
      module: PluginAssetHttpModule,
      providers: [{ provide: PLUGIN_ASSETS, useValue: assets }],
      exports: [PLUGIN_ASSETS],
    };
  }
}
