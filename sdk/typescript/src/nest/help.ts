import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * The Markdown help beside an executor: `loadHelpFromFile(__dirname)` reads `help.md` there. Without
 * the file the executor has no help. The build has to copy it: `copy-executor-help-md.cjs src dist`.
 */
export function loadHelpFromFile(dir: string, file = 'help.md'): string | undefined {
  try {
    return readFileSync(join(dir, file), 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}
