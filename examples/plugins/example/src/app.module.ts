import {
  BULK_EXECUTOR_ROUTER_OPTIONS,
  buildExecutorStepAckNotifierFromEnv,
  BulkExecutorRouterService,
  BulkExecutorTaskHandler,
  DefaultRegistry,
  DefaultTransportAdapter,
  ExecutorTaskTcpController,
  OUTPUT_ROUTER,
  PluginPublicationTcpHostModule,
  REGISTRY,
  TcpControlPlaneOutputRouter,
  TRANSPORT_ADAPTER,
} from '@kosolapus/plugin-ts-sdk';
import { Module } from '@nestjs/common';
import { getExampleExecutors } from './executors.index';
import { ExampleBatchSource, ExampleManifestBuilder } from './publication';

@Module({
  imports: [
    PluginPublicationTcpHostModule.forRoot(ExampleBatchSource, {
      manifestOnInit: true,
      manifestBuilder: ExampleManifestBuilder,
    }),
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
        pluginId: 'example',
        pluginLabel: 'Example',
        pluginVariables: [],
        getExecutors: () => getExampleExecutors(),
        notifyStepStarted: buildExecutorStepAckNotifierFromEnv(),
        nodeTypePrefix: 'plugin.example.',
      },
    },
    BulkExecutorTaskHandler,
    BulkExecutorRouterService,
  ],
})
export class AppModule {}
