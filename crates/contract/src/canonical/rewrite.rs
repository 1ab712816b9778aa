//! The canonical text of a JSON text, without a tree between: reports are digested on the hot path,
//! and most of a tree's cost is its allocations.
//!
//! It gives what [`super::text`] gives for the parsed tree, and refuses what a tree cannot hold.

use std::{borrow::Cow, ops::Range};

/// The deepest nesting that a `serde_json` tree takes.
const MOST_DEPTH: usize = 127;

/// The canonical text; `None` when no tree holds it (lone surrogates, very deep nesting). `text` is
/// known to be JSON.
pub(super) fn rewrite(text: &str) -> Option<String> {
    let mut rewriter = Rewriter { text, at: 0, out: String::with_capacity(text.len()) };
    rewriter.value(0)?;
    Some(rewriter.out)
}

/// The canonical text of an object of these fields, which stand in the order of their names; `None` when
/// no tree holds it.
pub(super) fn object(fields: &[(&str, &str)]) -> Option<String> {
    const AROUND_FIELD: usize = 4;
    let bytes = fields.iter().map(|(name, text)| name.len() + text.len() + AROUND_FIELD).sum::<usize>();
    let mut out = String::with_capacity(bytes + 2);
    out.push('{');
    for (number, (name, text)) in fields.iter().enumerate() {
        out.extend([if number > 0 { "," } else { "" }, "\"", name, "\":"]);
        let mut rewriter = Rewriter { text, at: 0, out };
        rewriter.value(1)?;
        out = rewriter.out;
    }
    out.push('}');
    Some(out)
}

/// Every look beyond the text gives `None`, so a text that is no JSON ends as one that no tree holds.
struct Rewriter<'t> {
    text: &'t str,
    at: usize,
    out: String,
}

/// A field of an object that was written: its name as it is compared, and where it stands.
struct Field<'t> {
    name: Cow<'t, str>,
    written: Range<usize>,
}

impl<'t> Rewriter<'t> {
    fn value(&mut self, depth: usize) -> Option<()> {
        match self.peek()? {
            b'{' if depth < MOST_DEPTH => self.object(depth + 1),
            b'[' if depth < MOST_DEPTH => self.array(depth + 1),
            b'{' | b'[' => None,
            b'"' => {
                let (raw, has_escapes) = self.string()?;
                self.write_string(raw, has_escapes).map(drop)
            }
            _ => {
                self.scalar();
                Some(())
            }
        }
    }

    /// The next byte that is no white space.
    fn peek(&mut self) -> Option<u8> {
        let bytes = self.text.as_bytes();
        while matches!(bytes.get(self.at)?, b' ' | b'\n' | b'\r' | b'\t') {
            self.at += 1;
        }
        bytes.get(self.at).copied()
    }

    /// Is the next byte this one? Then it is taken.
    fn takes(&mut self, byte: u8) -> Option<bool> {
        let is_next = self.peek()? == byte;
        self.at += usize::from(is_next);
        Some(is_next)
    }

    fn array(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        self.out.push('[');
        if !self.takes(b']')? {
            loop {
                self.value(depth)?;
                if self.takes(b']')? {
                    break;
                }
                self.takes(b',')?.then(|| self.out.push(','))?;
            }
        }
        self.out.push(']');
        Some(())
    }

    fn object(&mut self, depth: usize) -> Option<()> {
        self.at += 1;
        self.out.push('{');
        let start = self.out.len();
        let mut fields: Vec<Field<'t>> = Vec::new();
        if !self.takes(b'}')? {
            loop {
                self.peek()?;
                let from = self.out.len();
                let (raw, has_escapes) = self.string()?;
                let name = self.write_string(raw, has_escapes)?;
                self.out.push(':');
                self.takes(b':')?.then_some(())?;
                self.value(depth)?;
                fields.push(Field { name, written: from..self.out.len() });
                if self.takes(b'}')? {
                    break;
                }
                self.takes(b',')?.then(|| self.out.push(','))?;
            }
        }
        if !fields.is_sorted_by(|one, next| one.name < next.name) {
            self.sort(start, fields);
        }
        self.out.push('}');
        Some(())
    }

    /// Puts the fields of an object in order. Of a name that came twice the last counts.
    fn sort(&mut self, start: usize, mut fields: Vec<Field<'t>>) {
        fields.sort_by(|one, other| one.name.cmp(&other.name));
        let unsorted = self.out.split_off(start);
        let mut fields = fields.into_iter().peekable();
        while let Some(Field { name, written }) = fields.next() {
            if fields.peek().is_some_and(|next| next.name == name) {
                continue;
            }
            if self.out.len() > start {
                self.out.push(',');
            }
            let written = unsorted.get(written.start - start..written.end - start);
            self.out.push_str(written.unwrap_or_default());
        }
    }

    /// Takes a string: what stands between its quotes, and whether an escape is in it.
    fn string(&mut self) -> Option<(&'t str, bool)> {
        let begin = self.at + 1;
        let rest = self.text.as_bytes().get(begin..)?;
        let (mut length, mut has_escapes) = (0, false);
        loop {
            length += memchr::memchr2(b'"', b'\\', rest.get(length..)?)?;
            if rest.get(length)? == &b'"' {
                break;
            }
            has_escapes = true;
            length += 2;
        }
        self.at = begin + length + 1;
        Some((self.text.get(begin..begin + length)?, has_escapes))
    }

    /// Writes a string in the one spelling that its characters have; its characters.
    fn write_string(&mut self, raw: &'t str, has_escapes: bool) -> Option<Cow<'t, str>> {
        if !has_escapes {
            // Whatever may stand in a string unescaped is written so.
            self.out.extend(["\"", raw, "\""]);
            return Some(Cow::Borrowed(raw));
        }
        let characters: String = serde_json::from_str(&format!("\"{raw}\"")).ok()?;
        self.out.push_str(&serde_json::to_string(&characters).ok()?);
        Some(Cow::Owned(characters))
    }

    /// Takes a number or a word. Numbers stay as written, but for the spelling of exponents.
    fn scalar(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let end = rest.find([',', ']', '}', ' ', '\n', '\r', '\t']).unwrap_or(rest.len());
        let word = rest.get(..end).unwrap_or_default();
        self.at += end;
        match word.split_once(['e', 'E']) {
            Some((mantissa, exponent)) if !word.starts_with(['t', 'f']) => {
                let sign = if exponent.starts_with(['+', '-']) { "" } else { "+" };
                self.out.extend([mantissa, "e", sign, exponent]);
            }
            _ => self.out.push_str(word),
        }
    }
}
