//! Both databases have the same tables and columns, of types that go together.

use crate::{open, postgres_url, sqlite_url};
use sqlx::{Connection, PgConnection, SqliteConnection};

/// Table, column, type as SQLite names it, nullable.
type Column = (String, String, String, bool);

const POSTGRES: &str = "\
    SELECT table_name::text, column_name::text, \
           CASE data_type WHEN 'uuid' THEN 'BLOB' WHEN 'bytea' THEN 'BLOB' WHEN 'bigint' THEN 'INTEGER' \
                          WHEN 'boolean' THEN 'INTEGER' WHEN 'text' THEN 'TEXT' ELSE data_type::text END, \
           is_nullable = 'YES' \
    FROM information_schema.columns WHERE table_schema = 'public' AND table_name <> '_sqlx_migrations'";

/// A primary key of integers is never null in SQLite, whatever its column says.
const SQLITE: &str = "\
    SELECT m.name, c.name, c.type, c.\"notnull\" = 0 AND NOT (c.pk > 0 AND c.type = 'INTEGER') \
    FROM sqlite_schema m, pragma_table_info(m.name) c \
    WHERE m.type = 'table' AND m.name NOT LIKE 'sqlite%' AND m.name <> '_sqlx_migrations'";

#[tokio::test]
async fn both_databases_have_the_same_tables_and_columns() {
    let Some(url) = postgres_url().await else { return };
    open(&url).await.close().await;
    let folder = tempfile::tempdir().unwrap();
    open(&sqlite_url(&folder)).await.close().await;
    let mut pg = PgConnection::connect(&url).await.unwrap();
    let mut lite = SqliteConnection::connect(&sqlite_url(&folder)).await.unwrap();
    let mut left: Vec<Column> = sqlx::query_as(POSTGRES).fetch_all(&mut pg).await.unwrap();
    let mut right: Vec<Column> = sqlx::query_as(SQLITE).fetch_all(&mut lite).await.unwrap();
    left.sort();
    right.sort();
    assert_eq!(left, right);
    assert!(left.len() > 80);
}
