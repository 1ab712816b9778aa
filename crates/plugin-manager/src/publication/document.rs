//! A manifest as it came: without its credential, checked and read. Pure.

use contract::{
    ErrorCode, Json, RpcError, Warning,
    manifest::{Endpoint, ExecutorItem, MANIFEST_KIND, Manifest, read_manifest},
};
use serde_json::Value;

/// Fields that may carry the ingress token (protocol section 1). They never reach the store.
const CREDENTIAL_FIELDS: [&str; 4] = ["token", "ingressToken", "authToken", "auth"];

/// A valid manifest.
#[derive(Clone, Debug)]
pub(crate) struct Document {
    /// As read.
    pub(crate) manifest: Manifest,
    /// As sent, without its credential.
    pub(crate) raw: Json,
    /// What was remarked.
    pub(crate) warnings: Vec<Warning>,
}

/// Reads the body of a publication.
///
/// # Errors
/// `invalid_manifest` that names every fault with its path.
pub(crate) fn read(body: &Json) -> Result<Document, RpcError> {
    read_from(body, None)
}

/// Like [`read`], with another place of the plugin than the manifest's own.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_from(body: &Json, from: Option<&Endpoint>) -> Result<Document, RpcError> {
    let mut value = body.value().map_err(|error| {
        RpcError::new(ErrorCode::InvalidManifest, format!("the manifest cannot be read as JSON: {error}"))
    })?;
    if let Value::Object(fields) = &mut value {
        fields.retain(|key, _| !CREDENTIAL_FIELDS.contains(&key.as_str()));
        if let Some(Endpoint { host, port }) = from {
            fields.insert("pull".to_owned(), serde_json::json!({ "host": host, "port": port }));
        }
    }
    let (manifest, warnings) = read_manifest(&value)
        .map_err(|faults| RpcError::of_faults(ErrorCode::InvalidManifest, "the manifest", &faults))?;
    Ok(Document { manifest, raw: value.into(), warnings })
}

/// Is the body of a `manifest_request` a manifest, and so a publication?
pub(crate) fn is_manifest(body: &Json) -> bool {
    #[derive(serde::Deserialize)]
    struct Kind {
        kind: Option<Json>,
    }
    body.read::<Kind>().is_ok_and(|body| {
        body.kind.and_then(|kind| kind.read::<String>().ok()).is_some_and(|kind| kind == MANIFEST_KIND)
    })
}

/// Node types whose own endpoint differs from the plugin's.
pub(crate) fn own_endpoints(items: &[ExecutorItem], pull: &Endpoint) -> Vec<(String, Endpoint)> {
    items
        .iter()
        .filter_map(|item| Some((item, item.transport.as_ref()?)))
        .filter(|(_, transport)| transport.params != *pull)
        .map(|(item, transport)| (item.node_type.clone(), transport.params.clone()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::manifest::Transport;
    use serde_json::json;

    fn body() -> Value {
        json!({
            "token": "s3cret", "ingressToken": "s3cret", "authToken": "s3cret", "auth": {"token": "s3cret"},
            "kind": MANIFEST_KIND, "pluginId": "echo", "publicationVersion": "1.0.0", "future": 12345678901234567890123u128,
            "executors": [{"nodeType": "plugin.echo"}], "pull": {"host": "h", "port": 1}
        })
    }

    #[test]
    fn the_credential_is_neither_kept_nor_warned_about() {
        let document = read(&body().into()).unwrap();
        assert!(!document.raw.text().contains("s3cret"));
        assert!(!document.manifest.extra.contains_key("auth"));
        assert_eq!(document.warnings.iter().map(|w| w.path.as_str()).collect::<Vec<_>>(), ["$.future"]);
    }

    #[test]
    fn unknown_fields_are_kept_as_sent() {
        let document = read(&body().into()).unwrap();
        assert!(document.raw.text().contains(r#""future":12345678901234567890123"#));
    }

    #[test]
    fn every_fault_is_named_with_its_path() {
        let error = read(&json!({"kind": "v1", "executors": 5}).into()).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidManifest);
        let details = error.details.unwrap();
        let paths: Vec<_> = details["faults"]
            .as_array()
            .unwrap()
            .iter()
            .map(|fault| fault["path"].as_str().unwrap())
            .collect();
        assert_eq!(paths, ["$.kind", "$.pluginId", "$.publicationVersion", "$.executors", "$.pull"]);
    }

    #[test]
    fn a_hand_out_is_told_from_a_publication_by_its_kind() {
        assert!(is_manifest(&body().into()));
        assert!(!is_manifest(&json!({"pluginId": "echo"}).into()));
        assert!(!is_manifest(&json!({"kind": null}).into()));
        assert!(!is_manifest(&Json::null()));
    }

    #[test]
    fn only_endpoints_that_differ_are_kept() {
        let at = |node_type: &str, port| ExecutorItem {
            node_type: node_type.into(),
            transport: Some(Transport { kind: "tcp".into(), params: Endpoint { host: "h".into(), port } }),
            ..ExecutorItem::default()
        };
        let items =
            [at("a", 1), at("b", 2), ExecutorItem { node_type: "c".into(), ..ExecutorItem::default() }];
        let own = own_endpoints(&items, &Endpoint { host: "h".into(), port: 1 });
        assert_eq!(own, [("b".to_owned(), Endpoint { host: "h".into(), port: 2 })]);
    }
}
