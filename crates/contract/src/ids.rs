//! Identifiers (protocol section 2). Ids are made by the services (`UUIDv7`), never in this crate.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, str::FromStr};
use uuid::Uuid;

macro_rules! uuid_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Uuid);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl FromStr for $name {
            type Err = uuid::Error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Uuid::parse_str(text).map(Self)
            }
        }
    };
}

uuid_id! {
    /// One run of a process; the same in all iterations of all loops of the run.
    RunId
}
uuid_id! {
    /// One attempt of one node: the fencing token that every report must carry.
    ExecutionId
}
uuid_id! {
    /// One committed publication of a plugin version.
    PublicationId
}
uuid_id! {
    /// One stored process (a diagram); `{id}` in `/flow/{id}`.
    ProcessId
}

/// Where a node stands in a run: `w-loop[3]/b-turn` is widget `b-turn` in iteration 3 (0-based) of
/// `w-loop`. Unique in the run.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodePath(pub String);

impl NodePath {
    /// The path of a node of the outermost graph.
    pub fn root(node_id: &str) -> Self {
        Self(node_id.to_owned())
    }

    /// The widget's id: the last part of the path.
    pub fn node_id(&self) -> &str {
        self.0.rsplit_once('/').map_or(self.0.as_str(), |(_, id)| id)
    }
}

impl fmt::Display for NodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A SHA-256, as 64 lower-case hexadecimal digits in JSON and text.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Digest(pub [u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        // Byte by byte through the formatter it takes half the time of writing a result's event.
        let mut text = String::with_capacity(2 * self.0.len());
        for byte in self.0 {
            text.push(char::from(DIGITS[usize::from(byte >> 4)]));
            text.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
        f.write_str(&text)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl FromStr for Digest {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const WRONG: &str = "a digest is 64 hexadecimal digits";
        let bytes = text.as_bytes();
        if bytes.len() != 64 {
            return Err(WRONG);
        }
        let mut digest = [0; 32];
        for (place, pair) in digest.iter_mut().zip(bytes.chunks_exact(2)) {
            let digit = |byte: u8| char::from(byte).to_digit(16).ok_or(WRONG);
            // Two hexadecimal digits are at most 255.
            *place = u8::try_from(digit(pair[0])? * 16 + digit(pair[1])?).map_err(|_| WRONG)?;
        }
        Ok(Self(digest))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_id_is_the_last_part_of_the_path() {
        assert_eq!(NodePath("w-loop[3]/b-turn".into()).node_id(), "b-turn");
        assert_eq!(NodePath::root("w").node_id(), "w");
    }

    #[test]
    fn digest_survives_its_text() {
        let digest = Digest(std::array::from_fn(|i| u8::try_from(i * 8 % 256).unwrap()));
        assert_eq!(digest.to_string().parse::<Digest>().unwrap(), digest);
        assert!("xyz".parse::<Digest>().is_err());
        assert!("é".repeat(32).parse::<Digest>().is_err());
    }
}
