//! Declaring inputs and outputs.

use contract::param::{Param as Declared, ParamType};
use serde_json::{Value, json};

/// One declared input or output of a node.
///
/// ```
/// # use plugin_sdk::Param;
/// Param::textarea("text").label("Text").port().required();
/// Param::select("mode", ["fast", "exact"]).label("Mode").default("fast");
/// ```
#[derive(Clone, Debug)]
pub struct Param(Declared);

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $kind:ident;)*) => {
        $($(#[$doc])* pub fn $name(name: &str) -> Self { Self::of(name, ParamType::$kind) })*
    };
}

impl Param {
    kinds! {
        /// One line of text.
        string = String;
        /// Text of many lines, often JSON.
        textarea = Textarea;
        /// A number. A text that holds a number is accepted as well.
        number = Number;
        /// True or false. `"true"`, `"false"`, `1` and `0` are accepted as well.
        boolean = Boolean;
        /// An object or an array. A text that holds one as JSON is accepted as well.
        keyvalue = Keyvalue;
        /// A secret: the node gets its value, people choose it by name.
        secret = Ref;
    }

    /// One of these choices.
    pub fn select<const N: usize>(name: &str, options: [&str; N]) -> Self {
        let mut param = Self::of(name, ParamType::Select);
        param.0.options = Some(json!(options.as_slice()));
        param
    }

    fn of(name: &str, kind: ParamType) -> Self {
        Self(Declared { name: name.to_owned(), kind, label: name.to_owned(), ..Declared::default() })
    }

    /// What people see; the name, when it is left out.
    #[must_use]
    pub fn label(mut self, label: &str) -> Self {
        label.clone_into(&mut self.0.label);
        self
    }

    /// A longer text for people.
    #[must_use]
    pub fn description(mut self, description: &str) -> Self {
        self.0.description = Some(description.to_owned());
        self
    }

    /// It must have a value: a step without it fails before your function is called.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.0.required = true;
        self
    }

    /// The value when none is given.
    #[must_use]
    pub fn default(mut self, value: impl Into<Value>) -> Self {
        self.0.default = Some(value.into());
        self
    }

    /// It is an input port by default.
    #[must_use]
    pub fn port(mut self) -> Self {
        self.0.is_port = Some(true);
        self.0.can_be_port = Some(true);
        self
    }

    /// A person may turn it into an input port.
    #[must_use]
    pub fn can_be_port(mut self) -> Self {
        self.0.can_be_port = Some(true);
        self
    }

    /// It is a setting of the node and never a port.
    #[must_use]
    pub fn fixed(mut self) -> Self {
        self.0.is_static = Some(true);
        self
    }

    /// It is the node's main field.
    #[must_use]
    pub fn primary(mut self) -> Self {
        self.0.is_primary = Some(true);
        self
    }

    /// Which kind of secret is offered for it.
    #[must_use]
    pub fn secret_kind(mut self, kind: &str) -> Self {
        self.0.secret_kind = Some(kind.to_owned());
        self
    }

    pub(crate) fn into_declared(self) -> Declared {
        self.0
    }
}
