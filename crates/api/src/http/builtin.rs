//! How the built-in nodes present themselves in the palette (protocol section 7).

use crate::http::plugins::palette::PaletteNode;
use contract::{
    builtin,
    param::{Param, ParamType},
};

/// Name, type, required.
type Port = (&'static str, ParamType, bool);

/// A built-in node as a table row. Inputs of nodes with free ports list the fixed ones.
struct Row {
    node_type: &'static str,
    name: &'static str,
    description: &'static str,
    section: &'static str,
    ports: &'static [Port],
    settings: &'static [Port],
    outputs: &'static [(&'static str, ParamType)],
}

use ParamType::{Boolean, Keyvalue, Number, Ref, Select, String, Textarea};

const ROWS: &[Row] = &[
    Row {
        node_type: builtin::TRIGGER,
        name: "Trigger input",
        description: "Starts a run: each field that you add is an input of the process and an output of this node.",
        section: "Start and end",
        ports: &[],
        settings: &[],
        outputs: &[("trigger", Keyvalue)],
    },
    Row {
        node_type: builtin::OUTPUT,
        name: "Output",
        description: "Collects its inputs: they are the result of the run.",
        section: "Start and end",
        ports: &[],
        settings: &[],
        outputs: &[],
    },
    Row {
        node_type: builtin::SWITCH,
        name: "Switch",
        description: "Opens the output whose name equals the value; an output named \"default\" takes the rest.",
        section: "Control",
        ports: &[("value", String, true)],
        settings: &[],
        outputs: &[],
    },
    Row {
        node_type: builtin::LOOP,
        name: "Loop",
        description: "Runs its body for each item, or until the body's output says continueLoop: false.",
        section: "Control",
        ports: &[],
        settings: &[
            ("iterator", Keyvalue, false),
            ("body", Keyvalue, true),
            ("mode", Select, false),
            ("concurrency", Number, false),
            ("maxIterations", Number, false),
        ],
        outputs: &[("items", Keyvalue), ("last", Keyvalue)],
    },
    Row {
        node_type: builtin::DELAY,
        name: "Delay",
        description: "Waits for a time and hands its value on.",
        section: "Control",
        ports: &[("value", Keyvalue, false)],
        settings: &[("milliseconds", Number, false), ("until", String, false)],
        outputs: &[("value", Keyvalue)],
    },
    Row {
        node_type: builtin::VALIDATION,
        name: "Confirmation",
        description: "Waits until a person agrees or refuses.",
        section: "Control",
        ports: &[("value", Keyvalue, false)],
        settings: &[],
        outputs: &[("confirm", Keyvalue), ("reject", Keyvalue)],
    },
    Row {
        node_type: builtin::EXTRACT,
        name: "Extract fields",
        description: "Takes values out of an object by paths such as a.b[0].c or [-1].x.",
        section: "Data",
        ports: &[("source", Keyvalue, true)],
        settings: &[("map", Keyvalue, true), ("defaults", Keyvalue, false)],
        outputs: &[],
    },
    Row {
        node_type: builtin::TEMPLATE,
        name: "Template",
        description: "Renders a text from its inputs: Hello {{ name }}.",
        section: "Data",
        ports: &[],
        settings: &[("template", Textarea, true)],
        outputs: &[("text", Textarea)],
    },
    Row {
        node_type: builtin::HTTP_REQUEST,
        name: "HTTP request",
        description: "Calls a URL and hands on its answer.",
        section: "Data",
        ports: &[
            ("url", String, true),
            ("method", Select, false),
            ("headers", Keyvalue, false),
            ("query", Keyvalue, false),
            ("body", Textarea, false),
        ],
        settings: &[
            ("bodyType", Select, false),
            ("bearerToken", Ref, false),
            ("username", String, false),
            ("password", Ref, false),
            ("timeoutMs", Number, false),
            ("followRedirects", Boolean, false),
            ("errorStatuses", String, false),
        ],
        outputs: &[
            ("status", Number),
            ("ok", Boolean),
            ("headers", Keyvalue),
            ("body", Textarea),
            ("json", Keyvalue),
            ("base64", Textarea),
            ("file", Keyvalue),
        ],
    },
];

/// The built-in nodes, in the order in which the palette shows them.
pub(crate) fn nodes() -> Vec<PaletteNode> {
    ROWS.iter().map(node).collect()
}

fn node(row: &Row) -> PaletteNode {
    let port = |(name, kind, required): &Port| Param {
        required: *required,
        can_be_port: Some(true),
        is_port: Some(true),
        ..named(name, *kind)
    };
    let setting = |(name, kind, required): &Port| Param {
        required: *required,
        is_static: Some(true),
        options: options(name),
        ..named(name, *kind)
    };
    PaletteNode {
        node_type: row.node_type.to_owned(),
        name: row.name.to_owned(),
        description: row.description.to_owned(),
        help: None,
        plugin: None,
        inputs: Some(row.ports.iter().map(port).chain(row.settings.iter().map(setting)).collect()),
        outputs: row.outputs.iter().map(|(name, kind)| named(name, *kind)).collect(),
        tags: Vec::new(),
        section_path: vec![row.section.to_owned()],
    }
}

/// The choices of a select.
fn options(name: &str) -> Option<serde_json::Value> {
    match name {
        "mode" => Some(serde_json::json!(["sequential", "parallel"])),
        "bodyType" => Some(serde_json::json!(["auto", "json", "form", "text", "base64"])),
        _ => None,
    }
}

fn named(name: &str, kind: ParamType) -> Param {
    Param { name: name.to_owned(), kind, label: name.to_owned(), ..Param::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_palette_shows_every_built_in_node() {
        let mut shown: Vec<_> = nodes().into_iter().map(|node| node.node_type).collect();
        let mut all: Vec<_> = builtin::ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
        shown.sort_unstable();
        all.sort_unstable();
        assert_eq!(shown, all);
    }
}
