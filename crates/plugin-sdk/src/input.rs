//! From the values of a task to the input type of a node, and from its output type to values.

use crate::Failure;
use contract::{
    ErrorCode, Json,
    param::{Param, ParamType},
};
use indexmap::IndexMap;
use serde::{Serialize, de::DeserializeOwned};
use std::any::Any;
use wire::SecretJson;

/// Values by input or output name.
pub type Values = IndexMap<String, Json>;

/// Fills in defaults, checks required inputs, and reads texts of numbers, booleans and objects as
/// what the declaration says: editors and other nodes often send `"5"` for `5`. Without a
/// declaration (an open set) the values stay as they are.
///
/// # Errors
/// A failure that names every required input without a value.
pub(crate) fn prepare(declared: Option<&[Param]>, mut values: Values) -> Result<Values, Failure> {
    let mut missing = Vec::new();
    for param in declared.unwrap_or_default() {
        let value =
            values.get(&param.name).filter(|value| !value.is_null()).map(|value| coerced(param.kind, value));
        match value.flatten().or_else(|| param.default.as_ref().map(Json::from)) {
            Some(value) => {
                values.insert(param.name.clone(), value);
            }
            None if param.required => missing.push(format!("`{}`", param.name)),
            // Not a value of the param's type, such as an empty text for a number: as if not given.
            None => {
                values.shift_remove(&param.name);
            }
        }
    }
    match missing.is_empty() {
        true => Ok(values),
        false => Err(Failure::of(
            ErrorCode::InvalidNodeInput,
            format!(
                "required input without a value: {}; set it on the node or connect it",
                missing.join(", ")
            ),
        )),
    }
}

/// The value as the declared kind wants it; `None` for an empty text where no text is wanted.
fn coerced(kind: ParamType, value: &Json) -> Option<Json> {
    let wants_text = !matches!(kind, ParamType::Number | ParamType::Boolean | ParamType::Keyvalue);
    if wants_text {
        return Some(value.clone());
    }
    let text = match value.read::<String>() {
        Ok(text) => text,
        Err(_) => value.text().to_owned(),
    };
    let text = text.trim();
    if text.is_empty() {
        return None;
    }
    let read = match kind {
        ParamType::Boolean => match text.to_ascii_lowercase().as_str() {
            "true" | "1" => Some(Json::from(serde_json::Value::Bool(true))),
            "false" | "0" => Some(Json::from(serde_json::Value::Bool(false))),
            _ => None,
        },
        ParamType::Number if text.starts_with(|first: char| first == '-' || first.is_ascii_digit()) => {
            Json::parse(text).ok()
        }
        ParamType::Keyvalue if text.starts_with(['{', '[']) => Json::parse(text).ok(),
        _ => None,
    };
    // What is not understood reaches the input type, whose error names the field.
    read.or_else(|| Some(value.clone()))
}

/// Reads the values into the node's input type. A node that takes [`Values`] gets these themselves:
/// secrets among them stay in the texts that are wiped with them.
///
/// # Errors
/// A failure that names the field and what is wrong with it, never its value.
pub(crate) fn read<I: DeserializeOwned + 'static>(values: Values) -> Result<I, Failure> {
    let mut same = Some(values);
    if let Some(input) = (&mut same as &mut dyn Any).downcast_mut::<Option<I>>().and_then(Option::take) {
        return Ok(input);
    }
    let values = same.unwrap_or_default();
    let bytes: usize = values.iter().map(|(name, value)| name.len() * 2 + value.text().len() + 8).sum();
    let json = SecretJson::of(&values, bytes + 2)
        .map_err(|error| Failure::of(ErrorCode::InvalidNodeInput, error.to_string()))?;
    let mut reader = serde_json::Deserializer::from_str(json.text());
    serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        // The position is one in a text that nobody sees.
        let message = error.inner().to_string();
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        Failure::of(
            ErrorCode::InvalidNodeInput,
            match path.as_str() {
                "." => format!("the inputs do not fit: {message}"),
                path => format!("input `{path}` does not fit: {message}"),
            },
        )
    })
}

