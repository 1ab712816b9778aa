//! The database's clock, read now and then and carried on by this machine's monotonic one, and what is
//! done when the database's clock steps (protocol section 5).
//!
//! Whatever decides about time goes by the database's clock, so that services on machines whose clocks
//! differ agree, and a step of a service's own clock changes nothing. Asking the database for each
//! decision would cost a round trip.
//!
//! When the database's own clock steps, outstanding deadlines step along: no step fails because of it,
//! and nothing is waited for longer. Engines leave word of the time that they see: deadlines are reckoned
//! by the time of the last word. How long ago that was left, an engine knows by its monotonic clock: what
//! the database's clock tells beyond that is a step. An engine whose machine was halted, and its monotonic
//! clock with it, finds a fresh word of the others, and takes the time that passed for no step.
//!
//! When all engines were away, the first one that starts on the machine of the last word still knows how
//! long: with its word each leaves the uptime of its machine. On another machine, or after a restart of
//! that one, it knows only that the time is later than the word: a step back is told from an outage then,
//! a step forward is not, and what was outstanding waits longer by the outage that a step back fell into.

mod uptime;

use crate::{Storage, db::in_tx, error::Result};
use contract::Millis;
use sqlx::QueryBuilder;
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};
use uptime::Uptime;

/// A smaller difference is no step: a slow answer, or a clock that is being slewed.
const TOLERANCE_MS: i64 = 15_000;
/// How old the word of the engines may get.
const WORD_MS: i64 = 5_000;
/// How old that of the only engine may get, which only the next one needs.
const WORD_ALONE_MS: i64 = 60_000;
/// So long an engine that starts says nothing of a time far ahead of the last word: engines that knew the
/// time before can tell whether it has passed.
const SILENCE: Duration = Duration::from_secs(30);
/// So long after a step, deadlines may come in that were reckoned before it.
const STRAGGLERS_MS: i64 = 60_000;

/// A step of the database's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClockStep {
    /// What the clock would have told.
    pub from: Millis,
    /// What it told.
    pub to: Millis,
}

impl ClockStep {
    /// How far it went, in milliseconds; negative: back.
    pub fn by_ms(self) -> i64 {
        self.to.0.saturating_sub(self.from.0)
    }
}

/// The database's clock.
#[derive(Debug)]
pub struct Clock {
    storage: Storage,
    anchor: Mutex<Anchor>,
    watch: Mutex<Option<Watch>>,
}

#[derive(Clone, Copy, Debug)]
struct Anchor {
    at: Instant,
    time: Millis,
}

/// What an engine that watches remembers.
#[derive(Clone, Copy, Debug)]
struct Watch {
    began: Instant,
    /// When it looked last, and the word that was left then.
    looked: Instant,
    word: Millis,
}

/// Where the clock should stand: between these.
type Expected = (Millis, Millis);

/// The word that engines left, as it is stored.
#[derive(Debug, sqlx::FromRow)]
struct Word {
    seen_at: i64,
    stepped_from: Option<i64>,
    stepped_to: Option<i64>,
    boot_id: Option<String>,
    uptime_ms: Option<i64>,
    uptime_at: Option<i64>,
    /// What the clock tells now.
    now: i64,
}

impl Word {
    /// The last step.
    fn step(&self) -> Option<ClockStep> {
        self.stepped_from
            .zip(self.stepped_to)
            .map(|(from, to)| ClockStep { from: Millis(from), to: Millis(to) })
    }

    /// How long ago it was left, by the uptime of this machine, in milliseconds; `None`: this machine
    /// does not know. An engine that knows of no uptime leaves that of an older word.
    fn age_ms(&self, uptime: Option<&Uptime>) -> Option<i64> {
        let then = Uptime::stored(self.boot_id.clone(), self.uptime_ms)?;
        uptime?.since(&then).filter(|_| self.uptime_at == Some(self.seen_at))
    }
}

