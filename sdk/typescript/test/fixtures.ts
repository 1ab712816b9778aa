// A plugin as authors write it, with the range of what is seen in the field.
import 'reflect-metadata';
import { Injectable, Module } from '@nestjs/common';
import { Type } from 'class-transformer';
import { Allow, IsInt, IsNotEmpty, IsOptional, IsString, Min, MinLength, ValidateNested } from 'class-validator';
import {
  BULK_EXECUTOR_ROUTER_OPTIONS,
  buildExecutorBatchPullResponseFromEntries,
  buildExecutorStepAckNotifierFromEnv,
  BulkExecutorRouterService,
  BulkExecutorTaskHandler,
  DefaultRegistry,
  DefaultTransportAdapter,
  ExecContext,
  Executor,
  executorsFromClasses,
  ExecutorTaskTcpController,
  FieldDecorator,
  OUTPUT_ROUTER,
  PluginAssetHttpModule,
  PluginPublicationTcpHostModule,
  REGISTRY,
  TcpControlPlaneOutputRouter,
  TRANSPORT_ADAPTER,
  type ExecutorClass,
  type ExecutorEntry,
  type PluginExecutorBatchSource,
  type PluginExecutorPullBatchRequest,
  type PluginExecutorPullBatchResponse,
  type PluginManifestOnInitBuilder,
  type PluginManifestRequestV2,
} from '../src/index';

export class BaseInput {
  @IsString()
  @MinLength(1)
  @FieldDecorator({ type: 'ref', label: 'Token', static: true, secretKind: 'API_TOKEN' })
  token!: string;
}

export class EchoInput extends BaseInput {
  @IsString()
  @MinLength(1)
  @FieldDecorator({ type: 'string', label: 'Text', isPrimary: true, canBePort: true, isPort: true, required: true })
  text!: string;

  @IsOptional()
  @IsInt()
  @Min(1)
  @FieldDecorator({ type: 'number', label: 'Times', default: 1 })
  times?: number;

  @Allow()
  @FieldDecorator({ type: 'keyvalue', label: 'Rows' })
  rows?: unknown[];
}

class EchoOutput {
  @FieldDecorator({ type: 'string', label: 'Text' })
  text!: string;

  @FieldDecorator({ type: 'keyvalue', label: 'Seen' })
  seen!: unknown;
}

const transport = { type: 'tcp' as const, params: { host: '127.0.0.1', port: 0 } };

@Executor<EchoInput, EchoOutput>({
  nodeType: 'plugin.fixture.echo',
  name: 'Echo',
  description: 'Echoes',
  help: '# Echo',
  pluginId: 'fixture',
  inputs: EchoInput,
  outputs: EchoOutput,
  transport,
  tags: ['echo'],
})
class EchoExecutor {
  async execute(ctx: ExecContext<EchoInput>, input: EchoInput): Promise<EchoOutput> {
    await Promise.resolve();
    return {
      text: input.text.repeat(Number(input.times ?? 1)),
      seen: { same: ctx.inputs === input, isDto: input instanceof EchoInput, inputs: { ...input } },
    };
  }
}

@Executor<Record<string, unknown>, EchoOutput>({
  nodeType: 'data.open',
  name: 'Open',
  description: 'Takes all',
  inputs: null,
  outputs: EchoOutput,
  transport,
})
class OpenExecutor {
  execute(ctx: ExecContext<Record<string, unknown>>): Partial<EchoOutput> {
    return { seen: ctx.inputs };
  }
}

@Injectable()
export class Greeter {
  greet(name: string): string {
    return `Hello ${name}`;
  }
}

class Person {
  @IsNotEmpty()
  name!: string;
  shout(): string {
    return this.name.toUpperCase();
  }
}

class GreetInput {
  @ValidateNested()
  @Type(() => Person)
  @FieldDecorator({ type: 'keyvalue', label: 'Person' })
  person!: Person;

  @FieldDecorator({ type: 'string', label: 'Mark' })
  mark = '!';
}

