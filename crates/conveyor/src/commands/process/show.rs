//! Processes, for people.

use super::Stored;
use crate::{
    commands::plugin::table::{Table, or_dash},
    document::printable,
    remote::moment,
};
use contract::{ProcessId, builtin, process::Field};
use serde::Deserialize;

/// A process of the list, as far as it is shown here.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Head {
    id: ProcessId,
    name: String,
    revision: i64,
    updated_at: String,
}

pub(super) fn list(heads: &[Head]) -> String {
    if heads.is_empty() {
        return "no processes; store one with `conveyor process import FILE`\n".to_owned();
    }
    let mut table = Table::new(&["ID", "REVISION", "CHANGED", "NAME"]);
    for head in heads {
        table.row([
            head.id.to_string(),
            head.revision.to_string(),
            moment(&head.updated_at),
            head.name.clone(),
        ]);
    }
    table.to_string()
}

pub(super) fn process(stored: &Stored) -> String {
    let settings = &stored.document.settings;
    let mut facts = Table::new(&["id", &stored.id.to_string()]);
    let triggers: Vec<_> = settings.triggers.iter().map(|trigger| trigger.kind.as_str()).collect();
    facts.row(["name".to_owned(), stored.name.clone()]);
    facts.row(["description".to_owned(), or_dash(Some(settings.description.clone()))]);
    facts.row(["revision".to_owned(), stored.revision.to_string()]);
    facts.row(["created".to_owned(), moment(&stored.created_at)]);
    facts.row(["changed".to_owned(), moment(&stored.updated_at)]);
    facts.row(["triggers".to_owned(), or_dash(Some(triggers.join(", ")))]);
    let mut shown = facts.to_string();
    let widgets = &stored.document.widgets;
    let fields = widgets.iter().filter(|w| w.source.node_type == builtin::TRIGGER).flat_map(|w| &w.config);
    let inputs: Vec<_> = fields.map(input).collect();
    if !inputs.is_empty() {
        shown.push_str(&format!("\ninputs (-i)\n{}\n", inputs.join("\n")));
    }
    let mut nodes = Table::new(&["NODE", "TYPE", "LABEL"]);
    for widget in widgets {
        nodes.row([widget.id.clone(), widget.source.node_type.clone(), widget.label.clone()]);
    }
    format!("{shown}\n{nodes}")
}

fn input(field: &Field) -> String {
    let kind = if field.kind.is_empty() { "any" } else { &field.kind };
    let default = field.effective().map(|value| format!(", default {}", value.text()));
    let required = if field.is_required == Some(true) && default.is_none() { ", required" } else { "" };
    printable(&format!("  {}: {kind}{required}{}", field.name, default.unwrap_or_default()))
}
