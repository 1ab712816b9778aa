//! `conveyor run`: exit codes, result, progress, faults.

use crate::command::{conveyor, document, example};
use serde_json::{Value, json};

/// No time is asserted: this only bounds a test that hangs.
const LIMIT: std::time::Duration = std::time::Duration::from_secs(60);

/// A trigger, one template and an output.
fn template(text: &str) -> Value {
    json!({
        "settings": {"name": "Шаблон"},
        "widgets": [
            {"id": "w-in", "label": "Вход", "source": {"nodeType": "system.trigger.input"},
             "config": [{"name": "any", "type": "keyvalue", "defaultValue": null}, {"name": "text", "type": "string"}]},
            {"id": "w-text", "label": "Текст письма", "source": {"nodeType": "system.template"},
             "config": [{"name": "template", "type": "textarea", "static": true, "value": text}, {"name": "any", "type": "keyvalue"}], "outputs": ["text"]},
            {"id": "w-out", "label": "Итог", "source": {"nodeType": "system.output"},
             "config": [{"name": "letter"}, {"name": "any"}, {"name": "text"}]},
        ],
        "edges": [
            {"source": "w-in", "sourceHandle": "any", "target": "w-text", "targetHandle": "any"},
            {"source": "w-text", "sourceHandle": "text", "target": "w-out", "targetHandle": "letter"},
            {"source": "w-in", "sourceHandle": "any", "target": "w-out", "targetHandle": "any"},
            {"source": "w-in", "sourceHandle": "text", "target": "w-out", "targetHandle": "text"},
        ],
    })
}

#[test]
fn a_run_that_finishes_prints_its_result_and_its_progress() {
    let said = conveyor(&["run", &example("greeting.json"), "-i", "name=Мир 🌍"], &[]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let result: Value = serde_json::from_str(&said.out).unwrap();
    assert_eq!(
        result,
        json!({"greeting": "Здравствуйте, Мир 🌍! Ваш заказ: булка 🥐 и чай ☕.", "visits": 1})
    );
    for line in ["✓ Вход", "✓ Первое и последнее", "✓ Приветствие", "✓ Результат"]
    {
        assert!(said.err.lines().any(|said| said.starts_with(line)), "{line}: {}", said.err);
    }
    assert!(!said.err.contains('\u{1b}'), "plain lines where there is no terminal");
}

#[test]
fn values_pass_through_unchanged_from_the_command_line_and_from_files() {
    let (_document, path) = document(&template("{{ any.n }}"));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "{\"n\": 12345678901234567890.10,\n \"s\": \"\u{1f642}\"}").unwrap();
    let any = format!("any=@{}", file.path().display());
    let said = conveyor(&["run", &path, "-i", &any, "-i", "text=007", "--json"], &[]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert_eq!(said.out.lines().count(), 1, "{}", said.out);
    assert!(said.out.contains("12345678901234567890.10"), "{}", said.out);
    let told = said.json();
    assert_eq!((&told["status"], &told["publicInputs"]["text"]), (&json!("finished"), &json!("007")));
    assert!(told["runId"].is_string() && told.get("error").is_none());
}

#[test]
fn a_run_that_fails_is_exit_code_1_and_names_node_and_reason() {
    let (_document, path) = document(&template("{{ any"));
    let said = conveyor(&["run", &path], &[]);
    assert_eq!((said.code, said.out.as_str()), (Some(1), ""), "{}", said.err);
    let last = said.err.lines().last().unwrap();
    assert!(
        last.contains("the run failed at \"Текст письма\" (w-text): ") && last.contains("invalid_node_input"),
        "{last}"
    );
    let said = conveyor(&["run", &path, "--json"], &[]);
    assert_eq!(said.code, Some(1));
    let told = said.json();
    assert_eq!((&told["status"], &told["error"]["nodePath"]), (&json!("failed"), &json!("w-text")));
}

#[test]
fn an_invalid_document_is_exit_code_2_with_the_path_of_every_fault() {
    let broken = json!({"widgets": [
        {"id": "a", "source": {"nodeType": "plugin.nobody.has"}},
        {"id": "a", "source": {"nodeType": "system.output"}, "config": [{"name": "x", "isRequired": true}]},
        {"id": "b"},
    ], "edges": [{"source": "a", "sourceHandle": "o", "target": "nobody", "targetHandle": "x"}]});
    let (_document, path) = document(&broken);
    let said = conveyor(&["run", &path], &[]);
    assert_eq!((said.code, said.out.as_str()), (Some(2), ""));
    let paths = [
        "$.widgets[0].source.nodeType: ",
        "$.widgets[1].id: ",
        "$.widgets[2].source: ",
        "$.edges[0].target: ",
    ];
    for path in paths {
        assert!(said.err.lines().any(|line| line.trim_start().starts_with(path)), "{path}: {}", said.err);
    }
    let said = conveyor(&["run", &path, "--json"], &[]);
    assert_eq!(said.code, Some(2));
    let faults = said.json()["faults"].as_array().unwrap().clone();
    for path in paths.map(|path| path.trim_end_matches(": ")) {
        assert!(faults.iter().any(|fault| fault["path"] == path), "{path}: {faults:?}");
    }
}

#[test]
fn missing_and_unknown_inputs_are_exit_code_2() {
    let missing = conveyor(&["run", &example("greeting.json")], &[]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.err.contains("$.name: "), "{}", missing.err);
    let unknown = conveyor(&["run", &example("greeting.json"), "-i", "nane=x", "-i", "name"], &[]);
    assert_eq!(unknown.code, Some(2));
    assert!(unknown.err.contains("-i nane: ") && unknown.err.contains("-i name: "), "{}", unknown.err);
}

#[test]
fn files_that_are_no_documents_are_exit_code_2() {
    let (_file, path) = document(&json!(5));
    for path in ["/no/such/file.json", &path] {
        let said = conveyor(&["run", path], &[]);
        assert!(said.code == Some(2) && said.err.contains(path), "{}", said.err);
    }
}

#[test]
fn one_diagram_of_several_is_chosen_by_name() {
    let mut second = template("второй");
    second["settings"]["name"] = json!("Второй");
    let (_document, path) = document(&json!({"diagrams": [template("первый"), second]}));
    let said = conveyor(&["run", &path], &[]);
    assert!(said.code == Some(2) && said.err.contains("\"Шаблон\", \"Второй\""), "{}", said.err);
    let said = conveyor(&["run", &path, "--diagram", "Второй", "--json"], &[]);
    assert_eq!(said.json()["publicInputs"]["letter"], "второй", "{}", said.err);
}

#[test]
fn a_run_does_not_touch_the_deployment_that_the_environment_names() {
    let away = [
        ("DATABASE_URL", "postgres://127.0.0.1:1/x"),
        ("REDIS_URL", "redis://127.0.0.1:1"),
        ("API_HTTP_PORT", "1"),
    ];
    let said = conveyor(&["run", &example("greeting.json"), "-i", "name=x"], &away);
    assert_eq!(said.code, Some(0), "{}", said.err);
}

#[test]
fn a_data_folder_keeps_the_run_for_its_owner_only() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let said =
        conveyor(&["run", &example("greeting.json"), "-i", "name=x", "--data", data.to_str().unwrap()], &[]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    assert!(data.join("conveyor.db").exists());
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(std::fs::metadata(&data).unwrap().permissions().mode() & 0o777, 0o700);
    }
}