@Executor<GreetInput, EchoOutput>({
  nodeType: 'plugin.fixture.greet',
  name: 'Greet',
  description: 'Injects',
  inputs: GreetInput,
  outputs: EchoOutput,
  transport,
})
class GreetExecutor {
  constructor(private readonly greeter: Greeter) {}

  execute(ctx: ExecContext<GreetInput>): Partial<EchoOutput> {
    return { text: this.greeter.greet(ctx.inputs.person.shout()) + ctx.inputs.mark };
  }
}

@Executor({
  nodeType: 'plugin.fixture.wait',
  name: 'Wait',
  description: 'Waits',
  inputs: null,
  outputs: EchoOutput,
  transport,
})
class WaitExecutor {
  async execute(ctx: ExecContext): Promise<Partial<EchoOutput>> {
    await new Promise((resolve) => process.once('message', resolve));
    return { text: `done ${ctx.runId}` };
  }
}

export function fixtureExecutors(): ExecutorEntry[] {
  const classes = [EchoExecutor, OpenExecutor, GreetExecutor, WaitExecutor] as unknown as readonly ExecutorClass[];
  return executorsFromClasses(classes).map((entry) => ({
    ...entry,
    opts: { ...entry.opts, sectionPath: ['fixture'] },
  }));
}

export const seenRequests: PluginExecutorPullBatchRequest[] = [];

@Injectable()
class FixtureBatchSource implements PluginExecutorBatchSource {
  async buildBatch(request: PluginExecutorPullBatchRequest): Promise<PluginExecutorPullBatchResponse> {
    seenRequests.push(request);
    return Promise.resolve(
      buildExecutorBatchPullResponseFromEntries({
        entries: fixtureExecutors(),
        request,
        defaults: { pluginId: 'fixture', pluginLabel: 'Fixture' },
      }),
    );
  }
}

@Injectable()
class FixtureManifestBuilder implements PluginManifestOnInitBuilder {
  buildManifestRequest(): PluginManifestRequestV2 {
    return {
      kind: 'plugin_manifest_request_v2',
      pluginId: 'fixture',
      publicationVersion: process.env.PLUGIN_PUBLICATION_VERSION?.trim() ?? '0.0.1',
      label: 'Fixture',
      description: 'For tests',
      variables: [],
      staticAssets: [
        {
          key: 'ui.form.go',
          url: `http://127.0.0.1:${process.env.PLUGIN_HEALTH_HTTP_PORT ?? 9414}/assets/ui.form.go`,
          mediaType: 'application/javascript',
        },
      ],
      ui: { forms: [{ id: 'go', label: 'Go', assetKey: 'ui.form.go' }] },
      executors: fixtureExecutors().map((entry) => ({ nodeType: entry.nodeType })),
      pull: { host: '127.0.0.1', port: Number(process.env.PLUGIN_TCP_PORT) },
    };
  }
}

@Module({
  imports: [
    PluginPublicationTcpHostModule.forRoot(FixtureBatchSource, {
      manifestOnInit: true,
      manifestBuilder: FixtureManifestBuilder,
    }),
    PluginAssetHttpModule.forRoot({ assetsDir: __dirname, assets: { 'ui.form.go': { file: 'fixtures.js' } } }),
  ],
  controllers: [ExecutorTaskTcpController],
  providers: [
    Greeter,
    TcpControlPlaneOutputRouter,
    { provide: OUTPUT_ROUTER, useExisting: TcpControlPlaneOutputRouter },
    { provide: TRANSPORT_ADAPTER, useClass: DefaultTransportAdapter },
    { provide: REGISTRY, useClass: DefaultRegistry },
    {
      provide: BULK_EXECUTOR_ROUTER_OPTIONS,
      useValue: {
        pluginId: 'fixture',
        pluginLabel: 'Fixture',
        pluginVariables: [],
        getExecutors: () => fixtureExecutors(),
        notifyStepStarted: buildExecutorStepAckNotifierFromEnv(),
        nodeTypePrefix: 'plugin.fixture.',
      },
    },
    BulkExecutorTaskHandler,
    BulkExecutorRouterService,
  ],
})
export class FixtureModule {}
