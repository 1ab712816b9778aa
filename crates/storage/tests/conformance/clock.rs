//! Steps of the database's clock. PostgreSQL alone: the clock of an SQLite file is that of this very
//! process (the whole-system tests step that one).

use crate::{attempt, id, open, start, step};
use contract::{ExecutionId, Millis, RunId};
use std::{sync::Arc, time::Duration};
use storage::{
    Clock, Storage,
    runs::{Append, Appended, AttemptState, AttemptUpdate, LANE_TIMER, NewAttempt},
};
use testkit::{Postgres, PostgresSettings};

const HOUR: Duration = Duration::from_secs(3600);
const HOUR_MS: i64 = 3_600_000;
/// Between two looks at the same deadline some time passes.
const NEAR_MS: i64 = 60_000;

/// A server whose clock can be stepped.
struct Stepped {
    clock: Arc<testkit::Clock>,
    storage: Storage,
    url: String,
    _server: Postgres,
}

impl Stepped {
    /// `None`: the suite runs without servers.
    async fn start() -> Option<Self> {
        testkit::server_url("TEST_DATABASE_URL")?;
        let clock = Arc::new(testkit::Clock::new().unwrap());
        let settings = PostgresSettings { clock: Some(Arc::clone(&clock)), ..PostgresSettings::default() };
        let server = Postgres::start_with(settings).await.unwrap();
        let url = server.url();
        let storage = open(&url).await;
        Some(Self { clock, storage, url, _server: server })
    }

    async fn engine(&self) -> Clock {
        let clock = Clock::new(self.storage.clone());
        assert_eq!(clock.watch().await.unwrap(), None);
        clock
    }

    /// Outstanding attempts that are due in an hour: one that runs, and what `others` are.
    async fn attempts(&self, others: &[NewAttempt]) -> RunId {
        let (run_id, running) = (RunId(id()), ExecutionId(id()));
        let now = self.storage.now().await.unwrap();
        let mut append = Append { at: now, ..start(run_id) };
        append.open = vec![attempt(running, Some(now.plus(HOUR)))];
        append.open.extend(others.iter().cloned());
        assert_eq!(self.storage.runs().append(&[append]).await.unwrap(), [Appended::Done]);
        let update = AttemptUpdate {
            state: Some(AttemptState::Running),
            acked_at: Some(now),
            ..AttemptUpdate::new(running)
        };
        let append = Append { update: vec![update], at: now, ..step(run_id, 1) };
        assert_eq!(self.storage.runs().append(&[append]).await.unwrap(), [Appended::Done]);
        run_id
    }

    async fn execute(&self, text: &'static str) {
        let pool = sqlx::PgPool::connect(&self.url).await.unwrap();
        sqlx::query(text).execute(&pool).await.unwrap();
        pool.close().await;
    }

    /// The last word was left on another machine.
    async fn word_of_another_machine(&self) {
        self.execute("UPDATE clock_watch SET boot_id = 'another'").await;
    }

    /// All engines have been away for half an hour.
    async fn outage(&self) {
        self.execute(
            "UPDATE clock_watch SET seen_at = seen_at - 1800000, uptime_at = uptime_at - 1800000, \
             uptime_ms = uptime_ms - 1800000",
        )
        .await;
    }

    /// How long until the deadlines of the run's attempts, in milliseconds by the database's clock.
    async fn left(&self, run_id: RunId) -> Vec<i64> {
        let now = self.storage.now().await.unwrap();
        let rows = self.storage.runs().outstanding(run_id).await.unwrap();
        rows.iter().map(|row| row.deadline.unwrap().0 - now.0).collect()
    }
}

fn near(left: i64, expected: i64) -> bool {
    (expected - NEAR_MS..=expected + NEAR_MS).contains(&left)
}

