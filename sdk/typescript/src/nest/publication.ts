import {
  Controller,
  Inject,
  Injectable,
  Module,
  Optional,
  type DynamicModule,
  type OnApplicationBootstrap,
  type OnModuleDestroy,
  type Type,
} from '@nestjs/common';
import { MessagePattern, Payload, RpcException } from '@nestjs/microservices';
import { authorizePull, toRpcError } from '../core/door.js';
import { messageOf } from '../core/errors.js';
import {
  itemsWithBoundPort,
  withBoundPorts,
  type BoundPorts,
  type PluginExecutorPullBatchRequest,
  type PluginExecutorPullBatchResponse,
  type PluginManifestRequestV2,
} from '../core/manifest.js';
import { BATCH_PULL_PATTERNS } from '../core/pattern.js';
import { publish, type PublicationReply } from '../core/publisher.js';
import { readSettings, type PublicationSettings } from '../core/settings.js';
import { nestLog } from './log.js';
import { PLUGIN_EXECUTOR_BATCH_SOURCE, PLUGIN_MANIFEST_BUILDER } from './tokens.js';

/** Answers batch pulls. */
export interface PluginExecutorBatchSource {
  buildBatch(
    request: PluginExecutorPullBatchRequest,
  ): PluginExecutorPullBatchResponse | Promise<PluginExecutorPullBatchResponse>;
}

/** Says what is published when the plugin starts. */
export interface PluginManifestOnInitBuilder {
  buildManifestRequest(): PluginManifestRequestV2 | Promise<PluginManifestRequestV2>;
}

/** How a plugin publishes. */
export interface PluginPublicationOptions {
  /** Publish when the plugin starts. */
  manifestOnInit?: boolean;
  /** Needed to publish. */
  manifestBuilder?: Type<PluginManifestOnInitBuilder>;
  /** Modules whose providers the batch source or the builder injects. */
  imports?: DynamicModule['imports'];
}

/** The addresses that the plugin really listens on, told by whoever started it. */
@Injectable()
export class PluginHostPorts {
  private tell: (ports: BoundPorts) => void = () => undefined;
  private known: BoundPorts | undefined;
  /** Resolves when the plugin listens; absent when nobody promised to tell. */
  listening: Promise<BoundPorts> | undefined;

  /** Promises that {@link bound} will be called. */
  expect(): void {
    this.listening = new Promise((resolve) => (this.tell = resolve));
  }

  /** The plugin listens. */
  bound(ports: BoundPorts): void {
    this.known = ports;
    this.tell(ports);
  }

  /** The ports; undefined while they are unknown. */
  get current(): BoundPorts | undefined {
    return this.known;
  }
}

/** Sends the manifest to plugin-manager once the plugin listens, and again until it is answered. */
@Injectable()
export class PluginManifestSendOnInitService implements OnApplicationBootstrap, OnModuleDestroy {
  private readonly log = nestLog();
  private readonly stopped = new AbortController();
  /** plugin-manager's answer; undefined when the plugin was not published. */
  published: Promise<PublicationReply | undefined> = Promise.resolve(undefined);

  constructor(
    @Inject(PLUGIN_MANIFEST_BUILDER) private readonly builder: PluginManifestOnInitBuilder,
    @Inject(PluginHostPorts) private readonly ports: PluginHostPorts,
  ) {}

  onApplicationBootstrap(): void {
    this.published = this.send().catch((error: unknown) => {
      this.log.error('plugin_wire_outbound_manifest_failed', 'the manifest could not be built', {
        reason: messageOf(error),
      });
      return undefined;
    });
  }

  onModuleDestroy(): void {
    this.stopped.abort();
  }

  private async send(): Promise<PublicationReply | undefined> {
    const { publication, maxFrame } = readSettings();
    if (!publication.enabled) return undefined;
    const ports = await this.ports.listening;
    const manifest = await this.builder.buildManifestRequest();
    return publish(ports ? withBoundPorts(manifest, ports) : manifest, {
      settings: publication,
      log: this.log,
      signal: this.stopped.signal,
      maxFrame,
    });
  }
}

/** Takes the batch pull of plugin-manager. */
@Controller()
export class PluginExecutorBatchPullTcpController {
  private readonly log = nestLog();
  /** Read at the first pull, so that the order of imports is free. */
  private settings: PublicationSettings | undefined;

  constructor(
    @Inject(PLUGIN_EXECUTOR_BATCH_SOURCE) private readonly source: PluginExecutorBatchSource,
    @Optional() @Inject(PluginHostPorts) private readonly ports: PluginHostPorts | undefined,
  ) {}

  @MessagePattern(BATCH_PULL_PATTERNS)
  async pull(@Payload() data: unknown): Promise<PluginExecutorPullBatchResponse> {
    try {
      this.settings ??= readSettings().publication;
      const request = authorizePull(data, this.settings.token, this.log);
      const response = await this.source.buildBatch(request);
      this.log.info('plugin_batch_pulled', '[registration] executor batch pull <- plugin-manager', {
        items: response.items.length,
      });
      return itemsWithBoundPort(response, this.ports?.current?.tcp ?? 0);
    } catch (error) {
      throw new RpcException(toRpcError(error).body());
    }
  }
}

/** Publication: the batch pull's door, and the manifest that is sent when the plugin starts. */
@Module({})
export class PluginPublicationTcpHostModule {
  /**
   * @param source Answers batch pulls.
   * @throws {Error} `manifestOnInit` without a `manifestBuilder`.
   */
  static forRoot(source: Type<PluginExecutorBatchSource>, options: PluginPublicationOptions = {}): DynamicModule {
    const { manifestOnInit = false, manifestBuilder, imports = [] } = options;
    if (manifestOnInit && !manifestBuilder)
      throw new Error('PluginPublicationTcpHostModule: manifestOnInit needs a manifestBuilder');
    const builder = manifestBuilder
      ? [manifestBuilder, { provide: PLUGIN_MANIFEST_BUILDER, useExisting: manifestBuilder }]
      : [];
    return {
      module: PluginPublicationTcpHostModule,
      imports,
      controllers: [PluginExecutorBatchPullTcpController],
      providers: [
        PluginHostPorts,
        source,
        { provide: PLUGIN_EXECUTOR_BATCH_SOURCE, useExisting: source },
        ...builder,
        ...(manifestOnInit ? [PluginManifestSendOnInitService] : []),
      ],
      exports: [
        source,
        ...(manifestBuilder ? [manifestBuilder] : []),
        ...(manifestOnInit ? [PluginManifestSendOnInitService] : []),
      ],
    };
  }
}
