//! The servers start, survive what fault tests do to them, and leave nothing behind.
//!
//! Where PostgreSQL or Redis is not installed these tests do not apply, unless `CI_SERVERS=1`
//! promises them.

#![allow(clippy::unwrap_used, reason = "a test ends where its helper fails")]

use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use testkit::{Postgres, PostgresSettings, Program, Redis, Signal, Stream, fresh_database};

const LIMIT: Duration = Duration::from_secs(60);

fn installed(path: &str) -> bool {
    let found = Path::new(path).exists();
    assert!(found || std::env::var_os("CI_SERVERS").is_none(), "CI_SERVERS is set, but there is no {path}");
    found
}

fn is_listening(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

async fn psql(url: &str, sql: &str) -> String {
    let psql =
        Program::new("psql").args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", sql]).spawn().unwrap();
    let status = psql.wait(LIMIT).await.unwrap();
    assert!(status.success(), "{sql}: {:?}", psql.lines());
    psql.text(Stream::Stdout).trim().to_owned()
}

#[tokio::test]
async fn postgres_keeps_committed_data_over_a_crash_and_a_restart_on_the_same_port() {
    if !installed("/usr/lib/postgresql") {
        return;
    }
    let mut server =
        Postgres::start_with(PostgresSettings { durable: true, ..Default::default() }).await.unwrap();
    let url = fresh_database(&server.url()).await.unwrap();
    assert_eq!(psql(&url, "show fsync").await, "on");
    psql(&url, "create table t (n int); insert into t values (1)").await;

    server.kill().await.unwrap();
    assert!(!is_listening(server.port()));
    server.restart().await.unwrap();
    assert_eq!(psql(&url, "select n from t").await, "1");

    server.restart().await.unwrap();
    assert_eq!(psql(&url, "select n from t").await, "1");

    let port = server.port();
    drop(server);
    assert!(!is_listening(port));
}

#[tokio::test]
async fn each_fresh_database_is_another_one() {
    if !installed("/usr/lib/postgresql") {
        return;
    }
    let server = Postgres::start().await.unwrap();
    let server_url = server.url();
    let (a, b) = tokio::join!(fresh_database(&server_url), fresh_database(&server_url));
    let (a, b) = (a.unwrap(), b.unwrap());
    psql(&a, "create table only_in_a ()").await;
    assert_eq!(psql(&b, "select count(*) from pg_tables where tablename = 'only_in_a'").await, "0");
    assert_eq!(psql(&a, "show fsync").await, "off");
}

#[tokio::test]
async fn redis_restarts_empty_on_the_same_port_single_and_as_a_cluster() {
    if !installed("/usr/bin/redis-server") {
        return;
    }
    for mut server in [Redis::start().await.unwrap(), Redis::start_cluster().await.unwrap()] {
        assert_eq!(server.command("SET a 1").await.unwrap(), "+OK");
        server.kill().await.unwrap();
        assert!(server.command("PING").await.is_err());

        server.restart().await.unwrap();
        assert_eq!(server.command("EXISTS a").await.unwrap(), ":0");
        assert_eq!(server.command("SET a 1").await.unwrap(), "+OK");

        let port = server.port();
        drop(server);
        assert!(!is_listening(port));
    }
}

#[tokio::test]
async fn the_runner_gives_the_addresses_to_the_command_and_ends_as_it_ended() {
    if !installed("/usr/lib/postgresql") || !installed("/usr/bin/redis-server") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let env = folder.path().join("env");
    let script = "echo $CI_SERVERS $TEST_REDIS_URL $TEST_REDIS_CLUSTER_URL; psql -XqAtc 'select 42' $TEST_DATABASE_URL; exit 7";
    let runner = Program::new(env!("CARGO_BIN_EXE_testkit-servers"))
        .args(["--env".as_ref(), env.as_os_str()])
        .args(["--", "/bin/sh", "-c", script])
        .spawn()
        .unwrap();

    assert_eq!(runner.wait(LIMIT).await.unwrap().code(), Some(7));

    let output = runner.text(Stream::Stdout);
    assert!(output.starts_with("1 redis://127.0.0.1:") && output.ends_with("42\n"), "{output}");
    let lines = std::fs::read_to_string(&env).unwrap();
    assert_eq!(lines.lines().filter(|line| line.starts_with("export TEST_")).count(), 3, "{lines}");
}

#[tokio::test]
async fn a_runner_that_is_terminated_ends_the_command_and_the_servers() {
    if !installed("/usr/lib/postgresql") || !installed("/usr/bin/redis-server") {
        return;
    }
    let script = "trap 'echo command ends; exit 0' TERM; echo $TEST_REDIS_URL; while :; do sleep 0.05; done";
    let runner = Program::new(env!("CARGO_BIN_EXE_testkit-servers"))
        .args(["--", "/bin/sh", "-c", script])
        .spawn()
        .unwrap();
    let url = runner.wait_for_line("redis://", LIMIT).await.unwrap();
    let port: u16 = url.trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap();
    assert!(is_listening(port));

    runner.signal(Signal::TERM);

    assert_eq!(runner.wait(LIMIT).await.unwrap().code(), Some(128 + 15));
    runner.wait_for_line("command ends", LIMIT).await.unwrap();
    assert!(!is_listening(port));
}
