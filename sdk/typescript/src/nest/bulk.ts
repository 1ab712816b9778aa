import { Controller, Inject, Injectable, type OnModuleDestroy, type OnModuleInit } from '@nestjs/common';
import { ModuleRef } from '@nestjs/core';
import { MessagePattern, Payload, RpcException } from '@nestjs/microservices';
import { toRpcError } from '../core/door.js';
import { messageOf } from '../core/errors.js';
import type { PluginVariable } from '../core/manifest.js';
import { TASK_PATTERNS } from '../core/pattern.js';
import { readSettings } from '../core/settings.js';
import { Steps, type DELIVERED, type StepWork } from '../core/steps.js';
import type { ExecutorTask } from '../core/task.js';
import type { ExecutorEntry, ExecutorInstance } from './entries.js';
import { readInputs } from './inputs.js';
import { nestLog } from './log.js';
import type { OutputRouter } from './output-router.js';
import type { Registry, TransportAdapter } from './registry.js';
import type { ExecutorStepAckNotifier } from './step-ack.js';
import { BULK_EXECUTOR_ROUTER_OPTIONS, OUTPUT_ROUTER, REGISTRY, TRANSPORT_ADAPTER } from './tokens.js';

/** What the bulk router serves. */
export interface BulkExecutorRouterOptions {
  pluginId: string;
  pluginLabel: string;
  pluginDescription?: string;
  pluginVariables: PluginVariable[];
  /** The executors; asked once when the module starts. */
  getExecutors(): ExecutorEntry[];
  /** Tells the platform that work begins; {@link buildExecutorStepAckNotifierFromEnv}. */
  notifyStepStarted?: ExecutorStepAckNotifier;
  /** A task whose node type lacks this prefix is also looked up with it. */
  nodeTypePrefix?: string;
}

/** Works on tasks: from delivery to the answered result. */
@Injectable()
export class BulkExecutorTaskHandler implements OnModuleDestroy {
  private readonly instances = new Map<unknown, Promise<ExecutorInstance>>();
  private steps: Steps | undefined;

  constructor(
    @Inject(BULK_EXECUTOR_ROUTER_OPTIONS) private readonly options: BulkExecutorRouterOptions,
    @Inject(OUTPUT_ROUTER) private readonly output: OutputRouter,
    @Inject(REGISTRY) private readonly registry: Registry,
    @Inject(ModuleRef) private readonly modules: ModuleRef,
  ) {}

  /**
   * Takes a task; returning means delivered, the work goes on.
   *
   * @throws {RpcError} The task is not taken.
   */
  handle(task: ExecutorTask): typeof DELIVERED {
    return this.running().take(task);
  }

  /** Steps whose result is not yet answered. */
  get inFlight(): number {
    return this.steps?.inFlight ?? 0;
  }

  /** Is the plugin stopping? */
  get isDraining(): boolean {
    return this.steps?.isDraining ?? false;
  }

  /** Takes no more tasks and waits until what is under way is reported, at most for the time given. */
  drain(limitMs = readSettings().drainMs): Promise<void> {
    return this.running().drain(limitMs);
  }

  onModuleDestroy(): void {
    this.options.notifyStepStarted?.close?.();
  }

  private running(): Steps {
    this.steps ??= new Steps({
      find: (nodeType) => this.find(nodeType),
      reporter: this.output,
      log: nestLog(),
      started: this.options.notifyStepStarted,
      ...readSettings().steps,
    });
    return this.steps;
  }

  private find(nodeType: string): StepWork | undefined {
    const entry = this.registry.get(nodeType);
    return entry && ((context) => this.work(entry, context));
  }

  private async work(entry: ExecutorEntry, context: Parameters<StepWork>[0]): Promise<unknown> {
    const inputs = await readInputs(entry.opts.inputs, context.inputs);
    const executor = await this.instance(entry);
    return executor.execute({ ...context, inputs }, inputs);
  }

  /** One instance for each class: a provider of the application, or made here with what it injects. */
  private instance({ ctor }: ExecutorEntry): Promise<ExecutorInstance> {
    let instance = this.instances.get(ctor);
    if (!instance) {
      instance = this.make(ctor);
      this.instances.set(ctor, instance);
    }
    return instance;
  }

  private async make(ctor: ExecutorEntry['ctor']): Promise<ExecutorInstance> {
    try {
      return this.modules.get(ctor, { strict: false });
    } catch {
      // No provider of the application, which is the usual case.
      return ctor.length === 0 ? new ctor() : this.modules.create(ctor);
    }
  }
}

/** Knows the plugin's executors and hands each task to its own. */
@Injectable()
export class BulkExecutorRouterService implements OnModuleInit {
  constructor(
    @Inject(BULK_EXECUTOR_ROUTER_OPTIONS) private readonly options: BulkExecutorRouterOptions,
    @Inject(REGISTRY) private readonly registry: Registry,
    @Inject(BulkExecutorTaskHandler) private readonly handler: BulkExecutorTaskHandler,
  ) {}

  onModuleInit(): void {
    for (const entry of this.options.getExecutors()) this.registry.register(entry);
  }

  /**
   * Takes a task; returning means delivered, the work goes on.
   *
   * @throws {RpcError} The task is not taken.
   */
  route(task: ExecutorTask): typeof DELIVERED {
    const nodeType = this.resolve(task.nodeType);
    return this.handler.handle(nodeType === task.nodeType ? task : { ...task, nodeType });
  }

  private resolve(nodeType: string): string {
    const { nodeTypePrefix } = this.options;
    if (this.registry.get(nodeType) || nodeTypePrefix === undefined) return nodeType;
    const prefixed = `${nodeTypePrefix}${nodeType}`;
    return this.registry.get(prefixed) ? prefixed : nodeType;
  }
}

/** Takes `executor.task` of the control plane. */
@Controller()
export class ExecutorTaskTcpController {
  private readonly log = nestLog();

  constructor(
    @Inject(TRANSPORT_ADAPTER) private readonly transport: TransportAdapter,
    @Inject(BulkExecutorRouterService) private readonly router: BulkExecutorRouterService,
  ) {}

  @MessagePattern(TASK_PATTERNS)
  task(@Payload() data: unknown): typeof DELIVERED {
    try {
      return this.router.route(this.transport.readTask(data));
    } catch (error) {
      this.log.warn('plugin_task_refused', messageOf(error));
      throw new RpcException(toRpcError(error).body());
    }
  }
}
