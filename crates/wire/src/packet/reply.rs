//! Replies: server to client.

use super::fields::{self, Fields};
use crate::{
    codec::{CodecError, Frame, FrameText},
    secret::SecretJson,
};
use bytes::Bytes;
use contract::{ErrorCode, Json, RpcError};
use serde::de::MapAccess;
use serde_json::value::RawValue;

/// `err` of the reply to a pattern that nobody handles, as `NestJS` words it.
const NO_HANDLER: &str = "There is no matching message handler defined in the remote service.";

/// Room for keys and punctuation.
const ENVELOPE_BYTES: usize = 64;

fn text(payload: &Json, id: &Json) -> FrameText {
    FrameText::with_capacity(ENVELOPE_BYTES + payload.text().len() + id.text().len())
}

/// One value; `last` ends the reply.
pub(crate) fn write_value(id: &Json, response: &Json, last: bool) -> Bytes {
    let disposed = if last { ",\"isDisposed\":true" } else { "" };
    text(response, id)
        .raw("{\"response\":")
        .raw(response.text())
        .raw(disposed)
        .raw(",\"id\":")
        .raw(id.text())
        .raw("}")
        .finish()
}

/// One value with secrets in it, which ends the reply.
pub(crate) fn write_secret(id: &Json, response: &SecretJson) -> Frame {
    FrameText::with_capacity(ENVELOPE_BYTES + response.text().len() + id.text().len())
        .raw("{\"response\":")
        .raw(response.text())
        .raw(",\"isDisposed\":true,\"id\":")
        .raw(id.text())
        .raw("}")
        .finish_secret()
}

/// The end of a reply without a (further) value.
pub(crate) fn write_empty(id: &Json) -> Bytes {
    text(id, id).raw("{\"isDisposed\":true,\"id\":").raw(id.text()).raw("}").finish()
}

/// An error, which ends the reply.
pub(crate) fn write_error(id: &Json, err: &Json) -> Bytes {
    text(err, id)
        .raw("{\"err\":")
        .raw(err.text())
        .raw(",\"isDisposed\":true,\"id\":")
        .raw(id.text())
        .raw("}")
        .finish()
}

/// The pattern has no handler.
pub(crate) fn write_no_handler(id: &Json) -> Bytes {
    FrameText::with_capacity(ENVELOPE_BYTES + NO_HANDLER.len() + id.text().len())
        .raw("{\"id\":")
        .raw(id.text())
        .raw(",\"status\":\"error\",\"err\":\"")
        .raw(NO_HANDLER)
        .raw("\"}")
        .finish()
}

/// The connection is refused: an error that belongs to no request. `NestJS` clients ignore it.
pub(crate) fn write_refusal(error: &RpcError) -> Bytes {
    let err = Json::of(error).unwrap_or_default();
    text(&err, &err).raw("{\"err\":").raw(err.text()).raw(",\"isDisposed\":true}").finish()
}

/// A reply packet as a client reads it.
#[derive(Debug)]
pub struct ReplyPacket {
    /// The request's id; `None` when the server refuses the connection as a whole.
    pub id: Option<Json>,
    /// What it says.
    pub answer: Answer,
}

/// What a reply packet says.
#[derive(Debug)]
pub enum Answer {
    /// A value, the end, or both. `{id}` alone is a stream's value `undefined`.
    Value {
        /// The value, if there is one.
        response: Option<Json>,
        /// Does it end the reply?
        last: bool,
    },
    /// The call failed.
    Error(RemoteError),
    /// The other side does not know the pattern.
    NoHandler,
}

#[derive(Default)]
struct ReplyFields<'de> {
    id: Option<&'de RawValue>,
    response: Option<Json>,
    err: Option<&'de RawValue>,
    disposed: Option<&'de RawValue>,
    is_secret: bool,
}

impl<'de> Fields<'de> for ReplyFields<'de> {
    fn take<A: MapAccess<'de>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        let field = match key {
            b"id" => &mut self.id,
            b"response" => {
                self.response = Some(fields::value(map, self.is_secret)?);
                return Ok(true);
            }
            b"err" => &mut self.err,
            b"isDisposed" => &mut self.disposed,
            _ => return Ok(false),
        };
        *field = Some(map.next_value()?);
        Ok(true)
    }
}

