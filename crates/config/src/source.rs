use std::collections::BTreeMap;
use std::fmt;

/// Where variables come from: the process environment, or a map in tests.
pub trait Source: Send + Sync {
    /// The variable's text, if it is set (an empty text counts as set).
    fn get(&self, name: &str) -> Option<String>;
}

/// The process environment.
#[derive(Clone, Copy, Debug, Default)]
pub struct Environment;

impl Source for Environment {
    fn get(&self, name: &str) -> Option<String> {
        std::env::var(name).ok()
    }
}

/// Variables given one by one.
#[derive(Clone, Default)]
pub struct Variables(BTreeMap<String, String>);

impl Variables {
    /// Variables of these names and texts.
    pub fn of<const N: usize>(pairs: [(&str, &str); N]) -> Self {
        pairs.into_iter().collect()
    }

    /// Sets one more.
    pub fn set(&mut self, name: &str, text: impl Into<String>) {
        self.0.insert(name.to_owned(), text.into());
    }
}

impl<K: Into<String>, V: Into<String>> FromIterator<(K, V)> for Variables {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        Self(pairs.into_iter().map(|(name, text)| (name.into(), text.into())).collect())
    }
}

impl Source for Variables {
    fn get(&self, name: &str) -> Option<String> {
        self.0.get(name).cloned()
    }
}

/// Shows names only: values may be secrets.
impl fmt::Debug for Variables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.0.keys()).finish()
    }
}
