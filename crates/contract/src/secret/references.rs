//! From the `ref` inputs of a task to the secrets that they name, and back: the same for a control
//! plane that dispatches to a plugin and for an executor.

use super::{ResolvedSecrets, SecretText, referenced};
use crate::{ErrorCode, report::StepError, task::Task};

/// The secrets that a task refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct References {
    names: Vec<String>,
    /// Input and the place of its secret in `names`.
    places: Vec<(String, usize)>,
}

impl References {
    /// Reads the references. An input without a value refers to nothing and stays without one.
    ///
    /// # Errors
    /// `secret_missing` with the first input whose value names no secret.
    pub fn of(task: &Task) -> Result<Self, StepError> {
        let mut references = Self::default();
        for input in &task.secrets {
            let Some(value) = task.inputs.get(input).filter(|value| !value.is_null()) else { continue };
            let Some(name) = referenced(value) else {
                let text = format!(
                    "the input {input:?} names no secret; write its name or {{\"$secret\": \"name\"}} into the node"
                );
                return Err(StepError::of(ErrorCode::SecretMissing, text));
            };
            let names = &mut references.names;
            let place = names.iter().position(|known| *known == name).unwrap_or(names.len());
            if place == names.len() {
                names.push(name);
            }
            references.places.push((input.clone(), place));
        }
        Ok(references)
    }

    /// The wanted names, each once.
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Puts the values in the place of the references, each in a text that is wiped with the task. The
    /// task must not be logged any more.
    ///
    /// # Errors
    /// `secret_missing` with the first secret that does not exist.
    pub fn substitute(&self, task: &mut Task, resolved: &ResolvedSecrets) -> Result<(), StepError> {
        for (input, value) in self.values(&task.workspace_id, resolved)? {
            task.inputs.insert(input.to_owned(), value.to_json());
        }
        Ok(())
    }

    /// Each input that refers to a secret, with its value; the other inputs stay as they are.
    ///
    /// # Errors
    /// `secret_missing` with the first secret that does not exist.
    pub fn values<'v>(
        &'v self,
        workspace_id: &str,
        resolved: &'v ResolvedSecrets,
    ) -> Result<Vec<(&'v str, &'v SecretText)>, StepError> {
        let value = |(input, place): &'v (String, usize)| match resolved.values.get(*place) {
            Some(Some(value)) => Ok((input.as_str(), value)),
            _ => {
                let name = self.names.get(*place).map_or("", String::as_str);
                let text = format!(
                    "the secret {name:?} of the input {input:?} does not exist in workspace {workspace_id:?}; \
                     create it there"
                );
                Err(StepError::of(ErrorCode::SecretMissing, text))
            }
        };
        self.places.iter().map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExecutionId, Json, NodePath, ProcessId, RunId};
    use serde_json::{Value, json};

    fn task(inputs: &Value, secrets: &[&str]) -> Task {
        Task {
            run_id: RunId(uuid::Uuid::nil()),
            execution_id: ExecutionId(uuid::Uuid::nil()),
            node_id: "n".into(),
            node_path: NodePath::root("n"),
            node_type: "t".into(),
            attempt: 1,
            inputs: Json::from(inputs).read().unwrap(),
            secrets: secrets.iter().map(|name| (*name).to_owned()).collect(),
            outputs: Vec::new(),
            workspace_id: "w".into(),
            user_id: "u".into(),
            diagram_id: ProcessId(uuid::Uuid::nil()),
            publication_id: None,
            timeout_ms: 1,
            traceparent: None,
            tracestate: None,
        }
    }

    #[test]
    fn each_secret_is_wanted_once_and_put_wherever_it_is_named() {
        let inputs = json!({"a": {"$secret": "x"}, "b": "x", "c": null, "d": "y", "plain": "x"});
        let mut task = task(&inputs, &["a", "b", "c", "d", "absent"]);
        let references = References::of(&task).unwrap();
        assert_eq!(references.names(), ["x", "y"]);
        let values = vec![Some("one".into()), Some("two \"q\"".into())];
        references.substitute(&mut task, &ResolvedSecrets { values }).unwrap();
        assert_eq!(
            Json::of(&task.inputs).unwrap().value().unwrap(),
            json!({"a": "one", "b": "one", "c": null, "d": "two \"q\"", "plain": "x"})
        );
    }

    #[test]
    fn what_names_no_secret_and_a_secret_that_is_not_there_are_named() {
        let error = References::of(&task(&json!({"a": 5}), &["a"])).unwrap_err();
        assert_eq!(error.code.as_deref(), Some("secret_missing"));
        let mut task = task(&json!({"a": "nope"}), &["a"]);
        let references = References::of(&task).unwrap();
        let error = references.substitute(&mut task, &ResolvedSecrets { values: vec![None] }).unwrap_err();
        assert!(error.message.contains("\"nope\"") && error.message.contains("\"a\""), "{}", error.message);
    }
}
