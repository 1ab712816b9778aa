//! The rules of a plugin's own listener: batch pull and tasks.

use super::findings::{self as rule, Findings};
use contract::{
    ExecutionId, Fault, Json, Millis, NodePath, ProcessId, RunId,
    manifest::{self, BATCH_PULL_KIND, BatchPullRequest, DeclaredExecutor, ExecutorItem, Manifest},
    pattern,
    report::reply_is_result,
    task::ExecutorTask,
};
use indexmap::IndexMap;
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Value, json};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use uuid::Uuid;
use wire::{CallError, Client};

/// How long a plugin may take for an answer that needs no work.
const LIMIT: Duration = Duration::from_secs(15);
/// Pages of one batch.
const PAGES: usize = 1000;
/// A token that no plugin has.
const WRONG_TOKEN: &str = "conveyor-check-wrong-token";
/// Requests at once.
const AT_ONCE: usize = 50;
/// A name that nobody serves. The emoji counts two code units.
const NOBODY: &str = "conveyor.check.nobody";
const WIDE: &str = "Привет 😀 \u{10ffff}";

/// The plugin as plugin-manager and control plane see it.
#[derive(Debug)]
pub(super) struct Plugin {
    pub(super) client: Client,
    pub(super) token: SecretString,
    pub(super) manifest: Option<Manifest>,
}

/// What became of a task.
pub(super) enum Delivery {
    /// It was taken.
    Taken,
    /// The answer is the result.
    Answered(Json),
    /// It was refused.
    Refused(String),
    /// It has arrived, but was not answered in time. The platform takes it as delivered.
    Late(String),
    /// It was not answered.
    Unanswered(String),
}

impl Plugin {
    /// One page of the batch.
    async fn page(
        &self,
        token: &str,
        node_types: Vec<String>,
        cursor: Option<Value>,
    ) -> Result<Json, CallError> {
        let (plugin_id, publication_version) = match &self.manifest {
            Some(manifest) => (manifest.plugin_id.clone(), manifest.publication_version.clone()),
            None => (String::new(), String::new()),
        };
        let (kind, token) = (BATCH_PULL_KIND.to_owned(), token.to_owned());
        let request = BatchPullRequest { kind, token, plugin_id, publication_version, node_types, cursor };
        let canonical = pattern::EXECUTOR_BATCH_PULL;
        match self.client.call(canonical.name, &request, LIMIT).await {
            Err(CallError::NoHandler) => {
                self.client.call("plugin.executor_batch_pull", &request, LIMIT).await
            }
            answer => answer,
        }
    }

    /// All items as they come, over all pages.
    async fn items(&self, node_types: &[String]) -> Result<Vec<Value>, String> {
        let (mut items, mut cursor) = (Vec::new(), None);
        for _ in 0..PAGES {
            let page = self.page(self.token.expose_secret(), node_types.to_vec(), cursor).await;
            let page = page.map_err(|error| error.to_string())?;
            let page = page.value().map_err(|error| error.to_string())?;
            let list = page.get("items").and_then(Value::as_array);
            items.extend(list.ok_or("the answer has no array `items`")?.iter().cloned());
            match page.get("nextCursor").filter(|cursor| !cursor.is_null()) {
                Some(next) => cursor = Some(next.clone()),
                None => return Ok(items),
            }
        }
        Err(format!("nextCursor never ends: {PAGES} pages"))
    }

    /// Checks the batch pull; the items when they can be read.
    pub(super) async fn check_pull(&mut self, findings: &mut Findings) -> Vec<ExecutorItem> {
        let declared = |manifest: &Manifest| manifest.executors.iter().map(|e| e.node_type.clone()).collect();
        let wanted: Vec<String> = self.manifest.as_ref().map(declared).unwrap_or_default();
        let items = match self.items(&wanted).await {
            Ok(items) => items,
            Err(detail) => {
                findings.fail(rule::PULL, detail);
                for rule in [rule::PULL_ITEMS, rule::PULL_NODE_TYPES] {
                    findings.skip(rule, "there is no batch");
                }
                self.check_token(findings).await;
                return Vec::new();
            }
        };
        findings.pass(rule::PULL);
        self.check_token(findings).await;
        let manifest = self.manifest.clone().unwrap_or_else(|| of_items(&items));
        let read = match manifest::read_items(&Value::from(items), "$.items", &manifest) {
            Ok((items, _)) => {
                findings.pass(rule::PULL_ITEMS);
                items
            }
            Err(faults) => {
                findings.fail(rule::PULL_ITEMS, listed(&faults));
                Vec::new()
            }
        };
        self.check_one_node_type(&read, findings).await;
        read
    }

