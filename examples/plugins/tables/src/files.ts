import { resolve, sep } from 'node:path';

/** A path below the folder of run files; nothing outside can be named. */
export function pathInWorkspace(basePath: string | undefined, path: string): string {
  const root = resolve(process.env.RUN_WORKSPACE_PATH || process.cwd());
  const found = resolve(root, basePath ?? '', path);
  if (!found.startsWith(root + sep)) throw new Error(`the path ${path} leaves the folder of run files`);
  return found;
}
