use crate::Source;
use secrecy::SecretString;
use std::{collections::BTreeMap, fmt, fmt::Display, str::FromStr, time::Duration};

/// Where a value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The declared default.
    Default,
    /// A default of the way of starting (`demo`, `up`), which names it.
    Profile(&'static str),
    /// The environment variable itself.
    Environment,
    /// The file that `NAME_FILE` names.
    File(String),
    /// Neither set nor defaulted.
    Unset,
}

impl Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::Profile(name) => write!(f, "default of {name}"),
            Self::Environment => f.write_str("environment"),
            Self::File(path) => write!(f, "file {path}"),
            Self::Unset => f.write_str("unset"),
        }
    }
}

/// The kind of a variable's value, for the documentation.
pub type Kind = &'static str;

/// One declared variable with its effective value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The variable.
    pub name: &'static str,
    /// `port`, `milliseconds`, `flag`, …
    pub kind: Kind,
    /// The declared default as text; empty for none.
    pub default: String,
    /// What it is for, one sentence.
    pub doc: &'static str,
    /// Is it never shown?
    pub secret: bool,
    /// The effective value as text, `<redacted>` for secrets; empty when unset.
    pub value: String,
    /// Where the value came from.
    pub origin: Origin,
}

/// A variable that refuses the start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The variable.
    pub variable: String,
    /// Its value, where showing it is safe.
    pub value: Option<String>,
    /// What is wrong and what to do.
    pub message: String,
}

impl Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value:?}: {}", self.variable, self.message),
            None => write!(f, "{}: {}", self.variable, self.message),
        }
    }
}

/// Every fault of a configuration at once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(pub Vec<Fault>);

impl Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is not valid:")?;
        self.0.iter().try_for_each(|fault| write!(f, "\n  {fault}"))
    }
}

impl std::error::Error for Invalid {}

/// Reads and declares variables; collects every fault before anything is refused.
pub struct Reader<'s> {
    source: &'s dyn Source,
    profile: &'static str,
    defaults: BTreeMap<&'static str, String>,
    entries: Vec<Entry>,
    faults: Vec<Fault>,
}

impl fmt::Debug for Reader<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader").field("entries", &self.entries).field("faults", &self.faults).finish()
    }
}

/// A variable's text as found, before it is understood.
struct Found {
    text: Option<String>,
    origin: Origin,
}

impl<'s> Reader<'s> {
    /// A reader of these variables.
    pub fn new(source: &'s dyn Source) -> Self {
        Self { source, profile: "", defaults: BTreeMap::new(), entries: Vec::new(), faults: Vec::new() }
    }

    /// Other defaults than the declared ones, for a way of starting that is named `profile`.
    #[must_use]
    pub fn with_profile(mut self, profile: &'static str, defaults: BTreeMap<&'static str, String>) -> Self {
        self.profile = profile;
        self.defaults = defaults;
        self
    }

    /// A TCP port; 0 lets the system choose.
    pub fn port(&mut self, name: &'static str, default: u16, doc: &'static str) -> u16 {
        self.parsed(name, "port", default, doc, |text| {
            text.parse().map_err(|_| "is no port; use a whole number from 0 to 65535".to_owned())
        })
    }

    /// A duration in milliseconds.
    pub fn millis(&mut self, name: &'static str, default: u64, doc: &'static str) -> Duration {
        Duration::from_millis(self.number(name, "milliseconds", default, doc))
    }

    /// A whole number of `kind` (its unit).
    pub fn number(&mut self, name: &'static str, kind: Kind, default: u64, doc: &'static str) -> u64 {
        self.parsed(name, kind, default, doc, |text| {
            text.parse().map_err(|_| "is no whole number from 0 up; write digits only".to_owned())
        })
    }

    /// A number from 0 to 1.
    pub fn ratio(&mut self, name: &'static str, default: f64, doc: &'static str) -> f64 {
        self.parsed(name, "ratio", default, doc, |text| match text.parse::<f64>() {
            Ok(ratio) if (0.0..=1.0).contains(&ratio) => Ok(ratio),
            _ => Err("is no ratio; use a number from 0 to 1, such as 0.2".to_owned()),
        })
    }

    /// `true` or `false` (also `1`, `0`).
    pub fn flag(&mut self, name: &'static str, default: bool, doc: &'static str) -> bool {
        self.parsed(name, "flag", default, doc, |text| match text.to_ascii_lowercase().as_str() {
            "true" | "1" => Ok(true),
            "false" | "0" => Ok(false),
            _ => Err("is neither true nor false".to_owned()),
        })
    }