    async fn check_token(&self, findings: &mut Findings) {
        let outcome = match self.page(WRONG_TOKEN, Vec::new(), None).await {
            Err(CallError::Remote(error)) if error.code.as_deref() == Some("unauthorized") => Ok(()),
            // Plugins of the earlier SDK throw a plain exception.
            Err(CallError::Remote(error)) if error.message.to_lowercase().contains("unauthorized") => Ok(()),
            Ok(_) => Err("a wrong token got the batch".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        findings.note(rule::PULL_TOKEN, outcome);
    }

    async fn check_one_node_type(&self, items: &[ExecutorItem], findings: &mut Findings) {
        let Some(last) = items.last() else {
            return findings.skip(rule::PULL_NODE_TYPES, "the batch cannot be read");
        };
        let outcome = match self.items(std::slice::from_ref(&last.node_type)).await {
            Ok(items) => {
                let found: Vec<_> = items.iter().filter_map(|item| item["nodeType"].as_str()).collect();
                match found.as_slice() {
                    [one] if *one == last.node_type => Ok(()),
                    _ => Err(format!("asked for {:?}, got {found:?}", last.node_type)),
                }
            }
            Err(detail) => Err(detail),
        };
        findings.note(rule::PULL_NODE_TYPES, outcome);
    }

    /// Checks frames and packets.
    pub(super) async fn check_packets(&self, findings: &mut Findings) {
        let nobody = async |data: Value| match self.client.request(NOBODY, &Json::from(data), LIMIT).await {
            Err(CallError::NoHandler) => Ok(()),
            Ok(_) => Err("it was answered as if somebody served it".to_owned()),
            Err(error) => Err(error.to_string()),
        };
        findings.note(rule::UNKNOWN_PATTERN, nobody(Value::Null).await);
        // What is left over of a wrong count spoils the next frame of the connection.
        let wide = nobody(json!({ "text": WIDE })).await;
        let wide = match wide {
            Ok(()) => nobody(Value::Null).await,
            wrong => wrong,
        };
        findings.note(rule::FRAMES, wide);
        let all = futures::future::join_all((0..AT_ONCE).map(|n| nobody(json!(n)))).await;
        findings.note(rule::CONCURRENCY, all.into_iter().collect());
        let malformed = self.client.request(pattern::EXECUTOR_TASK.name, &Json::from(json!({})), LIMIT).await;
        let outcome = match malformed {
            Ok(_) | Err(CallError::Remote(_)) => nobody(Value::Null).await,
            Err(CallError::NoHandler) => {
                return findings.skip(rule::MALFORMED_TASK, "tasks are taken as events");
            }
            Err(error) => Err(error.to_string()),
        };
        findings.note(rule::MALFORMED_TASK, outcome);
    }

    /// Delivers a task as a control plane does.
    pub(super) async fn deliver(&self, task: &ExecutorTask) -> Delivery {
        let task = match Json::of(task) {
            Ok(task) => task,
            Err(error) => return Delivery::Unanswered(error.to_string()),
        };
        let name = pattern::EXECUTOR_TASK.name;
        match self.client.request(name, &task, LIMIT).await {
            Ok(answer) if reply_is_result(&answer) => Delivery::Answered(answer),
            Ok(_) => Delivery::Taken,
            Err(CallError::Remote(error)) => Delivery::Refused(error.to_string()),
            Err(CallError::NoHandler) => match self.client.emit(name, &task, LIMIT).await {
                Ok(()) => Delivery::Taken,
                Err(error) => Delivery::Unanswered(error.to_string()),
            },
            Err(CallError::Timeout { written: true, alive: true }) => {
                Delivery::Late(format!("no answer came within {} s", LIMIT.as_secs()))
            }
            Err(error) => Delivery::Unanswered(error.to_string()),
        }
    }

    /// Delivers a task that no node of the plugin can do. `true`: it was taken, and a failure must be
    /// reported.
    pub(super) async fn check_unknown_node_type(&self, task: &ExecutorTask, findings: &mut Findings) -> bool {
        let outcome = match self.deliver(task).await {
            Delivery::Refused(_) => Ok(()),
            Delivery::Answered(answer) if failed(&answer) => Ok(()),
            Delivery::Answered(_) => Err("it was answered with a result".to_owned()),
            Delivery::Unanswered(detail) => Err(detail),
            Delivery::Taken | Delivery::Late(_) => return true,
        };
        findings.note(rule::UNKNOWN_NODE_TYPE, outcome);
        false
    }
}

/// An attempt that nobody had before.
pub(super) fn task(node_type: &str, inputs: IndexMap<String, Json>, outputs: Vec<String>) -> ExecutorTask {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    ExecutorTask {
        run_id: RunId(Uuid::now_v7()),
        execution_id: ExecutionId(Uuid::now_v7()),
        node_id: "check".to_owned(),
        node_path: NodePath::root("check"),
        node_type: node_type.to_owned(),
        attempt: 1,
        inputs,
        outputs,
        deadline: Millis(i64::try_from(now.as_millis()).unwrap_or(i64::MAX)).plus(Duration::from_secs(3600)),
        workspace_id: "default".to_owned(),
        user_id: "local".to_owned(),
        diagram_id: ProcessId(Uuid::now_v7()),
        traceparent: None,
        tracestate: None,
        files_url: None,
    }
}

/// The task that no plugin can do.
pub(super) fn unknown_task() -> ExecutorTask {
    task(NOBODY, IndexMap::new(), Vec::new())
}

/// Does this result tell a failure?
pub(super) fn failed(result: &Json) -> bool {
    result.value().is_ok_and(|result| result["status"] == "error" || result["error"].is_object())
}

/// Faults in one line.
pub(super) fn listed(faults: &[Fault]) -> String {
    faults.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// Where the manifest is not known: what the items themselves declare.
fn of_items(items: &[Value]) -> Manifest {
    let mut executors: Vec<DeclaredExecutor> = Vec::new();
    for node_type in items.iter().filter_map(|item| item["nodeType"].as_str()) {
        if executors.iter().all(|declared| declared.node_type != node_type) {
            executors.push(DeclaredExecutor {
                node_type: node_type.to_owned(),
                required_template_keys: None,
                extra: serde_json::Map::new(),
            });
        }
    }
    Manifest { executors, ..Manifest::default() }
}
