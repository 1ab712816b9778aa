// Form: asks a question through the process and shows its latest answer. `vue` comes from the platform.
import { computed, h, ref } from 'vue';

export default {
  name: 'ResearchAskForm',
  props: { host: { type: Object, required: true } },
  setup({ host }) {
    const question = ref('');
    const answer = computed(() => host.latestResult?.text ?? host.latestResult?.publicInputs?.text ?? '');
    const submit = async (event) => {
      event.preventDefault();
      await host.submitLaunch({ question: question.value });
      await host.reloadRuns();
    };
    return () =>
      h('form', { onSubmit: submit }, [
        h('label', [
          'Question ',
          h('input', {
            value: question.value,
            required: true,
            onInput: (event) => (question.value = event.target.value),
          }),
        ]),
        h('button', { type: 'submit', disabled: host.isSubmitting }, 'Ask'),
        h('output', { 'aria-live': 'polite' }, answer.value),
      ]);
  },
};
