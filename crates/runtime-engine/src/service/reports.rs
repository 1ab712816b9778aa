//! Reports and dispatch outcomes: to the committers and back.

use super::{
    committer::{Command, unavailable},
    engine::{Engine, Pending, outcome},
};
use crate::core::{Input, StepOutputs, shared_result, unknown_execution};
use contract::{
    ExecutionId, RpcError, RunId,
    report::{
        DispatchOutcome, DispatchOutcomes, RawOutputs, ReportBody, ReportOutcome, StepReport,
        StepReportOutcomes, StepReports,
    },
};
use tokio::sync::oneshot;

/// `runtime.step_reports`
///
/// Digests are computed here, where many reports are in work at once, not in the
/// committer.
pub(super) async fn step_reports(engine: &Engine, batch: StepReports<RawOutputs>) -> StepReportOutcomes {
    let runs = Box::pin(runs_of(engine, &batch.reports)).await;
    let mut inputs: Vec<Result<(RunId, Input), RpcError>> =
        batch.reports.into_iter().zip(runs).map(|(report, run)| Ok((run?, input_of(report)))).collect();
    Box::pin(engine.shared.large_outputs.put_away(&engine.shared, &mut inputs)).await;
    let mut pending = Vec::with_capacity(inputs.len());
    for input in inputs {
        pending.push(match input {
            Ok((run_id, input)) => Ok(hand_over(engine, run_id, input).await),
            Err(error) => Err(error),
        });
    }
    let mut outcomes = Vec::with_capacity(pending.len());
    for answer in pending {
        let told = match answer {
            Ok(receiver) => outcome(receiver).await,
            Err(error) => ReportOutcome::Err(error),
        };
        engine.shared.metrics.report(told.code());
        outcomes.push(told);
    }
    StepReportOutcomes { outcomes }
}

/// [`step_reports`] of one.
pub(super) async fn step_report(
    engine: &Engine,
    run_id: RunId,
    report: StepReport<RawOutputs>,
) -> ReportOutcome {
    let heard = async {
        let mut input = input_of(report);
        let large_outputs = &engine.shared.large_outputs;
        if large_outputs.is_large(&input) {
            Box::pin(large_outputs.shrink(&engine.shared, &mut input)).await?;
        }
        Ok(hand_over(engine, run_id, input).await)
    };
    let told = match heard.await {
        Ok(receiver) => outcome(receiver).await,
        Err(error) => ReportOutcome::Err(error),
    };
    engine.shared.metrics.report(told.code());
    told
}

/// `runtime.dispatch_outcome`
pub(super) async fn dispatch_outcomes(engine: &Engine, batch: DispatchOutcomes) -> StepReportOutcomes {
    let mut pending = Vec::with_capacity(batch.outcomes.len());
    for told in batch.outcomes {
        pending.push(dispatched(engine, told).await);
    }
    let mut outcomes = Vec::with_capacity(pending.len());
    for answer in pending {
        outcomes.push(outcome(answer).await);
    }
    StepReportOutcomes { outcomes }
}

/// [`dispatch_outcomes`] of one.
pub(super) async fn dispatch_outcome(engine: &Engine, told: DispatchOutcome) -> ReportOutcome {
    outcome(dispatched(engine, told).await).await
}

async fn dispatched(engine: &Engine, told: DispatchOutcome) -> Pending<ReportOutcome> {
    hand_over(engine, told.run_id, Input::Dispatched(told.execution_id, told.outcome)).await
}

async fn hand_over(engine: &Engine, run_id: RunId, input: Input) -> Pending<ReportOutcome> {
    let (reply, receiver) = oneshot::channel();
    engine.send(Command::input(run_id, input, Some(reply))).await;
    receiver
}

/// What a report says to its run.
fn input_of(report: StepReport<RawOutputs>) -> Input {
    let id = report.execution_id;
    match report.body {
        ReportBody::Ack(ack) => Input::Ack(id, ack),
        ReportBody::Heartbeat(heartbeat) => Input::Heartbeat(id, heartbeat),
        ReportBody::Partial(partial) => Input::Partial(id, partial.with_outputs(StepOutputs::from)),
        ReportBody::Result(result) => {
            // Of what was reported, whatever becomes of large outputs.
            let digest = result.digest();
            Input::Result(id, shared_result(result), digest)
        }
    }
}

/// The runs of the reports: as the reporter named them, else as the database knows the attempt.
async fn runs_of(engine: &Engine, reports: &[StepReport<RawOutputs>]) -> Vec<Result<RunId, RpcError>> {
    let unnamed: Vec<ExecutionId> =
        reports.iter().filter(|report| report.run_id.is_none()).map(|report| report.execution_id).collect();
    let mut found = match unnamed.is_empty() {
        true => Ok(Vec::new()),
        false => engine.shared.storage.runs().run_of(&unnamed).await,
    }
    .map(Vec::into_iter);
    let mut look_up = |execution_id| match &mut found {
        Ok(found) => found.next().flatten().ok_or_else(|| unknown_execution(execution_id)),
        Err(error) => Err(unavailable(error)),
    };
    reports
        .iter()
        .map(|report| match report.run_id {
            Some(run_id) => Ok(run_id),
            None => look_up(report.execution_id),
        })
        .collect()
}
