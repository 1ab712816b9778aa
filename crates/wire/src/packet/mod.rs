//! Packets: what the JSON text of a frame says. Requests and events come in, replies go out with
//! exactly `NestJS`'s keys and key order; the client's side of both is here too.
//!
//! Packets are read key by key, in one pass: payloads stay text, duplicate keys are taken as Node
//! takes them (the last wins), and neither nesting depth nor lone surrogates are a fault.

pub(crate) mod fields;
mod pattern;
mod reply;
mod request;

pub use pattern::canonical_pattern;
pub use reply::{Answer, RemoteError, ReplyPacket, parse_reply};
pub(crate) use reply::{
    write_empty, write_error, write_no_handler, write_refusal, write_secret, write_value,
};
pub use request::{Packet, id_in_parts, parse_packet};
pub(crate) use request::{write_event, write_request, write_value_request};

#[cfg(test)]
mod tests;