#[test]
fn a_document_is_checked_without_being_run() {
    let said = conveyor(&["process", "validate", &example("greeting.json")], &[]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let said = conveyor(&["process", "validate", &example("demo.json"), "--json"], &[]);
    assert_eq!((said.code, &said.json()["faults"][0]["code"]), (Some(2), &json!("unknown_node_type")));
    let trigger = json!({"type": "schedule", "cron": "0 0 30 2 *", "timeZone": "Mars"});
    let (_document, path) =
        document(&json!({"settings": {"triggers": [trigger]}, "widgets": [], "edges": []}));
    let said = conveyor(&["process", "validate", &path, "--json"], &[]);
    let fault = &said.json()["faults"][0];
    assert_eq!((said.code, &fault["path"]), (Some(2), &json!("$.settings.triggers[0].timeZone")));
}

#[tokio::test]
async fn an_interrupted_run_is_canceled() {
    // A server that takes the request and never answers.
    let server = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", server.local_addr().unwrap());
    let waiting = json!({"widgets": [
        {"id": "h", "label": "Запрос", "source": {"nodeType": "system.http.request"}, "config": [{"name": "url", "type": "string", "value": url}], "outputs": ["status"]},
        {"id": "o", "source": {"nodeType": "system.output"}, "config": [{"name": "status"}]},
    ], "edges": [{"source": "h", "sourceHandle": "status", "target": "o", "targetHandle": "status"}]});
    let (_document, path) = document(&waiting);
    let process = testkit::Program::new(crate::command::BINARY)
        .without_env(&crate::command::CONFIGURED)
        .env("EXECUTOR_HTTP_ALLOW_PRIVATE", "true")
        .args(["run", &path])
        .spawn()
        .unwrap();
    let _request = tokio::select! {
        request = server.accept() => request.unwrap(),
        _ = process.wait(LIMIT) => panic!("{}", process.text(testkit::Stream::Stderr)),
    };
    process.signal(testkit::Signal::INT);
    let status = process.wait(LIMIT).await.unwrap();
    let said = process.text(testkit::Stream::Stderr);
    assert_eq!(status.code(), Some(1), "{said}");
    assert!(said.contains("interrupted; the run was canceled"), "{said}");
}
