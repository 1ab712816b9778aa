//! Palettes as they were drawn, by who sees them. Users who see the same share its bytes.

use bytes::Bytes;
use reqwest::header::HeaderValue;
use sha2::{Digest as _, Sha256};
use std::{
    collections::{HashMap, HashSet},
    fmt::Write as _,
    sync::{Arc, Mutex, PoisonError},
};
use storage::users::Principal;

/// Bytes that are kept; what was not used for longest goes first.
const MAX_BYTES: usize = 64 * 1024 * 1024;
/// Users that are remembered.
const MAX_USERS: usize = 10_000;

/// A palette, ready to be sent.
#[derive(Clone, Debug)]
pub(crate) struct Drawn {
    /// Plugin-manager's word for the catalogue that it was drawn from.
    pub(crate) tag: Option<String>,
    /// Of the bytes, whatever they were drawn from.
    pub(crate) etag: HeaderValue,
    /// JSON.
    pub(crate) body: Bytes,
}

impl Drawn {
    pub(crate) fn new(tag: Option<String>, body: Vec<u8>) -> Self {
        let mut text = String::from("\"");
        for byte in Sha256::digest(&body).iter().take(16) {
            // Writing to a text never fails.
            let _ = write!(text, "{byte:02x}");
        }
        text.push('"');
        // Quotation marks and hexadecimal digits are a header value; were they none, nothing would match.
        let etag = HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("\"\""));
        Self { tag, etag, body: body.into() }
    }
}

/// The palettes that are kept.
#[derive(Debug, Default)]
pub(crate) struct Palettes {
    /// Held while one is drawn.
    pub(crate) turn: tokio::sync::Mutex<()>,
    kept: Mutex<Kept>,
}

/// Workspace and user.
type Who = (String, String);

#[derive(Debug, Default)]
struct Kept {
    by_user: HashMap<Who, Entry>,
    uses: u64,
}

#[derive(Debug)]
struct Entry {
    drawn: Arc<Drawn>,
    used: u64,
}

impl Palettes {
    /// The palette that the principal was shown last, if it is kept.
    pub(crate) fn of(&self, principal: &Principal) -> Option<Arc<Drawn>> {
        self.lock().of(&who(principal))
    }

    /// Keeps what was drawn for the principal.
    pub(crate) fn keep(&self, principal: &Principal, drawn: Drawn) -> Arc<Drawn> {
        let mut kept = self.lock();
        let drawn = kept.keep(who(principal), drawn);
        kept.shrink(MAX_BYTES, MAX_USERS);
        drawn
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        // A panic elsewhere leaves a whole map behind: every change is one call.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn who(principal: &Principal) -> Who {
    (principal.workspace_id.clone(), principal.user_id.clone())
}

impl Kept {
    fn of(&mut self, who: &Who) -> Option<Arc<Drawn>> {
        self.uses += 1;
        let entry = self.by_user.get_mut(who)?;
        entry.used = self.uses;
        Some(Arc::clone(&entry.drawn))
    }

    fn keep(&mut self, who: Who, mut drawn: Drawn) -> Arc<Drawn> {
        if let Some(same) = self.by_user.values().find(|entry| entry.drawn.etag == drawn.etag) {
            drawn.body = same.drawn.body.clone();
        }
        self.uses += 1;
        let drawn = Arc::new(drawn);
        self.by_user.insert(who, Entry { drawn: Arc::clone(&drawn), used: self.uses });
        drawn
    }

    fn shrink(&mut self, max_bytes: usize, max_users: usize) {
        while self.by_user.len() > 1 && (self.bytes() > max_bytes || self.by_user.len() > max_users) {
            let oldest = self.by_user.iter().min_by_key(|(_, entry)| entry.used).map(|(who, _)| who.clone());
            let Some(oldest) = oldest else { return };
            self.by_user.remove(&oldest);
        }
    }

    /// Shared ones count once.
    fn bytes(&self) -> usize {
        let mut seen = HashSet::new();
        let bodies = self.by_user.values().map(|entry| &entry.drawn.body);
        bodies.filter(|body| seen.insert(body.as_ptr())).map(Bytes::len).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn who(user: &str) -> Who {
        ("w".to_owned(), user.to_owned())
    }

    #[test]
    fn users_who_see_the_same_share_it() {
        let mut kept = Kept::default();
        let one = kept.keep(who("a"), Drawn::new(None, b"same".to_vec()));
        let other = kept.keep(who("b"), Drawn::new(None, b"same".to_vec()));
        let third = kept.keep(who("c"), Drawn::new(None, b"other".to_vec()));
        assert_eq!(one.body.as_ptr(), other.body.as_ptr());
        assert_eq!(kept.bytes(), 9);
        assert!(one.etag == other.etag && one.etag != third.etag);
    }

    #[test]
    fn what_was_not_used_for_longest_is_forgotten_first() {
        let mut kept = Kept::default();
        for user in ["a", "b", "c"] {
            kept.keep(who(user), Drawn::new(None, user.repeat(100).into_bytes()));
        }
        assert!(kept.of(&who("a")).is_some());
        kept.shrink(250, 10);
        assert!(kept.of(&who("b")).is_none() && kept.of(&who("a")).is_some() && kept.of(&who("c")).is_some());
        kept.shrink(250, 1);
        assert!(kept.of(&who("a")).is_none() && kept.of(&who("c")).is_some());
        kept.shrink(0, 0);
        assert!(kept.of(&who("c")).is_some(), "the last one is in use");
    }
}
