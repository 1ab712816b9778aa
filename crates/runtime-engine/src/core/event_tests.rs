use super::*;
use contract::report::StepError;
use uuid::Uuid;

fn outputs(text: &str) -> Outputs {
    [("o".to_owned(), Json::parse(text).unwrap())].into_iter().collect()
}

fn all() -> Vec<Event> {
    let node_path = || NodePath::root("w-1");
    let execution_id = ExecutionId(Uuid::from_u128(1));
    let digest = Digest([7; 32]);
    let error = StepError {
        message: "Плохо".into(),
        details: Some(Json::parse("[1.0]").unwrap()),
        ..StepError::default()
    };
    let payload = outputs(r#"{"n":12345678901234567890123.0,"s":"\ud800"}"#);
    let pin = Pin { publication_id: PublicationId(Uuid::from_u128(2)), outputs: vec!["o".into()] };
    vec![
        Event::RunStarted(Arc::new(RunStarted {
            process_id: ProcessId(Uuid::from_u128(3)),
            process_revision: 4,
            workspace_id: "w".into(),
            user_id: "u".into(),
            trigger: TriggerKind::Webhook,
            payload: payload.clone(),
            pins: [("plugin.x".to_owned(), pin)].into_iter().collect(),
            traceparent: Some("00-1-2-01".into()),
            tracestate: Some("a=2".into()),
            retry_of: Some(RunId(Uuid::from_u128(5))),
        })),
        Event::StepScheduled(StepScheduled {
            node_path: node_path(),
            execution_id,
            attempt: 2,
            not_before: Some(Millis(9)),
        }),
        Event::StepDelivered(StepDelivered { node_path: node_path(), execution_id, implicit: true }),
        Event::StepAcked(StepAcked {
            node_path: node_path(),
            execution_id,
            worker_id: Some("x".into()),
            traceparent: Some("00-1-3-01".into()),
            tracestate: Some("a=3".into()),
        }),
        Event::StepPartial(StepPartial {
            node_path: node_path(),
            execution_id,
            sequence: 3,
            outputs: payload.clone().into(),
        }),
        Event::StepFinished(StepFinished {
            node_path: node_path(),
            execution_id,
            digest,
            outputs: Arc::new(payload.clone().into()),
            traceparent: None,
            tracestate: None,
        }),
        Event::StepFailed(StepFailed {
            node_path: node_path(),
            execution_id: Some(execution_id),
            failure: Failure::TimedOut,
            error: error.clone(),
            will_retry: true,
            error_output: true,
            digest: Some(digest),
            traceparent: Some("00-1-3-01".into()),
            tracestate: Some("a=3".into()),
        }),
        Event::StepCanceled(StepCanceled { node_path: node_path(), execution_id }),
        Event::StepEvaluated(StepEvaluated {
            node_path: node_path(),
            outputs: Some(Arc::new(payload.into())),
        }),
        Event::StepEvaluated(StepEvaluated { node_path: node_path(), outputs: None }),
        Event::StepSkipped(StepSkipped { node_path: node_path() }),
        Event::StepKept(StepKept { node_path: node_path(), outputs: Arc::new(outputs("1.0").into()) }),
        Event::IterationKept(IterationKept {
            node_path: node_path(),
            index: 2,
            outputs: Arc::new(outputs("1.0")),
        }),
        Event::StepConfirmed(StepConfirmed {
            node_path: node_path(),
            execution_id,
            approved: false,
            comment: Some("Нет".into()),
            by: "u".into(),
        }),
        Event::StepElapsed(StepElapsed { node_path: node_path(), execution_id }),
        Event::LoopStarted(LoopStarted { node_path: node_path(), iterations: Some(3) }),
        Event::IterationStarted(Iteration { node_path: node_path(), index: 2 }),
        Event::IterationFinished(Iteration { node_path: node_path(), index: 2 }),
        Event::RunDeadlineSet(RunDeadlineSet { execution_id, at: Millis(9) }),
        Event::LateResult(LateResult {
            node_path: node_path(),
            execution_id,
            status: StepStatus::Error,
            outputs: StepOutputs::default(),
            error: Some(error.clone()),
            traceparent: None,
            tracestate: None,
        }),
        Event::RunFinished(RunFinished {}),
        Event::RunFailed(RunFailed { error: RunError { node_path: Some(node_path()), label: None, error } }),
        Event::RunCanceled(RunCanceled {}),
    ]
}

#[test]
fn every_event_survives_the_store_with_its_payloads_as_sent() {
    for event in all() {
        let body = event.body().unwrap();
        assert_eq!(Event::read(event.kind(), &body).unwrap(), event, "{}", event.kind());
    }
}

#[test]
fn stored_form_of_version_1_is_fixed() {
    let body = |event: &Event| event.body().unwrap().text().to_owned();
    let events = all();
    assert_eq!(
        body(&events[1]),
        r#"{"v":1,"data":{"nodePath":"w-1","executionId":"00000000-0000-0000-0000-000000000001","attempt":2,"notBefore":9}}"#
    );
    assert_eq!(body(&Event::RunFinished(RunFinished {})), r#"{"v":1,"data":{}}"#);
    assert!(body(&events[5]).ends_with(r#""outputs":{"o":{"n":12345678901234567890123.0,"s":"\ud800"}}}}"#));
}

#[test]
fn newer_versions_and_unknown_kinds_are_refused_by_name() {
    let newer = Json::parse(r#"{"v":2,"data":{}}"#).unwrap();
    assert!(matches!(Event::read("run_finished", &newer), Err(Unreadable::Newer { found: 2, .. })));
    let error = Event::read("step_dreamt", &newer).unwrap_err();
    assert!(error.to_string().contains("step_dreamt"));
    let broken = Json::parse(r#"{"v":1,"data":{"nodePath":5}}"#).unwrap();
    assert!(matches!(Event::read("step_skipped", &broken), Err(Unreadable::Malformed { .. })));
}

#[test]
fn fields_of_a_later_minor_change_are_ignored() {
    let body = Json::parse(r#"{"v":1,"data":{"nodePath":"w","why":"later"},"by":"x"}"#).unwrap();
    assert!(Event::read("step_skipped", &body).is_ok());
}
