//! The documents of the load's processes.

use super::{
    shape::{ASK, KEPT, SECRET_NAME, STEP_TIMEOUT_MS, Shape},
    worker::{ADD, BROKEN, FLAKY, MOODY, SECRET, SUM, UNTIL},
};
use serde_json::{Value, json};

/// Of the delay: longer than most parts are away.
const DELAY_MS: u64 = 1500;
/// Steps of the chain.
pub(super) const CHAIN: i64 = 4;
/// A cron expression with seconds.
const EVERY_TWO_SECONDS: &str = "*/2 * * * * *";

#[derive(Default)]
pub(super) struct Document {
    widgets: Vec<Value>,
    edges: Vec<Value>,
}

impl Document {
    /// The document of this shape.
    pub(super) fn of(shape: Shape) -> Value {
        let mut document = Self::default();
        match shape {
            Shape::Chain => document.chain(),
            Shape::Fan => document.fan(),
            Shape::Switch => document.switch(),
            Shape::Flaky => document.single(FLAKY),
            Shape::Broken => document.single(BROKEN),
            Shape::Executor => document.executor(),
            Shape::Delay | Shape::Cancel => document.delay(),
            Shape::Loop => document.each(),
            Shape::Poll => document.poll(),
            Shape::Nested => document.nested(),
            Shape::Secret => document.secret(),
            Shape::Approval => document.approval(),
            Shape::Repeat => document.repeat(),
            Shape::Schedule => document.single(ADD),
        }
        let mut settings = json!({"name": format!("{shape:?}")});
        if shape == Shape::Schedule {
            settings["triggers"] = json!([{"type": "schedule", "cron": EVERY_TWO_SECONDS}]);
        }
        json!({"settings": settings, "widgets": document.widgets, "edges": document.edges})
    }

    fn start(&mut self) {
        self.widgets.push(json!({
            "id": "start", "label": "Start", "source": {"nodeType": "system.trigger.input"},
            "config": [
                {"name": "value", "type": "number", "defaultValue": 0}, {"name": "arm", "type": "string"},
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
            "outputs": ["value", "more"], "execution": execution
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
        let mut body = Self::body("item");
        body.step("step", ADD, &["value"], true);
        body.end(&["value"]);
        body.edge(("item", "item"), ("step", "value"));
        body.edge(("step", "value"), ("end", "value"));
        self.over_list(&body);
    }

    /// The graph of an iteration that gets this input.
    fn body(input: &str) -> Self {
        let mut body = Self::default();
        body.widgets.push(json!({
            "id": input, "label": input, "source": {"nodeType": "system.trigger.input"},
            "config": [{"name": input, "type": "number"}], "outputs": [input]
        }));
        body
    }

    /// The body for each item of the list, two side by side.
    fn over_list(&mut self, body: &Self) {
        self.start();
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

    /// A loop whose body counts up until it says that it is enough.
    fn until(&mut self, from: (&str, &str)) {
        let mut body = Self::body("value");
        body.step("step", UNTIL, &["value"], true);
        body.end(&["value", "continueLoop"]);
        body.edge(("value", "value"), ("step", "value"));
        body.edge(("step", "value"), ("end", "value"));
        body.edge(("step", "more"), ("end", "continueLoop"));
        self.widgets.push(json!({
            "id": "until", "label": "Until", "source": {"nodeType": "system.loop"},
            "config": [
                {"name": "value", "type": "number", "isPort": true},
                {"name": "body", "type": "keyvalue", "static": true,
                    "value": {"widgets": body.widgets, "edges": body.edges}},
            ],
            "outputs": ["items", "last"]
        }));
        self.edge(from, ("until", "value"));
    }

    fn poll(&mut self) {
        self.start();
        self.until(("start", "value"));
        self.end(&["items"]);
        self.edge(("until", "items"), ("end", "items"));
    }

    fn nested(&mut self) {
        let mut body = Self::body("item");
        body.until(("item", "item"));
        body.end(&["counted"]);
        body.edge(("until", "items"), ("end", "counted"));
        self.over_list(&body);
    }

    fn secret(&mut self) {
        self.start();
        self.step("step", SECRET, &["value"], true);
        let config = self.widgets.last_mut().and_then(|step| step["config"].as_array_mut());
        config.into_iter().for_each(|config| {
            config.push(json!({"name": "secret", "type": "ref", "value": {"$secret": SECRET_NAME}}));
        });
        self.end(&["value"]);
        self.edge(("start", "value"), ("step", "value"));
        self.edge(("step", "value"), ("end", "value"));
    }

    /// A person decides which of two steps comes next.
    fn approval(&mut self) {
        self.start();
        self.step("before", ADD, &["value"], true);
        self.widgets.push(json!({
            "id": ASK, "label": "Ask", "source": {"nodeType": "user.validation"},
            "config": [{"name": "value", "type": "number", "isPort": true}],
            "outputs": ["confirm", "reject"]
        }));
        self.edge(("start", "value"), ("before", "value"));
        self.edge(("before", "value"), (ASK, "value"));
        for (output, id) in [("confirm", "approved"), ("reject", "refused")] {
            self.step(id, ADD, &["value", "go"], true);
            self.edge(("before", "value"), (id, "value"));
            self.edge((ASK, output), (id, "go"));
            self.edge((id, "value"), ("end", id));
        }
        self.end(&["approved", "refused"]);
    }

    /// A step that is kept, then one that fails in the first run.
    fn repeat(&mut self) {
        self.start();
        self.step(KEPT, ADD, &["value"], true);
        self.step("step", MOODY, &["value"], true);
        self.end(&["value"]);
        self.edge(("start", "value"), (KEPT, "value"));
        self.edge((KEPT, "value"), ("step", "value"));
        self.edge(("step", "value"), ("end", "value"));
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
