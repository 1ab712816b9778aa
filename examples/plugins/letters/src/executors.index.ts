import { executorsFromClasses, type ExecutorClass, type ExecutorEntry } from '@kosolapus/plugin-ts-sdk';
import { LetterComposeExecutor } from './compose/compose.executor';

export function getLettersExecutors(): ExecutorEntry[] {
  return executorsFromClasses([LetterComposeExecutor as unknown as ExecutorClass]);
}
