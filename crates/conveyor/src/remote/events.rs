//! Server-sent events, read from the bytes of a response.

/// The longest line, bytes: an event holds at most one payload.
const MAX_LINE: usize = 32 * 1024 * 1024;

/// One event.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Event {
    /// By which a broken stream is taken up again.
    pub(super) id: Option<String>,
    /// What kind it is.
    pub(super) name: String,
    /// Its data.
    pub(super) data: String,
}

/// A line that is longer than any event.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Puts events together.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    event: Event,
}

impl Parser {
    /// Takes the next bytes; returns the events that they complete.
    ///
    /// # Errors
    /// [`TooLong`]
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<Vec<Event>, TooLong> {
        let mut events = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.line.len() + piece.len() > MAX_LINE {
                return Err(TooLong);
            }
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                events.extend(self.line(String::from_utf8_lossy(&line).trim_end_matches(['\r', '\n'])));
            }
        }
        Ok(events)
    }

    fn line(&mut self, line: &str) -> Option<Event> {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return (event != Event::default()).then_some(event);
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "id" => self.event.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.event.name),
            "data" if self.event.data.is_empty() => value.clone_into(&mut self.event.data),
            "data" => self.event.data.push_str(&format!("\n{value}")),
            // Comments keep the connection alive; other fields mean nothing to us.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_the_same_wherever_the_bytes_are_cut() {
        let text = ": hello\n\nevent: step_finished\nid: 3\ndata: {\"a\":\"😀\"}\n\nevent: end\r\ndata: 1\r\ndata: 2\r\n\r\nid: 9\n";
        let expected = vec![
            Event { id: Some("3".into()), name: "step_finished".into(), data: "{\"a\":\"😀\"}".into() },
            Event { id: None, name: "end".into(), data: "1\n2".into() },
        ];
        for size in 1..=text.len() {
            let mut parser = Parser::default();
            let pieces = text.as_bytes().chunks(size).flat_map(|piece| parser.take(piece).unwrap());
            assert_eq!(pieces.collect::<Vec<_>>(), expected, "{size}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let mut parser = Parser::default();
        assert_eq!(parser.take(&vec![b'x'; MAX_LINE + 1]), Err(TooLong));
    }
}
