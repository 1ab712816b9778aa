//! Reports about steps and what a reporter is told (protocol sections 3, 4 and 5).

use crate::{ErrorCode, ExecutionId, Fault, Json, RpcError, RunId, canonical, check::Checker, json::present};
use indexmap::IndexMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One report about one attempt, from whichever door it came.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepReport {
    /// The attempt.
    pub execution_id: ExecutionId,
    /// The run, where the reporter named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_id: Option<RunId>,
    /// What is reported.
    pub body: ReportBody,
}

/// What a report says. Adjacently tagged with the tag first, so that payloads stay raw text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "value", rename_all = "snake_case")]
pub enum ReportBody {
    /// Work has begun.
    Ack(Ack),
    /// Work goes on.
    Heartbeat(Heartbeat),
    /// Outputs before the end.
    Partial(Partial),
    /// Work has ended.
    Result(StepResult),
}

/// Work has begun.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Ack {
    /// Who took the task, so that two takers of one task can tell who won; built-in executors send
    /// it, plugins need not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
}

/// Work goes on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Heartbeat {
    /// From 0 to 1, as the reporter wrote it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Json>,
    /// For people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// Outputs before the end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Partial {
    /// Counts up per attempt; a number that was seen before is a duplicate.
    pub sequence: u64,
    /// Values by output name.
    #[serde(default)]
    pub outputs: IndexMap<String, Json>,
}

/// Work has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepResult {
    /// How it ended.
    pub status: StepStatus,
    /// Values by output name; keys beyond the declared outputs are kept and produce nothing.
    #[serde(default, skip_serializing_if = "IndexMap::is_empty")]
    pub outputs: IndexMap<String, Json>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<StepError>,
}

/// How a step ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StepStatus {
    /// It produced its outputs.
    Ok,
    /// It failed.
    Error,
}

/// Why a step failed. `code` is the plugin's own word or one of [`ErrorCode`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StepError {
    /// Machine-readable reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<String>,
    /// For people.
    #[serde(default)]
    pub message: String,
    /// `Some(false)` is never retried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retryable: Option<bool>,
    /// Anything more.
    #[serde(default, skip_serializing_if = "Option::is_none", deserialize_with = "present")]
    pub details: Option<Json>,
}

impl StepError {
    /// An error of the platform itself.
    pub fn of(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: Some(code.as_str().to_owned()),
            message: message.into(),
            retryable: Some(code.retryable()),
            details: None,
        }
    }
}

impl StepResult {
    /// A success.
    pub fn ok(outputs: IndexMap<String, Json>) -> Self {
        Self { status: StepStatus::Ok, outputs, error: None }
    }

    /// A failure.
    pub fn failed(error: StepError) -> Self {
        Self { status: StepStatus::Error, outputs: IndexMap::new(), error: Some(error) }
    }

    /// The digest by which two result reports are the same, over any door: canonical JSON of
    /// status, outputs and error.
    pub fn digest(&self) -> crate::Digest {
        canonical::digest_json(&Json::of(self).unwrap_or_default())
    }
}

/// What a reporter is told when the answer is 200: the codes of the table in section 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Accepted {
    /// Stored now.
    Applied,
    /// The same report was stored before.
    Duplicate,
}

/// The engine's answer to one report: `Ok` after it is durable, else the error of the table.
/// On the wire `{"ok": {"status": "applied"}}` or `{"err": {...}}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportOutcome {
    /// 200.
    Ok(Receipt),
    /// Everything else; `details.previousState` tells what became of a superseded attempt.
    Err(RpcError),
}

/// What a 200 says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Receipt {
    /// `applied` or `duplicate`.
    pub status: Accepted,
    /// For acks: the worker whose ack counts. A built-in executor runs the task only if it is its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_id: Option<String>,
}

impl ReportOutcome {
    /// Stored now.
    pub fn applied() -> Self {
        Self::Ok(Receipt { status: Accepted::Applied, worker_id: None })
    }

    /// Stored before.
    pub fn duplicate() -> Self {
        Self::Ok(Receipt { status: Accepted::Duplicate, worker_id: None })
    }

