//! What the store did with a publication, in the words of the pipeline's answers.

use super::document::Document;
use contract::{
    Digest, ErrorCode, PublicationId, RpcError,
    catalogue::{PublicationReply, PublicationStatus},
    manifest::Endpoint,
};
use storage::catalogue::Committed;

/// What the store did with a publication that it took.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Status {
    Committed,
    Replaced,
    Unchanged,
}

impl Status {
    pub(super) fn event(self) -> &'static str {
        match self {
            Self::Committed => "plugin_publication_committed",
            Self::Replaced => "plugin_publication_replaced",
            Self::Unchanged => "plugin_publication_unchanged",
        }
    }
}

/// The store's answer as success or refusal.
pub(super) fn accept(
    document: &Document,
    committed: Committed,
) -> Result<(Status, PublicationId, i64), RpcError> {
    match committed {
        Committed::Committed { publication_id, revision } => {
            Ok((Status::Committed, publication_id, revision))
        }
        Committed::Replaced { publication_id, revision } => Ok((Status::Replaced, publication_id, revision)),
        Committed::Unchanged { publication_id, revision } => {
            Ok((Status::Unchanged, publication_id, revision))
        }
        Committed::VersionImmutable { stored } => Err(version_immutable(document, stored)),
        Committed::NodeTypeConflict { node_type, owner } => Err(RpcError::new(
            ErrorCode::NodeTypeConflict,
            format!(
                "{} declares the node type {node_type:?}, which belongs to plugin {owner:?}; rename it, or \
                 remove {owner:?} first",
                subject(document)
            ),
        )
        .with_details(serde_json::json!({ "nodeType": node_type, "owner": owner }))),
    }
}

pub(super) fn out_of_time(document: &Document, endpoint: &Endpoint) -> RpcError {
    RpcError::new(
        ErrorCode::BatchPullFailed,
        format!(
            "{} at {endpoint} did not answer within the time for all pulls at start \
             (PLUGIN_MANAGER_STARTUP_PULL_TIMEOUT_MS)",
            subject(document),
        ),
    )
}

pub(super) fn version_immutable(document: &Document, stored: Digest) -> RpcError {
    RpcError::new(
        ErrorCode::VersionImmutable,
        format!(
            "{} is published already with other content (digest {stored}); raise publicationVersion, or set \
             PLUGIN_MANAGER_ALLOW_REPUBLISH=true for development",
            subject(document)
        ),
    )
    .with_details(serde_json::json!({ "digest": stored }))
}

/// The refusal of a publication without a valid signature. It names the digest, which is what has to
/// be signed.
pub(super) fn signature_required(document: &Document, digest: Digest, reason: &str) -> RpcError {
    RpcError::new(
        ErrorCode::SignatureRequired,
        format!(
            "{} {reason}, and PLUGIN_MANAGER_REQUIRE_SIGNED takes only signed publications; sign the digest \
             {digest} and publish the manifest with its signature",
            subject(document)
        ),
    )
    .with_details(serde_json::json!({ "digest": digest }))
}

pub(super) fn subject(document: &Document) -> String {
    format!("{}@{}", document.manifest.plugin_id, document.manifest.publication_version)
}

pub(super) fn reply(
    document: Document,
    status: Status,
    publication_id: PublicationId,
    digest: Digest,
) -> PublicationReply {
    PublicationReply {
        ok: true,
        status: match status {
            Status::Committed | Status::Replaced => PublicationStatus::Committed,
            Status::Unchanged => PublicationStatus::Unchanged,
        },
        plugin_id: document.manifest.plugin_id,
        publication_version: document.manifest.publication_version,
        publication_id,
        digest,
        warnings: document.warnings,
    }
}
