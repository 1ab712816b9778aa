//! The value of a secret as a type: whoever holds one need not remember to wipe it.

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};
use serde_json::value::RawValue;
use std::fmt;
use zeroize::Zeroizing;

/// A secret's value: wiped when dropped, shown by no `Debug`. It is read from a JSON text without a
/// copy that stays behind: `serde_json` unescapes strings in a buffer that it does not wipe.
#[derive(Clone, PartialEq, Eq)]
pub struct SecretText(Zeroizing<String>);

impl SecretText {
    /// The value itself. It must not be logged, nor copied to where nobody wipes it.
    pub fn expose(&self) -> &str {
        &self.0
    }

    /// The value as a JSON text that is wiped with its last holder.
    pub fn to_json(&self) -> crate::Json {
        crate::Json::secret(quoted(&self.0))
    }
}

impl From<&str> for SecretText {
    fn from(value: &str) -> Self {
        Self(Zeroizing::new(value.to_owned()))
    }
}

impl From<String> for SecretText {
    fn from(value: String) -> Self {
        Self(Zeroizing::new(value))
    }
}

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(redacted)")
    }
}

impl Serialize for SecretText {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.expose())
    }
}

impl<'de> Deserialize<'de> for SecretText {
    /// From a JSON text in memory only, which it borrows.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = <&RawValue>::deserialize(deserializer)?;
        unescaped(raw.get()).map(Self).ok_or_else(|| D::Error::custom("a secret's value must be a text"))
    }
}

/// The text of a JSON string. It is never longer than its JSON, so the buffer does not grow.
fn unescaped(json: &str) -> Option<Zeroizing<String>> {
    let mut rest = json.strip_prefix('"')?.strip_suffix('"')?;
    let mut text = Zeroizing::new(String::with_capacity(rest.len()));
    while let Some((plain, escaped)) = rest.split_once('\\') {
        text.push_str(plain);
        let (character, behind) = escape(escaped)?;
        text.push(character);
        rest = behind;
    }
    text.push_str(rest);
    Some(text)
}

/// The character that stands behind a backslash, and what follows it.
fn escape(text: &str) -> Option<(char, &str)> {
    let mut characters = text.chars();
    let character = match characters.next()? {
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'b' => '\u{8}',
        'f' => '\u{c}',
        'u' => return unicode(characters.as_str()),
        itself => itself,
    };
    Some((character, characters.as_str()))
}

/// One UTF-16 code unit, or two that are a pair; a lone surrogate is no character.
fn unicode(text: &str) -> Option<(char, &str)> {
    let (first, rest) = unit(text)?;
    if let Some(character) = char::from_u32(first.into()) {
        return Some((character, rest));
    }
    let (second, rest) = unit(rest.strip_prefix("\\u")?)?;
    Some((char::decode_utf16([first, second]).next()?.ok()?, rest))
}

fn unit(text: &str) -> Option<(u16, &str)> {
    let (digits, rest) = text.split_at_checked(4)?;
    Some((u16::from_str_radix(digits, 16).ok()?, rest))
}

/// The JSON string of a text, in a buffer of the right size from the beginning.
fn quoted(text: &str) -> Box<RawValue> {
    let length = text.chars().map(escaped_bytes).sum::<usize>() + 2;
    let mut json = Vec::with_capacity(length);
    // Neither can fail: the text is a text, and what `serde_json` writes of it is JSON.
    let _ = serde_json::to_writer(&mut json, text);
    String::from_utf8(json).ok().and_then(|json| RawValue::from_string(json).ok()).unwrap_or_default()
}

/// Bytes of a character within a JSON string, as `serde_json` writes it.
fn escaped_bytes(character: char) -> usize {
    match character {
        '"' | '\\' | '\n' | '\r' | '\t' | '\u{8}' | '\u{c}' => 2,
        control if (control as u32) < 0x20 => 6,
        other => other.len_utf8(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Json;
    use proptest::prelude::*;

    #[test]
    fn every_escape_is_read_as_serde_json_reads_it() {
        for json in [
            r#""""#,
            r#""plain ключ""#,
            r#""-----BEGIN KEY-----\nabc\r\n\t\"q\" \\ \/ \b\f""#,
            r#""\u0041\u20ac\ud83d\ude00\u0000""#,
        ] {
            let read: SecretText = serde_json::from_str(json).unwrap();
            assert_eq!(read.expose(), serde_json::from_str::<String>(json).unwrap(), "{json}");
        }
    }

    #[test]
    fn what_is_no_text_is_refused_without_being_quoted() {
        for json in
            ["1", "null", "[\"s3cret\"]", "{}", r#""\ud800""#, r#""\ud800\u0041""#, r#""\ud800s3cret""#]
        {
            let error = serde_json::from_str::<SecretText>(json).unwrap_err().to_string();
            assert!(error.contains("must be a text") && !error.contains("s3cret"), "{json}: {error}");
        }
    }

    #[test]
    fn debug_shows_no_content() {
        let secret = SecretText::from("s3cret");
        assert_eq!(format!("{secret:?} {:?}", secret.to_json()), "SecretText(redacted) Json(8 bytes)");
    }

    proptest! {
        #[test]
        fn any_text_comes_back_and_its_json_needs_no_second_buffer(text in any::<String>()) {
            let secret = SecretText::from(text.as_str());
            let json = secret.to_json();
            prop_assert_eq!(json.text(), serde_json::to_string(&text).unwrap());
            let length = text.chars().map(escaped_bytes).sum::<usize>() + 2;
            prop_assert_eq!(json.text().len(), length);
            prop_assert_eq!(&json.read::<SecretText>().unwrap(), &secret);
            prop_assert_eq!(Json::of(&secret).unwrap(), json);
        }
    }
}
