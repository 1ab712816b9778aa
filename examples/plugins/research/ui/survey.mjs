// Widget: the body of the survey node on the canvas. `vue` comes from the platform.
import { h } from 'vue';

export default {
  name: 'ResearchSurveyWidget',
  props: { host: { type: Object, required: true } },
  setup({ host }) {
    const field = () => host.config.find((entry) => entry.name === 'pauseMs');
    const value = () => field()?.value ?? field()?.defaultValue ?? 1000;
    return () =>
      h('label', [
        'Milliseconds for one source ',
        h('input', {
          type: 'number',
          min: 0,
          value: value(),
          onChange: (event) => host.setConfig('pauseMs', Number(event.target.value)),
        }),
      ]);
  },
};
