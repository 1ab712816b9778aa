//! What an outage of Redis does: nothing that needs a restart of ours, nothing that is lost for
//! good (failure matrix 24 and 25). Each test has a server of its own; without an installed Redis
//! the tests do not apply.

#![allow(clippy::unwrap_used, reason = "a test ends where its helper fails")]

use std::path::Path;
use std::time::Duration;

use queue::{Error, Lane, Notice, Notices, Queue, RedisSettings, Topic};
use testkit::Redis;
use tokio::time::timeout;

const LONG: Duration = Duration::from_secs(60);

async fn server(cluster: bool) -> Option<Redis> {
    if !Path::new("/usr/bin/redis-server").exists() {
        assert!(std::env::var_os("CI_SERVERS").is_none(), "CI_SERVERS is set, but Redis is not installed");
        return None;
    }
    let started = if cluster { Redis::start_cluster().await } else { Redis::start().await };
    Some(started.unwrap())
}

fn settings(server: &Redis, cluster: bool) -> RedisSettings {
    RedisSettings { cluster, ..RedisSettings::new(server.url().into()) }
}

async fn open(server: &Redis, cluster: bool) -> Queue {
    Queue::redis(settings(server, cluster)).await.unwrap()
}

/// Pushes until Redis is back; each failure on the way must be one that a retry can mend.
async fn push_when_back(queue: &Queue, item: &str) {
    let push = async {
        while let Err(error) = queue.push(Lane::Plugin, vec![item.to_owned()]).await {
            assert!(error.is_retryable(), "{error:?}");
        }
    };
    timeout(LONG, push).await.unwrap();
}

/// The next message; between times the subscriber may be told to read again.
async fn next_message(notices: &mut Notices) -> String {
    let message = async {
        loop {
            if let Notice::Message(text) = notices.recv().await {
                return text;
            }
        }
    };
    timeout(LONG, message).await.unwrap()
}

async fn a_waiting_taker_survives_a_restart(cluster: bool) {
    let Some(mut redis) = server(cluster).await else { return };
    let (here, there) = (open(&redis, cluster).await, open(&redis, cluster).await);
    for round in ["first", "second"] {
        let waiting = tokio::spawn({
            let here = here.clone();
            async move { here.take(Lane::Plugin, 1, LONG).await }
        });
        redis.kill().await.unwrap();
        redis.restart().await.unwrap();
        push_when_back(&there, round).await;
        assert_eq!(waiting.await.unwrap().unwrap(), [round]);
        // A push that was repeated may have come twice.
        here.take(Lane::Plugin, 10, Duration::ZERO).await.unwrap();
    }
}

#[tokio::test]
async fn a_taker_that_waits_while_redis_restarts_gets_later_pushes() {
    a_waiting_taker_survives_a_restart(false).await;
}

#[tokio::test]
async fn a_taker_that_waits_while_a_cluster_restarts_gets_later_pushes() {
    a_waiting_taker_survives_a_restart(true).await;
}

async fn a_subscriber_survives_a_restart(cluster: bool) {
    let Some(mut redis) = server(cluster).await else { return };
    let (here, there) = (open(&redis, cluster).await, open(&redis, cluster).await);
    let mut notices = here.subscribe(Topic::Catalogue).await.unwrap();
    there.notify(Topic::Catalogue, "before").await.unwrap();
    assert_eq!(next_message(&mut notices).await, "before");

    redis.restart().await.unwrap();

    assert_eq!(timeout(LONG, notices.recv()).await.unwrap(), Notice::Missed);
    let notify = async { while there.notify(Topic::Catalogue, "after").await.is_err() {} };
    timeout(LONG, notify).await.unwrap();
    assert_eq!(next_message(&mut notices).await, "after");
}

#[tokio::test]
async fn a_subscriber_is_told_to_read_again_after_a_restart_and_hears_what_follows() {
    a_subscriber_survives_a_restart(false).await;
}

#[tokio::test]
async fn a_subscriber_of_a_cluster_is_told_to_read_again_after_a_restart_and_hears_what_follows() {
    a_subscriber_survives_a_restart(true).await;
}

