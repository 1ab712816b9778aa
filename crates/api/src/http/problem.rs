//! Errors as HTTP answers: `{"error": RpcError}` with the status of its code.

use axum::{
    body::Body,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use contract::{ErrorCode, RpcError};
use serde::Serialize;
use utoipa::ToSchema;

/// An error on its way to the caller.
#[derive(Debug)]
pub(crate) struct Problem(pub(crate) RpcError);

/// What a handler answers.
pub(crate) type Answer<T> = Result<T, Problem>;

/// The body of every error answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ErrorBody {
    /// `{status, code, message, details?, retryable}`; codes are stable.
    #[schema(value_type = Object, example = json!({
        "status": "error", "code": "not_found", "message": "there is no process 018f…", "retryable": false
    }))]
    pub(crate) error: RpcError,
}

impl Problem {
    /// An error with this code.
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self(RpcError::new(code, message))
    }

    /// The thing that was named does not exist (or is another workspace's, which is the same).
    pub(crate) fn not_found(what: &str, id: impl std::fmt::Display) -> Self {
        Self::new(ErrorCode::NotFound, format!("there is no {what} {id}"))
    }

    /// There is no such run, or none any more.
    pub(crate) fn no_run(id: impl std::fmt::Display) -> Self {
        Self(contract::run::not_found(id))
    }
}

impl From<RpcError> for Problem {
    fn from(error: RpcError) -> Self {
        Self(error)
    }
}

impl From<storage::Error> for Problem {
    fn from(error: storage::Error) -> Self {
        let outward = error.to_rpc();
        if outward.code == ErrorCode::Internal {
            tracing::error!(event = "storage_failed", "{error}");
        }
        Self(outward)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let code = self.0.code;
        let status = StatusCode::from_u16(code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut response = json(status, &ErrorBody { error: self.0 });
        let headers = response.headers_mut();
        if status == StatusCode::SERVICE_UNAVAILABLE {
            headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if code == ErrorCode::Unauthorized {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

/// A JSON answer.
pub(crate) fn json<T: Serialize>(status: StatusCode, body: &T) -> Response {
    match serde_json::to_vec(body) {
        Ok(bytes) => {
            let mut response = Response::new(Body::from(bytes));
            *response.status_mut() = status;
            response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
            response
        }
        Err(error) => {
            tracing::error!(
                event = "answer_not_serialisable",
                "an answer cannot be written as JSON: {error}"
            );
            StatusCode::INTERNAL_SERVER_ERROR.into_response()
        }
    }
}
