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
import { getLettersExecutors } from './executors.index';
import { LettersBatchSource, LettersManifestBuilder } from './publication';

@Module({
  imports: [
    PluginPublicationTcpHostModule.forRoot(LettersBatchSource, {
      manifestOnInit: true,
      manifestBuilder: LettersManifestBuilder,
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
        pluginId: 'letters',
        pluginLabel: 'Letters',
        pluginVariables: [],
        getExecutors: () => getLettersExecutors(),
        notifyStepStarted: buildExecutorStepAckNotifierFromEnv(),
        nodeTypePrefix: 'data.letter.',
      },
    },
    BulkExecutorTaskHandler,
    BulkExecutorRouterService,
  ],
})
export class AppModule {}
