//! The built-in node types (protocol section 7): exactly these names are reserved; every other
//! node type, also one that begins with `system.`, is looked up in the catalogue.

/// Who evaluates a built-in node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runner {
    /// Inside the engine, without a task.
    Engine,
    /// A task of the `executor` lane.
    Executor,
}

/// Every declared field produces an output at the start of a run.
pub const TRIGGER: &str = "system.trigger.input";
/// Collects the run's (or iteration's) result.
pub const OUTPUT: &str = "system.output";
/// Opens one arm.
pub const SWITCH: &str = "system.control.switch";
/// Runs a body of nodes several times.
pub const LOOP: &str = "system.loop";
/// Takes fields out of an object.
pub const EXTRACT: &str = "system.object.extract";
/// Waits for a person.
pub const VALIDATION: &str = "user.validation";
/// Calls a URL.
pub const HTTP_REQUEST: &str = "system.http.request";
/// Waits for a time.
pub const DELAY: &str = "system.delay";
/// Renders a text.
pub const TEMPLATE: &str = "system.template";

/// All built-in node types and who runs them.
pub const ALL: &[(&str, Runner)] = &[
    (TRIGGER, Runner::Engine),
    (OUTPUT, Runner::Engine),
    (SWITCH, Runner::Engine),
    (LOOP, Runner::Engine),
    (EXTRACT, Runner::Engine),
    (VALIDATION, Runner::Engine),
    (DELAY, Runner::Engine),
    (HTTP_REQUEST, Runner::Executor),
    (TEMPLATE, Runner::Executor),
];

/// Who runs the node type, if it is built in.
pub fn runner(node_type: &str) -> Option<Runner> {
    ALL.iter().find(|(name, _)| *name == node_type).map(|(_, runner)| *runner)
}

/// Is the name reserved?
pub fn is_builtin(node_type: &str) -> bool {
    runner(node_type).is_some()
}
