//! Paths of `system.object.extract`: RFC 9535, the leading `$` optional (protocol section 7).

use serde_json_path::{JsonPath, ParseError};

/// Reads `a.b[0].c[-1]`, `[-1].x` or `$.a`.
pub fn parse_path(text: &str) -> Result<JsonPath, ParseError> {
    let text = text.trim();
    match text.chars().next() {
        Some('$') => JsonPath::parse(text),
        Some('[') => JsonPath::parse(&format!("${text}")),
        None => JsonPath::parse("$"),
        Some(_) => JsonPath::parse(&format!("$.{text}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn paths_seen_in_the_field_work() {
        let value = json!([{"x": 1}, {"x": {"y": [1, 2, 3]}}]);
        let at = |path: &str| parse_path(path).unwrap().query(&value).first().cloned();
        assert_eq!(at("[-1].x.y[0]"), Some(json!(1)));
        assert_eq!(at("$[0].x"), Some(json!(1)));
        assert_eq!(at("[5]"), None);
        assert_eq!(
            parse_path("a.b[0].c[-1]").unwrap().query(&json!({"a": {"b": [{"c": [7]}]}})).first(),
            Some(&json!(7))
        );
        assert!(parse_path("a..[").is_err());
    }
}
