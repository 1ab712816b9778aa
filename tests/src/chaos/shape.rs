//! The processes of the load, and what must come out of each.

use super::worker::{ADD, BROKEN, FLAKY, SUM};
use serde_json::{Value, json};

/// From ack to result. Much longer than the work, so that only what is lost exceeds it.
pub const STEP_TIMEOUT_MS: u64 = 8000;
/// Of the delay: longer than most parts are away.
const DELAY_MS: u64 = 1500;
/// Steps of the chain.
const CHAIN: i64 = 4;

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
}

impl Shape {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Chain,
        Self::Fan,
        Self::Switch,
        Self::Flaky,
        Self::Broken,
        Self::Executor,
        Self::Delay,
        Self::Loop,
    ];

    /// The document.
    pub fn document(self) -> Value {
        let mut document = Document::default();
        match self {
            Self::Chain => document.chain(),
            Self::Fan => document.fan(),
            Self::Switch => document.switch(),
            Self::Flaky => document.single(FLAKY),
            Self::Broken => document.single(BROKEN),
            Self::Executor => document.executor(),
            Self::Delay => document.delay(),
            Self::Loop => document.each(),
        }
        let name = format!("{self:?}");
        json!({"settings": {"name": name}, "widgets": document.widgets, "edges": document.edges})
    }

    /// What a run with this input is started with.
    pub fn payload(self, input: i64) -> Value {
        json!({"value": input, "arm": arm(input), "list": [input, input + 1, input + 2]})
    }

    /// `publicInputs` of a run with this input that finished; `None`: the run fails.
    pub fn result(self, input: i64) -> Option<Value> {
        match self {
            Self::Chain => Some(json!({"value": input + CHAIN})),
            Self::Fan => Some(json!({"value": 4 * (input + 1)})),
            Self::Switch => Some(json!({arm(input): input + 1})),
            Self::Flaky | Self::Delay => Some(json!({"value": input + 1})),
            Self::Loop => {
                let items = [1, 2, 3].map(|n| json!({"value": input + n}));
                Some(json!({"items": items}))
            }
            Self::Broken => None,
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

#[derive(Default)]
struct Document {
    widgets: Vec<Value>,
    edges: Vec<Value>,
}

impl Document {
    fn start(&mut self) {
        self.widgets.push(json!({
            "id": "start", "label": "Start", "source": {"nodeType": "system.trigger.input"},
            "config": [
                {"name": "value", "type": "number"}, {"name": "arm", "type": "string"},
                {"name": "list", "type": "keyvalue"},
            ],
            "outputs": ["value", "arm", "list"]
        }));
    }

    fn step(&mut self, id: &str, node_type: &str, ports: &[&str], repeats: bool) {
        let config: Vec<_> =
            ports.iter().map(|name| json!({"name": name, "type": "number", "isPort": true})).collect();
        let retry = json!({"maxAttempts": 100, "backoffMs": 50, "maxBackoffMs": 500});
        let mut execution = json!({"timeoutMs": STEP_TIMEOUT_MS});
        if repeats {
            execution["retry"] = retry;
        }
        self.widgets.push(json!({
            "id": id, "label": id, "source": {"nodeType": node_type}, "config": config,
            "outputs": ["value"], "execution": execution
        }));
    }

    fn end(&mut self, ports: &[&str]) {
        let config: Vec<_> =
            ports.iter().map(|name| json!({"name": name, "type": "number", "isPort": true})).collect();
        self.widgets.push(json!({
            "id": "end", "label": "End", "source": {"nodeType": "system.output"}, "config": config,
            "outputs": []
        }));
    }

    fn edge(&mut self, from: (&str, &str), to: (&str, &str)) {
        self.edges.push(json!({
            "id": format!("edge-{}", self.edges.len()),
            "source": from.0, "sourceHandle": from.1, "target": to.0, "targetHandle": to.1
        }));
    }

    fn single(&mut self, node_type: &str) {
        self.start();
        self.step("step", node_type, &["value"], true);
        self.end(&["value"]);
        self.edge(("start", "value"), ("step", "value"));
        self.edge(("step", "value"), ("end", "value"));
    }

    fn chain(&mut self) {
        self.start();
        let mut before = "start".to_owned();
        for step in 0..CHAIN {
            let id = format!("step-{step}");
            self.step(&id, ADD, &["value"], false);
            self.edge((&before, "value"), (&id, "value"));
            before = id;
        }
        self.end(&["value"]);
        self.edge((&before, "value"), ("end", "value"));
    }

    fn fan(&mut self) {
        self.start();
        self.step("join", SUM, &["a", "b", "c", "d"], true);
        for port in ["a", "b", "c", "d"] {
            let id = format!("step-{port}");
            self.step(&id, ADD, &["value"], true);
            self.edge(("start", "value"), (&id, "value"));
            self.edge((&id, "value"), ("join", port));
        }
        self.end(&["value"]);
        self.edge(("join", "value"), ("end", "value"));
    }

    fn switch(&mut self) {
        self.start();
        self.widgets.push(json!({
            "id": "switch", "label": "Switch", "source": {"nodeType": "system.control.switch"},
            "config": [{"name": "value", "type": "string", "isPort": true}], "outputs": ["left", "right"]
        }));
        self.edge(("start", "arm"), ("switch", "value"));
        for arm in ["left", "right"] {
            self.step(arm, ADD, &["value", "go"], true);
            self.edge(("start", "value"), (arm, "value"));
            self.edge(("switch", arm), (arm, "go"));
            self.edge((arm, "value"), ("end", arm));
        }
        self.end(&["left", "right"]);
    }

    fn delay(&mut self) {
        self.start();
        self.step("before", ADD, &["value"], true);
        self.widgets.push(json!({
            "id": "delay", "label": "Delay", "source": {"nodeType": "system.delay"},
            "config": [
                {"name": "milliseconds", "type": "number", "static": true, "value": DELAY_MS},
                {"name": "value", "type": "number", "isPort": true},
            ],
            "outputs": ["value"]
        }));
        self.end(&["value"]);
        self.edge(("start", "value"), ("before", "value"));
        self.edge(("before", "value"), ("delay", "value"));
        self.edge(("delay", "value"), ("end", "value"));
    }

    fn each(&mut self) {
        self.start();
        let mut body = Self::default();
        body.widgets.push(json!({
            "id": "item", "label": "Item", "source": {"nodeType": "system.trigger.input"},
            "config": [{"name": "item", "type": "number"}], "outputs": ["item"]
        }));
        body.step("step", ADD, &["value"], true);
        body.end(&["value"]);
        body.edge(("item", "item"), ("step", "value"));
        body.edge(("step", "value"), ("end", "value"));
        self.widgets.push(json!({
            "id": "each", "label": "Each", "source": {"nodeType": "system.loop"},
            "config": [
                {"name": "iterator", "type": "keyvalue", "isPort": true},
                {"name": "mode", "type": "string", "static": true, "value": "parallel"},
                {"name": "concurrency", "type": "number", "static": true, "value": 2},
                {"name": "body", "type": "keyvalue", "static": true,
                    "value": {"widgets": body.widgets, "edges": body.edges}},
            ],
            "outputs": ["items"]
        }));
        self.end(&["items"]);
        self.edge(("start", "list"), ("each", "iterator"));
        self.edge(("each", "items"), ("end", "items"));
    }

    fn executor(&mut self) {
        self.start();
        self.step("before", ADD, &["value"], true);
        self.widgets.push(json!({
            "id": "text", "label": "Text", "source": {"nodeType": "system.template"},
            "config": [
                {"name": "template", "type": "textarea", "static": true, "value": "<{{ value }}>"},
                {"name": "value", "type": "number", "isPort": true},
            ],
            "outputs": ["text"],
            "execution": {"timeoutMs": STEP_TIMEOUT_MS, "retry": {"maxAttempts": 100, "backoffMs": 50}}
        }));
        self.edge(("start", "value"), ("before", "value"));
        self.edge(("before", "value"), ("text", "value"));
        self.edge(("text", "text"), ("end", "text"));
        self.edge(("before", "value"), ("end", "value"));
        self.end(&["text", "value"]);
    }
}