/// The values of the node's output type, which must serialise to an object (or to nothing).
///
/// # Errors
/// A failure when it is something else.
pub(crate) fn write<O: Serialize + ?Sized>(outputs: &O) -> Result<Values, Failure> {
    let json = Json::of(outputs)?;
    if json.is_null() {
        return Ok(Values::new());
    }
    json.read().map_err(|_| {
        Failure::of(
            ErrorCode::Internal,
            "the node's output is no object keyed by output name; it is a fault of the plugin",
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde::Deserialize;
    use serde_json::json;

    #[derive(Debug, Deserialize, PartialEq)]
    struct Input {
        count: u32,
        #[serde(default)]
        flag: bool,
        #[serde(default)]
        items: Vec<Item>,
    }

    #[derive(Debug, Deserialize, PartialEq)]
    struct Item {
        name: String,
    }

    fn declared() -> Vec<Param> {
        [
            crate::Param::number("count").required(),
            crate::Param::boolean("flag").default(true),
            crate::Param::keyvalue("items"),
        ]
        .map(crate::Param::into_declared)
        .into()
    }

    fn values(value: serde_json::Value) -> Values {
        Json::from(value).read().unwrap()
    }

    fn input(value: serde_json::Value) -> Result<Input, Failure> {
        read(prepare(Some(&declared()), values(value))?)
    }

    #[test]
    fn texts_are_read_as_the_declared_kind() {
        let read = input(json!({"count": " 5 ", "flag": "0", "items": "[{\"name\": \"a\"}]"})).unwrap();
        assert_eq!(read, Input { count: 5, flag: false, items: vec![Item { name: "a".into() }] });
    }

    #[test]
    fn null_and_absent_take_the_default() {
        assert!(input(json!({"count": 1, "flag": null})).unwrap().flag);
        assert!(input(json!({"count": 1})).unwrap().flag);
    }

    #[test]
    fn missing_required_input_is_named() {
        for absent in [json!({}), json!({"count": null}), json!({"count": ""})] {
            assert!(input(absent).unwrap_err().to_string().contains("`count`"));
        }
    }

    #[test]
    fn input_that_does_not_fit_names_the_field_and_not_its_place() {
        let message = input(json!({"count": 1, "items": [{"name": 7}]})).unwrap_err().to_string();
        assert!(message.starts_with("input `items[0].name` does not fit: invalid type"), "{message}");
        assert!(!message.contains("line"), "{message}");
        assert!(input(json!({"count": "many"})).unwrap_err().to_string().contains("input `count`"));
    }

    #[test]
    fn big_numbers_and_unknown_inputs_pass_untouched() {
        let values = values(json!({"count": 1}));
        let mut with_big = values;
        with_big.insert("big".into(), Json::parse("123456789012345678901234567890").unwrap());
        let prepared = prepare(Some(&declared()), with_big).unwrap();
        assert_eq!(prepared["big"].text(), "123456789012345678901234567890");
        assert_eq!(write(&prepared).unwrap()["big"].text(), "123456789012345678901234567890");
    }

    #[test]
    fn raw_values_can_be_fields_and_whole_inputs() {
        #[derive(Deserialize)]
        struct Raw {
            value: Option<Json>,
        }
        let given = values(json!({"value": {"a": [1, "x"]}}));
        assert_eq!(read::<Raw>(given.clone()).unwrap().value.unwrap().text(), given["value"].text());
        let place = given["value"].text().as_ptr();
        let same = read::<Values>(given).unwrap();
        assert_eq!(same["value"].text().as_ptr(), place, "values are not copied");
    }

    #[test]
    fn outputs_are_an_object_or_nothing() {
        assert!(write(&()).unwrap().is_empty());
        assert!(write(&5).is_err());
    }
}