    /// A text.
    pub fn text(&mut self, name: &'static str, default: &str, doc: &'static str) -> String {
        self.parsed(name, "text", default.to_owned(), doc, |text| Ok(text.to_owned()))
    }

    /// A text that may be unset.
    pub fn optional_text(&mut self, name: &'static str, doc: &'static str) -> Option<String> {
        self.optional(name, "text", doc, |text| Ok(text.to_owned()))
    }

    /// A value of a type that knows how to read itself.
    pub fn of<T: FromStr<Err: Display>>(
        &mut self,
        name: &'static str,
        kind: Kind,
        default: &str,
        doc: &'static str,
    ) -> Option<T> {
        let found = self.find(name, Some(default));
        self.declare(name, kind, default.to_owned(), doc, false, &found);
        let text = found.text?;
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.fault(name, Some(text), error.to_string());
                None
            }
        }
    }

    /// Like [`Reader::of`], but a variable that is set to an empty text is refused instead of
    /// falling back: an empty allowlist must not open the door (protocol section 9).
    pub fn list<T: FromStr<Err: Display>>(
        &mut self,
        name: &'static str,
        kind: Kind,
        default: &str,
        doc: &'static str,
    ) -> Option<T> {
        let is_empty = |text: &String| text.trim().is_empty();
        let said = self.source.get(name);
        // An empty value gives way to the file, and an empty file is as empty as a value.
        let from_file = self.source.get(&format!("{name}_FILE")).filter(|path| !is_empty(path));
        let read = from_file.and_then(|path| std::fs::read_to_string(path).ok());
        if said.as_ref().is_some_and(is_empty) || said.is_none() && read.as_ref().is_some_and(is_empty) {
            self.fault(
                name,
                Some(String::new()),
                "is set but empty; list the addresses, or unset it for the default",
            );
        }
        self.of(name, kind, default, doc)
    }

    /// A value that may be unset.
    pub fn optional<T>(
        &mut self,
        name: &'static str,
        kind: Kind,
        doc: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> Option<T> {
        let found = self.find(name, None);
        self.declare(name, kind, String::new(), doc, false, &found);
        let text = found.text?;
        parse(&text).map_err(|message| self.fault(name, Some(text), message)).ok()
    }

    /// A secret that may be unset. It is never shown.
    pub fn secret(&mut self, name: &'static str, doc: &'static str) -> Option<SecretString> {
        let found = self.find(name, None);
        self.declare(name, "secret", String::new(), doc, true, &found);
        found.text.map(SecretString::from)
    }

    /// A secret without which the service refuses to start, unless `insecure` is set
    /// (`CONVEYOR_INSECURE_DEV`).
    pub fn required_secret(
        &mut self,
        name: &'static str,
        insecure: bool,
        doc: &'static str,
    ) -> Option<SecretString> {
        let secret = self.secret(name, doc);
        if secret.is_none() && !insecure {
            self.fault(name, None, "is not set; set it to a long random text (or CONVEYOR_INSECURE_DEV=true on a machine of your own)");
        }
        secret
    }

    /// A value with a default, read by `parse`, whose error says what is wrong and what to do.
    pub fn parsed<T: Display>(
        &mut self,
        name: &'static str,
        kind: Kind,
        default: T,
        doc: &'static str,
        parse: impl Fn(&str) -> Result<T, String>,
    ) -> T {
        let shown = default.to_string();
        let found = self.find(name, Some(&shown));
        self.declare(name, kind, shown, doc, false, &found);
        let Some(text) = found.text else { return default };
        parse(&text).unwrap_or_else(|message| {
            self.fault(name, Some(text), message);
            default
        })
    }

    /// Adds a fault that concerns a variable, for rules over several of them.
    pub fn fault(&mut self, variable: &str, value: Option<String>, message: impl Into<String>) {
        let fault = Fault { variable: variable.to_owned(), value, message: message.into() };
        if !self.faults.contains(&fault) {
            self.faults.push(fault);
        }
    }

    /// Everything that was declared, in order, each variable once.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The faults found so far.
    pub fn faults(&self) -> &[Fault] {
        &self.faults
    }

    /// Refuses when there is any fault.
    pub fn finish(self) -> Result<Vec<Entry>, Invalid> {
        if self.faults.is_empty() { Ok(self.entries) } else { Err(Invalid(self.faults)) }
    }

    /// `NAME`, else the file that `NAME_FILE` names, else the default. White space around a value
    /// is dropped and an empty value counts as unset.
    fn find(&mut self, name: &'static str, default: Option<&str>) -> Found {
        let set = |text: String| Some(text.trim().to_owned()).filter(|text| !text.is_empty());
        if let Some(text) = self.source.get(name).and_then(set) {
            return Found { text: Some(text), origin: Origin::Environment };
        }
        let file = format!("{name}_FILE");
        if let Some(path) = self.source.get(&file).and_then(set) {
            match std::fs::read_to_string(&path) {
                Ok(text) => return Found { text: set(text), origin: Origin::File(path) },
                Err(error) => self.fault(&file, Some(path), format!("cannot be read: {error}")),
            }
        }
        if let Some(text) = self.defaults.get(name) {
            return Found { text: Some(text.clone()), origin: Origin::Profile(self.profile) };
        }
        match default {
            Some(text) => Found { text: Some(text.to_owned()), origin: Origin::Default },
            None => Found { text: None, origin: Origin::Unset },
        }
    }

    fn declare(
        &mut self,
        name: &'static str,
        kind: Kind,
        default: String,
        doc: &'static str,
        secret: bool,
        found: &Found,
    ) {
        if self.entries.iter().any(|entry| entry.name == name) {
            return;
        }
        let value = match &found.text {
            Some(_) if secret => "<redacted>".to_owned(),
            Some(text) => text.clone(),
            None => String::new(),
        };
        self.entries.push(Entry { name, kind, default, doc, secret, value, origin: found.origin.clone() });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Variables;
    use secrecy::ExposeSecret;

    #[test]
    fn every_fault_is_named_with_variable_value_and_remedy() {
        let source =
            Variables::of([("A_PORT", "70000"), ("A_RATIO", "2"), ("A_FLAG", "yes"), ("A_MS", "-1")]);
        let mut reader = Reader::new(&source);
        reader.port("A_PORT", 1, "");
        reader.ratio("A_RATIO", 0.2, "");
        reader.flag("A_FLAG", false, "");
        reader.millis("A_MS", 5, "");
        reader.required_secret("A_KEY", false, "");
        let faults = reader.finish().unwrap_err();
        assert_eq!(faults.0.len(), 5);
        assert!(
            faults.to_string().contains("A_PORT=\"70000\": is no port; use a whole number from 0 to 65535")
        );
    }

    #[test]
    fn empty_is_unset_except_for_lists() {
        let source = Variables::of([("A_TEXT", " "), ("A_LIST", "")]);
        let mut reader = Reader::new(&source);
        assert_eq!(reader.text("A_TEXT", "x", ""), "x");
        reader.list::<String>("A_LIST", "CIDR list", "0.0.0.0/0", "");
        assert_eq!(reader.faults()[0].variable, "A_LIST");
        let file = tempfile::NamedTempFile::new().unwrap();
        let source = Variables::from_iter([("A_LIST_FILE", file.path().to_str().unwrap())]);
        let mut reader = Reader::new(&source);
        reader.list::<String>("A_LIST", "CIDR list", "0.0.0.0/0", "");
        assert_eq!(reader.faults()[0].variable, "A_LIST");
    }

    #[test]
    fn secrets_are_read_from_files_and_never_shown() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "s3cret\n").unwrap();
        let source = Variables::from_iter([("A_KEY_FILE", file.path().to_str().unwrap())]);
        let mut reader = Reader::new(&source);
        assert_eq!(reader.secret("A_KEY", "").unwrap().expose_secret(), "s3cret");
        let entries = reader.finish().unwrap();
        assert_eq!(entries[0].value, "<redacted>");
        assert!(!format!("{entries:?}").contains("s3cret"));
    }

    #[test]
    fn a_profile_changes_defaults_and_is_named_as_their_origin() {
        let source = Variables::default();
        let mut reader =
            Reader::new(&source).with_profile("demo", BTreeMap::from([("A_PORT", "4020".to_owned())]));
        assert_eq!(reader.port("A_PORT", 3000, ""), 4020);
        assert_eq!(reader.entries()[0].origin.to_string(), "default of demo");
        assert_eq!(reader.entries()[0].default, "3000");
    }
}
