//! The TCP door: patterns to reports, outcomes to replies.

use crate::{
    access::Access,
    metrics::Metrics,
    reports::{Door, Reports},
};
use contract::{
    Json, pattern,
    report::{ReportKind, ReportOutcome},
};
use std::sync::Arc;
use wire::{Handler, Reply, Request};

/// The handler of the TCP server.
#[derive(Debug)]
pub(crate) struct TcpDoor {
    pub(crate) access: Arc<Access>,
    pub(crate) reports: Arc<Reports>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Handler for TcpDoor {
    async fn call(&self, request: Request) -> Reply {
        let Some(kind) = kind_of(&request.pattern) else { return Reply::NoHandler };
        if let Err(error) = self.access.check_message(&request.data) {
            self.metrics.refusal(Door::Tcp.as_str(), error.code.as_str());
            tracing::debug!(event = "report_unauthorized", peer = %request.peer.socket, "wrong or missing key");
            return Reply::Error(error);
        }
        let outcome = match request.is_event {
            true => self.reports.take_event(Door::Tcp, kind, &request.data).await,
            false => self.reports.take(Door::Tcp, kind, &request.data).await,
        };
        match outcome {
            // A receipt always serialises: it is a name and a text.
            ReportOutcome::Ok(receipt) => Reply::Value(Json::of(&receipt).unwrap_or_default()),
            ReportOutcome::Err(error) => Reply::Error(error),
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
