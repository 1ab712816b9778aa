//! Dispatch policy: one pure function with an explanation (protocol section 6). The control plane
//! decides by it at dispatch time; plugin-manager explains by it.

use crate::{ErrorCode, PublicationId, catalogue::HealthState, signature::SignatureState};
use serde::{Deserialize, Serialize};

/// The facts of the catalogue that a decision needs, looked up by the caller.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// The plugin that owns the node type (of the pinned publication, or live); `None`: nobody does.
    pub plugin: Option<PluginFacts>,
    /// Does the pinned publication exist, or, without a pin, any committed one?
    pub publication: Option<PublicationId>,
    /// `pluginId@version` for messages.
    pub subject: String,
    /// Has that publication the node type?
    pub has_node_type: bool,
    /// What is known of that publication's signature.
    pub signature: SignatureState,
}

/// Facts about the owning plugin.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginFacts {
    /// Its id.
    pub plugin_id: String,
    /// A tombstone?
    pub removed: bool,
    /// Enabled in the workspace (explicitly, or by the default).
    pub enabled_in_workspace: bool,
    /// The user's own setting, when there is one.
    pub enabled_for_user: Option<bool>,
    /// Quarantined by an operator?
    pub quarantined: bool,
    /// Its health.
    pub health: HealthState,
}

/// One rule of the policy, in the order of evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Rule {
    /// The catalogue knows an owner of the node type.
    PluginKnown,
    /// The owner is not removed.
    PluginNotRemoved,
    /// The publication exists.
    PublicationExists,
    /// The publication has the node type.
    NodeTypeKnown,
    /// Enabled in the workspace.
    EnabledInWorkspace,
    /// Not disabled for the user.
    EnabledForUser,
    /// Not quarantined.
    NotQuarantined,
    /// Not offline.
    Online,
}

/// How one rule judged. Rules after the first refusal are not evaluated and not listed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Verdict {
    /// The rule.
    pub rule: Rule,
    /// Did it pass?
    pub passed: bool,
}

/// The decision with each rule's verdict.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Decision {
    /// May the task be dispatched?
    pub allowed: bool,
    /// Why not, and what to do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<Refusal>,
    /// Each evaluated rule, in order.
    pub verdicts: Vec<Verdict>,
    /// `pluginId@version` that was decided on; the node type where nobody has it.
    #[serde(default)]
    pub subject: String,
    /// Of that publication. It decides at publication and not at dispatch: what was taken runs.
    #[serde(default)]
    pub signature: SignatureState,
}

/// Why a dispatch is refused.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// The stable code.
    pub code: ErrorCode,
    /// Names `pluginId@version`, the rule and the remedy.
    pub message: String,
}

/// Decides by the rules of protocol section 6, in their order.
pub fn decide(node_type: &str, workspace_id: &str, user_id: &str, facts: &Facts) -> Decision {
    let mut verdicts = Vec::new();
    let none = PluginFacts::default();
    let plugin = facts.plugin.as_ref().unwrap_or(&none);
    let subject = &facts.subject;
    // In the order of the protocol: rule, does it pass, code and message of its refusal.
    let rules: [(Rule, bool, ErrorCode, String); 8] = [
        (
            Rule::PluginKnown,
            facts.plugin.is_some(),
            ErrorCode::PluginUnknown,
            format!(
                "no plugin in the catalogue has the node type {node_type:?}; start the plugin so that it publishes itself"
            ),
        ),
        (
            Rule::PluginNotRemoved,
            !plugin.removed,
            ErrorCode::PluginRemoved,
            format!("{subject} was removed; publish it again to use {node_type:?}"),
        ),
        (
            Rule::PublicationExists,
            facts.publication.is_some(),
            ErrorCode::PublicationMissing,
            format!("the publication of {subject} that the run is pinned to does not exist; start a new run"),
        ),
        (
            Rule::NodeTypeKnown,
            facts.has_node_type,
            ErrorCode::NodeTypeUnknown,
            format!("{subject} has no node type {node_type:?}; pin or publish a version that has it"),
        ),
        (
            Rule::EnabledInWorkspace,
            plugin.enabled_in_workspace,
            ErrorCode::PluginDisabled,
            format!("{subject} is not enabled in workspace {workspace_id:?}; enable it there"),
        ),
        (
            Rule::EnabledForUser,
            plugin.enabled_for_user != Some(false),
            ErrorCode::PluginDisabled,
            format!("{subject} is disabled for user {user_id:?} in workspace {workspace_id:?}"),
        ),
        (
            Rule::NotQuarantined,
            !plugin.quarantined,
            ErrorCode::PluginQuarantined,
            format!("{subject} is quarantined by an operator"),
        ),
        (
            Rule::Online,
            plugin.health != HealthState::Offline,
            ErrorCode::PluginOffline,
            format!("{subject} does not answer its health probe; start it or look at its log"),
        ),
    ];
    for (rule, passed, code, message) in rules {
        verdicts.push(Verdict { rule, passed });
        if !passed {
            return told(facts, Some(Refusal { code, message }), verdicts);
        }
    }
    told(facts, None, verdicts)
}

