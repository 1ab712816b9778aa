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
import { getTrackerExecutors } from './executors.index';
import { IssueStore } from './issues/issue.store';
import { TrackerBatchSource, TrackerManifestBuilder } from './publication';

@Module({
  imports: [
    PluginPublicationTcpHostModule.forRoot(TrackerBatchSource, {
      manifestOnInit: true,
      manifestBuilder: TrackerManifestBuilder,
    }),
  ],
  controllers: [ExecutorTaskTcpController],
  providers: [
    IssueStore,
    TcpControlPlaneOutputRouter,
    { provide: OUTPUT_ROUTER, useExisting: TcpControlPlaneOutputRouter },
    { provide: TRANSPORT_ADAPTER, useClass: DefaultTransportAdapter },
    { provide: REGISTRY, useClass: DefaultRegistry },
    {
      provide: BULK_EXECUTOR_ROUTER_OPTIONS,
      useValue: {
        pluginId: 'tracker',
        pluginLabel: 'Tracker',
        pluginVariables: [],
        getExecutors: () => getTrackerExecutors(),
        notifyStepStarted: buildExecutorStepAckNotifierFromEnv(),
        nodeTypePrefix: 'plugin.tracker.',
      },
    },
    BulkExecutorTaskHandler,
    BulkExecutorRouterService,
  ],
})
export class AppModule {}
