//! What happens when the server of a pool goes away or becomes read-only (failure matrix row 23).
//! PostgreSQL only.

use crate::{id, postgres_url, start};
use contract::RunId;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use storage::{Storage, runs::Appended};

/// A storage with warm connections, and a connection of an operator.
async fn scene() -> Option<(Storage, PgConnection, String)> {
    let url = postgres_url().await?;
    let storage = crate::open(&url).await;
    futures::future::join_all((0..4).map(|_| storage.ping())).await;
    let operator = PgConnection::connect(&url).await.unwrap();
    let database = url.rsplit_once('/').unwrap().1.split('?').next().unwrap().to_owned();
    Some((storage, operator, database))
}

async fn cut_connections(operator: &mut PgConnection) {
    sqlx::query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    .execute(operator)
    .await
    .unwrap();
}

#[tokio::test]
async fn reads_go_on_when_the_server_cuts_all_connections() {
    let Some((storage, mut operator, _)) = scene().await else { return };
    cut_connections(&mut operator).await;
    storage.now().await.unwrap();
}

#[tokio::test]
async fn one_write_at_most_fails_when_the_server_cuts_all_connections() {
    let Some((storage, mut operator, _)) = scene().await else { return };
    cut_connections(&mut operator).await;
    let append = start(RunId(id()));
    if let Err(error) = storage.runs().append(std::slice::from_ref(&append)).await {
        assert!(error.is_unavailable(), "{error}");
        assert_eq!(storage.runs().append(&[append]).await.unwrap(), [Appended::Done]);
    }
}

#[tokio::test]
async fn writes_resume_without_a_restart_after_a_read_only_node() {
    let Some((storage, mut operator, database)) = scene().await else { return };
    let read_only = |on: &str| {
        AssertSqlSafe(format!("ALTER DATABASE {database} SET default_transaction_read_only = {on}"))
    };
    // As after a failover: every connection of the pool leads to a node that only reads.
    sqlx::query(read_only("on")).execute(&mut operator).await.unwrap();
    cut_connections(&mut operator).await;
    storage.ping().await.unwrap();
    let append = start(RunId(id()));
    let error = storage.runs().append(std::slice::from_ref(&append)).await.unwrap_err();
    assert!(error.is_unavailable(), "{error}");
    // The operator's own session has been cut loose from the setting.
    sqlx::query("SET default_transaction_read_only = off").execute(&mut operator).await.unwrap();
    sqlx::query(read_only("off")).execute(&mut operator).await.unwrap();
    assert_eq!(storage.runs().append(&[append]).await.unwrap(), [Appended::Done]);
}
