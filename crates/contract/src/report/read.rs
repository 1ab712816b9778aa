//! The body of a report as a door gets it, checked and read: every fault at once, with its path.

use super::{
    Ack, Heartbeat, Partial, RawOutputs, ReportBody, ReportKind, StepError, StepReport, StepResult,
    StepStatus,
};
use crate::{ErrorCode, ExecutionId, Fault, Json, RpcError, RunId, check::Checker, trace::TraceContext};
use serde::Deserialize;
use serde_json::{Value, value::RawValue};
use std::borrow::Cow;

/// The body of a report on either door, before it is checked. Credentials stand beside these fields
/// over TCP and are ignored here.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawReport<'b> {
    #[serde(borrow)]
    execution_id: Option<&'b RawValue>,
    #[serde(borrow)]
    run_id: Option<&'b RawValue>,
    #[serde(borrow)]
    worker_id: Option<&'b RawValue>,
    #[serde(borrow)]
    progress: Option<&'b RawValue>,
    #[serde(borrow)]
    message: Option<&'b RawValue>,
    #[serde(borrow)]
    sequence: Option<&'b RawValue>,
    #[serde(borrow)]
    status: Option<&'b RawValue>,
    #[serde(borrow)]
    outputs: Option<&'b RawValue>,
    #[serde(borrow)]
    error: Option<&'b RawValue>,
    #[serde(borrow)]
    traceparent: Option<&'b RawValue>,
    #[serde(borrow)]
    tracestate: Option<&'b RawValue>,
}

impl RawReport<'_> {
    /// `traceparent` and `tracestate`; what is of another form counts as none.
    fn trace(&self) -> (Option<String>, Option<String>) {
        let text = |value: Option<&RawValue>| read_as::<String>(value?);
        let found = text(self.traceparent)
            .and_then(|traceparent| TraceContext::read(&traceparent, text(self.tracestate).as_deref()));
        found.map_or((None, None), |trace| (Some(trace.traceparent), trace.tracestate))
    }
}

/// The value, if it is of this type.
fn read_as<'b, T: Deserialize<'b>>(raw: &'b RawValue) -> Option<T> {
    serde_json::from_str(raw.get()).ok()
}

/// [`check_report`], with the outputs taken apart.
///
/// # Errors
/// As of [`check_report`].
pub fn read_report(kind: ReportKind, body: &Json) -> Result<StepReport, RpcError> {
    check_report(kind, body)?.read()
}

