//! Names of keys and channels.
//!
//! Each key has exactly one hash tag, and each script and pipeline touches one key, so everything
//! works in a Cluster, and the lanes may lie on different nodes.

use crate::{Error, Lane, Topic};

/// A pub/sub channel that this crate listens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    /// "The lane has items."
    Wake(Lane),
    /// Notices of the topic.
    Notice(Topic),
}

impl Channel {
    pub(super) const ALL: [Self; Lane::ALL.len() + Topic::ALL.len()] = [
        Self::Wake(Lane::Plugin),
        Self::Wake(Lane::Executor),
        Self::Notice(Topic::Catalogue),
        Self::Notice(Topic::Runs),
        Self::Notice(Topic::Steps),
    ];

    /// A bit of its own, for sets of channels.
    pub(super) fn bit(self) -> u8 {
        match self {
            Self::Wake(lane) => 1 << lane as u8,
            Self::Notice(topic) => 1 << (Lane::ALL.len() as u8 + topic as u8),
        }
    }

    /// The channels of a set of bits.
    pub(super) fn of_bits(bits: u8) -> impl Iterator<Item = Self> {
        Self::ALL.into_iter().filter(move |channel| bits & channel.bit() != 0)
    }
}

/// Builds names under one prefix.
#[derive(Clone, Debug)]
pub(super) struct Keys {
    prefix: String,
}

impl Keys {
    /// # Errors
    /// [`Error::Settings`] unless `prefix` has 1 to 64 ASCII letters, digits, `.`, `_`, `-` or `:`.
    pub(super) fn new(prefix: &str) -> Result<Self, Error> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || ".:_-".contains(c);
        if prefix.is_empty() || prefix.len() > 64 || !prefix.chars().all(allowed) {
            return Err(Error::Settings(
                "the key prefix must have 1 to 64 ASCII letters, digits, `.`, `_`, `-` or `:`".into(),
            ));
        }
        Ok(Self { prefix: prefix.to_owned() })
    }

    pub(super) fn lane(&self, lane: Lane) -> String {
        format!("{}:{{lane-{lane}}}:items", self.prefix)
    }

    pub(super) fn lease(&self, name: &str) -> String {
        format!("{}:lease:{{{name}}}", self.prefix)
    }

    pub(super) fn channel(&self, channel: Channel) -> String {
        match channel {
            Channel::Wake(lane) => format!("{}:wake:{lane}", self.prefix),
            Channel::Notice(topic) => format!("{}:notice:{topic}", self.prefix),
        }
    }

    /// Which of our channels has this name?
    pub(super) fn channel_named(&self, name: &str) -> Option<Channel> {
        Channel::ALL.into_iter().find(|channel| self.channel(*channel) == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_has_exactly_one_hash_tag() {
        let keys = Keys::new("conveyor").unwrap();
        let names = Lane::ALL.map(|lane| keys.lane(lane)).into_iter().chain([keys.lease("sweep")]);
        for name in names {
            assert_eq!((name.matches('{').count(), name.matches('}').count()), (1, 1), "{name}");
        }
    }

    #[test]
    fn channels_have_distinct_bits_and_names_that_lead_back() {
        let keys = Keys::new("conveyor").unwrap();
        let mut seen = 0;
        for channel in Channel::ALL {
            assert_eq!(seen & channel.bit(), 0);
            seen |= channel.bit();
            assert_eq!(keys.channel_named(&keys.channel(channel)), Some(channel));
            assert_eq!(Channel::of_bits(channel.bit()).collect::<Vec<_>>(), [channel]);
        }
        assert_eq!(keys.channel_named("other:wake:plugin"), None);
    }

    #[test]
    fn a_prefix_that_could_break_hash_tags_is_refused() {
        for prefix in ["", "a{b}", "a b", "ä", &"x".repeat(65)] {
            assert!(matches!(Keys::new(prefix), Err(Error::Settings(_))), "{prefix}");
        }
    }
}