    /// The code, for metrics and logs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Ok(Receipt { status: Accepted::Applied, .. }) => "applied",
            Self::Ok(Receipt { status: Accepted::Duplicate, .. }) => "duplicate",
            Self::Err(error) => error.code.as_str(),
        }
    }
}

/// Which of the four reports a door got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReportKind {
    /// [`Ack`]
    Ack,
    /// [`Heartbeat`]
    Heartbeat,
    /// [`Partial`]
    Partial,
    /// [`StepResult`]
    Result,
}

/// The body of a report on either door, before it is checked. Credentials stand beside these fields
/// over TCP and are ignored here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawReport {
    execution_id: Option<Json>,
    run_id: Option<Json>,
    worker_id: Option<Json>,
    progress: Option<Json>,
    message: Option<Json>,
    sequence: Option<Json>,
    status: Option<Json>,
    outputs: Option<Json>,
    error: Option<Json>,
}

/// Reads a report body of either door. Errors: `missing_execution_id`, or `invalid_report` with
/// every fault and its path (protocol section 4). An id that is no UUID is `unknown_execution`'s
/// case only when well-formed; ill-formed it is a fault.
pub fn read_report(kind: ReportKind, body: &Json) -> Result<StepReport, RpcError> {
    let raw: RawReport = body.read().map_err(|error| malformed(&error))?;
    let Some(execution_id) = raw.execution_id.as_ref().filter(|id| !id.is_null() && id.text() != "\"\"")
    else {
        return Err(RpcError::new(
            ErrorCode::MissingExecutionId,
            "the report carries no executionId; send back the executionId of the task",
        ));
    };
    let mut check = Checker::default();
    let execution_id = read_id::<ExecutionId>(execution_id, "$.executionId", &mut check);
    let run_id = match raw.run_id.as_ref().filter(|id| !id.is_null()) {
        Some(id) => read_id::<RunId>(id, "$.runId", &mut check),
        None => None,
    };
    let body = match kind {
        ReportKind::Ack => {
            Some(ReportBody::Ack(Ack { worker_id: text(raw.worker_id, "$.workerId", &mut check) }))
        }
        ReportKind::Heartbeat => Some(ReportBody::Heartbeat(Heartbeat {
            progress: progress(raw.progress, &mut check),
            message: text(raw.message, "$.message", &mut check),
        })),
        ReportKind::Partial => read_partial(&raw, &mut check).map(ReportBody::Partial),
        ReportKind::Result => read_result(&raw, &mut check).map(ReportBody::Result),
    };
    match (execution_id, body) {
        (Some(execution_id), Some(body)) if check.faults.is_empty() => {
            Ok(StepReport { execution_id, run_id, body })
        }
        _ => Err(invalid(&check.faults)),
    }
}

/// Does a task's reply carry a result? A plugin may answer instead of reporting (section 3).
pub fn reply_is_result(reply: &Json) -> bool {
    let Ok(raw) = reply.read::<RawReport>() else { return false };
    raw.status.is_some() || raw.outputs.is_some()
}

fn invalid(faults: &[Fault]) -> RpcError {
    RpcError::of_faults(ErrorCode::InvalidReport, "the report", faults)
}

fn malformed(error: &serde_json::Error) -> RpcError {
    invalid(&[Fault {
        path: "$".to_owned(),
        code: "wrong_type".to_owned(),
        message: format!("must be a JSON object of a report: {error}"),
    }])
}

fn read_id<T: std::str::FromStr>(json: &Json, path: &str, check: &mut Checker) -> Option<T> {
    let id = json.read::<String>().ok().and_then(|text| text.parse().ok());
    if id.is_none() {
        check.fault(path, "invalid_id", "must be a UUID, as the task carried it");
    }
    id
}

fn text(json: Option<Json>, path: &str, check: &mut Checker) -> Option<String> {
    let json = json.filter(|json| !json.is_null())?;
    let text = json.read().ok();
    if text.is_none() {
        check.fault(path, "wrong_type", "must be a string");
    }
    text
}

