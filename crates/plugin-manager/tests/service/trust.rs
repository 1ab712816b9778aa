//! Signed publications (protocol section 3).

use crate::support::{House, Plugin, Running, code};
use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use contract::ErrorCode;
use plugin_manager::Settings;
use serde_json::{Value, json};

const ECHO: &str = "plugin.echo";

fn pair() -> Ed25519KeyPair {
    Ed25519KeyPair::from_seed_unchecked(&[3; 32]).unwrap()
}

fn with_key(settings: &mut Settings) {
    let key = STANDARD.encode(pair().public_key().as_ref());
    settings.signing_keys = format!("release {key}").parse().unwrap();
    settings.enabled_by_default = true;
}

fn demanding(settings: &mut Settings) {
    with_key(settings);
    settings.require_signed = true;
}

/// The manifest, signed over a digest.
fn signed(mut manifest: Value, digest: &Value) -> Value {
    let value = STANDARD.encode(pair().sign(digest.as_str().unwrap().as_bytes()).as_ref());
    manifest["signature"] = json!({"keyId": "release", "value": value});
    manifest
}

/// As list, versions and explain show it.
async fn shown(service: &Running) -> [Value; 3] {
    let list = service.ask("plugin.list", json!({})).await.unwrap();
    let versions = service.ask("plugin.versions", json!({"pluginId": "echo"})).await.unwrap();
    let explained = service.ask("plugin.explain", json!({"nodeType": ECHO})).await.unwrap();
    [&list["plugins"][0], &versions["versions"][0], &explained].map(|part| part["signature"].clone())
}

#[tokio::test]
async fn a_signature_over_the_digest_is_shown_everywhere() {
    let house = House::new().await;
    let service = house.start(with_key).await;
    let plugin = Plugin::new(&[ECHO]);
    let manifest = plugin.manifest("echo", "1.0.0", &[ECHO]);
    let reply = service.publish(manifest.clone()).await.unwrap();
    assert_eq!(shown(&service).await, ["unsigned", "unsigned", "unsigned"]);
    let again = service.publish(signed(manifest, &reply["digest"])).await.unwrap();
    assert_eq!((&again["status"], &again["warnings"]), (&json!("unchanged"), &json!([])));
    assert_eq!(shown(&service).await, ["signed", "signed", "signed"]);
    let versions = service.ask("plugin.versions", json!({"pluginId": "echo"})).await.unwrap();
    assert_eq!(versions["versions"][0]["signedBy"], "release");
}

#[tokio::test]
async fn an_invalid_signature_is_warned_about_and_shown() {
    let house = House::new().await;
    let service = house.start(with_key).await;
    let plugin = Plugin::new(&[ECHO]);
    let other = json!("0".repeat(64));
    let reply = service.publish(signed(plugin.manifest("echo", "1.0.0", &[ECHO]), &other)).await.unwrap();
    assert_eq!(reply["warnings"][0]["code"], "signature_invalid");
    assert_eq!(shown(&service).await, ["invalid", "invalid", "invalid"]);
}

#[tokio::test]
async fn where_signatures_are_required_an_unsigned_publication_is_refused_and_told_what_to_sign() {
    let house = House::new().await;
    let service = house.start(demanding).await;
    let plugin = Plugin::new(&[ECHO]);
    let manifest = plugin.manifest("echo", "1.0.0", &[ECHO]);
    let refused = service.publish(manifest.clone()).await.unwrap_err();
    assert_eq!(refused.code, ErrorCode::SignatureRequired);
    assert_eq!(service.ask("plugin.list", json!({})).await.unwrap()["plugins"], json!([]));
    let digest = refused.details.unwrap()["digest"].clone();
    let wrong = service.publish(signed(manifest.clone(), &json!("0".repeat(64)))).await;
    assert_eq!(code(wrong), ErrorCode::SignatureRequired);
    let reply = service.publish(signed(manifest.clone(), &digest)).await.unwrap();
    assert_eq!((&reply["status"], &reply["digest"]), (&json!("committed"), &digest));
    // The plugin knows nothing of the signature that its operator made.
    assert_eq!(service.publish(manifest).await.unwrap()["status"], "unchanged");
    assert_eq!(shown(&service).await, ["signed", "signed", "signed"]);
}
