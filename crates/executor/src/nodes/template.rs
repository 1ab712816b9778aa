//! `system.template`: renders a text. Input `template` is Jinja, every other input is a variable of
//! its name; output `text`.

use contract::{ErrorCode, builtin};
use minijinja::{Environment, ErrorKind, UndefinedBehavior, Value, syntax::SyntaxConfig};
use plugin_sdk::{Context, Failure, Node, Param, RunnableNode, Values};
use serde::Serialize;
use serde_json::Number;
use std::io;

/// Fuel of the template engine, so that no template computes for ever or fills the memory: a step
/// costs one, and so do 64 bytes that are made or read.
const FUEL: u64 = 1_000_000;
/// Bytes of the rendered text.
const MAX_TEXT_BYTES: usize = 4 * 1024 * 1024;

#[derive(Serialize)]
struct Rendered {
    text: String,
}

pub(super) fn node() -> RunnableNode {
    // No input is declared: the set is open.
    Node::new(builtin::TEMPLATE, "Template").output(Param::textarea("text")).run(run)
}

async fn run(mut inputs: Values, _context: Context) -> Result<Rendered, Failure> {
    let template = inputs.shift_remove("template").filter(|template| !template.is_null());
    let template =
        template.ok_or_else(|| invalid("input `template` has no value; write the text to render"))?;
    let template: String = template.read().map_err(|_| invalid("input `template` must be a text"))?;
    let variables: Vec<(String, Value)> = inputs
        .into_iter()
        .map(|(name, json)| match json.value() {
            Ok(value) => Ok((name, variable(value))),
            Err(_) => Err(invalid(format!(
                "input `{name}` is nested too deeply, or holds text that is not Unicode"
            ))),
        })
        .collect::<Result<_, _>>()?;
    // Rendering computes without a pause.
    let text = tokio::task::spawn_blocking(move || render(&template, Value::from_pairs(variables))).await??;
    Ok(Rendered { text })
}

fn render(template: &str, variables: Value) -> Result<String, Failure> {
    let mut environment = Environment::new();
    environment.set_fuel(Some(FUEL));
    environment.set_syntax(syntax()?);
    environment.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    let mut text = Limited(Vec::new());
    let rendered = environment
        .template_from_named_str("template", template)
        .and_then(|template| template.render_captured_to(variables, &mut text).map(drop));
    rendered.map_err(|error| failure(&error))?;
    String::from_utf8(text.0).map_err(|_| invalid("the rendered text is not Unicode"))
}

/// The usual one, and a line's end at the end of the template is part of the text.
fn syntax() -> Result<SyntaxConfig, Failure> {
    Ok(SyntaxConfig::builder().keep_trailing_newline(true).build()?)
}

fn failure(error: &minijinja::Error) -> Failure {
    match error.kind() {
        ErrorKind::OutOfFuel => {
            invalid(format!("the template takes more than {FUEL} steps; make its loops or texts shorter"))
        }
        ErrorKind::WriteFailure => Failure::of(
            ErrorCode::PayloadTooLarge,
            format!("the rendered text is longer than {MAX_TEXT_BYTES} bytes; render less"),
        ),
        _ => invalid(format!("the template cannot be rendered: {error}")),
    }
}

fn invalid(message: impl Into<String>) -> Failure {
    Failure::of(ErrorCode::InvalidNodeInput, message)
}

/// Takes no more than the limit.
struct Limited(Vec<u8>);

impl io::Write for Limited {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_TEXT_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A JSON value as a variable. Numbers go by hand: with arbitrary precision serde would present
/// them as objects.
fn variable(value: serde_json::Value) -> Value {
    match value {
        serde_json::Value::Null => Value::from(()),
        serde_json::Value::Bool(flag) => Value::from(flag),
        serde_json::Value::Number(number) => self::number(&number),
        serde_json::Value::String(text) => Value::from(text),
        serde_json::Value::Array(items) => items.into_iter().map(variable).collect(),
        serde_json::Value::Object(fields) => {
            Value::from_pairs(fields.into_iter().map(|(name, value)| (name, variable(value))))
        }
    }
}

/// A number that no machine type holds exactly stays the text that it was.
fn number(number: &Number) -> Value {
    let text = number.to_string();
    if let Ok(whole) = text.parse::<i128>() {
        return Value::from(whole);
    }
    match text.parse::<f64>() {
        Ok(float) if float.is_finite() && text.len() <= 17 => Value::from(float),
        _ => Value::from(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use contract::Json;

    fn rendered(template: &str, variables: &str) -> Result<String, String> {
        let variables = variable(Json::parse(variables).unwrap().value().unwrap());
        render(template, variables).map_err(|failure| failure.to_string())
    }

    #[test]
    fn inputs_are_variables_of_the_template() {
        let text = rendered(
            "Привет, {{ user.name }}! {% for n in list %}{{ n }};{% endfor %}\n",
            r#"{"user":{"name":"Аня"},"list":[1,2.5,true]}"#,
        );
        assert_eq!(text.unwrap(), "Привет, Аня! 1;2.5;True;\n");
    }

    #[test]
    fn numbers_keep_every_digit() {
        let big = "123456789012345678901234567890123456789012345";
        let text = rendered(
            "{{ a }} {{ b }} {{ c + 1 }}",
            &format!(r#"{{"a":{big},"b":0.1234567890123456789,"c":9007199254740993}}"#),
        );
        assert_eq!(text.unwrap(), format!("{big} 0.1234567890123456789 9007199254740994"));
    }

    #[test]
    fn filters_are_there() {
        assert_eq!(
            rendered("{{ a|upper }} {{ b|tojson }} {{ c|default('-') }}", r#"{"a":"я","b":{"k":[1]}}"#)
                .unwrap(),
            r#"Я {"k": [1]} -"#
        );
    }

    #[test]
    fn a_missing_variable_and_a_fault_are_named_with_their_line() {
        assert!(rendered("a\n{{ missing }}", "{}").unwrap_err().contains("template:2"));
        assert!(rendered("{% if %}", "{}").unwrap_err().contains("template:1"));
    }

    #[test]
    fn a_text_that_doubles_itself_ends_before_it_fills_the_memory() {
        let doubling = format!("{{% set x = 'x' %}}{}{{{{ x|length }}}}", "{% set x = x ~ x %}".repeat(60));
        assert!(rendered(&doubling, "{}").unwrap_err().contains("steps"));
        assert!(rendered("{{ ('x' * 99999999)|length }}", "{}").unwrap_err().contains("steps"));
    }

    #[test]
    fn endless_work_and_endless_text_end() {
        let endless = "{% for a in range(9999) %}{% for b in range(9999) %}{% endfor %}{% endfor %}";
        assert!(rendered(endless, "{}").unwrap_err().contains("steps"));
        let long = "{% for a in range(9999) %}{{ 'xxxxxxxxxx' * 100 }}{% endfor %}";
        assert!(rendered(long, "{}").unwrap_err().contains("longer than"));
    }
}