#[tokio::test(flavor = "multi_thread")]
async fn deadlines_step_along_with_the_clock_once_whoever_sees_it() {
    let Some(world) = Stepped::start().await else { return };
    let engines = [world.engine().await, world.engine().await];
    let run_id = world.attempts(&[]).await;
    for offset in [3600, 0, -3600, 0] {
        world.clock.step(offset).unwrap();
        let (one, other) = tokio::join!(engines[0].watch(), engines[1].watch());
        let seen = [one.unwrap(), other.unwrap()];
        assert_eq!(seen.iter().flatten().count(), 1, "{offset}: one of the two deals with it: {seen:?}");
        for _ in 0..2 {
            let left = world.left(run_id).await;
            assert!(near(left[0], HOUR_MS), "{offset}: {left:?}");
            // Later looks find nothing more to do.
            assert_eq!(engines[1].watch().await.unwrap(), None);
        }
        let behind = world.storage.now().await.unwrap().0 - engines[0].now().0;
        assert!(behind.abs() < NEAR_MS, "{offset}: the engine goes by the new time");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_overdue_at_the_step_is_due_after_it_however_often_engines_look() {
    let Some(world) = Stepped::start().await else { return };
    let engine = world.engine().await;
    for offset in [3600, 0] {
        let now = world.storage.now().await.unwrap();
        let run_id = world.attempts(&[attempt(ExecutionId(id()), Some(Millis(now.0 - 500)))]).await;
        world.clock.step(offset).unwrap();
        engine.watch().await.unwrap().expect("a step");
        engine.watch().await.unwrap();
        let left = world.left(run_id).await;
        assert!(left.iter().any(|left| near(*left, 0)), "{offset}: {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_reckoned_by_the_old_time_and_stored_after_the_step_steps_along_too() {
    let Some(world) = Stepped::start().await else { return };
    let engine = world.engine().await;
    for (offset, next) in [(3600, 0), (0, -3600), (-3600, 0)] {
        world.clock.step(offset).unwrap();
        engine.watch().await.unwrap();
        let behind = world.attempts(&[]).await;
        world.clock.step(next).unwrap();
        let old = engine.now();
        engine.watch().await.unwrap().expect("a step");
        // An engine that has not looked yet stores an ack.
        let late = RunId(id());
        let execution_id = ExecutionId(id());
        let mut append = Append { at: old, ..start(late) };
        append.open = vec![attempt(execution_id, Some(old.plus(HOUR / 2)))];
        world.storage.runs().append(&[append]).await.unwrap();
        engine.watch().await.unwrap();
        let left = world.left(late).await;
        assert!(near(left[0], HOUR_MS / 2), "{offset} {next}: {left:?}");
        let left = world.left(behind).await;
        assert!(near(left[0], HOUR_MS), "{offset} {next}: the others stepped once: {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_after_the_step_keeps_its_deadline_and_a_delay_its_moment() {
    let Some(world) = Stepped::start().await else { return };
    let engine = world.engine().await;
    let claimed = ExecutionId(id());
    let until = world.storage.now().await.unwrap().plus(2 * HOUR);
    let delay = NewAttempt {
        lane: LANE_TIMER.to_owned(),
        node_type: "system.delay".to_owned(),
        ..attempt(ExecutionId(id()), Some(until))
    };
    let run_id = world.attempts(&[attempt(claimed, Some(Millis(1))), delay]).await;
    world.clock.step(3600).unwrap();
    assert_eq!(world.storage.runs().claim_dispatch(&[claimed], HOUR / 2).await.unwrap(), [true]);
    engine.watch().await.unwrap().expect("a step");
    let [claimed, delayed, running] = world.left(run_id).await[..] else { panic!("three attempts") };
    assert!(near(claimed, HOUR_MS / 2), "{claimed}");
    assert!(near(delayed, HOUR_MS), "an hour nearer: {delayed}");
    assert!(near(running, HOUR_MS), "{running}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_goes_with_the_clock_forth_and_back() {
    let Some(world) = Stepped::start().await else { return };
    let engine = world.engine().await;
    let claimed = ExecutionId(id());
    let run_id = world.attempts(&[attempt(claimed, Some(Millis(1)))]).await;
    assert_eq!(world.storage.runs().claim_dispatch(&[claimed], HOUR / 2).await.unwrap(), [true]);
    for offset in [3600, 0, -3600, 0] {
        world.clock.step(offset).unwrap();
        engine.watch().await.unwrap().expect("a step");
        let left = world.left(run_id).await;
        assert!(left.iter().any(|left| near(*left, HOUR_MS / 2)), "{offset}: {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_that_was_halted_while_another_watched_moves_nothing() {
    let Some(world) = Stepped::start().await else { return };
    let (halted, other) = (world.engine().await, world.engine().await);
    world.clock.step(3600).unwrap();
    other.watch().await.unwrap().expect("a step");
    let run_id = world.attempts(&[]).await;
    assert_eq!(halted.watch().await.unwrap(), None);
    let left = world.left(run_id).await;
    assert!(near(left[0], HOUR_MS), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_goes_forth_and_back_leaves_nothing_behind_whoever_saw_which() {
    let Some(world) = Stepped::start().await else { return };
    for offset in [3600, -3600] {
        let (one, other) = (world.engine().await, world.engine().await);
        let run_id = world.attempts(&[]).await;
        world.clock.step(offset).unwrap();
        one.watch().await.unwrap().expect("a step");
        // The engine that has seen it is killed; the other never knew.
        drop(one);
        world.clock.step(0).unwrap();
        other.watch().await.unwrap().expect("a step back");
        let left = world.left(run_id).await;
        assert!(near(left[0], HOUR_MS), "{offset}: {left:?}");

        // An engine that starts meanwhile on another machine cannot know, and leaves it to who can.
        world.word_of_another_machine().await;
        world.clock.step(3600).unwrap();
        let started = Clock::new(world.storage.clone());
        assert_eq!(started.watch().await.unwrap(), None);
        other.watch().await.unwrap().expect("a step");
        world.clock.step(0).unwrap();
        started.watch().await.unwrap().expect("a step");
        assert_eq!(other.watch().await.unwrap(), None);
        let left = world.left(run_id).await;
        assert!(near(left[0], HOUR_MS), "{offset}: {left:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_step_while_all_engines_are_away_is_told_from_the_outage_on_their_machine() {
    let Some(world) = Stepped::start().await else { return };
    for offset in [3600, 0, -3600] {
        let engine = world.engine().await;
        let run_id = world.attempts(&[]).await;
        drop(engine);
        world.outage().await;
        world.clock.step(offset).unwrap();
        let engine = Clock::new(world.storage.clone());
        engine.watch().await.unwrap().expect("a step");
        let left = world.left(run_id).await;
        assert!(near(left[0], HOUR_MS), "{offset}: {left:?}");
        assert_eq!(engine.watch().await.unwrap(), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_outage_of_all_engines_alone_is_no_step() {
    let Some(world) = Stepped::start().await else { return };
    drop(world.engine().await);
    let run_id = world.attempts(&[]).await;
    world.outage().await;
    let engine = world.engine().await;
    assert_eq!(engine.watch().await.unwrap(), None);
    let left = world.left(run_id).await;
    assert!(near(left[0], HOUR_MS), "{left:?}");
}

/// What a machine cannot know is stated: by a step back, what is outstanding waits longer by the outage;
/// a step forward passes for one.
#[tokio::test(flavor = "multi_thread")]
async fn on_another_machine_the_outage_that_a_step_fell_into_is_waited_for_once_more_at_most() {
    let Some(world) = Stepped::start().await else { return };
    for (offset, moved) in [(-3600, HOUR_MS / 2), (0, -HOUR_MS)] {
        let engine = world.engine().await;
        let run_id = world.attempts(&[]).await;
        drop(engine);
        world.outage().await;
        world.word_of_another_machine().await;
        world.clock.step(offset).unwrap();
        Clock::new(world.storage.clone()).watch().await.unwrap();
        let left = world.left(run_id).await;
        assert!(near(left[0], HOUR_MS + moved), "{offset}: {left:?}");
    }
}
