//! Files of runs (protocol section 3, *Large outputs*): addressed by their content within the run, so
//! that the same bytes again are the same file, and given only to who names the run.

use super::{
    Files, HttpError, download, file_id, not_found,
    upload::{Named, Stored},
};
use axum::{
    Json,
    body::Body,
    extract::{Path, Query, State},
    http::{HeaderMap, StatusCode},
    response::Response,
};
use contract::{Digest, ErrorCode, RpcError, RunId};
use sha2::{Digest as _, Sha256};
use uuid::{Builder, Uuid};

/// `POST /internal/runs/{runId}/files?name=&workspaceId=`: 201 for a new file, 200 for one that the
/// run has already.
pub(super) async fn upload(
    State(files): State<Files>,
    Path(run_id): Path<String>,
    Query(named): Query<Named>,
    headers: HeaderMap,
    body: Body,
) -> Result<(StatusCode, Json<Stored>), HttpError> {
    let run_id = run(&run_id)?;
    let (described, draft) = files.accept(named, &headers, body).await?;
    let id = address(run_id, draft.digest());
    let blobs = files.0.storage.blobs();
    if let Some(row) = blobs.of_run(run_id, &id.to_string()).await? {
        return Ok((StatusCode::OK, Json(Stored::of(id, row))));
    }
    let row = files.keep(id, described, draft).await?;
    // Should this fail the bytes stay: another upload of the same may have an entry by now.
    blobs.put_of_run(run_id, &row).await?;
    tracing::info!(event = "run_file_stored", %run_id, file_id = %id, size_bytes = row.size, "a file of a run is stored");
    Ok((StatusCode::CREATED, Json(Stored::of(id, row))))
}

/// `GET /internal/runs/{runId}/files/{id}`: the bytes of a file that the run owns.
pub(super) async fn download(
    State(files): State<Files>,
    Path((run_id, id)): Path<(String, String)>,
    asking: HeaderMap,
) -> Result<Response, HttpError> {
    let (run_id, id) = (run(&run_id)?, file_id(&id)?);
    let row = files.0.storage.blobs().of_run(run_id, &id.to_string()).await?;
    let row = row.ok_or_else(|| not_found(&id.to_string()))?;
    download::send(&files, id, &row, &asking).await
}

fn run(text: &str) -> Result<RunId, HttpError> {
    text.parse().map_err(|_| {
        HttpError(RpcError::new(ErrorCode::InvalidRequest, format!("{text:?} is no id of a run")))
    })
}

/// The id of these bytes in this run.
fn address(run_id: RunId, digest: Digest) -> Uuid {
    let hash: [u8; 32] =
        Sha256::new().chain_update(run_id.0.as_bytes()).chain_update(digest.0).finalize().into();
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&hash[..16]);
    Builder::from_custom_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_of_its_run_and_its_bytes() {
        let [one, other] = [1, 2].map(|n| RunId(Uuid::from_u128(n)));
        let (a, b) = (Digest([1; 32]), Digest([2; 32]));
        assert_eq!(address(one, a), address(one, a));
        assert_ne!(address(one, a), address(one, b));
        assert_ne!(address(one, a), address(other, a));
    }
}
