//! `/flow`: process documents.

use crate::{
    app::App,
    http::{
        extract::{Asked, Caller, OfProcess, Payload},
        problem::{Answer, ErrorBody, Problem, json},
        views::{Imported, ProcessFull, ProcessHead, ProcessImported, ProcessPage, ProcessSaved},
    },
};
use axum::{
    extract::State,
    http::{HeaderMap, StatusCode, header},
    response::Response,
};
use contract::{
    ErrorCode, Fault, Json, ProcessId, RpcError, Warning,
    process::{NodeType, Strictness, Validated, import, validate},
};
use serde::Deserialize;
use serde_json::Value;
use std::{collections::BTreeMap, sync::Arc};
use storage::{
    processes::{ProcessDraft, ProcessRow, StoredProcess},
    users::Principal,
};
use utoipa::IntoParams;
use uuid::Uuid;

/// The most diagrams of one imported preset.
const MAX_DIAGRAMS: usize = 200;
/// Rows of a page when the caller does not say, and at most.
const PAGE: (u32, u32) = (50, 200);
/// The name of a process whose document has none.
const UNNAMED: &str = "Untitled process";

#[derive(Debug, Deserialize, IntoParams)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Page {
    /// `nextCursor` of the page before.
    cursor: Option<String>,
    /// Rows, 1 to 200.
    limit: Option<u32>,
}

/// The workspace's processes, oldest first.
#[utoipa::path(get, path = "/flow", tag = "processes", params(Page),
    responses((status = 200, body = ProcessPage), (status = "4XX", body = ErrorBody)))]
pub(crate) async fn list(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Asked(page): Asked<Page>,
) -> Answer<Response> {
    let limit = page.limit.unwrap_or(PAGE.0).clamp(1, PAGE.1);
    let after = page.cursor.map(|cursor| cursor.parse::<ProcessId>()).transpose().map_err(|_| {
        Problem::new(ErrorCode::InvalidRequest, "cursor is not the nextCursor of a page before")
    })?;
    // One more than asked for tells whether there is a next page.
    let mut rows = app.storage.processes().list(&caller.workspace_id, after, limit + 1).await?;
    let more = rows.len() > limit as usize;
    rows.truncate(limit as usize);
    let next_cursor = rows.last().filter(|_| more).map(|row| row.process_id.to_string());
    let processes = rows.into_iter().map(ProcessHead::from).collect();
    Ok(json(StatusCode::OK, &ProcessPage { processes, next_cursor }))
}

/// Stores a new process.
///
/// The document is a diagram `{settings, widgets, edges}` or a bare `{widgets, edges}`. Faults refuse
/// it, all of them at once; what can still be added later (a plugin, a secret) is a warning.
#[utoipa::path(post, path = "/flow", tag = "processes", request_body = Object,
    responses((status = 201, body = ProcessSaved), (status = 400, body = ErrorBody, description = "`invalid_process`")))]
pub(crate) async fn create(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    payload: Payload,
) -> Answer<Response> {
    let checked = one(check(&app, &caller, &payload, UNNAMED).await?)?;
    let id = ProcessId(Uuid::now_v7());
    let at = app.storage.now().await?;
    app.storage.processes().create(id, &caller.workspace_id, &checked.draft, at).await?;
    tracing::info!(event = "process_created", process_id = %id, workspace_id = caller.workspace_id, "process stored");
    Ok(json(StatusCode::CREATED, &ProcessSaved { id, revision: 1, warnings: checked.warnings }))
}

#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct ImportName {
    /// The name of what the document leaves without one.
    name: Option<String>,
}

/// Imports a preset `{diagrams: [...]}`, a diagram or a bare `{widgets, edges}`.
///
/// Either everything is valid and stored, or nothing is.
#[utoipa::path(post, path = "/flow/import", tag = "processes", params(ImportName), request_body = Object,
    responses((status = 201, body = Imported), (status = 400, body = ErrorBody, description = "`invalid_process`")))]
pub(crate) async fn import_document(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    Asked(query): Asked<ImportName>,
    payload: Payload,
) -> Answer<Response> {
    let name = query.name.filter(|name| !name.trim().is_empty());
    let checked = check(&app, &caller, &payload, name.as_deref().unwrap_or(UNNAMED)).await?;
    let at = app.storage.now().await?;
    let mut imported = Imported { processes: Vec::new(), warnings: Vec::new() };
    for Checked { draft, warnings } in checked {
        let id = ProcessId(Uuid::now_v7());
        app.storage.processes().create(id, &caller.workspace_id, &draft, at).await?;
        tracing::info!(event = "process_imported", process_id = %id, workspace_id = caller.workspace_id, "process stored");
        imported.processes.push(ProcessImported { id, name: draft.name });
        imported.warnings.extend(warnings);
    }
    Ok(json(StatusCode::CREATED, &imported))
}

