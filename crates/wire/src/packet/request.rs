//! Requests and events: client to server.

use super::{
    fields::{self, Fields},
    pattern::canonical_pattern,
};
use crate::{
    codec::{CodecError, Frame, FrameText},
    secret::Payload,
};
use contract::Json;
use serde::de::MapAccess;

/// A request (with an id) or an event (without).
#[derive(Debug)]
pub struct Packet {
    /// The canonical pattern; `None` when there is none or it can name no handler.
    pub pattern: Option<String>,
    /// The payload; `null` when the packet has none.
    pub data: Json,
    /// The id, of any JSON type, as it was sent. An explicit `null` is an id.
    pub id: Option<Json>,
}

#[derive(Default)]
struct PacketFields {
    pattern: Option<Json>,
    data: Option<Json>,
    id: Option<Json>,
}

impl<'de> Fields<'de> for PacketFields {
    fn take<A: MapAccess<'de>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        let field = match key {
            b"pattern" => &mut self.pattern,
            b"data" => &mut self.data,
            b"id" => &mut self.id,
            _ => return Ok(false),
        };
        *field = Some(map.next_value()?);
        Ok(true)
    }
}

/// Reads a frame's text as a packet. JSON that is no object is an event without a pattern.
///
/// # Errors
/// [`CodecError::NotJson`] when the text is not one JSON value.
pub fn parse_packet(text: &[u8]) -> Result<Packet, CodecError> {
    let text = std::str::from_utf8(text).map_err(|_| CodecError::NotJson)?;
    let mut found = PacketFields::default();
    fields::read(text, &mut found)?;
    Ok(Packet {
        pattern: found.pattern.as_ref().and_then(canonical_pattern),
        data: found.data.unwrap_or_default(),
        id: found.id,
    })
}

/// Room for keys, punctuation and a numeric id.
const ENVELOPE_BYTES: usize = 64;

/// The frame of a request. `pattern` is the JSON text of the pattern.
pub(crate) fn write_request(pattern: &Json, data: Payload<'_>, id: u64) -> Frame {
    finished(opened(pattern, data).raw(",\"id\":\"").raw(&id.to_string()).raw("\"}"), data)
}

/// The frame of an event.
pub(crate) fn write_event(pattern: &Json, data: Payload<'_>) -> Frame {
    finished(opened(pattern, data).raw("}"), data)
}

fn opened(pattern: &Json, data: Payload<'_>) -> FrameText {
    FrameText::with_capacity(ENVELOPE_BYTES + pattern.text().len() + data.text.len())
        .raw("{\"pattern\":")
        .raw(pattern.text())
        .raw(",\"data\":")
        .raw(data.text)
}

fn finished(text: FrameText, data: Payload<'_>) -> Frame {
    match data.is_secret {
        true => text.finish_secret(),
        false => text.finish().into(),
    }
}
