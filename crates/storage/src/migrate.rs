//! Migrations: plain SQL files with the same numbers and names for both databases, embedded, forward
//! only. Any number of processes may start at once: one migrates, the others wait and find it done
//! (failure matrix row 26).

use crate::error::Result;
use sqlx::{
    Connection, PgConnection, SqlSafeStr, SqliteConnection,
    migrate::{Migration, MigrationType, Migrator},
};
use std::borrow::Cow;

/// One file of a dialect's folder.
type File = (i64, &'static str, &'static str);

macro_rules! files {
    ($folder:literal: $($number:literal $name:literal),* $(,)?) => {
        &[$((
            $number,
            $name,
            include_str!(concat!("../migrations/", $folder, "/", $name, ".sql")),
        )),*]
    };
}

const POSTGRES: &[File] = files!("postgres": 1 "0001_initial", 2 "0002_plugin_versions",
    3 "0003_node_type_index", 4 "0004_catalogue_changes", 5 "0005_bounds", 6 "0006_run_files",
    7 "0007_clock_watch", 8 "0008_clock_uptime", 9 "0009_ended_attempts");
const SQLITE: &[File] = files!("sqlite": 1 "0001_initial", 2 "0002_plugin_versions",
    3 "0003_node_type_index", 4 "0004_catalogue_changes", 5 "0005_bounds", 6 "0006_run_files",
    7 "0007_clock_watch", 8 "0008_clock_uptime", 9 "0009_ended_attempts");

// `run_direct` because the future of `run` is not `Send` when it is given a connection.
fn migrator(files: &[File]) -> Migrator {
    let migration = |(number, name, sql): &File| {
        Migration::new(*number, Cow::Borrowed(*name), MigrationType::Simple, sql.into_sql_str(), false)
    };
    Migrator::with_migrations(files.iter().map(migration).collect())
}

/// Migrates under the database's advisory lock, on a connection without statement timeout.
pub(crate) async fn postgres(connection: &mut PgConnection) -> Result<()> {
    migrator(POSTGRES).run_direct(None, connection, false).await?;
    Ok(())
}

/// Migrates in one transaction that holds the write lock from its beginning.
pub(crate) async fn sqlite(connection: &mut SqliteConnection) -> Result<()> {
    let mut tx = connection.begin_with("BEGIN IMMEDIATE").await?;
    migrator(SQLITE).run_direct(None, &mut *tx, false).await?;
    tx.commit().await?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, fs, path::Path};

    fn names(files: &[File]) -> Vec<(i64, &str)> {
        files.iter().map(|(number, name, _)| (*number, *name)).collect()
    }

    fn folder(dialect: &str) -> BTreeSet<String> {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("migrations").join(dialect);
        fs::read_dir(path).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn both_databases_have_the_same_migrations() {
        assert_eq!(names(POSTGRES), names(SQLITE));
        assert_eq!(folder("postgres"), folder("sqlite"));
    }

    #[test]
    fn every_file_is_embedded_and_numbered_without_gaps() {
        let embedded: BTreeSet<String> = POSTGRES.iter().map(|(_, name, _)| format!("{name}.sql")).collect();
        assert_eq!(embedded, folder("postgres"));
        for (index, (number, name, _)) in POSTGRES.iter().enumerate() {
            assert_eq!(*number, i64::try_from(index).unwrap() + 1);
            assert!(name.starts_with(&format!("{number:04}_")), "{name}");
        }
    }
}
