import { executorsFromClasses, type ExecutorClass, type ExecutorEntry } from '@kosolapus/plugin-ts-sdk';
import { CsvReadExecutor } from './csv-read/csv-read.executor';
import { CsvWriteExecutor } from './csv-write/csv-write.executor';

const EXECUTOR_CLASSES = [CsvReadExecutor, CsvWriteExecutor] as const;

/** The section of the palette follows from the node type. */
function sectionPath(nodeType: string): readonly string[] {
  return nodeType.includes('.csv.') ? ['csv'] : ['tables'];
}

export function getTablesExecutors(): ExecutorEntry[] {
  return executorsFromClasses(EXECUTOR_CLASSES as unknown as readonly ExecutorClass[]).map((entry) => ({
    ...entry,
    opts: { ...entry.opts, sectionPath: sectionPath(entry.nodeType) },
  }));
}
