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
import { getTablesExecutors } from './executors.index';
import { TablesBatchSource, TablesManifestBuilder } from './publication';

@Module({
  imports: [
    PluginPublicationTcpHostModule.forRoot(TablesBatchSource, {
      manifestOnInit: true,
      manifestBuilder: TablesManifestBuilder,
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
        pluginId: 'tables',
        pluginLabel: 'Таблицы',
        pluginVariables: [],
        getExecutors: () => getTablesExecutors(),
        notifyStepStarted: buildExecutorStepAckNotifierFromEnv(),
      },
    },
    BulkExecutorTaskHandler,
    BulkExecutorRouterService,
  ],
})
export class AppModule {}
