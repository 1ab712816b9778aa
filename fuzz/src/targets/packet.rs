//! Packets, both ways, patterns and credentials. The input is the text of a frame.

use contract::Json;
use secrecy::ExposeSecret;
use wire::{
    credential_in,
    packet::{canonical_pattern, id_in_parts, parse_packet, parse_reply},
};

/// What is looked at of the end of a frame that is too large.
const END_BYTES: usize = 512;

/// What is read as a packet is JSON; an id that is found in its end alone is its own; parts of it are JSON again; a canonical pattern stays what it is.
pub(super) fn run(input: &[u8]) -> String {
    let reply = parse_reply(input, false);
    let secret = parse_packet(input, true);
    let packet = match parse_packet(input, false) {
        Ok(packet) => packet,
        Err(error) => {
            assert!(secret.is_err(), "what is no packet is one with secrets in it");
            return format!("no packet: {error}; reply: {}", reply.is_ok());
        }
    };
    assert!(secret.is_ok_and(|secret| secret.data == packet.data), "secrets make another packet");
    // A lone surrogate is accepted here and by Node, and by nobody else: depth and surrogates are not
    // judged by the envelope.
    assert!(std::str::from_utf8(input).is_ok(), "a packet that is no text was read");
    for part in [Some(&packet.data), packet.id.as_ref()].into_iter().flatten() {
        assert!(Json::parse(part.text()).is_ok(), "a part of a packet is no JSON: {}", part.text());
    }
    let end = input.get(input.len().saturating_sub(END_BYTES)..);
    if let Some(found) = id_in_parts(b"", end) {
        assert_eq!(Some(&found), packet.id.as_ref(), "a packet's end names another id than the packet");
    }
    if let Some(pattern) = &packet.pattern {
        let quoted = Json::of(pattern).unwrap_or_default();
        let again = canonical_pattern(&quoted);
        assert!(again.is_some() || pattern.len() > 2000, "the canonical pattern {pattern:?} names nothing");
    }
    let credential = credential_in(&packet.data, &["key", "token"], "auth", &["key", "token"]);
    if let Some(credential) = &credential {
        assert!(!credential.expose_secret().is_empty(), "an empty credential was found");
    }
    format!(
        "packet: pattern {}, id {}, data {}, credential {}, reply {}",
        packet.pattern.is_some(),
        packet.id.is_some(),
        !packet.data.is_null(),
        credential.is_some(),
        reply.is_ok()
    )
}