#[tokio::test]
async fn a_flush_of_everything_loses_hints_and_nothing_else() {
    let Some(redis) = server(false).await else { return };
    let queue = open(&redis, false).await;
    queue.push(Lane::Plugin, vec!["lost".into()]).await.unwrap();
    assert!(queue.lease("sweep", "a", LONG).await.unwrap());
    let mut notices = queue.subscribe(Topic::Runs).await.unwrap();

    for command in ["FLUSHALL", "SCRIPT FLUSH"] {
        assert_eq!(redis.command(command).await.unwrap(), "+OK");
    }

    assert_eq!(queue.depth(Lane::Plugin).await.unwrap(), 0);
    assert!(queue.lease("sweep", "b", LONG).await.unwrap());
    let waiting = tokio::spawn({
        let queue = queue.clone();
        async move { queue.take(Lane::Plugin, 1, LONG).await }
    });
    queue.push(Lane::Plugin, vec!["later".into()]).await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap(), ["later"]);
    queue.notify(Topic::Runs, "later").await.unwrap();
    assert_eq!(timeout(LONG, notices.recv()).await.unwrap(), Notice::Message("later".into()));
}

#[tokio::test]
async fn a_listener_that_is_cut_off_comes_back_by_itself() {
    let Some(redis) = server(false).await else { return };
    let queue = open(&redis, false).await;
    let mut notices = queue.subscribe(Topic::Steps).await.unwrap();

    assert_eq!(redis.command("CLIENT KILL TYPE pubsub").await.unwrap(), ":1");

    assert_eq!(timeout(LONG, notices.recv()).await.unwrap(), Notice::Missed);
    queue.notify(Topic::Steps, "heard").await.unwrap();
    assert_eq!(next_message(&mut notices).await, "heard");
}

async fn every_operation_says_that_redis_is_away(cluster: bool) {
    let Some(mut redis) = server(cluster).await else { return };
    let queue = open(&redis, cluster).await;
    redis.stop().await.unwrap();

    let errors = [
        queue.push(Lane::Plugin, vec!["x".into()]).await.unwrap_err(),
        queue.take(Lane::Plugin, 1, Duration::from_millis(50)).await.unwrap_err(),
        queue.notify(Topic::Runs, "x").await.unwrap_err(),
        queue.lease("sweep", "a", LONG).await.unwrap_err(),
        queue.ping().await.unwrap_err(),
    ];
    for error in errors {
        assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
        assert!(error.is_retryable());
    }

    redis.restart().await.unwrap();
    push_when_back(&queue, "back").await;
    assert_eq!(queue.take(Lane::Plugin, 1, LONG).await.unwrap(), ["back"]);
}

#[tokio::test]
async fn while_redis_is_away_every_operation_says_so_and_can_be_retried() {
    every_operation_says_that_redis_is_away(false).await;
}

#[tokio::test]
async fn while_a_cluster_is_away_every_operation_says_so_and_can_be_retried() {
    every_operation_says_that_redis_is_away(true).await;
}

#[tokio::test]
async fn a_subscription_made_while_redis_is_away_begins_when_it_is_back() {
    let Some(mut redis) = server(false).await else { return };
    let queue = open(&redis, false).await;
    redis.stop().await.unwrap();

    let mut notices = queue.subscribe(Topic::Catalogue).await.unwrap();
    redis.restart().await.unwrap();

    assert_eq!(timeout(LONG, notices.recv()).await.unwrap(), Notice::Missed);
    let notify = async { while queue.notify(Topic::Catalogue, "heard").await.is_err() {} };
    timeout(LONG, notify).await.unwrap();
    assert_eq!(next_message(&mut notices).await, "heard");
}

#[tokio::test]
async fn a_start_without_redis_or_with_a_wrong_password_fails_and_does_not_show_the_password() {
    let Some(mut redis) = server(false).await else { return };
    assert_eq!(redis.command("CONFIG SET requirepass swordfish").await.unwrap(), "+OK");
    let url = |password: &str| format!("redis://:{password}@127.0.0.1:{}/", redis.port());

    Queue::redis(RedisSettings::new(url("swordfish").into())).await.unwrap();
    let wrong = Queue::redis(RedisSettings::new(url("hunter2").into())).await.unwrap_err();
    assert!(matches!(wrong, Error::Refused { .. }), "{wrong:?}");
    assert!(!format!("{wrong:?} {wrong}").contains("hunter2"));

    redis.stop().await.unwrap();
    let away = Queue::redis(settings(&redis, false)).await.unwrap_err();
    assert!(matches!(away, Error::Unavailable { .. }), "{away:?}");
    let away = Queue::redis(settings(&redis, true)).await.unwrap_err();
    assert!(matches!(away, Error::Unavailable { .. }), "{away:?}");
}
