import { Injectable } from '@nestjs/common';
import { readTask, type ExecutorTask } from '../core/task.js';
import type { ExecutorEntry } from './entries.js';

/** The plugin's executors by node type. */
export interface Registry {
  register(entry: ExecutorEntry): void;
  get(nodeType: string): ExecutorEntry | undefined;
  list(): ExecutorEntry[];
}

/** Keeps executors in memory. */
@Injectable()
export class DefaultRegistry implements Registry {
  private readonly entries = new Map<string, ExecutorEntry>();

  register(entry: ExecutorEntry): void {
    this.entries.set(entry.nodeType, entry);
  }

  get(nodeType: string): ExecutorEntry | undefined {
    return this.entries.get(nodeType);
  }

  list(): ExecutorEntry[] {
    return [...this.entries.values()];
  }
}

/** Turns what a transport delivers into a task. */
export interface TransportAdapter {
  /** @throws {RpcError} It is no task. */
  readTask(data: unknown): ExecutorTask;
}

/** Reads tasks as the control plane sends them over TCP. */
@Injectable()
export class DefaultTransportAdapter implements TransportAdapter {
  readTask(data: unknown): ExecutorTask {
    return readTask(data);
  }
}
