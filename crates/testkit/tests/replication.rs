//! A standby has everything that its primary answered, also when the primary dies at once.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

use testkit::{Postgres, server_url};

#[tokio::test]
async fn a_promoted_standby_has_what_the_killed_primary_answered_and_takes_more() {
    if server_url("TEST_DATABASE_URL").is_none() {
        return;
    }
    let mut primary = Postgres::start().await.unwrap();
    let standby = primary.start_standby().await.unwrap();
    primary.sql("create table words (word text)").await.unwrap();
    primary.sql("insert into words values ('answered')").await.unwrap();
    primary.kill().await.unwrap();

    assert!(standby.sql("insert into words values ('too early')").await.is_err(), "it is read-only");
    standby.promote().await.unwrap();
    standby.sql("insert into words values ('afterwards')").await.unwrap();
    assert_eq!(standby.sql("select word from words").await.unwrap(), "answered\nafterwards\n");
}
