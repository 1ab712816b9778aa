//! The database's clock, read now and then and carried on by this machine's monotonic one, and what is
//! done when the database's clock steps (protocol section 5).
//!
//! Whatever decides about time goes by the database's clock, so that services on machines whose clocks
//! differ agree, and a step of a service's own clock changes nothing. Asking the database for each
//! decision would cost a round trip.
//!
//! When the database's own clock steps, outstanding deadlines step along: no step fails because of it,
//! and nothing is waited for longer. An engine knows a step from time that passed by its monotonic
//! clock. That alone would be too little: the machine of an engine may have been halted, and its
//! monotonic clock with it. So engines leave word of the time that they see; what none of them has seen
//! pass is a step.

use crate::{Storage, db::in_tx, error::Result};
use contract::Millis;
use sqlx::QueryBuilder;
use std::{
    sync::{Mutex, PoisonError},
    time::{Instant, SystemTime, UNIX_EPOCH},
};

/// A smaller difference is no step: a slow answer, or a clock that is being slewed.
const TOLERANCE_MS: i64 = 15_000;
/// How old the word of the engines may get.
const WORD_MS: i64 = 5_000;
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
}

#[derive(Clone, Copy, Debug)]
struct Anchor {
    at: Instant,
    time: Millis,
    /// Is it the database's time? Before the first reading it is this machine's.
    is_read: bool,
}

impl Clock {
    /// A clock that tells this machine's time until it has read the database's.
    pub fn new(storage: Storage) -> Self {
        let time = Millis(0).plus(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default());
        Self { storage, anchor: Mutex::new(Anchor { at: Instant::now(), time, is_read: false }) }
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
        let (asked, time, step) = in_tx!(db, |c| {
            let asked = Instant::now();
            let earliest = self.now();
            let mut query = QueryBuilder::new("SELECT seen_at, stepped_from, stepped_to, ");
            query.push(db.clock()).push(" FROM clock_watch WHERE id = 1").push(db.locked());
            let (seen_at, from, to, time): (i64, Option<i64>, Option<i64>, i64) =
                query.build_query_as().fetch_one(&mut *c).await?;
            let expected = self.anchor().is_read.then(|| (earliest, self.now()));
            let step = judge(Millis(time), expected, (!is_alone).then_some(Millis(seen_at)));
            if let Some(step) = step {
                follow(step).build().execute(&mut *c).await?;
            } else if let Some(before) =
                from.zip(to).map(|(from, to)| ClockStep { from: Millis(from), to: Millis(to) })
                && (0..=STRAGGLERS_MS).contains(&(time - before.to.0))
            {
                follow_late(before, Millis(time)).build().execute(&mut *c).await?;
            }
            if step.is_some() || (!is_alone && (time - seen_at).abs() >= WORD_MS) {
                let (from, to) = step.map_or((from, to), |step| (Some(step.from.0), Some(step.to.0)));
                sqlx::query(
                    "UPDATE clock_watch SET seen_at = $1, stepped_from = $2, stepped_to = $3 WHERE id = 1",
                )
                .bind(time)
                .bind(from)
                .bind(to)
                .execute(&mut *c)
                .await?;
            }
            Ok((asked, Millis(time), step))
        })?;
        self.set(asked, time);
        Ok(step)
    }

    fn anchor(&self) -> Anchor {
        *self.anchor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The reading lies somewhere between question and answer: the middle halves the error.
    fn set(&self, asked: Instant, time: Millis) {
        let anchor = Anchor { at: asked + asked.elapsed() / 2, time, is_read: true };
        *self.anchor.lock().unwrap_or_else(PoisonError::into_inner) = anchor;
    }
}

/// Has the clock stepped? `expected` is what it should tell, between question and answer; without it
/// only a step back shows. `seen` is what engines have seen last; `None`: there is only this one.
fn judge(time: Millis, expected: Option<(Millis, Millis)>, seen: Option<Millis>) -> Option<ClockStep> {
    let is_far = |from: Millis| time.0.saturating_sub(from.0).abs() > TOLERANCE_MS;
    let from = match (expected, seen) {
        (Some((earliest, latest)), _) => time.clamp(earliest, latest),
        (None, Some(seen)) if seen > time => seen,
        (None, _) => return None,
    };
    (is_far(from) && seen.is_none_or(is_far)).then_some(ClockStep { from, to: time })
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
    let mut query = QueryBuilder::new("UPDATE attempts SET deadline = deadline + ");
    query.push_bind(step.by_ms());
    for stamp in ["opened_at", "acked_at"] {
        query.push(format_args!(", {stamp} = CASE WHEN {stamp} > ")).push_bind(step.to.0).push(" THEN ");
        query.push_bind(step.to.0).push(format_args!(" ELSE {stamp} END"));
    }
    query
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: i64 = 3_600_000;

    fn judged(time: i64, expected: Option<i64>, seen: Option<i64>) -> Option<i64> {
        let expected = expected.map(|at| (Millis(at), Millis(at + 5)));
        judge(Millis(time), expected, seen.map(Millis)).map(ClockStep::by_ms)
    }

    #[test]
    fn time_that_nobody_saw_pass_is_a_step() {
        assert_eq!(judged(2 * HOUR, Some(HOUR), Some(HOUR)), Some(HOUR - 5));
        assert_eq!(judged(HOUR, Some(2 * HOUR), Some(2 * HOUR)), Some(-HOUR));
        assert_eq!(judged(2 * HOUR, Some(HOUR), None), Some(HOUR - 5), "nobody else could have seen it");
    }

    #[test]
    fn time_that_another_engine_saw_pass_is_none() {
        assert_eq!(judged(2 * HOUR, Some(HOUR), Some(2 * HOUR - 4_000)), None, "this machine was halted");
        assert_eq!(judged(2 * HOUR, Some(HOUR), Some(2 * HOUR)), None, "another has dealt with the step");
        assert_eq!(judged(2 * HOUR, Some(2 * HOUR), Some(HOUR)), None, "the others were away");
    }

    #[test]
    fn small_differences_and_slow_answers_are_no_steps() {
        assert_eq!(judged(HOUR + TOLERANCE_MS, Some(HOUR), None), None);
        let slow = Some((Millis(HOUR), Millis(2 * HOUR)));
        assert_eq!(judge(Millis(HOUR + HOUR / 2), slow, None), None);
    }

    #[test]
    fn an_engine_that_starts_knows_a_step_back_and_takes_any_later_time_as_it_is() {
        assert_eq!(judged(HOUR, None, Some(2 * HOUR)), Some(-HOUR));
        assert_eq!(judged(2 * HOUR, None, Some(HOUR)), None, "all engines were away");
        assert_eq!(judged(HOUR, None, None), None);
    }
}
