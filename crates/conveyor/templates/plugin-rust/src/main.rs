//! Nodes for Conveyor.

use plugin_sdk::{Context, Failure, Node, Param, Plugin};
use serde::{Deserialize, Serialize};
use std::process::ExitCode;

#[derive(Deserialize)]
struct Greet {
    name: String,
    #[serde(default = "once")]
    times: usize,
}

fn once() -> usize {
    1
}

#[derive(Debug, PartialEq, Serialize)]
struct Greeted {
    greeting: String,
}

/// Greets a person, as often as asked.
async fn greet(input: Greet, _context: Context) -> Result<Greeted, Failure> {
    greeting(&input)
}

fn greeting(input: &Greet) -> Result<Greeted, Failure> {
    if !(1..=10).contains(&input.times) {
        let message = format!("times is {}; give a number from 1 to 10", input.times);
        return Err(Failure::new(message).code("invalid_node_input").retryable(false));
    }
    Ok(Greeted { greeting: vec![format!("Hello, {}!", input.name); input.times].join(" ") })
}

#[tokio::main]
async fn main() -> ExitCode {
    Plugin::new("my-plugin", env!("CARGO_PKG_VERSION"))
        .label("My plugin")
        .node(
            Node::new("plugin.my-plugin.greet", "Greet")
                .description("Greets a person")
                .input(Param::string("name").label("Name").port().required().primary())
                .input(Param::number("times").label("Times").default(1).can_be_port())
                .output(Param::string("greeting").label("Greeting"))
                .run(greet),
        )
        .serve_from_env()
        .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn greets_as_often_as_asked() {
        let greeted = greeting(&Greet { name: "Ada".to_owned(), times: 2 });
        assert_eq!(greeted.ok(), Some(Greeted { greeting: "Hello, Ada! Hello, Ada!".to_owned() }));
    }

    #[test]
    fn says_that_the_number_is_wrong() {
        assert!(greeting(&Greet { name: "Ada".to_owned(), times: 0 }).is_err());
    }
}
