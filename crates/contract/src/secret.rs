//! Secrets on the wire (protocol sections 1 and 8). Values travel only from `secret.put` to the
//! store and from the store to `secret.resolve`; they are never listed, logged or shown.

mod references;
mod text;

pub use references::References;
pub use text::SecretText;

use crate::{ExecutionId, Millis};
use serde::{Deserialize, Serialize};

/// `secret.resolve`: the values of these names, in one call.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ResolveSecrets {
    /// The run's workspace.
    pub workspace_id: String,
    /// Wanted names.
    pub names: Vec<String>,
}

/// Answer to `secret.resolve`. `Debug` shows no value; the values are wiped when dropped.
#[derive(Clone, Default, Serialize, Deserialize)]
pub struct ResolvedSecrets {
    /// One per wanted name, in order; `None`: no such secret.
    pub values: Vec<Option<SecretText>>,
}

impl std::fmt::Debug for ResolvedSecrets {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ResolvedSecrets({} redacted)", self.values.len())
    }
}

/// `executor.secrets`: the values of these names, for an attempt of the executor lane. The workspace
/// is not asked for: it is the run's.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExecutorSecrets {
    /// The attempt, outstanding, of a running run.
    pub execution_id: ExecutionId,
    /// Wanted names, at most [`MAX_SECRET_NAMES`]. The answer is a [`ResolvedSecrets`].
    pub names: Vec<String>,
}

/// The most names in one `executor.secrets`.
pub const MAX_SECRET_NAMES: usize = 256;

/// `secret.put`. `Debug` shows no value.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PutSecret {
    /// Workspace that owns the secret.
    pub workspace_id: String,
    /// Its name.
    pub name: String,
    /// Its kind, for the editor's choice (`secretKind` of a param).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its value, at most 64 KiB.
    pub value: SecretText,
}

impl std::fmt::Debug for PutSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PutSecret({}/{}, value redacted)", self.workspace_id, self.name)
    }
}

/// `secret.delete`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DeleteSecret {
    /// Workspace that owns the secret.
    pub workspace_id: String,
    /// Its name.
    pub name: String,
}

/// `secret.list`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListSecrets {
    /// Workspace that owns the secrets.
    pub workspace_id: String,
}

/// Answer to `secret.list`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SecretNames {
    /// Sorted by name.
    pub secrets: Vec<SecretInfo>,
}

/// What may be known of a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecretInfo {
    /// Its name.
    pub name: String,
    /// Its kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// When it was last written.
    pub updated_at: Millis,
}

/// The longest secret value, bytes.
pub const MAX_SECRET_BYTES: usize = 64 * 1024;

/// The name in a `ref` input: `{"$secret": "name"}` or the bare name (protocol section 8).
pub fn referenced(input: &crate::Json) -> Option<String> {
    #[derive(Deserialize)]
    struct Reference {
        #[serde(rename = "$secret")]
        name: String,
    }
    input
        .read::<String>()
        .or_else(|_| input.read::<Reference>().map(|reference| reference.name))
        .ok()
        .filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Json;

    #[test]
    fn both_forms_of_reference_name_the_secret() {
        let name = |text: &str| referenced(&Json::parse(text).unwrap());
        assert_eq!(name(r#"{"$secret":"token"}"#).as_deref(), Some("token"));
        assert_eq!(name(r#""token""#).as_deref(), Some("token"));
        assert_eq!(name("null"), None);
        assert_eq!(name("\"\""), None);
    }
}