fn progress(json: Option<Json>, check: &mut Checker) -> Option<Json> {
    let json = json.filter(|json| !json.is_null())?;
    match json.read::<f64>() {
        Ok(value) if (0.0..=1.0).contains(&value) => Some(json),
        _ => {
            check.fault("$.progress", "out_of_range", "must be a number from 0 to 1");
            None
        }
    }
}

fn outputs(json: Option<&Json>, check: &mut Checker) -> IndexMap<String, Json> {
    let Some(json) = json.filter(|json| !json.is_null()) else { return IndexMap::new() };
    json.read().unwrap_or_else(|_| {
        check.fault("$.outputs", "wrong_type", "must be an object keyed by output name");
        IndexMap::new()
    })
}

fn read_partial(raw: &RawReport, check: &mut Checker) -> Option<Partial> {
    let sequence = raw.sequence.as_ref().and_then(|sequence| sequence.read::<u64>().ok());
    if sequence.is_none() {
        check.fault("$.sequence", "missing", "must be a whole number that counts up from 0 or 1");
    }
    let outputs = outputs(raw.outputs.as_ref(), check);
    Some(Partial { sequence: sequence?, outputs })
}

fn read_result(raw: &RawReport, check: &mut Checker) -> Option<StepResult> {
    let error = raw.error.as_ref().filter(|error| !error.is_null()).map(|error| read_error(error, check));
    let status = match raw.status.as_ref().filter(|status| !status.is_null()).map(Json::text) {
        None if error.is_some() => StepStatus::Error,
        None | Some("\"ok\"") => StepStatus::Ok,
        Some("\"error\"") => StepStatus::Error,
        Some(_) => {
            check.fault("$.status", "unknown_status", "must be \"ok\" or \"error\"");
            return None;
        }
    };
    let error = match (status, error) {
        (StepStatus::Error, None) => {
            Some(StepError { message: "the step failed without a reason".to_owned(), ..StepError::default() })
        }
        (_, error) => error,
    };
    Some(StepResult { status, outputs: outputs(raw.outputs.as_ref(), check), error })
}

/// Plugins send errors as objects or as bare strings.
fn read_error(json: &Json, check: &mut Checker) -> StepError {
    if let Ok(message) = json.read::<String>() {
        return StepError { message, ..StepError::default() };
    }
    #[derive(Deserialize)]
    struct Raw {
        code: Option<Value>,
        message: Option<Value>,
        retryable: Option<Value>,
        details: Option<Json>,
    }
    let Ok(raw) = json.read::<Raw>() else {
        check.fault(
            "$.error",
            "wrong_type",
            "must be an object {code?, message, retryable?, details?} or a string",
        );
        return StepError::default();
    };
    let plain = |value: Value| match value {
        Value::String(text) => text,
        other => other.to_string(),
    };
    let retryable = match raw.retryable {
        None | Some(Value::Null) => None,
        Some(Value::Bool(flag)) => Some(flag),
        Some(_) => {
            check.fault("$.error.retryable", "wrong_type", "must be true or false");
            None
        }
    };
    StepError {
        code: raw.code.filter(|code| !code.is_null()).map(plain),
        message: raw.message.map(plain).unwrap_or_default(),
        retryable,
        details: raw.details,
    }
}

/// `runtime.step_reports`: a batch, answered item by item in the same order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepReports {
    /// The reports.
    pub reports: Vec<StepReport>,
}

/// The answer to `runtime.step_reports` and `runtime.dispatch_outcome`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StepReportOutcomes {
    /// One per item, in order.
    pub outcomes: Vec<ReportOutcome>,
}

/// `runtime.dispatch_outcome`: a batch, answered item by item in the same order.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DispatchOutcomes {
    /// How dispatches ended.
    pub outcomes: Vec<DispatchOutcome>,
}

/// How the dispatch of one task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DispatchOutcome {
    /// The attempt.
    pub execution_id: ExecutionId,
    /// The run.
    pub run_id: RunId,
    /// How it ended.
    pub outcome: Dispatched,
}

