//! `conveyor process`: the processes of a running platform.

use crate::{
    command::{conveyor, document, example},
    started::Started,
};
use serde_json::json;

#[tokio::test(flavor = "multi_thread")]
async fn a_process_is_stored_listed_shown_and_run() {
    let platform = Started::new().await;
    assert!(platform.done(&["process", "list"]).contains("conveyor process import FILE"));
    let id = platform.import(&example("greeting.json"));
    let listed = platform.json(&["process", "list"]);
    assert_eq!(listed["processes"][0]["id"], id.as_str());
    let name = listed["processes"][0]["name"].as_str().unwrap().to_owned();
    let table = platform.done(&["process", "list"]);
    assert!(table.starts_with("ID ") && table.contains(&id) && table.contains(&name), "{table}");

    let shown = platform.done(&["process", "show", &name]);
    for part in [id.as_str(), "\ninputs (-i)\n", "  name: string, required", "system.trigger.input"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    assert_eq!(platform.json(&["process", "show", &id])["document"]["settings"]["name"], name.as_str());

    let started = platform.json(&["process", "run", &name, "-i", "name=Мир"]);
    assert_eq!(started["processId"], id.as_str());
    let said = platform.said(&["process", "run", &id, "-i", "name=Мир 🌍", "--watch"]);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let result: serde_json::Value = serde_json::from_str(&said.out).unwrap();
    assert!(result["greeting"].as_str().unwrap().contains("Мир 🌍"), "{result}");
    for line in ["▶ the run started (manual)", "✓ Приветствие", "■ the run finished"] {
        assert!(said.err.lines().any(|said| said.contains(line)), "{line}: {}", said.err);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_named_with_the_remedy() {
    let platform = Started::new().await;
    let (_document, path) = document(&json!({"widgets": [{"id": "a", "label": "Письмо"}]}));
    let invalid = platform.said(&["process", "import", &path]);
    assert_eq!((invalid.code, invalid.out.as_str()), (Some(2), ""));
    assert!(
        invalid.err.contains("$.widgets[0].source: ") && invalid.err.contains("Письмо"),
        "{}",
        invalid.err
    );
    let as_json = platform.said(&["process", "import", &path, "--json"]);
    assert_eq!((as_json.code, &as_json.json()["error"]["code"]), (Some(2), &json!("invalid_process")));

    for _ in 0..2 {
        platform.import(&example("greeting.json"));
    }
    let name = platform.json(&["process", "list"])["processes"][0]["name"].as_str().unwrap().to_owned();
    let several = platform.said(&["process", "show", &name]);
    assert_eq!(several.code, Some(2));
    assert!(several.err.contains("say which by its id"), "{}", several.err);
    let none = platform.said(&["process", "show", "nope"]);
    assert!(none.code == Some(1) && none.err.contains(&name), "{}", none.err);
    let id = platform.json(&["process", "list"])["processes"][0]["id"].as_str().unwrap().to_owned();
    let missing = platform.said(&["process", "run", &id]);
    assert!(missing.code == Some(2) && missing.err.contains("$.name: "), "{}", missing.err);
    let unknown = platform.said(&["process", "run", &id, "-i", "nane=x"]);
    assert!(unknown.code == Some(2) && unknown.err.contains("-i nane: "), "{}", unknown.err);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_token_comes_from_a_file_a_variable_or_a_data_folder() {
    let platform = Started::new().await;
    let list = ["process", "list", "--url", platform.url()];
    let refused = conveyor(&list, &[("CONVEYOR_API_TOKEN", "wrong")]);
    assert_eq!(refused.code, Some(1));
    for remedy in ["unauthorized", "credentials.json", "--token-file", "CONVEYOR_API_TOKEN"] {
        assert!(refused.err.contains(remedy), "{remedy}: {}", refused.err);
    }
    assert_eq!(conveyor(&list, &[]).code, Some(1), "without any token");
    let token = platform.token();
    assert_eq!(conveyor(&list, &[("CONVEYOR_API_TOKEN", &token)]).code, Some(0));
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), format!("{token}\n")).unwrap();
    let file = file.path().to_str().unwrap();
    assert_eq!(conveyor(&[&list[..], &["--token-file", file]].concat(), &[]).code, Some(0));
    let missing = conveyor(&[&list[..], &["--token-file", "/no/such"]].concat(), &[]);
    assert!(missing.code == Some(2) && missing.err.contains("/no/such"), "{}", missing.err);
}

#[test]
fn a_platform_that_does_not_run_is_named_with_the_way_to_one() {
    let away = conveyor(&["process", "list", "--url", "http://127.0.0.1:1"], &[]);
    assert_eq!(away.code, Some(1));
    for part in ["http://127.0.0.1:1", "conveyor up", "CONVEYOR_URL"] {
        assert!(away.err.contains(part), "{part}: {}", away.err);
    }
    let told = conveyor(&["runs", "list", "--url", "http://127.0.0.1:1", "--json"], &[]);
    assert_eq!((told.code, &told.json()["error"]["code"]), (Some(1), &json!("unavailable")));
    let wrong = conveyor(&["process", "list", "--url", "localhost:8080"], &[]);
    assert!(wrong.code == Some(2) && wrong.err.contains("localhost:8080"), "{}", wrong.err);
}
