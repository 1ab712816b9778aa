//! Process documents.

use crate::{id, json, suite};
use contract::{Millis, ProcessId};
use storage::{Error, Storage, processes::ProcessDraft};

suite!(
    a_process_is_what_was_stored_and_its_revisions_stay,
    an_id_is_taken_once,
    processes_are_paged_by_their_age,
    the_processes_of_all_workspaces_are_read_in_pages,
    a_deleted_process_is_gone_but_its_revisions_stay,
    the_processes_that_use_a_node_type_are_named,
    the_documents_that_use_a_node_type_are_paged,
    a_value_that_a_text_cannot_hold_is_refused_or_kept_whole,
);

fn draft(name: &str, node_types: &[&str]) -> ProcessDraft {
    ProcessDraft {
        name: name.into(),
        document: json(&format!(r#"{{"name":"{name}","n":1.50}}"#)),
        node_types: node_types.iter().map(|name| (*name).to_owned()).collect(),
    }
}

async fn put(storage: &Storage, workspace: &str, draft: &ProcessDraft) -> ProcessId {
    let process_id = ProcessId(id());
    storage.processes().create(process_id, workspace, draft, Millis(1)).await.unwrap();
    process_id
}

async fn a_process_is_what_was_stored_and_its_revisions_stay(storage: Storage) {
    let processes = storage.processes();
    let first = draft("one", &["a", "a"]);
    let id = put(&storage, "w", &first).await;
    let second = draft("two", &["b"]);
    assert_eq!(processes.update(id, &second, Millis(2)).await.unwrap(), Some(2));
    let stored = processes.get(id).await.unwrap().unwrap();
    assert_eq!(stored.document, second.document);
    let head = &stored.process;
    assert_eq!((head.process_id, head.workspace_id.as_str(), head.name.as_str()), (id, "w", "two"));
    assert_eq!((head.revision, head.created_at, head.updated_at), (2, Millis(1), Millis(2)));
    assert_eq!(processes.revision(id, 1).await.unwrap(), Some(first.document));
    assert_eq!(processes.revision(id, 2).await.unwrap(), Some(second.document));
    assert_eq!(processes.revision(id, 3).await.unwrap(), None);
    assert_eq!(processes.update(ProcessId(crate::id()), &draft("x", &[]), Millis(2)).await.unwrap(), None);
}

async fn an_id_is_taken_once(storage: Storage) {
    let id = put(&storage, "w", &draft("one", &[])).await;
    let again = storage.processes().create(id, "w", &draft("two", &[]), Millis(2)).await;
    assert!(matches!(again, Err(Error::Conflict { what }) if what.contains(&id.to_string())));
    assert_eq!(storage.processes().get(id).await.unwrap().unwrap().process.name, "one");
}

async fn processes_are_paged_by_their_age(storage: Storage) {
    let mut ids = Vec::new();
    for name in ["c", "a", "b"] {
        ids.push(put(&storage, "w", &draft(name, &[])).await);
    }
    put(&storage, "other", &draft("d", &[])).await;
    let page = storage.processes().list("w", None, 2).await.unwrap();
    assert_eq!(page.iter().map(|row| row.process_id).collect::<Vec<_>>(), ids[..2]);
    let page = storage.processes().list("w", Some(ids[1]), 2).await.unwrap();
    assert_eq!(page.iter().map(|row| row.process_id).collect::<Vec<_>>(), ids[2..]);
}

async fn a_deleted_process_is_gone_but_its_revisions_stay(storage: Storage) {
    let processes = storage.processes();
    let id = put(&storage, "w", &draft("one", &["a"])).await;
    assert!(processes.delete(id, Millis(2)).await.unwrap());
    assert!(!processes.delete(id, Millis(3)).await.unwrap());
    assert!(processes.get(id).await.unwrap().is_none());
    assert!(processes.list("w", None, 9).await.unwrap().is_empty());
    assert!(processes.using(&["a".into()]).await.unwrap().is_empty());
    assert_eq!(processes.update(id, &draft("two", &[]), Millis(4)).await.unwrap(), None);
    assert!(processes.revision(id, 1).await.unwrap().is_some());
}

async fn the_processes_that_use_a_node_type_are_named(storage: Storage) {
    let processes = storage.processes();
    let one = put(&storage, "w", &draft("one", &["a", "b"])).await;
    let two = put(&storage, "v", &draft("two", &["b", "c"])).await;
    let using = async |types: &[&str]| {
        let types: Vec<String> = types.iter().map(|name| (*name).to_owned()).collect();
        processes.using(&types).await.unwrap()
    };
    assert_eq!(using(&["a", "b"]).await, [(one, "one".to_owned()), (two, "two".to_owned())]);
    assert_eq!(using(&["c"]).await, [(two, "two".to_owned())]);
    assert!(using(&["d"]).await.is_empty() && using(&[]).await.is_empty());
    processes.update(two, &draft("two", &["c"]), Millis(5)).await.unwrap();
    assert_eq!(using(&["b"]).await, [(one, "one".to_owned())]);
}

async fn a_value_that_a_text_cannot_hold_is_refused_or_kept_whole(storage: Storage) {
    let id = ProcessId(id());
    let odd = ProcessDraft { name: "a\0b".into(), ..draft("x", &[]) };
    match storage.processes().create(id, "w", &odd, Millis(1)).await {
        Ok(()) => assert_eq!(storage.processes().get(id).await.unwrap().unwrap().process.name, "a\0b"),
        Err(error) => assert!(matches!(error, Error::InvalidValue { .. }), "{error}"),
    }
    let long = ProcessDraft { name: "é".repeat(20_000), ..draft("x", &[]) };
    let id = put(&storage, "w", &long).await;
    assert_eq!(storage.processes().get(id).await.unwrap().unwrap().process.name, long.name);
}

async fn the_processes_of_all_workspaces_are_read_in_pages(storage: Storage) {
    let (one, two) = (draft("one", &[]), draft("two", &[]));
    let mut ids = [put(&storage, "v", &one).await, put(&storage, "w", &two).await];
    let gone = put(&storage, "w", &two).await;
    storage.processes().delete(gone, Millis(3)).await.unwrap();
    ids.sort_unstable();
    let page = async |after| {
        let heads = storage.processes().heads(after, 1).await.unwrap();
        heads.into_iter().map(|head| head.process_id).collect::<Vec<_>>()
    };
    assert_eq!(page(None).await, ids[..1]);
    assert_eq!(page(Some(ids[0])).await, ids[1..]);
    assert!(page(Some(ids[1])).await.iter().all(|id| *id != gone));
}

async fn the_documents_that_use_a_node_type_are_paged(storage: Storage) {
    let processes = storage.processes();
    let one = put(&storage, "w", &draft("one", &["a", "b"])).await;
    let two = put(&storage, "v", &draft("two", &["b"])).await;
    put(&storage, "w", &draft("other", &["c"])).await;
    processes.update(one, &draft("newer", &["b"]), Millis(2)).await.unwrap();
    let page = async |after, limit| {
        let found = processes.documents_using(&["a".into(), "b".into()], after, limit).await.unwrap();
        found.into_iter().map(|stored| (stored.process.process_id, stored.document)).collect::<Vec<_>>()
    };
    assert_eq!(page(None, 1).await, [(one, draft("newer", &[]).document)]);
    assert_eq!(page(Some(one), 9).await, [(two, draft("two", &[]).document)]);
    assert_eq!(page(Some(two), 9).await, []);
    assert!(processes.documents_using(&[], None, 9).await.unwrap().is_empty());
}
