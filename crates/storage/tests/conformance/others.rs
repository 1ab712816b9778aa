//! Secrets, files, users.

use crate::suite;
use contract::{Digest, Millis, secret::SecretInfo};
use storage::{
    BlobRow, Storage,
    users::{NewToken, Principal},
};

suite!(
    secrets_are_kept_per_workspace_and_name,
    files_are_indexed_by_their_id,
    a_token_speaks_for_its_user_until_it_is_revoked,
    the_clock_is_that_of_the_database,
    a_closed_storage_is_unavailable,
);

async fn secrets_are_kept_per_workspace_and_name(storage: Storage) {
    let secrets = storage.secrets();
    secrets.put("w", "b", None, &[0, 255, 1], Millis(1)).await.unwrap();
    secrets.put("w", "a", Some("token"), b"old", Millis(1)).await.unwrap();
    secrets.put("w", "a", Some("token"), b"new", Millis(2)).await.unwrap();
    secrets.put("v", "a", None, b"other", Millis(1)).await.unwrap();
    let names = ["b", "missing", "a", "b"].map(str::to_owned);
    let values = secrets.get_many("w", &names).await.unwrap();
    assert_eq!(values, [Some(vec![0, 255, 1]), None, Some(b"new".to_vec()), Some(vec![0, 255, 1])]);
    assert!(secrets.get_many("w", &[]).await.unwrap().is_empty());
    let info = |name: &str, kind: Option<&str>, at| SecretInfo {
        name: name.into(),
        kind: kind.map(str::to_owned),
        updated_at: Millis(at),
    };
    assert_eq!(secrets.list("w").await.unwrap(), [info("a", Some("token"), 2), info("b", None, 1)]);
    assert!(secrets.delete("w", "a").await.unwrap());
    assert!(!secrets.delete("w", "a").await.unwrap());
    assert_eq!(secrets.list("w").await.unwrap().len(), 1);
    assert_eq!(secrets.list("v").await.unwrap().len(), 1);
}

async fn files_are_indexed_by_their_id(storage: Storage) {
    let blobs = storage.blobs();
    let blob = BlobRow {
        file_id: "f-1".into(),
        workspace_id: "w".into(),
        name: "Bericht (1).pdf".into(),
        media_type: "application/pdf".into(),
        size: 5_000_000_000,
        digest: Digest([7; 32]),
        created_at: Millis(3),
    };
    blobs.put(&blob).await.unwrap();
    assert_eq!(blobs.get("f-1").await.unwrap(), Some(blob.clone()));
    let renamed = BlobRow { name: "b.pdf".into(), ..blob };
    blobs.put(&renamed).await.unwrap();
    assert_eq!(blobs.get("f-1").await.unwrap(), Some(renamed));
    assert!(blobs.delete("f-1").await.unwrap());
    assert!(!blobs.delete("f-1").await.unwrap());
    assert_eq!(blobs.get("f-1").await.unwrap(), None);
}

async fn a_token_speaks_for_its_user_until_it_is_revoked(storage: Storage) {
    let users = storage.users();
    users.ensure_user("local", Millis(1)).await.unwrap();
    users.ensure_user("local", Millis(2)).await.unwrap();
    let token = |n: u8, user: &str| NewToken {
        hash: Digest([n; 32]),
        user_id: user.into(),
        workspace_id: "w".into(),
        label: "laptop".into(),
        at: Millis(3),
    };
    users.put_token(&token(1, "local")).await.unwrap();
    users.put_token(&token(2, "new")).await.unwrap();
    users.put_token(&token(2, "new")).await.unwrap();
    let of = |user: &str| Some(Principal { user_id: user.into(), workspace_id: "w".into() });
    assert_eq!(users.find_token(&Digest([1; 32])).await.unwrap(), of("local"));
    assert_eq!(users.find_token(&Digest([2; 32])).await.unwrap(), of("new"));
    assert_eq!(users.find_token(&Digest([3; 32])).await.unwrap(), None);
    assert!(users.revoke(&Digest([1; 32]), Millis(4)).await.unwrap());
    assert!(!users.revoke(&Digest([1; 32]), Millis(5)).await.unwrap());
    assert_eq!(users.find_token(&Digest([1; 32])).await.unwrap(), None);
}

async fn the_clock_is_that_of_the_database(storage: Storage) {
    let one = storage.now().await.unwrap();
    let two = storage.now().await.unwrap();
    assert!(one <= two);
    // After 2025 and before 2100: milliseconds, not seconds.
    assert!((1_735_000_000_000..4_102_000_000_000).contains(&one.0), "{one:?}");
}

async fn a_closed_storage_is_unavailable(storage: Storage) {
    storage.ping().await.unwrap();
    storage.close().await;
    assert!(storage.ping().await.unwrap_err().is_unavailable());
}
