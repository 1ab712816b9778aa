//! Pattern names and the one table of their aliases (protocol section 1): the exact strings of the
//! existing SDK are unknown, so every door accepts each plausible spelling.

/// A message pattern of the platform's TCP services.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    /// The canonical name: what we send, log and count.
    pub name: &'static str,
    /// Other spellings that we accept.
    pub aliases: &'static [&'static str],
}

macro_rules! patterns {
    ($($(#[$doc:meta])* $constant:ident = $name:literal $([$($alias:literal),* $(,)?])?;)*) => {
        $($(#[$doc])* pub const $constant: Pattern = Pattern { name: $name, aliases: &[$($($alias),*)?] };)*

        /// Every pattern, for lookup and documentation.
        pub const ALL: &[Pattern] = &[$($constant),*];
    };
}

patterns! {
    /// Publication: plugin → plugin-manager. Also `manifest_request` with a manifest as its body.
    MANIFEST_REQUEST_V2 = "manifest_request_v2" ["plugin.manifest_request_v2", "plugin_manifest_request_v2"];
    /// Hand-out: executor, engine, api → plugin-manager.
    MANIFEST_REQUEST = "manifest_request" ["plugin.manifest_request"];
    /// Batch pull: plugin-manager → plugin.
    EXECUTOR_BATCH_PULL = "executor_batch_pull" ["plugin.executor_batch_pull"];
    /// Task: control plane → plugin.
    EXECUTOR_TASK = "executor.task" ["plugin.executor.task"];

    /// A step was started: plugin, executor → control plane.
    STEP_ACK = "plugin.executor.step_ack" ["executor.step_ack", "step_ack", "plugin.executor.step-ack", "executor.step-ack", "step-ack"];
    /// A step ended: plugin, executor → control plane.
    STEP_RESULT = "plugin.executor.step_result" ["executor.step_result", "step_result", "plugin.executor.step-result", "executor.step-result", "step-result"];
    /// Outputs before the end: plugin, executor → control plane.
    STEP_PARTIAL = "plugin.executor.step_partial" ["executor.step_partial", "step_partial", "plugin.executor.step-partial", "executor.step-partial", "step-partial"];
    /// Still at work: plugin, executor → control plane.
    STEP_HEARTBEAT = "plugin.executor.step_heartbeat" ["executor.step_heartbeat", "step_heartbeat", "plugin.executor.step-heartbeat", "executor.step-heartbeat", "step-heartbeat"];

    /// A batch of reports, answered item by item: control plane → engine.
    RUNTIME_STEP_REPORTS = "runtime.step_reports";
    /// How the dispatch of a task ended: control plane → engine.
    RUNTIME_DISPATCH_OUTCOME = "runtime.dispatch_outcome";
    /// Starts a run: api → engine.
    RUNTIME_RUN_START = "runtime.run_start";
    /// Cancels a run: api → engine.
    RUNTIME_RUN_CANCEL = "runtime.run_cancel";
    /// A new run that keeps what had finished of one that ended: api → engine.
    RUNTIME_RUN_RETRY = "runtime.run_retry";
    /// One run with its steps: api → engine.
    RUNTIME_RUN_GET = "runtime.run_get";
    /// Runs of a process, newest first: api → engine.
    RUNTIME_RUN_LIST = "runtime.run_list";
    /// The events of a run: api → engine.
    RUNTIME_RUN_HISTORY = "runtime.run_history";
    /// A person's answer to a waiting step: api → engine.
    RUNTIME_STEP_CONFIRM = "runtime.step_confirm";
    /// The engine's metrics in the Prometheus text format: control plane → engine.
    RUNTIME_METRICS = "runtime.metrics";

    /// Secrets in plain text for one dispatch: control plane → secret-manager.
    SECRET_RESOLVE = "secret.resolve";
    /// Secrets in plain text for a step of the executor lane: executor → control plane.
    EXECUTOR_SECRETS = "executor.secrets";
    /// Stores a secret: api → secret-manager.
    SECRET_PUT = "secret.put";
    /// Deletes a secret: api → secret-manager.
    SECRET_DELETE = "secret.delete";
    /// Names of secrets, never values: api → secret-manager.
    SECRET_LIST = "secret.list";

    /// The catalogue: api → plugin-manager.
    PLUGIN_LIST = "plugin.list";
    /// One plugin: api → plugin-manager.
    PLUGIN_GET = "plugin.get";
    /// The publications of a plugin: api → plugin-manager.
    PLUGIN_VERSIONS = "plugin.versions";
    /// Enables a plugin in a workspace or for a user: api → plugin-manager.
    PLUGIN_ENABLE = "plugin.enable";
    /// Disables a plugin in a workspace or for a user: api → plugin-manager.
    PLUGIN_DISABLE = "plugin.disable";
    /// Removes a plugin (a tombstone stays): api → plugin-manager.
    PLUGIN_REMOVE = "plugin.remove";
    /// Pins a workspace to a version: api → plugin-manager.
    PLUGIN_PIN = "plugin.pin";
    /// Takes a pin back: api → plugin-manager.
    PLUGIN_UNPIN = "plugin.unpin";
    /// Yanks a version: no new use, running and pinned use stays: CLI, api → plugin-manager.
    PLUGIN_YANK = "plugin.yank";
    /// Takes a yank back: CLI, api → plugin-manager.
    PLUGIN_UNYANK = "plugin.unyank";
    /// Keeps new tasks from a plugin: CLI, api → plugin-manager.
    PLUGIN_QUARANTINE = "plugin.quarantine";
    /// Lifts a quarantine: CLI, api → plugin-manager.
    PLUGIN_RELEASE = "plugin.release";
    /// Limits how many attempts of a plugin are under way at once: CLI, api → plugin-manager.
    PLUGIN_LIMIT = "plugin.limit";
    /// What changed between two versions: CLI, api → plugin-manager.
    PLUGIN_DIFF = "plugin.diff";
    /// Publishes on behalf of a plugin, by the same pipeline: CLI → plugin-manager.
    PLUGIN_PUBLISH = "plugin.publish";
    /// Where a cached static asset is: api → plugin-manager.
    PLUGIN_ASSET = "plugin.asset";
    /// Health of the plugins: api → plugin-manager.
    PLUGIN_HEALTH = "plugin.health";
    /// The dispatch decision with each rule's verdict: api → plugin-manager.
    PLUGIN_EXPLAIN = "plugin.explain";
}

/// The pattern that `text` names, canonical or by alias.
pub fn find(text: &str) -> Option<Pattern> {
    ALL.iter().find(|pattern| pattern.is(text)).copied()
}

impl Pattern {
    /// Does `text` name this pattern?
    pub fn is(&self, text: &str) -> bool {
        self.name == text || self.aliases.contains(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_spelling_names_two_patterns() {
        let mut seen = std::collections::HashSet::new();
        for pattern in ALL {
            assert!(seen.insert(pattern.name), "{}", pattern.name);
            pattern.aliases.iter().for_each(|alias| assert!(seen.insert(alias), "{alias}"));
        }
    }

    #[test]
    fn aliases_lead_to_the_canonical_name() {
        assert_eq!(find("step-result").map(|p| p.name), Some(STEP_RESULT.name));
        assert_eq!(find("plugin.executor.step_ack").map(|p| p.name), Some(STEP_ACK.name));
        assert_eq!(find("nope"), None);
    }
}
