//! The vectors that the real `NestJS` servers of three major versions pass.

use crate::common::{Raw, config, start};
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Vectors {
    vectors: Vec<Vector>,
    client: Vec<ClientVector>,
}

#[derive(Deserialize)]
struct Vector {
    name: String,
    segments_hex: Vec<String>,
    reply_hex: String,
    fin: bool,
}

#[derive(Deserialize)]
struct ClientVector {
    name: String,
    json: String,
}

fn vectors() -> Vectors {
    serde_json::from_str(include_str!("../data/nest-tcp-vectors.json")).unwrap()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> = text.chars().map(|c| c.to_digit(16).unwrap()).collect();
    digits.chunks(2).map(|pair| u8::try_from(pair[0] * 16 + pair[1]).unwrap()).collect()
}

/// Sends the segments; a boundary of writes is a boundary of segments as far as the system keeps it.
async fn send(peer: &mut Raw, segments: &[Vec<u8>]) {
    for segment in segments {
        peer.write(segment).await;
        tokio::task::yield_now().await;
    }
}

async fn check(vector: &Vector, segments: &[Vec<u8>]) {
    let server = start(config());
    let mut peer = server.connect().await;
    send(&mut peer, segments).await;
    let wanted = hex(&vector.reply_hex);
    if vector.fin {
        assert_eq!(peer.rest().await, wanted, "{}", vector.name);
        return;
    }
    if vector.name.starts_with("21 ") {
        // Six units are missing: with them the frame is whole, and answered.
        peer.write("      ").await;
        let wanted = r#"48#{"response":"Привет","isDisposed":true,"id":"1"}"#;
        let reply = peer.read_bytes(wanted.len()).await;
        assert_eq!(String::from_utf8_lossy(&reply), wanted, "{}", vector.name);
        return;
    }
    if vector.name.starts_with("25 ") {
        // Payloads pass unchanged by design (protocol section 7, rule 5): where Node prints numbers
        // anew we do not, so values are compared and not their spelling.
        let wanted = String::from_utf8(wanted).unwrap();
        let (_, wanted) = wanted.split_once('#').unwrap();
        let reply = peer.receive().await;
        assert_eq!(as_floats(&reply), as_floats(wanted), "{}", vector.name);
        return;
    }
    let reply = peer.read_bytes(wanted.len()).await;
    assert_eq!(String::from_utf8_lossy(&reply), String::from_utf8_lossy(&wanted), "{}", vector.name);
    // Nothing more came, and the connection still serves.
    peer.request("undef", "1", "last").await;
    assert_eq!(peer.receive().await, r#"{"isDisposed":true,"id":"last"}"#, "{}", vector.name);
}

/// Numbers as JavaScript has them.
fn as_floats(text: &str) -> Value {
    fn walk(value: &mut Value) {
        match value {
            Value::Number(number) => *value = Value::String(format!("{:e}", number.as_f64().unwrap() + 0.0)),
            Value::Array(items) => items.iter_mut().for_each(walk),
            Value::Object(fields) => fields.values_mut().for_each(walk),
            _ => {}
        }
    }
    let mut value = serde_json::from_str(text).unwrap();
    walk(&mut value);
    value
}

#[tokio::test]
async fn every_vector_is_answered_as_nest_answers_it() {
    let vectors = vectors().vectors;
    assert_eq!(vectors.len(), 25);
    for vector in &vectors {
        let segments: Vec<_> = vector.segments_hex.iter().map(|segment| hex(segment)).collect();
        check(vector, &segments).await;
    }
}

#[tokio::test]
async fn every_vector_is_answered_the_same_byte_by_byte() {
    for vector in &vectors().vectors {
        let bytes: Vec<_> =
            vector.segments_hex.iter().flat_map(|segment| hex(segment)).map(|b| vec![b]).collect();
        check(vector, &bytes).await;
    }
}

#[tokio::test]
async fn what_nest_clients_write_is_understood() {
    let server = start(config());
    let mut peer = server.connect().await;
    let vectors = vectors().client;
    assert_eq!(vectors.len(), 2, "{:?}", vectors.iter().map(|vector| &vector.name).collect::<Vec<_>>());
    // C2, an event, has no handler and no reply; then C1.
    peer.send(&vectors[1].json).await;
    peer.send(&vectors[0].json.replace("<21 lower-case hex>", "557b3ce874b29b3920d58")).await;
    assert_eq!(peer.receive().await, r#"{"response":3,"isDisposed":true,"id":"557b3ce874b29b3920d58"}"#);
    assert_eq!((server.stats.events(), server.stats.requests()), (1, 1));
}