/// One process with its document.
#[utoipa::path(get, path = "/flow/{id}", tag = "processes", params(("id" = String, Path)),
    responses((status = 200, body = ProcessFull), (status = 404, body = ErrorBody)))]
pub(crate) async fn get(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    OfProcess(id): OfProcess,
) -> Answer<Response> {
    let stored = owned(&app, &caller, id).await?;
    let etag = format!("\"{}\"", stored.process.revision);
    let mut response = json(StatusCode::OK, &ProcessFull::from(stored));
    if let Ok(value) = etag.parse() {
        response.headers_mut().insert(header::ETAG, value);
    }
    Ok(response)
}

/// Stores a new revision of a process; runs that are under way keep theirs.
///
/// With `If-Match: "<revision>"` a process that was changed meanwhile is not overwritten (`conflict`).
#[utoipa::path(put, path = "/flow/{id}", tag = "processes", params(("id" = String, Path)), request_body = Object,
    responses((status = 200, body = ProcessSaved), (status = 400, body = ErrorBody, description = "`invalid_process`"),
        (status = 404, body = ErrorBody), (status = 409, body = ErrorBody)))]
pub(crate) async fn replace(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    OfProcess(id): OfProcess,
    headers: HeaderMap,
    payload: Payload,
) -> Answer<Response> {
    let stored = owned_head(&app, &caller, id).await?;
    if let Some(wanted) = headers.get(header::IF_MATCH)
        && wanted.as_bytes() != format!("\"{}\"", stored.revision).as_bytes()
    {
        return Err(Problem::new(
            ErrorCode::Conflict,
            format!("process {id} is at revision {}; read it again and repeat the change", stored.revision),
        ));
    }
    let checked = one(check(&app, &caller, &payload, &stored.name).await?)?;
    let at = app.storage.now().await?;
    let revision = app.storage.processes().update(id, &checked.draft, at).await?;
    let revision = revision.ok_or_else(|| Problem::not_found("process", id))?;
    tracing::info!(event = "process_changed", process_id = %id, revision, "process stored");
    Ok(json(StatusCode::OK, &ProcessSaved { id, revision, warnings: checked.warnings }))
}

/// Deletes a process; its runs stay readable.
#[utoipa::path(delete, path = "/flow/{id}", tag = "processes", params(("id" = String, Path)),
    responses((status = 204), (status = 404, body = ErrorBody)))]
pub(crate) async fn delete(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    OfProcess(id): OfProcess,
) -> Answer<StatusCode> {
    owned_head(&app, &caller, id).await?;
    let at = app.storage.now().await?;
    if app.storage.processes().delete(id, at).await? {
        tracing::info!(event = "process_deleted", process_id = %id, "process deleted");
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::not_found("process", id))
}

/// The process, when it is the caller's workspace's.
async fn owned(app: &App, caller: &Principal, id: ProcessId) -> Answer<StoredProcess> {
    let stored = app.storage.processes().get(id).await?;
    stored
        .filter(|stored| stored.process.workspace_id == caller.workspace_id)
        .ok_or_else(|| Problem::not_found("process", id))
}

/// The process's head, when it is the caller's workspace's.
pub(crate) async fn owned_head(app: &App, caller: &Principal, id: ProcessId) -> Answer<ProcessRow> {
    let head = app.storage.processes().head(id).await?;
    head.filter(|head| head.workspace_id == caller.workspace_id)
        .ok_or_else(|| Problem::not_found("process", id))
}

/// A document that may be stored.
#[derive(Debug)]
struct Checked {
    draft: ProcessDraft,
    warnings: Vec<Warning>,
}

/// Splits and validates a document against the catalogue.
async fn check(app: &App, caller: &Principal, payload: &Payload, name: &str) -> Answer<Vec<Checked>> {
    let document: Value = payload.read()?;
    let (node_types, away) = match app.catalogue.node_types(caller).await {
        Ok(node_types) => (node_types, None),
        // A document can be saved while plugin-manager is away; only less can be checked.
        Err(error) => (BTreeMap::new(), Some(catalogue_away(&error))),
    };
    let mut checked = check_document(&document, name, &node_types)
        .map_err(|faults| Problem(RpcError::of_faults(ErrorCode::InvalidProcess, "the process", &faults)))?;
    if let (Some(first), Some(warning)) = (checked.first_mut(), away) {
        first.warnings.insert(0, warning);
    }
    Ok(checked)
}

