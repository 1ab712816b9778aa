import {
  BULK_EXECUTOR_ROUTER_OPTIONS,
  buildExecutorStepAckNotifierFromEnv,
  BulkExecutorRouterService,
  BulkExecutorTaskHandler,
  DefaultRegistry,
  DefaultTransportAdapter,
  ExecutorTaskTcpController,
  OUTPUT_ROUTER,
  PluginAssetHttpModule,
  PluginPublicationTcpHostModule,
  REGISTRY,
  TcpControlPlaneOutputRouter,
  TRANSPORT_ADAPTER,
} from '@kosolapus/plugin-ts-sdk';
import { Module } from '@nestjs/common';
import { join } from 'node:path';
import { getResearchExecutors } from './executors.index';
import { ResearchBatchSource, ResearchManifestBuilder } from './publication';
import { assetEntries } from './ui-manifest';
import { VARIABLES } from './variables';

@Module({
  imports: [
    PluginPublicationTcpHostModule.forRoot(ResearchBatchSource, {
      manifestOnInit: true,
      manifestBuilder: ResearchManifestBuilder,
    }),
    PluginAssetHttpModule.forRoot({ assetsDir: join(__dirname, 'ui'), assets: assetEntries() }),
  ],
  controllers: [ExecutorTaskTcpController],
  providers: [
    TcpControlPlaneOutputRouter,
    { provide: OUTPUT_ROUTER, useExisting: TcpControlPlaneOutputRouter },
    { provide: TRANSPORT_ADAPTER, useClass: DefaultTransportAdapter },
    { provide: REGISTRY, useClass: DefaultRegistry },
    {
      provide: BULK_EXECUTOR_ROUTER_OPTIONS,
      useValue: {
        pluginId: 'research',
        pluginLabel: 'Research',
        pluginDescription: 'Long work, partial outputs, open inputs, forms and widgets',
        pluginVariables: VARIABLES,
        getExecutors: () => getResearchExecutors(),
        notifyStepStarted: buildExecutorStepAckNotifierFromEnv(),
        nodeTypePrefix: 'plugin.research.',
      },
    },
    BulkExecutorTaskHandler,
    BulkExecutorRouterService,
  ],
})
export class AppModule {}