/// How the dispatch of a task ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind", content = "value")]
pub enum Dispatched {
    /// The plugin has it: it replied, or (`implicit`) the frame was written whole to a connection
    /// that still stood at the delivery deadline.
    #[serde(rename_all = "camelCase")]
    Delivered {
        /// Without a reply from the plugin.
        implicit: bool,
    },
    /// It could not be delivered (connection refused or lost, plugin offline): tried again as a new
    /// attempt within the delivery budget.
    Failed(StepError),
    /// Policy or secrets refuse it for good: the step fails once with this error.
    Refused(StepError),
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const ID: &str = "019364f1-0000-7000-8000-000000000001";

    fn read(kind: ReportKind, body: &Value) -> Result<StepReport, RpcError> {
        read_report(kind, &Json::from(body))
    }

    #[test]
    fn result_without_status_is_error_only_if_it_has_an_error() {
        let ok = read(ReportKind::Result, &json!({"executionId": ID, "outputs": {"a": null}})).unwrap();
        let ReportBody::Result(ok) = ok.body else { panic!() };
        assert_eq!((ok.status, ok.outputs["a"].is_null()), (StepStatus::Ok, true));
        let failed = read(ReportKind::Result, &json!({"executionId": ID, "error": "Плохо"})).unwrap();
        let ReportBody::Result(failed) = failed.body else { panic!() };
        assert_eq!((failed.status, failed.error.unwrap().message.as_str()), (StepStatus::Error, "Плохо"));
    }

    #[test]
    fn missing_execution_id_has_its_own_code() {
        for body in [json!({}), json!({"executionId": null}), json!({"executionId": ""})] {
            assert_eq!(read(ReportKind::Ack, &body).unwrap_err().code, ErrorCode::MissingExecutionId);
        }
    }

    #[test]
    fn every_fault_of_a_report_is_named_with_its_path() {
        let error = read(
            ReportKind::Result,
            &json!({"executionId": 5, "runId": "x", "outputs": [], "error": {"retryable": 1}}),
        )
        .unwrap_err();
        let paths: Vec<_> = error.details.unwrap()["faults"]
            .as_array()
            .unwrap()
            .iter()
            .map(|f| f["path"].as_str().unwrap().to_owned())
            .collect();
        assert_eq!(paths, ["$.executionId", "$.runId", "$.error.retryable", "$.outputs"]);
        for body in [json!(null), json!([]), json!("x"), json!(5)] {
            assert_eq!(read(ReportKind::Ack, &body).unwrap_err().code, ErrorCode::InvalidReport, "{body}");
        }
    }

    #[test]
    fn lone_surrogates_and_big_numbers_pass_untouched() {
        let body = Json::parse(format!(
            r#"{{"executionId":"{ID}","outputs":{{"s":"\ud800","n":123456789012345678901234567890}}}}"#
        ))
        .unwrap();
        let ReportBody::Result(result) = read_report(ReportKind::Result, &body).unwrap().body else {
            panic!()
        };
        assert_eq!(result.outputs["s"].text(), r#""\ud800""#);
        assert_eq!(result.outputs["n"].text(), "123456789012345678901234567890");
    }

    #[test]
    fn reports_survive_the_wire() {
        let report =
            read(ReportKind::Partial, &json!({"executionId": ID, "sequence": 3, "outputs": {"a": [1]}}))
                .unwrap();
        let text = serde_json::to_string(&StepReports { reports: vec![report.clone()] }).unwrap();
        assert_eq!(serde_json::from_str::<StepReports>(&text).unwrap().reports, [report]);
    }

    #[test]
    fn same_result_has_the_same_digest_whatever_its_spelling() {
        let one = Json::parse(format!(
            r#"{{"executionId":"{ID}","status":"ok","outputs":{{"a":{{"x":1,"y":2}}}}}}"#
        ))
        .unwrap();
        let two =
            Json::parse(format!(r#"{{ "outputs": {{"a": {{"y":2, "x":1}} }}, "executionId":"{ID}" }}"#))
                .unwrap();
        let digest = |json| match read_report(ReportKind::Result, &json).unwrap().body {
            ReportBody::Result(result) => result.digest(),
            _ => panic!(),
        };
        assert_eq!(digest(one), digest(two));
    }
}