fn told(facts: &Facts, refusal: Option<Refusal>, verdicts: Vec<Verdict>) -> Decision {
    Decision {
        allowed: refusal.is_none(),
        refusal,
        verdicts,
        subject: facts.subject.clone(),
        signature: facts.signature,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn good() -> Facts {
        Facts {
            plugin: Some(PluginFacts {
                plugin_id: "jira".into(),
                enabled_in_workspace: true,
                ..PluginFacts::default()
            }),
            publication: Some(PublicationId(uuid::Uuid::nil())),
            subject: "jira@0.0.1".into(),
            has_node_type: true,
            signature: SignatureState::Unsigned,
        }
    }

    fn code(change: impl FnOnce(&mut Facts)) -> Option<ErrorCode> {
        let mut facts = good();
        change(&mut facts);
        decide("plugin.jira.issue.get", "default", "local", &facts).refusal.map(|refusal| refusal.code)
    }

    fn plugin(facts: &mut Facts) -> &mut PluginFacts {
        facts.plugin.as_mut().unwrap()
    }

    #[test]
    fn each_rule_refuses_with_its_code() {
        assert_eq!(code(|_| ()), None);
        assert_eq!(code(|f| f.plugin = None), Some(ErrorCode::PluginUnknown));
        assert_eq!(code(|f| plugin(f).removed = true), Some(ErrorCode::PluginRemoved));
        assert_eq!(code(|f| f.publication = None), Some(ErrorCode::PublicationMissing));
        assert_eq!(code(|f| f.has_node_type = false), Some(ErrorCode::NodeTypeUnknown));
        assert_eq!(code(|f| plugin(f).enabled_in_workspace = false), Some(ErrorCode::PluginDisabled));
        assert_eq!(code(|f| plugin(f).enabled_for_user = Some(false)), Some(ErrorCode::PluginDisabled));
        assert_eq!(code(|f| plugin(f).quarantined = true), Some(ErrorCode::PluginQuarantined));
        assert_eq!(code(|f| plugin(f).health = HealthState::Offline), Some(ErrorCode::PluginOffline));
    }

    #[test]
    fn the_first_rule_in_the_stated_order_answers() {
        let everything_wrong = Facts {
            plugin: Some(PluginFacts {
                removed: true,
                quarantined: true,
                health: HealthState::Offline,
                ..PluginFacts::default()
            }),
            ..Facts::default()
        };
        let decision = decide("x", "w", "u", &everything_wrong);
        assert_eq!(decision.refusal.unwrap().code, ErrorCode::PluginRemoved);
        assert_eq!(decision.verdicts.len(), 2);
    }

    #[test]
    fn offline_is_the_only_retryable_refusal() {
        assert!(ErrorCode::PluginOffline.retryable());
        for code in [
            ErrorCode::PluginUnknown,
            ErrorCode::PluginRemoved,
            ErrorCode::PublicationMissing,
            ErrorCode::NodeTypeUnknown,
            ErrorCode::PluginDisabled,
            ErrorCode::PluginQuarantined,
        ] {
            assert!(!code.retryable(), "{code}");
        }
    }
}
