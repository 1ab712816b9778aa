//! What a step produced: the text that its reporter sent, until somebody looks inside.

use super::{evaluate::Outputs, scope::bytes_of};
use contract::{
    Json,
    report::{OutputsForm, RawOutputs, StepResult},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::sync::{Arc, OnceLock};

/// Values by output name. The outputs of a report are written into the history as they came, and most
/// are never looked at: taken apart only on demand, they cost a look through their text less on the way
/// in, and one more on the way out.
#[derive(Clone, Debug)]
pub struct StepOutputs {
    /// As they were reported; none where the engine made them.
    text: Option<RawOutputs>,
    values: OnceLock<Outputs>,
}

impl StepOutputs {
    /// The values.
    pub fn values(&self) -> &Outputs {
        self.values.get_or_init(|| self.read())
    }

    /// Forgets how the outputs were spelled, and with it the white space between them.
    pub fn respell(&mut self) {
        if self.text.is_some() {
            *self = Self::from(self.values.take().unwrap_or_else(|| self.read()));
        }
    }

    /// Changes one value.
    pub fn set(&mut self, name: &str, value: Json) {
        self.respell();
        if let Some(values) = self.values.get_mut() {
            values.insert(name.to_owned(), value);
        }
    }

    /// Without the text, for who keeps them and looks at them often.
    pub(super) fn taken_apart(self: Arc<Self>) -> Arc<Self> {
        match self.text {
            Some(_) => Arc::new(Self::from(self.values.get().cloned().unwrap_or_else(|| self.read()))),
            None => self,
        }
    }

    /// The text was checked when it came: an object whose names are texts.
    fn read(&self) -> Outputs {
        self.text.as_ref().and_then(|text| text.read().ok()).unwrap_or_default()
    }

    /// The bytes of the text, or those that it will have, but for names that need escapes.
    pub fn bytes(&self) -> usize {
        // `{"name":value,"name":value}`
        const AROUND_VALUE: usize = r#""":,"#.len();
        match &self.text {
            Some(text) => text.text().len(),
            None => "{}".len().max(1 + bytes_of(self.values()) + self.values().len() * AROUND_VALUE),
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        match &self.text {
            Some(text) => text.are_none(),
            None => self.values().is_empty(),
        }
    }
}

/// A result of which a copy costs nothing, as the core takes it.
pub fn shared_result<O: Into<StepOutputs>>(result: StepResult<O>) -> StepResult<Arc<StepOutputs>> {
    result.with_outputs(|outputs| Arc::new(outputs.into()))
}

impl From<RawOutputs> for StepOutputs {
    fn from(text: RawOutputs) -> Self {
        Self { text: Some(text), values: OnceLock::new() }
    }
}

impl From<Outputs> for StepOutputs {
    fn from(values: Outputs) -> Self {
        Self { text: None, values: values.into() }
    }
}

impl Default for StepOutputs {
    fn default() -> Self {
        Outputs::default().into()
    }
}

/// Equal values.
impl PartialEq for StepOutputs {
    fn eq(&self, other: &Self) -> bool {
        self.values() == other.values()
    }
}

impl Serialize for StepOutputs {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.text {
            Some(text) => text.serialize(serializer),
            None => self.values().serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for StepOutputs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        RawOutputs::deserialize(deserializer).map(Self::from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reported(text: &str) -> StepOutputs {
        serde_json::from_str(text).unwrap()
    }

    #[test]
    fn what_was_reported_is_written_as_it_came() {
        let text = r#"{ "b": 12345678901234567890123.0, "a": "\ud800" }"#;
        let outputs = reported(text);
        assert_eq!(outputs.values()["b"].text(), "12345678901234567890123.0");
        assert_eq!(serde_json::to_string(&outputs).unwrap(), text);
        let compact = reported(r#"{"b":12345678901234567890123.0,"a":"\ud800"}"#);
        let apart = Arc::new(outputs.clone()).taken_apart();
        assert_eq!(
            (apart.bytes(), reported("{}").bytes()),
            (compact.bytes(), StepOutputs::default().bytes())
        );
        assert_eq!(*apart, outputs);
        assert_eq!(serde_json::to_string(&apart).unwrap(), r#"{"b":12345678901234567890123.0,"a":"\ud800"}"#);
    }

    #[test]
    fn white_space_between_values_can_be_forgotten() {
        let mut outputs = reported(&format!(r#"{{"a":{}1}}"#, " ".repeat(1_000)));
        assert!(outputs.bytes() > 1_000);
        outputs.respell();
        assert_eq!((outputs.bytes(), serde_json::to_string(&outputs).unwrap().as_str()), (7, r#"{"a":1}"#));
    }

    #[test]
    fn a_changed_value_is_written_changed() {
        let mut outputs = reported(r#"{"a": 1, "b": 2}"#);
        outputs.set("a", Json::null());
        assert_eq!(serde_json::to_string(&outputs).unwrap(), r#"{"a":null,"b":2}"#);
    }

    #[test]
    fn no_outputs_are_none_however_they_are_spelled() {
        assert!(reported(" { } ").is_empty() && StepOutputs::default().is_empty());
        assert!(!reported(r#"{"": null}"#).is_empty());
    }
}
