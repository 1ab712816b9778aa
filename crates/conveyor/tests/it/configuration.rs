//! Configuration: shown without secrets, refused with every fault.

use crate::command::conveyor;
use serde_json::json;

const KEY: (&str, &str) = ("PLUGIN_CONTROL_PLANE_KEY", "hunter2");

#[test]
fn effective_values_are_shown_with_origin_and_without_secrets() {
    let database = ("DATABASE_URL", "postgres://user:hunter3@host/name");
    let variables = [KEY, database, ("RUNTIME_CONTROL_PLANE_HTTP_PORT", "3999")];
    let said = conveyor(&["config", "runtime-control-plane"], &variables);
    assert_eq!(said.code, Some(0), "{}", said.err);
    let line = |name: &str| said.out.lines().find(|line| line.starts_with(&format!("{name} "))).unwrap();
    let words = |name: &str| line(name).split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(
        words("RUNTIME_CONTROL_PLANE_HTTP_PORT"),
        ["RUNTIME_CONTROL_PLANE_HTTP_PORT", "3999", "environment"]
    );
    assert_eq!(
        words("RUNTIME_CONTROL_PLANE_TCP_PORT"),
        ["RUNTIME_CONTROL_PLANE_TCP_PORT", "3001", "default"]
    );
    assert_eq!(words(KEY.0), [KEY.0, "<redacted>", "environment"]);
    let json = conveyor(&["config", "runtime-control-plane", "--json"], &variables);
    let entries = json.json()["variables"].as_array().unwrap().clone();
    let port = entries.iter().find(|entry| entry["name"] == "RUNTIME_CONTROL_PLANE_HTTP_PORT").unwrap();
    assert_eq!((&port["value"], &port["origin"]), (&json!("3999"), &json!("environment")));
    for text in [said.out, json.out] {
        assert!(!text.contains("hunter"), "{text}");
    }
}

#[test]
fn a_configuration_that_would_refuse_the_start_names_every_fault() {
    let said = conveyor(
        &["config", "plugin-manager"],
        &[("PLUGIN_MANAGER_TCP_PORT", "x"), ("PLUGIN_MANAGER_ALLOW_CIDRS", "")],
    );
    assert_eq!(said.code, Some(2));
    for name in
        ["PLUGIN_MANAGER_TCP_PORT=\"x\"", "PLUGIN_MANAGER_ALLOW_CIDRS", "PLUGIN_MANAGER_INGRESS_TOKEN"]
    {
        assert!(said.err.contains(name), "{}", said.err);
    }
}

#[test]
fn a_part_of_the_platform_does_not_start_on_what_only_one_process_sees() {
    let said = conveyor(&["serve", "runtime-control-plane"], &[KEY]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("runtime-control-plane") && said.err.contains("DATABASE_URL"), "{}", said.err);
    let said = conveyor(&["serve", "executor"], &[KEY]);
    assert!(said.code == Some(2) && said.err.contains("REDIS_URL"), "{}", said.err);
}

#[test]
fn a_start_with_a_missing_key_is_refused_by_name() {
    let said = conveyor(&["serve", "executor"], &[("REDIS_HOST", "127.0.0.1")]);
    assert_eq!(said.code, Some(2));
    assert!(said.err.contains("PLUGIN_CONTROL_PLANE_KEY: is not set"), "{}", said.err);
}

#[test]
fn log_variables_are_checked_too() {
    for variable in [("CONVEYOR_LOG_FORMAT", "xml"), ("CONVEYOR_LOG", "a=b=c")] {
        let said = conveyor(&["doctor"], &[variable]);
        assert!(said.code == Some(2) && said.err.contains(variable.0), "{}", said.err);
    }
}

#[test]
fn doctor_tells_what_cannot_be_reached() {
    let healthy = conveyor(&["doctor", "--json"], &[]);
    assert_eq!((healthy.code, &healthy.json()["ok"]), (Some(0), &json!(true)), "{}", healthy.out);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{free}");
    let said = conveyor(&["doctor", "--json"], &[("FILE_SERVICE_BASE_URL", &url)]);
    assert_eq!(said.code, Some(1));
    let findings = said.json()["findings"].as_array().unwrap().clone();
    let finding = findings.iter().find(|finding| finding["name"] == "file-service").unwrap();
    assert_eq!(finding["ok"], json!(false));
}

#[test]
fn the_configuration_page_holds_no_value_of_this_machine() {
    let said = conveyor(&["docs", "configuration"], &[KEY, ("API_HTTP_PORT", "12345")]);
    assert_eq!(said.code, Some(0));
    assert!(said.out.contains("| `API_HTTP_PORT` | port | `3000` |"), "{}", said.out);
    assert!(!said.out.contains("hunter2") && !said.out.contains("12345"));
}