impl Clock {
    /// A clock that tells this machine's time until it has read the database's.
    pub fn new(storage: Storage) -> Self {
        let time = Millis(0).plus(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        Self { storage, anchor: Mutex::new(Anchor { at: Instant::now(), time }), watch: Mutex::default() }
    }

    /// Now, by the database's clock.
    pub fn now(&self) -> Millis {
        let anchor = self.anchor();
        anchor.time.plus(anchor.at.elapsed())
    }

    /// Reads the database's clock again: two clocks drift.
    ///
    /// # Errors
    /// [`crate::Error::Unavailable`], when the database does not answer.
    pub async fn refresh(&self) -> Result<()> {
        let asked = Instant::now();
        let time = self.storage.now().await?;
        self.set(asked, time);
        Ok(())
    }

    /// As [`Self::refresh`], for engines: leaves word of the time, and when the clock has stepped, lets
    /// all outstanding deadlines step along, once for all engines. Answers with the step.
    ///
    /// Delays are moments of the clock: a step forward does not move them.
    ///
    /// # Errors
    /// As [`Self::refresh`].
    pub async fn watch(&self) -> Result<Option<ClockStep>> {
        let (db, is_alone) = (&self.storage.db, !self.storage.is_shared());
        let before = *lock(&self.watch);
        let (asked, time, word, step) = in_tx!(db, |c| {
            let (asked, earliest, uptime) = (Instant::now(), self.now(), Uptime::read());
            let mut query = QueryBuilder::new(
                "SELECT seen_at, stepped_from, stepped_to, boot_id, uptime_ms, uptime_at, ",
            );
            query.push(db.clock()).push(" AS now FROM clock_watch WHERE id = 1").push(db.locked());
            let found: Word = query.build_query_as().fetch_one(&mut *c).await?;
            let (time, mut word) = (Millis(found.now), Millis(found.seen_at));
            let age = found.age_ms(uptime.as_ref()).map(|ms| (ms, asked.elapsed()));
            let step = judge(time, expected(before, (earliest, self.now()), (word, age), is_alone));
            let last = found.step();
            if let Some(step) = step {
                follow(step).build().execute(&mut *c).await?;
            } else if let Some(last) = last.filter(|last| (0..=STRAGGLERS_MS).contains(&(time.0 - last.to.0)))
            {
                follow_late(last, time).build().execute(&mut *c).await?;
            }
            let leaves = match is_alone {
                true => (time.0 - word.0).abs() >= WORD_ALONE_MS,
                false => leaves_word(before, age.is_some(), word, time),
            };
            if step.is_some() || leaves {
                let last = step.or(last);
                sqlx::query(LEAVE)
                    .bind(time.0)
                    .bind(last.map(|last| last.from.0))
                    .bind(last.map(|last| last.to.0))
                    .bind(uptime.as_ref().map(Uptime::boot_id))
                    .bind(uptime.as_ref().map(Uptime::at_ms))
                    .execute(&mut *c)
                    .await?;
                word = time;
            }
            Ok((asked, time, word, step))
        })?;
        self.set(asked, time);
        let began = before.map_or(asked, |before| before.began);
        *lock(&self.watch) = Some(Watch { began, looked: asked, word });
        if let Some(step) = step {
            tracing::warn!(
                event = "clock_stepped",
                by_ms = step.by_ms(),
                "the database's clock has stepped; outstanding deadlines were moved along"
            );
        }
        Ok(step)
    }

    fn anchor(&self) -> Anchor {
        *lock(&self.anchor)
    }

    /// The reading lies somewhere between question and answer: the middle halves the error.
    fn set(&self, asked: Instant, time: Millis) {
        *lock(&self.anchor) = Anchor { at: asked + asked.elapsed() / 2, time };
    }
}

const LEAVE: &str = "\
    UPDATE clock_watch SET seen_at = $1, stepped_from = $2, stepped_to = $3, boot_id = $4, uptime_ms = $5, \
    uptime_at = $1 WHERE id = 1";

fn lock<T>(value: &Mutex<T>) -> MutexGuard<'_, T> {
    value.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the clock should stand, for an engine that remembers `before`; `own` is what it reckons from its
/// own last look. If another has left word since, its word counts, left at some time after that look.
/// One that has just started goes by the age of the word, where its machine knows that (with the time
/// that the answer took); else by no more than that it is later than the word.
fn expected(
    before: Option<Watch>,
    own: Expected,
    (word, age): (Millis, Option<(i64, Duration)>),
    is_alone: bool,
) -> Option<Expected> {
    match (before, age) {
        (Some(before), _) if before.word == word => Some(own),
        (Some(before), _) => Some((word, word.plus(before.looked.elapsed()))),
        (None, Some((age_ms, took))) => {
            let earliest = Millis(word.0.saturating_add(age_ms));
            Some((earliest, earliest.plus(took)))
        }
        (None, None) if is_alone => None,
        (None, None) => Some((word, Millis(i64::MAX))),
    }
}

/// Has the clock stepped?
fn judge(time: Millis, expected: Option<Expected>) -> Option<ClockStep> {
    let (earliest, latest) = expected?;
    let from = time.clamp(earliest, latest);
    (time.0.saturating_sub(from.0).abs() > TOLERANCE_MS).then_some(ClockStep { from, to: time })
}

/// Is it time for a word, and for this engine to leave it?
fn leaves_word(before: Option<Watch>, knows_age: bool, word: Millis, time: Millis) -> bool {
    let ahead = time.0.saturating_sub(word.0);
    let is_silent = !knows_age && before.is_none_or(|before| before.began.elapsed() < SILENCE);
    // The very first word of all is none that others could contradict.
    ahead.abs() >= WORD_MS && (!is_silent || ahead <= TOLERANCE_MS || word == Millis(0))
}

/// Moves all outstanding deadlines, but for those of claims after the step: they were reckoned by the
/// new time already. Whatever is stamped later than now is of now.
fn follow<DB: sqlx::Database>(step: ClockStep) -> QueryBuilder<DB>
where
    i64: sqlx::Type<DB> + for<'q> sqlx::Encode<'q, DB>,
{
    let mut query = moved(step);
    query
        .push(" WHERE outstanding AND deadline IS NOT NULL AND NOT (state = 'dispatched' AND dispatched_at ");
    if step.by_ms() > 0 {
        query.push("> ").push_bind(step.from.0 + step.by_ms() / 2).push(")").push(NO_DELAY);
    } else {
        query.push("<= ").push_bind(step.to.0).push(")");
    }
    query
}

/// Moves deadlines that were reckoned by the old time and stored after [`follow`]. By the new time,
/// a step forward has left them behind, or, after a step back, their stamps lie ahead.
fn follow_late<DB: sqlx::Database>(step: ClockStep, now: Millis) -> QueryBuilder<DB>
where
    i64: sqlx::Type<DB> + for<'q> sqlx::Encode<'q, DB>,
{
    let mut query = moved(step);
    query.push(" WHERE outstanding AND deadline IS NOT NULL AND ");
    if step.by_ms() > 0 {
        query.push("deadline > ").push_bind(step.from.0).push(" AND deadline < ").push_bind(step.to.0);
        query.push(NO_DELAY);
    } else {
        let ahead = now.0 + TOLERANCE_MS;
        query.push("(opened_at > ").push_bind(ahead).push(" OR acked_at > ").push_bind(ahead).push(")");
    }
    query
}

const NO_DELAY: &str = " AND NOT (lane = 'timer' AND node_type = 'system.delay')";

fn moved<DB: sqlx::Database>(step: ClockStep) -> QueryBuilder<DB>
where
    i64: sqlx::Type<DB> + for<'q> sqlx::Encode<'q, DB>,
{
    // What had passed already is due at the new time, not before it: there, [`follow_late`] looks for
    // deadlines that did not step along, and would take it for one of them.
    let mut query = QueryBuilder::new("UPDATE attempts SET deadline = CASE WHEN deadline < ");
    query.push_bind(step.from.0).push(" THEN ").push_bind(step.to.0).push(" ELSE deadline + ");
    query.push_bind(step.by_ms()).push(" END");
    if step.by_ms() > 0 {
        // By this stamp a step back tells claims before it, which it moves, from those after it.
        query.push(", dispatched_at = CASE WHEN state = 'dispatched' THEN dispatched_at + ");
        query.push_bind(step.by_ms()).push(" ELSE dispatched_at END");
        return query;
    }
    for stamp in ["opened_at", "acked_at", "dispatched_at"] {
        query.push(format_args!(", {stamp} = CASE WHEN {stamp} > ")).push_bind(step.to.0).push(" THEN ");
        query.push_bind(step.to.0).push(format_args!(" ELSE {stamp} END"));
    }
    query
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    /// A look that finds this time and this word, a second after one that found those.
    fn looked(before: Option<(i64, i64)>, time: i64, word: i64) -> Option<i64> {
        let looked = Instant::now().checked_sub(Duration::from_secs(1)).unwrap();
        let watch = before.map(|(_, word)| Watch { began: looked, looked, word: Millis(word) });
        let own =
            before.map_or((Millis(0), Millis(0)), |(time, _)| (Millis(time + 1000), Millis(time + 1005)));
        judge(Millis(time), expected(watch, own, (Millis(word), None), false)).map(ClockStep::by_ms)
    }

    fn is_about(step: Option<i64>, by: i64) -> bool {
        step.is_some_and(|step| (step - by).abs() < 10_000)
    }

    #[test]
    fn time_that_nobody_saw_pass_is_a_step() {
        assert!(is_about(looked(Some((HOUR, HOUR)), 2 * HOUR, HOUR), HOUR));
        assert!(is_about(looked(Some((2 * HOUR, 2 * HOUR)), HOUR, 2 * HOUR), -HOUR));
        assert_eq!(looked(Some((HOUR, HOUR)), HOUR + 1002, HOUR), None);
    }

    #[test]
    fn time_that_another_engine_saw_pass_is_none() {
        assert_eq!(looked(Some((HOUR, HOUR)), 2 * HOUR, 2 * HOUR - 4_000), None, "this machine was halted");
        assert_eq!(looked(Some((HOUR, HOUR)), 2 * HOUR, 2 * HOUR), None, "another has followed the step");
    }

    #[test]
    fn a_step_that_another_engine_followed_is_taken_back_with_the_clock() {
        let step = looked(Some((HOUR, HOUR)), HOUR + 1000, 2 * HOUR);
        assert!(is_about(step, -HOUR), "forth and back between two looks: {step:?}");
        let step = looked(Some((2 * HOUR, 2 * HOUR)), 2 * HOUR + 1000, HOUR);
        assert!(is_about(step, HOUR), "back and forth: {step:?}");
    }

    #[test]
    fn small_differences_and_slow_answers_are_no_steps() {
        assert_eq!(looked(Some((HOUR, HOUR)), HOUR + TOLERANCE_MS, HOUR), None);
        assert_eq!(judge(Millis(HOUR + HOUR / 2), Some((Millis(HOUR), Millis(2 * HOUR)))), None);
    }

    #[test]
    fn an_engine_that_starts_knows_a_step_back_and_says_nothing_of_a_time_far_ahead() {
        assert!(is_about(looked(None, HOUR, 2 * HOUR), -HOUR));
        assert_eq!(looked(None, 2 * HOUR, HOUR), None, "all engines may have been away");
        assert!(!leaves_word(None, false, Millis(HOUR), Millis(2 * HOUR)));
        assert!(leaves_word(None, false, Millis(HOUR), Millis(HOUR + 6_000)));
        assert!(leaves_word(None, false, Millis(0), Millis(2 * HOUR)), "the first of all");
        let long_ago = Instant::now().checked_sub(SILENCE).unwrap();
        let watch = Watch { began: long_ago, looked: long_ago, word: Millis(HOUR) };
        assert!(leaves_word(Some(watch), false, Millis(HOUR), Millis(2 * HOUR)), "nobody has contradicted");
    }

    #[test]
    fn an_engine_that_starts_where_the_last_word_was_left_tells_an_outage_from_a_step() {
        let own = (Millis(0), Millis(0));
        let stepped = |by: i64, is_alone| {
            let word = (Millis(5 * HOUR), Some((HOUR, Duration::from_millis(5))));
            judge(Millis(6 * HOUR + by), expected(None, own, word, is_alone)).map(ClockStep::by_ms)
        };
        for is_alone in [false, true] {
            assert_eq!(stepped(0, is_alone), None, "an hour has passed");
            assert!(is_about(stepped(2 * HOUR, is_alone), 2 * HOUR));
            assert!(is_about(stepped(-2 * HOUR, is_alone), -2 * HOUR), "not by the outage less");
        }
        assert!(leaves_word(None, true, Millis(HOUR), Millis(2 * HOUR)), "it knows that they have passed");
    }

    #[test]
    fn a_word_of_an_engine_that_knew_of_no_uptime_has_no_known_age() {
        let now = Uptime::read().unwrap();
        let word = |seen_at| Word {
            seen_at,
            stepped_from: None,
            stepped_to: None,
            boot_id: Some(now.boot_id().to_owned()),
            uptime_ms: Some(now.at_ms() - 7_000),
            uptime_at: Some(HOUR),
            now: 2 * HOUR,
        };
        assert_eq!(word(HOUR).age_ms(Some(&now)), Some(7_000));
        assert_eq!(word(HOUR + 5_000).age_ms(Some(&now)), None, "the uptime is of an older word");
        assert_eq!(word(HOUR).age_ms(None), None);
    }
}
