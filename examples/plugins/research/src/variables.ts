/** Shown on the plugin's card; the values are the plugin's own, from its environment. */
export const VARIABLES = [
  { key: 'model', label: 'Model', description: 'RESEARCH_MODEL in the environment of the plugin' },
];
