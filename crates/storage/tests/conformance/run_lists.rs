//! Lists of runs: newest first, filtered, paged.

use crate::{id, start, step, suite};
use contract::{Millis, ProcessId, RunId, run::RunStatus};
use storage::{
    Storage,
    runs::{Append, RunCursor, RunFilter},
};
use uuid::Uuid;

suite!(
    runs_are_listed_newest_first_and_paged_without_gaps,
    runs_are_filtered_by_workspace_process_and_status,
);

async fn put(storage: &Storage, at: i64, workspace: &str, process: u128) -> RunId {
    let run_id = RunId(id());
    let mut append = Append { at: Millis(at), ..start(run_id) };
    let new = append.create.as_mut().unwrap();
    new.workspace_id = workspace.into();
    new.process_id = ProcessId(Uuid::from_u128(process));
    storage.runs().append(&[append]).await.unwrap();
    run_id
}

fn filter(workspace: &str) -> RunFilter {
    RunFilter { workspace_id: workspace.into(), ..RunFilter::default() }
}

async fn runs_are_listed_newest_first_and_paged_without_gaps(storage: Storage) {
    let mut expected = Vec::new();
    // Several runs of one millisecond: the id decides.
    for at in [10, 10, 10, 20, 20, 30, 40] {
        expected.insert(0, put(&storage, at, "w", 1).await);
    }
    let mut seen = Vec::new();
    let mut cursor: Option<RunCursor> = None;
    loop {
        let page = storage.runs().list(&filter("w"), cursor, 2).await.unwrap();
        let Some(last) = page.last() else { break };
        cursor = Some(last.cursor().to_string().parse().unwrap());
        seen.extend(page.iter().map(|run| run.run_id));
        // What is started meanwhile does not move the pages.
        put(&storage, 50, "w", 1).await;
    }
    assert_eq!(seen, expected);
}

async fn runs_are_filtered_by_workspace_process_and_status(storage: Storage) {
    let a = put(&storage, 1, "w", 1).await;
    let b = put(&storage, 2, "w", 2).await;
    let c = put(&storage, 3, "v", 1).await;
    let end = Append { status: RunStatus::Finished, ..step(a, 1) };
    storage.runs().append(&[end]).await.unwrap();
    let list = async |filter: RunFilter| {
        let rows = storage.runs().list(&filter, None, 10).await.unwrap();
        rows.iter().map(|run| run.run_id).collect::<Vec<_>>()
    };
    assert_eq!(list(filter("w")).await, [b, a]);
    assert_eq!(list(filter("v")).await, [c]);
    let of_process = RunFilter { process_id: Some(ProcessId(Uuid::from_u128(1))), ..filter("w") };
    assert_eq!(list(of_process.clone()).await, [a]);
    assert!(list(RunFilter { status: Some(RunStatus::Running), ..of_process }).await.is_empty());
    assert_eq!(list(RunFilter { status: Some(RunStatus::Running), ..filter("w") }).await, [b]);
}
