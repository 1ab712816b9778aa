import { executorsFromClasses, type ExecutorClass, type ExecutorEntry } from '@kosolapus/plugin-ts-sdk';
import { AnswerExecutor } from './answer/answer.executor';
import { GuardExecutor } from './guard/guard.executor';
import { ToolRouterExecutor } from './router/router.executor';
import { SurveyExecutor } from './survey/survey.executor';

const EXECUTOR_CLASSES = [SurveyExecutor, ToolRouterExecutor, GuardExecutor, AnswerExecutor] as const;

export function getResearchExecutors(): ExecutorEntry[] {
  return executorsFromClasses(EXECUTOR_CLASSES as unknown as readonly ExecutorClass[]);
}
