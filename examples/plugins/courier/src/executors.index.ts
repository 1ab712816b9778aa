import { executorsFromClasses, type ExecutorClass, type ExecutorEntry } from '@kosolapus/plugin-ts-sdk';
import { CourierFetchExecutor } from './fetch/fetch.executor';
import { CourierPostExecutor } from './post/post.executor';

const EXECUTOR_CLASSES = [CourierPostExecutor, CourierFetchExecutor] as const;

export function getCourierExecutors(): ExecutorEntry[] {
  return executorsFromClasses(EXECUTOR_CLASSES as unknown as readonly ExecutorClass[]);
}
