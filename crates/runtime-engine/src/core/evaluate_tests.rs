use super::*;
use serde_json::json;

fn arms<'a>(names: &'a [&'a str]) -> impl Iterator<Item = &'a str> {
    names.iter().copied()
}

fn opened(names: &[&str], value: Option<&str>) -> Vec<String> {
    let value = value.map(|text| Json::parse(text).unwrap());
    switch(arms(names), value.as_ref()).into_keys().collect()
}

#[test]
fn the_arm_named_as_the_values_text_gets_true() {
    assert_eq!(switch(arms(&["a", "b"]), Some(&Json::of("b").unwrap()))["b"].text(), "true");
    assert_eq!(opened(&["5", "true", "null"], Some("5")), ["5"]);
    assert_eq!(opened(&["5", "true", "null"], Some("true")), ["true"]);
    assert_eq!(opened(&["5", "true", "null"], Some("null")), ["null"]);
    assert_eq!(opened(&["да"], Some("\"\\u0434\\u0430\"")), ["да"]);
    assert_eq!(opened(&["12345678901234567890123"], Some("12345678901234567890123")).len(), 1);
}

#[test]
fn an_arm_named_default_catches_the_rest() {
    assert_eq!(opened(&["default", "a"], Some("\"a\"")), ["a"]);
    assert_eq!(opened(&["a", "default"], Some("\"x\"")), ["default"]);
    assert_eq!(opened(&["a", "default"], None), ["default"]);
    assert_eq!(opened(&["a"], Some("\"x\"")), Vec::<String>::new());
    assert_eq!(opened(&["a"], Some(r#""\ud800""#)), Vec::<String>::new());
}

fn extract(map: &Value, defaults: Option<Value>, source: &str) -> Result<Vec<(String, String)>, String> {
    let mut config = vec![json!({"name": "map", "value": map})];
    config.extend(defaults.map(|defaults| json!({"name": "defaults", "value": defaults})));
    let widget: Widget =
        Json::from(json!({"id": "e", "source": {"nodeType": "system.object.extract"}, "config": config}))
            .read()
            .unwrap();
    let outputs = Extract::compile(&widget)?.evaluate(Some(&Json::parse(source).unwrap()))?;
    Ok(outputs.into_iter().map(|(name, value)| (name, value.text().to_owned())).collect())
}

#[test]
fn paths_of_the_field_work_with_and_without_the_leading_dollar() {
    let source = r#"[{"n":1},{"n":{"deep":[1,2,{"x":"й"}]}}]"#;
    for path in ["[-1].n.deep[2].x", "$[-1].n.deep[2].x", "$[1]['n'].deep[-1].x"] {
        assert_eq!(
            extract(&json!({"o": path}), None, source).unwrap(),
            [("o".into(), "\"й\"".into())],
            "{path}"
        );
    }
}

#[test]
fn map_may_be_json_text_and_the_source_too() {
    let map = json!(r#"{"o": "a.b"}"#);
    assert_eq!(extract(&map, None, r#"{"a":{"b":7}}"#).unwrap()[0].1, "7");
    assert_eq!(extract(&map, None, r#""{\"a\":{\"b\":7}}""#).unwrap()[0].1, "7");
}

#[test]
fn values_pass_unchanged_and_null_is_a_value() {
    let source = r#"{"big":12345678901234567890123.10,"nil":null,"s":"😀"}"#;
    let found = extract(&json!({"a": "big", "b": "nil", "c": "s"}), None, source).unwrap();
    let expected = [("a", "12345678901234567890123.10"), ("b", "null"), ("c", "\"😀\"")];
    assert_eq!(found, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
}

#[test]
fn a_missing_path_gives_nothing_unless_defaults_names_a_value() {
    let found = extract(&json!({"a": "no", "b": "no"}), Some(json!({"b": [0]})), "{}").unwrap();
    assert_eq!(found, [("b".to_owned(), "[0]".to_owned())]);
    assert_eq!(extract(&json!({"a": "x"}), None, "5").unwrap(), []);
}

#[test]
fn a_path_that_can_lead_to_several_values_gives_their_array() {
    let source = r#"{"list":[{"x":1},{"x":2}],"one":[{"x":3}]}"#;
    assert_eq!(extract(&json!({"o": "list[*].x"}), None, source).unwrap()[0].1, "[1,2]");
    assert_eq!(extract(&json!({"o": "one[*].x"}), None, source).unwrap()[0].1, "[3]");
    assert_eq!(extract(&json!({"o": "$..x"}), None, source).unwrap()[0].1, "[1,2,3]");
    assert_eq!(extract(&json!({"o": "none[*]"}), None, source).unwrap(), []);
    assert!(!is_plural(r#"$['a*b']["c,d:e?"]['it\'s..']"#));
    assert!(is_plural(r"$['a\\'][*]"));
}

#[test]
fn malformed_maps_and_unreadable_sources_are_told_in_words() {
    assert!(extract(&json!([1]), None, "{}").unwrap_err().contains("map"));
    assert!(extract(&json!({"o": "a["}), None, "{}").unwrap_err().contains("a["));
    assert!(extract(&json!({"o": "a"}), None, r#"{"a":"\ud800"}"#).is_err());
}
