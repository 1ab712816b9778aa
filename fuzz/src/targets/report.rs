//! Bodies of reports, as both doors read them. The input is the JSON text.

use contract::{
    Json,
    report::{ReportBody, ReportKind, StepReport, read_report},
    trace,
};

const KINDS: [ReportKind; 4] =
    [ReportKind::Ack, ReportKind::Heartbeat, ReportKind::Partial, ReportKind::Result];

/// A report that is accepted survives the way to the engine, and its digest with it; a report that is
/// refused is refused with a code of the table, never as retryable.
pub(super) fn run(input: &[u8]) -> String {
    let Ok(text) = std::str::from_utf8(input) else { return "not UTF-8".to_owned() };
    let Ok(body) = Json::parse(text) else { return "not JSON".to_owned() };
    KINDS.map(|kind| read(kind, &body)).join("; ")
}

fn read(kind: ReportKind, body: &Json) -> String {
    let report = match read_report(kind, body) {
        Ok(report) => report,
        Err(error) => {
            assert!(!error.retryable, "a refusal of the form says that it may be tried again");
            assert!(
                matches!(error.code.as_str(), "invalid_report" | "missing_execution_id"),
                "{} is no refusal of the form",
                error.code.as_str()
            );
            let faults = error.details.map(|details| details.to_string()).unwrap_or_default();
            return format!("{} {}", error.code.as_str(), codes(&faults));
        }
    };
    let sent = Json::of(&report).unwrap_or_else(|error| panic!("an accepted report cannot be sent: {error}"));
    let again: StepReport = sent
        .read()
        .unwrap_or_else(|error| panic!("an accepted report cannot be read by the engine: {error}"));
    assert_eq!(report, again, "a report changes on the way to the engine");
    let trace = report.traceparent();
    assert_eq!(trace, trace.and_then(trace::traceparent), "a trace context of another form is carried on");
    match (&report.body, &again.body) {
        (ReportBody::Result(result), ReportBody::Result(again)) => {
            assert_eq!(result.digest(), again.digest(), "the digest changes on the way to the engine");
            format!("result {:?} {}", result.status, result.outputs.len().min(1))
        }
        _ => format!("{kind:?}"),
    }
}

/// The words of the faults' codes, without paths and messages.
fn codes(faults: &str) -> String {
    faults
        .split("\"code\":\"")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
        .take(8)
        .collect::<Vec<_>>()
        .join(" ")
}
