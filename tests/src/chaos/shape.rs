//! The processes of the load, and what must come out of each.

use super::document::{CHAIN, Document};
use serde_json::{Value, json};

/// From ack to result. Much longer than the work, so that only what is lost exceeds it.
pub const STEP_TIMEOUT_MS: u64 = 8000;
/// The step that waits for a person.
pub const ASK: &str = "ask";
/// The step whose outputs a repeated run keeps.
pub const KEPT: &str = "kept";
/// The secret that a step gets.
pub const SECRET_NAME: &str = "chaos";
/// Its value.
pub const SECRET_VALUE: i64 = 1000;
/// The loop that its body decides about ends at a multiple of this.
pub const ENOUGH: i64 = 3;

/// A kind of process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// Steps in a row that are never repeated after an ack.
    Chain,
    /// Four steps side by side and one that joins them.
    Fan,
    /// One of two branches.
    Switch,
    /// A step whose first attempts fail.
    Flaky,
    /// A step that fails for good.
    Broken,
    /// A step of the plugin, then one of the platform's own executor.
    Executor,
    /// A step, then a delay that outlives whoever began it.
    Delay,
    /// A step for each item of a list, some side by side.
    Loop,
    /// A loop whose body decides whether it goes on.
    Poll,
    /// Such a loop for each item of a list, some side by side.
    Nested,
    /// A step that gets a secret.
    Secret,
    /// A step that waits for a person; sometimes two persons answer at once, and not the same.
    Approval,
    /// As [`Self::Delay`], and somebody cancels the run.
    Cancel,
    /// A step that fails in the first run and not in its repetition, which is asked for.
    Repeat,
    /// Started by a schedule, never by the load.
    Schedule,
}

impl Shape {
    /// Those that the load starts.
    pub const STARTED: [Self; 14] = [
        Self::Chain,
        Self::Fan,
        Self::Switch,
        Self::Flaky,
        Self::Broken,
        Self::Executor,
        Self::Delay,
        Self::Loop,
        Self::Poll,
        Self::Nested,
        Self::Secret,
        Self::Approval,
        Self::Cancel,
        Self::Repeat,
    ];

    /// The document.
    pub fn document(self) -> Value {
        Document::of(self)
    }

    /// What a run with this input is started with.
    pub fn payload(self, input: i64) -> Value {
        json!({"value": input, "arm": arm(input), "list": [input, input + 1, input + 2]})
    }

    /// `publicInputs` of a run with this input that finished; `None`: the run fails. `approved` is what
    /// the history says that a person said.
    pub fn result(self, input: i64, approved: Option<bool>) -> Option<Value> {
        let each = |result: &dyn Fn(i64) -> Value| {
            let items: Vec<_> = [0, 1, 2].map(|n| result(input + n)).into();
            Some(json!({"items": items}))
        };
        match self {
            Self::Chain => Some(json!({"value": input + CHAIN})),
            Self::Fan => Some(json!({"value": 4 * (input + 1)})),
            Self::Switch => Some(json!({arm(input): input + 1})),
            Self::Flaky | Self::Delay | Self::Cancel | Self::Schedule => Some(json!({"value": input + 1})),
            Self::Loop => each(&|item| json!({"value": item + 1})),
            Self::Poll => Some(json!({"items": counted(input)})),
            Self::Nested => each(&|item| json!({"counted": counted(item)})),
            Self::Secret => Some(json!({"value": input + SECRET_VALUE})),
            Self::Approval => {
                let branch = if approved == Some(true) { "approved" } else { "refused" };
                Some(json!({branch: input + 2}))
            }
            Self::Broken => None,
            Self::Repeat => Some(json!({"value": input + 2})),
            Self::Executor => Some(json!({"text": format!("<{}>", input + 1), "value": input + 1})),
        }
    }

    /// May a step be repeated after its ack was answered?
    pub fn repeats(self) -> bool {
        self != Self::Chain
    }
}

fn arm(input: i64) -> &'static str {
    if input % 2 == 0 { "left" } else { "right" }
}

/// What the iterations that count up from here give.
fn counted(from: i64) -> Vec<Value> {
    let last = (from / ENOUGH + 1) * ENOUGH;
    (from + 1..=last).map(|value| json!({"value": value, "continueLoop": value < last})).collect()
}