/// Reads a frame's text as a reply. Unknown keys are ignored. A secret reply's value is wiped with its
/// last holder.
///
/// # Errors
/// [`CodecError::NotJson`] when the text is not one JSON value.
pub fn parse_reply(text: &[u8], is_secret: bool) -> Result<ReplyPacket, CodecError> {
    let text = simdutf8::basic::from_utf8(text).map_err(|_| CodecError::NotJson)?;
    let mut found = ReplyFields { is_secret, ..ReplyFields::default() };
    fields::read(text, &mut found)?;
    let answer = match found.err.filter(|err| is_truthy(err)) {
        Some(err) if fields::text_of(err.get()).as_deref() == Some(NO_HANDLER) => Answer::NoHandler,
        Some(err) => Answer::Error(RemoteError::new(Json::copied(err))),
        None => Answer::Value { response: found.response, last: found.disposed.is_some_and(is_truthy) },
    };
    Ok(ReplyPacket { id: found.id.map(Json::copied), answer })
}

/// JavaScript's truth of a JSON value, which decides whether `err` is an error.
fn is_truthy(json: &RawValue) -> bool {
    match json.get() {
        "null" | "false" | "\"\"" => false,
        text if text.starts_with(['-', '0']) => text.parse::<f64>() != Ok(0.0),
        _ => true,
    }
}

/// An error that the other side replied, ours or of foreign shape.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct RemoteError {
    /// `code` of the error object, if it has one; a number as its text.
    pub code: Option<String>,
    /// `message` of the error object, or the error itself when it is a string.
    pub message: String,
    /// Can the same call succeed later? Foreign errors say `retryable`, or count as final.
    pub retryable: bool,
    /// `err` as it was sent.
    pub raw: Json,
}

#[derive(Default)]
struct ErrorFields {
    code: Option<Json>,
    message: Option<Json>,
    retryable: Option<Json>,
}

impl<'de> Fields<'de> for ErrorFields {
    fn take<A: MapAccess<'de>>(&mut self, key: &[u8], map: &mut A) -> Result<bool, A::Error> {
        let field = match key {
            b"code" => &mut self.code,
            b"message" => &mut self.message,
            b"retryable" => &mut self.retryable,
            _ => return Ok(false),
        };
        *field = Some(map.next_value()?);
        Ok(true)
    }
}

impl RemoteError {
    /// Reads `err` of a reply.
    pub fn new(raw: Json) -> Self {
        let mut found = ErrorFields::default();
        if fields::read(raw.text(), &mut found).is_err() {
            found = ErrorFields::default();
        }
        let code = found.code.and_then(|code| match code.text().as_bytes().first() {
            Some(b'"') => fields::text_of(code.text()),
            Some(b'-' | b'0'..=b'9') => Some(code.text().to_owned()),
            _ => None,
        });
        let message = fields::text_of(raw.text())
            .or_else(|| found.message.as_ref().and_then(|message| fields::text_of(message.text())))
            .unwrap_or_else(|| "the other side gave no reason".to_owned());
        let retryable = match found.retryable.as_ref().map(Json::text) {
            Some(flag) => flag == "true",
            None => code.as_deref().and_then(known_code).is_some_and(ErrorCode::retryable),
        };
        Self { code, message, retryable, raw }
    }

    /// The error as ours, when its code is one of ours.
    pub fn as_rpc(&self) -> Option<RpcError> {
        let code = known_code(self.code.as_deref()?)?;
        let mut error =
            self.raw.read::<RpcError>().unwrap_or_else(|_| RpcError::new(code, self.message.clone()));
        error.retryable = self.retryable;
        Some(error)
    }

    /// Has the error this code of ours?
    pub fn is(&self, code: ErrorCode) -> bool {
        self.code.as_deref() == Some(code.as_str())
    }
}

fn known_code(text: &str) -> Option<ErrorCode> {
    ErrorCode::ALL.iter().copied().find(|code| code.as_str() == text)
}