/// Reads a report body of either door. Errors: `missing_execution_id`, or `invalid_report` with
/// every fault and its path (protocol section 4). An id that is no UUID is `unknown_execution`'s
/// case only when well-formed; ill-formed it is a fault.
pub fn check_report(kind: ReportKind, body: &Json) -> Result<StepReport<RawOutputs>, RpcError> {
    let raw: RawReport<'_> = serde_json::from_str(body.text()).map_err(|error| malformed(&error))?;
    let Some(execution_id) = raw.execution_id.filter(|id| id.get() != "\"\"") else {
        return Err(RpcError::new(
            ErrorCode::MissingExecutionId,
            "the report carries no executionId; send back the executionId of the task",
        ));
    };
    let mut check = Checker::default();
    let execution_id = read_id::<ExecutionId>(execution_id, "$.executionId", &mut check);
    let run_id = match raw.run_id {
        Some(id) => read_id::<RunId>(id, "$.runId", &mut check),
        None => None,
    };
    let body = match kind {
        ReportKind::Ack => {
            let (traceparent, tracestate) = raw.trace();
            let worker_id = text(raw.worker_id, "$.workerId", &mut check);
            Some(ReportBody::Ack(Ack { worker_id, traceparent, tracestate }))
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
    let Ok(raw) = serde_json::from_str::<RawReport<'_>>(reply.text()) else { return false };
    raw.status.is_some() || raw.outputs.is_some()
}

/// What a report is told whose outputs are none.
pub(super) fn no_outputs() -> RpcError {
    let mut check = Checker::default();
    check.fault("$.outputs", "wrong_type", NO_OUTPUTS);
    invalid(&check.faults)
}

const NO_OUTPUTS: &str = "must be an object keyed by output name";

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

fn read_id<T: std::str::FromStr>(raw: &RawValue, path: &str, check: &mut Checker) -> Option<T> {
    let id = read_as::<Cow<'_, str>>(raw).and_then(|text| text.parse().ok());
    if id.is_none() {
        check.fault(path, "invalid_id", "must be a UUID, as the task carried it");
    }
    id
}

fn text(raw: Option<&RawValue>, path: &str, check: &mut Checker) -> Option<String> {
    let text = read_as(raw?);
    if text.is_none() {
        check.fault(path, "wrong_type", "must be a string");
    }
    text
}

fn progress(raw: Option<&RawValue>, check: &mut Checker) -> Option<Json> {
    let raw = raw?;
    match read_as::<f64>(raw) {
        Some(value) if (0.0..=1.0).contains(&value) => Some(raw.to_owned().into()),
        _ => {
            check.fault("$.progress", "out_of_range", "must be a number from 0 to 1");
            None
        }
    }
}

fn outputs(raw: Option<&RawValue>, check: &mut Checker) -> RawOutputs {
    let Some(raw) = raw else { return RawOutputs::default() };
    RawOutputs::of(raw).unwrap_or_else(|| {
        check.fault("$.outputs", "wrong_type", NO_OUTPUTS);
        RawOutputs::default()
    })
}

fn read_partial(raw: &RawReport<'_>, check: &mut Checker) -> Option<Partial<RawOutputs>> {
    let sequence = raw.sequence.and_then(read_as::<u64>);
    if sequence.is_none() {
        check.fault("$.sequence", "missing", "must be a whole number that counts up from 0 or 1");
    }
    let outputs = outputs(raw.outputs, check);
    Some(Partial { sequence: sequence?, outputs })
}

fn read_result(raw: &RawReport<'_>, check: &mut Checker) -> Option<StepResult<RawOutputs>> {
    let error = raw.error.map(|error| read_error(error, check));
    let status = match raw.status.map(RawValue::get) {
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
    let outputs = outputs(raw.outputs, check);
    let (traceparent, tracestate) = raw.trace();
    Some(StepResult { status, outputs, error, traceparent, tracestate })
}

/// Plugins send errors as objects or as bare strings.
fn read_error(raw: &RawValue, check: &mut Checker) -> StepError {
    if let Some(message) = read_as::<String>(raw) {
        return StepError { message, ..StepError::default() };
    }
    #[derive(Deserialize)]
    struct Raw {
        code: Option<Value>,
        message: Option<Value>,
        retryable: Option<Value>,
        details: Option<Json>,
    }
    let Some(raw) = read_as::<Raw>(raw) else {
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

#[cfg(test)]
mod tests {
    use super::{super::StepReports, *};
    use crate::canonical;
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

    #[test]
    fn trace_context_is_taken_where_it_has_its_form_and_is_no_part_of_the_result() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let mut body = json!({"executionId": ID, "outputs": {"a": 1}});
        let context = |text: &str, state: Option<&str>| TraceContext::read(text, state).unwrap();
        let plain = read(ReportKind::Result, &body).unwrap();
        assert_eq!(plain.clone().within(Some(&context(trace, None))).traceparent(), Some(trace));
        body["traceparent"] = json!(trace);
        let traced = read(ReportKind::Result, &body).unwrap();
        let another = context(&trace.replace('4', "5"), Some("a=1"));
        assert_eq!(traced.clone().within(Some(&another)), traced, "what the body names counts");
        let digest = |report: StepReport| match report.body {
            ReportBody::Result(result) => result.digest(),
            _ => panic!(),
        };
        assert_eq!(digest(plain), digest(traced));
        for wrong in [json!("nonsense"), json!(5), json!(null), json!({})] {
            body["traceparent"] = wrong;
            assert_eq!(read(ReportKind::Result, &body).unwrap().traceparent(), None);
            assert_eq!(read(ReportKind::Ack, &body).unwrap().traceparent(), None);
        }
    }

    #[test]
    fn digest_is_that_of_the_canonical_object_whether_the_outputs_were_taken_apart_or_not() {
        for (outputs, canonical) in [
            ("{}", r#"{"status":"ok"}"#),
            ("{ }", r#"{"status":"ok"}"#),
            (
                r#"{ "b" : 1,"a":{"y":[ 1 ],"x":"\u0416"},"b":2}"#,
                r#"{"status":"ok","outputs":{"a":{"x":"Ж","y":[1]},"b":2}}"#,
            ),
            (r#"{"s": "\ud800"}"#, r#"{"status":"ok","outputs":{"s":"\ud800"}}"#),
        ] {
            let body = format!(r#"{{"executionId":"{ID}","outputs":{outputs}}}"#);
            let checked = check_report(ReportKind::Result, &Json::parse(body).unwrap()).unwrap();
            let report = checked.clone().read().unwrap();
            let (ReportBody::Result(raw), ReportBody::Result(read)) = (checked.body, report.body) else {
                panic!()
            };
            let digest = canonical::digest_json(&Json::parse(canonical).unwrap());
            assert_eq!((raw.digest(), read.digest()), (digest, digest), "{outputs}");
        }
    }

    #[test]
    fn digest_of_a_failure_counts_its_error() {
        let body = format!(r#"{{"executionId":"{ID}","error":{{"message":"no","code":"X","details":[1]}}}}"#);
        let ReportBody::Result(failed) =
            check_report(ReportKind::Result, &Json::parse(body).unwrap()).unwrap().body
        else {
            panic!()
        };
        let text = r#"{"status":"error","error":{"code":"X","message":"no","details":[1]}}"#;
        assert_eq!(failed.digest(), canonical::digest_json(&Json::parse(text).unwrap()));
    }

    #[test]
    fn outputs_with_a_name_that_is_no_text_are_a_fault() {
        let body = format!(r#"{{"executionId":"{ID}","outputs":{{"\ud800":1}}}}"#);
        let error = check_report(ReportKind::Result, &Json::parse(body).unwrap()).unwrap_err();
        assert_eq!(error.code, ErrorCode::InvalidReport);
    }

    #[test]
    fn checked_report_is_on_the_wire_what_a_read_one_is() {
        for outputs in ["{}", "{\"a\":1}"] {
            let body = format!(r#"{{"executionId":"{ID}","outputs":{outputs}}}"#);
            let checked = check_report(ReportKind::Result, &Json::parse(body).unwrap()).unwrap();
            let text = serde_json::to_string(&checked).unwrap();
            assert_eq!(text, serde_json::to_string(&checked.clone().read().unwrap()).unwrap());
            assert_eq!(serde_json::from_str::<StepReport<RawOutputs>>(&text).unwrap(), checked);
        }
    }

    #[test]
    fn trace_state_is_taken_beside_a_trace_context_only() {
        let trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let state = |body: &Value| match read(ReportKind::Result, body).unwrap().body {
            ReportBody::Result(result) => result.tracestate,
            _ => panic!(),
        };
        let mut body = json!({"executionId": ID, "traceparent": trace, "tracestate": "a=1, b=2"});
        assert_eq!(state(&body).as_deref(), Some("a=1,b=2"));
        for wrong in [json!("A=1"), json!(5), json!(null), json!(["a=1"])] {
            body["tracestate"] = wrong;
            assert_eq!(state(&body), None);
            assert_eq!(read(ReportKind::Result, &body).unwrap().traceparent(), Some(trace));
        }
        let lonely = json!({"executionId": ID, "traceparent": "nonsense", "tracestate": "a=1"});
        assert_eq!(state(&lonely), None);
    }
}
