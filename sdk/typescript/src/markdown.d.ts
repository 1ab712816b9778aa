/**
 * Help texts that a plugin imports, `import help from './help.md'`: its bundler puts the text in place
 * (esbuild: `--loader:.md=text`).
 */
declare module '*.md' {
  const text: string;
  export default text;
}
