//! The TCP door: patterns to reports, outcomes to replies.

use crate::{
    access::Access,
    executor_secrets::ExecutorDesk,
    reports::{Door, Reports, read_beginning},
};
use bytes::Bytes;
use contract::{
    ErrorCode, Json, RpcError, pattern,
    report::{ReportKind, ReportOutcome},
};
use std::sync::Arc;
use wire::{Handler, Peer, Reply, Request};

/// Bytes of a receipt that names no worker.
const RECEIPT_BYTES: usize = 32;

/// The handler of the TCP server.
#[derive(Debug)]
pub(crate) struct TcpDoor {
    pub(crate) access: Arc<Access>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) executors: ExecutorDesk,
    /// Most bytes of a frame.
    pub(crate) limit: usize,
}

impl Handler for TcpDoor {
    async fn call(&self, request: Request) -> Reply {
        let kind = kind_of(&request.pattern);
        if kind.is_none() && !pattern::EXECUTOR_SECRETS.is(&request.pattern) {
            return Reply::NoHandler;
        }
        if let Err(error) = self.access.check_message(&request.data) {
            self.access.audit(Door::Tcp, request.peer.address, &error);
            return Reply::Error(error);
        }
        // What is rare is boxed: a request's task is moved as a whole, and most of it would be this.
        let Some(kind) = kind else { return Box::pin(self.secrets(&request)).await };
        let outcome = match request.is_event {
            true => Box::pin(self.reports.take_event(Door::Tcp, kind, &request.data)).await,
            false => self.reports.take(Door::Tcp, kind, &request.data, None).await,
        };
        match outcome {
            // A receipt always serialises: it is a name and a text.
            ReportOutcome::Ok(receipt) => {
                Reply::Value(Json::written(&receipt, RECEIPT_BYTES).unwrap_or_default())
            }
            ReportOutcome::Err(error) => Reply::Error(error),
        }
    }

    /// A result that is too large fails its step, where the beginning of its frame says whose it is
    /// and that it may say so (failure matrix row 21).
    async fn oversize(&self, beginning: Bytes, _peer: Peer) -> Option<RpcError> {
        let found = read_beginning(&beginning)?;
        if kind_of(&found.pattern) != Some(ReportKind::Result) {
            return None;
        }
        self.access.check_message(&found.credentials).ok()?;
        Some(Box::pin(self.reports.fail_oversize(Door::Tcp, found.execution_id, self.limit)).await)
    }
}

impl TcpDoor {
    async fn secrets(&self, request: &Request) -> Reply {
        match self.executors.resolve(&request.data).await {
            Ok(resolved) => match resolved.to_json() {
                Ok(values) => Reply::Secret(values),
                Err(error) => {
                    let text = format!("the secrets cannot be written as JSON: {error}");
                    Reply::Error(RpcError::new(ErrorCode::Internal, text))
                }
            },
            Err(error) => {
                self.access.audit(Door::Tcp, request.peer.address, &error);
                Reply::Error(error)
            }
        }
    }
}

/// The report that a pattern stands for.
fn kind_of(text: &str) -> Option<ReportKind> {
    match pattern::find(text)? {
        pattern::STEP_ACK => Some(ReportKind::Ack),
        pattern::STEP_HEARTBEAT => Some(ReportKind::Heartbeat),
        pattern::STEP_PARTIAL => Some(ReportKind::Partial),
        pattern::STEP_RESULT => Some(ReportKind::Result),
        _ => None,
    }
}
