//! Requests and events: client to server.

use super::{
    fields::{self, Fields},
    pattern::canonical_text,
};
use crate::{
    codec::{CodecError, Frame, FrameText},
    secret::Payload,
};
use contract::Json;
use serde::{Serialize, de::MapAccess};
use serde_json::value::RawValue;

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
struct PacketFields<'de> {
    pattern: Option<&'de RawValue>,
    data: Option<Json>,
    id: Option<&'de RawValue>,
    is_secret: bool,
}

impl<'de> Fields<'de> for PacketFields<'de> {
    fn take<A: MapAccess<'de>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        let field = match key {
            b"pattern" => &mut self.pattern,
            b"data" => {
                self.data = Some(fields::value(map, self.is_secret)?);
                return Ok(true);
            }
            b"id" => &mut self.id,
            _ => return Ok(false),
        };
        *field = Some(map.next_value()?);
        Ok(true)
    }
}

/// Reads a frame's text as a packet. JSON that is no object is an event without a pattern. A secret
/// packet's data is wiped with its last holder.
///
/// # Errors
/// [`CodecError::NotJson`] when the text is not one JSON value.
pub fn parse_packet(text: &[u8], is_secret: bool) -> Result<Packet, CodecError> {
    let text = simdutf8::basic::from_utf8(text).map_err(|_| CodecError::NotJson)?;
    let mut found = PacketFields { is_secret, ..PacketFields::default() };
    fields::read(text, &mut found)?;
    Ok(Packet {
        pattern: found.pattern.and_then(|pattern| canonical_text(pattern.get())),
        data: found.data.unwrap_or_default(),
        id: found.id.map(Json::copied),
    })
}

/// The id of a packet of which only the beginning is there, cut anywhere, and the end, if it came.
/// `NestJS` and this crate's client write the id last; nothing that is valid JSON looks there like an id
/// and is none.
pub fn id_in_parts(beginning: &[u8], end: Option<&[u8]>) -> Option<Json> {
    let mut found = PacketFields::default();
    // The text is cut: an error is certain and says nothing.
    let _ = fields::read(valid_prefix(beginning), &mut found);
    found.id.map(Json::copied).or_else(|| id_at_the_end(end?))
}

fn valid_prefix(bytes: &[u8]) -> &str {
    bytes.utf8_chunks().next().map_or("", |chunk| chunk.valid())
}

fn id_at_the_end(end: &[u8]) -> Option<Json> {
    const KEY: &str = "\"id\"";
    // Its first character may be cut.
    let end = String::from_utf8_lossy(end);
    let members = end.trim_ascii_end().strip_suffix('}')?;
    members.rmatch_indices(KEY).find_map(|(at, _)| {
        let (before, behind) = (members.get(..at)?, members.get(at + KEY.len()..)?);
        let value = behind.trim_ascii_start().strip_prefix(':')?.trim_ascii();
        before.trim_ascii_end().ends_with([',', '{']).then(|| Json::parse(value).ok()).flatten()
    })
}

/// Room for keys, punctuation and a numeric id.
const ENVELOPE_BYTES: usize = 64;

/// The frame of a request. `pattern` is the JSON text of the pattern.
pub(crate) fn write_request(pattern: &Json, data: Payload<'_>, id: u64) -> Frame {
    finished(opened(pattern, data).raw(",\"id\":\"").raw(&id.to_string()).raw("\"}"), data)
}

/// The frame of a request whose data is a value of about `expected_bytes`.
///
/// # Errors
/// Those of the value's own serialisation.
pub(crate) fn write_value_request<T: Serialize + ?Sized>(
    pattern: &Json,
    data: &T,
    expected_bytes: usize,
    id: u64,
) -> Result<Frame, serde_json::Error> {
    let text = beginning(pattern, expected_bytes).value(data)?;
    Ok(text.raw(",\"id\":\"").raw(&id.to_string()).raw("\"}").finish().into())
}

/// The frame of an event.
pub(crate) fn write_event(pattern: &Json, data: Payload<'_>) -> Frame {
    finished(opened(pattern, data).raw("}"), data)
}

fn opened(pattern: &Json, data: Payload<'_>) -> FrameText {
    beginning(pattern, data.text.len()).raw(data.text)
}

fn beginning(pattern: &Json, data_bytes: usize) -> FrameText {
    FrameText::with_capacity(ENVELOPE_BYTES + pattern.text().len() + data_bytes)
        .raw("{\"pattern\":")
        .raw(pattern.text())
        .raw(",\"data\":")
}

fn finished(text: FrameText, data: Payload<'_>) -> Frame {
    match data.is_secret {
        true => text.finish_secret(),
        false => text.finish().into(),
    }
}
