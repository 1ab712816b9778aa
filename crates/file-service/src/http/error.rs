use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use contract::{ErrorCode, RpcError};
use serde::Serialize;
use std::io;

/// An error as HTTP carries it: the code's status and `{"error": …}`.
#[derive(Debug)]
pub(super) struct HttpError(pub(super) RpcError);

#[derive(Serialize)]
struct Body {
    error: RpcError,
}

impl HttpError {
    /// The disk failed; `what` the file was to be. The reason stays in the log.
    pub(super) fn disk(what: &str, error: &io::Error) -> Self {
        tracing::error!(event = "file_disk_failed", what, %error, "the disk failed");
        let code = match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ErrorCode::Unavailable,
            _ => ErrorCode::Internal,
        };
        Self(RpcError::new(
            code,
            format!("the file could not be {what}; the log of file-service has the reason"),
        ))
    }
}

impl From<storage::Error> for HttpError {
    fn from(error: storage::Error) -> Self {
        Self(error.to_rpc())
    }
}

impl IntoResponse for HttpError {
    fn into_response(self) -> Response {
        let status =
            StatusCode::from_u16(self.0.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = (status, Json(Body { error: self.0 })).into_response();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response
    }
}