fn catalogue_away(error: &RpcError) -> Warning {
    tracing::warn!(event = "catalogue_away", "documents are saved without the catalogue: {error}");
    Fault {
        path: "$".to_owned(),
        code: "catalogue_unavailable".to_owned(),
        message: "the plugin catalogue cannot be reached, so plugin nodes were not checked; save again later"
            .to_owned(),
    }
}

/// The pure part: every fault of every diagram, or all that is to be stored.
fn check_document(
    document: &Value,
    name: &str,
    node_types: &BTreeMap<String, NodeType>,
) -> Result<Vec<Checked>, Vec<Fault>> {
    let diagrams = import(document, name)?;
    if diagrams.len() > MAX_DIAGRAMS {
        return Err(vec![Fault {
            path: "$.diagrams".to_owned(),
            code: "too_many".to_owned(),
            message: format!("{} diagrams, at most {MAX_DIAGRAMS} are imported at once", diagrams.len()),
        }]);
    }
    let (mut checked, mut faults) = (Vec::new(), Vec::new());
    for (path, diagram) in &diagrams {
        match validate(diagram, path, node_types, Strictness::Save) {
            Ok(valid) => checked.push(draft(diagram, valid)),
            Err(found) => faults.extend(found),
        }
    }
    if faults.is_empty() { Ok(checked) } else { Err(faults) }
}

fn draft(diagram: &Value, valid: Validated) -> Checked {
    Checked {
        draft: ProcessDraft {
            name: valid.process.settings.name,
            document: Json::from(diagram),
            node_types: valid.plugin_node_types,
        },
        warnings: valid.warnings,
    }
}

/// The one diagram of a document that may hold only one.
fn one(mut checked: Vec<Checked>) -> Answer<Checked> {
    match (checked.pop(), checked.len()) {
        (Some(only), 0) => Ok(only),
        (_, others) => Err(Problem::new(
            ErrorCode::InvalidRequest,
            format!("the document holds {} diagrams; use POST /flow/import for a preset", others + 1),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn check(document: &Value) -> Result<Vec<Checked>, Vec<Fault>> {
        check_document(document, "given", &BTreeMap::new())
    }

    #[test]
    fn faults_of_all_diagrams_are_named_together() {
        let broken = json!({"widgets": [{"id": "a"}], "edges": [{"source": "x"}]});
        let faults = check(&json!({"diagrams": [broken, {"widgets": 1}]})).unwrap_err();
        let paths: Vec<_> = faults.iter().map(|fault| fault.path.as_str()).collect();
        assert!(paths.contains(&"$.diagrams[0].widgets[0].source"), "{paths:?}");
        assert!(paths.contains(&"$.diagrams[1].widgets"), "{paths:?}");
    }

    #[test]
    fn a_preset_becomes_one_process_per_diagram() {
        let graph = json!({"settings": {"name": "First"}, "widgets": [], "edges": []});
        let checked =
            check(&json!({"metadata": {"name": "Preset"}, "diagrams": [graph, {"widgets": []}]})).unwrap();
        let names: Vec<_> = checked.iter().map(|checked| checked.draft.name.as_str()).collect();
        assert_eq!(names, ["First", "Preset"]);
    }

    #[test]
    fn a_malformed_schedule_is_refused_with_its_path() {
        let trigger = json!({"type": "schedule", "cron": "every day", "timeZone": "Mars"});
        let graph = json!({"settings": {"name": "x", "triggers": [trigger]}, "widgets": [], "edges": []});
        let paths = |document: &Value| -> Vec<String> {
            check(document).unwrap_err().into_iter().map(|fault| fault.path).collect()
        };
        assert_eq!(paths(&graph), ["$.settings.triggers[0].cron", "$.settings.triggers[0].timeZone"]);
        let preset = json!({"metadata": {"name": "Preset"}, "diagrams": [graph]});
        assert_eq!(paths(&preset)[0], "$.diagrams[0].settings.triggers[0].cron");
    }

    #[test]
    fn unknown_plugins_are_a_warning_and_named_for_use_checks() {
        let graph = json!({"widgets": [{"id": "a", "source": {"nodeType": "plugin.x.y"}}], "edges": []});
        let checked = check(&graph).unwrap();
        assert_eq!(checked[0].draft.node_types, ["plugin.x.y"]);
        assert_eq!(checked[0].warnings[0].code, "unknown_node_type");
    }
}
