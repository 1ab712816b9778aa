import { executorsFromClasses, type ExecutorClass, type ExecutorEntry } from '@kosolapus/plugin-ts-sdk';
import { IssueCreateExecutor } from './issue-create/issue-create.executor';
import { IssueGetExecutor } from './issue-get/issue-get.executor';
import { IssueListExecutor } from './issue-list/issue-list.executor';

const EXECUTOR_CLASSES = [IssueCreateExecutor, IssueListExecutor, IssueGetExecutor] as const;

export function getTrackerExecutors(): ExecutorEntry[] {
  return executorsFromClasses(EXECUTOR_CLASSES as unknown as readonly ExecutorClass[]);
}
