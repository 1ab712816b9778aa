//! `-i key=value`: the trigger's fields from the command line.

use contract::{
    Json, builtin,
    process::{Field, Process},
};
use indexmap::IndexMap;
use std::fs;

/// The largest file of an input, bytes.
const MAX_BYTES: u64 = 12 * 1024 * 1024;
/// Field types that take text as it is.
const TEXTUAL: [&str; 4] = ["string", "textarea", "select", "ref"];

/// The run's payload as JSON text.
///
/// # Errors
/// Everything that is wrong with the inputs, one per line.
pub(in crate::commands) fn payload(process: &Process, inputs: &[String]) -> Result<String, String> {
    let fields: Vec<&Field> = process
        .widgets
        .iter()
        .filter(|widget| widget.source.node_type == builtin::TRIGGER)
        .flat_map(|widget| &widget.config)
        .collect();
    let (mut payload, mut faults) = (IndexMap::new(), Vec::new());
    for input in inputs {
        match read(input, &fields) {
            Ok((key, _)) if payload.contains_key(key) => faults.push(format!("-i {key}: is given twice")),
            Ok((key, value)) => {
                payload.insert(key.to_owned(), value);
            }
            Err(fault) => faults.push(fault),
        }
    }
    if faults.is_empty() {
        serde_json::to_string(&payload).map_err(|error| error.to_string())
    } else {
        Err(faults.join("\n"))
    }
}

fn read<'i>(input: &'i str, fields: &[&Field]) -> Result<(&'i str, Json), String> {
    let (key, text) =
        input.split_once('=').ok_or_else(|| format!("-i {input}: write it as key=value or key=@file"))?;
    let Some(field) = fields.iter().find(|field| field.name == key) else {
        let names: Vec<_> = fields.iter().map(|field| field.name.as_str()).collect();
        let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        return Err(format!("-i {key}: the trigger has no such field; it has: {known}"));
    };
    let text = match text.strip_prefix('@') {
        Some(path) => file(path).map_err(|reason| format!("-i {key}=@{path}: {reason}"))?,
        None => text.to_owned(),
    };
    let as_text = |text: &str| Json::of(text).map_err(|error| format!("-i {key}: {error}"));
    let value = if TEXTUAL.contains(&field.kind.as_str()) {
        as_text(&text)?
    } else {
        Json::parse(text.trim()).or_else(|_| as_text(&text))?
    };
    Ok((key, value))
}

fn file(path: &str) -> Result<String, String> {
    let size = fs::metadata(path).map_err(|error| error.to_string())?.len();
    if size > MAX_BYTES {
        return Err(format!("has {size} bytes, the limit is {MAX_BYTES}"));
    }
    fs::read_to_string(path).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process() -> Process {
        let document = serde_json::json!({"widgets": [{"id": "t", "source": {"nodeType": "system.trigger.input"},
            "config": [{"name": "text", "type": "string"}, {"name": "count", "type": "number"}, {"name": "any", "type": "keyvalue"}]}]});
        serde_json::from_value(document).unwrap()
    }

    fn given(inputs: &[&str]) -> Result<String, String> {
        let inputs: Vec<_> = inputs.iter().map(|input| (*input).to_owned()).collect();
        payload(&process(), &inputs)
    }

    #[test]
    fn a_text_field_takes_text_and_any_other_takes_json() {
        let payload = given(&["text=123", "count=12345678901234567890123", "any={\"a\": 1}"]).unwrap();
        assert_eq!(payload, r#"{"text":"123","count":12345678901234567890123,"any":{"a": 1}}"#);
        assert_eq!(given(&["any=просто слова"]).unwrap(), r#"{"any":"просто слова"}"#);
        assert_eq!(given(&["text=a=b"]).unwrap(), r#"{"text":"a=b"}"#);
    }

    #[test]
    fn a_file_gives_its_text() {
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), "[1, 2]").unwrap();
        let path = file.path().display();
        assert_eq!(given(&[&format!("text=@{path}")]).unwrap(), r#"{"text":"[1, 2]"}"#);
        assert_eq!(given(&[&format!("any=@{path}")]).unwrap(), r#"{"any":[1, 2]}"#);
    }

    #[test]
    fn every_wrong_input_is_named() {
        let faults = given(&["text", "other=1", "count=1", "count=2", "text=@/no/such"]).unwrap_err();
        let named: Vec<_> = faults.lines().map(|line| line.split([':', '=']).next().unwrap()).collect();
        assert_eq!(named, ["-i text", "-i other", "-i count", "-i text"]);
        assert!(faults.contains("it has: text, count, any"), "{faults}");
    }
}
