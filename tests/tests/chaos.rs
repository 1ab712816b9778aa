//! The fault suite. `make chaos` runs it for five minutes with a seed of its own; the short form
//! belongs to every test run that has servers.

use std::time::{Duration, SystemTime, UNIX_EPOCH};
use system_tests::chaos;

/// Faults and load of the short form.
const SHORT: Duration = Duration::from_secs(20);
/// Of the short form; every kind of fault comes once.
const SEED: u64 = 20_261_130;

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok().filter(|text| !text.is_empty())?;
    Some(text.parse().unwrap_or_else(|_| panic!("{variable}={text} is no number")))
}

async fn holds(seed: u64, length: Duration) {
    let verdict = chaos::run(seed, length).await;
    println!("seed {seed}\n{verdict}");
    assert!(verdict.violations.is_empty(), "seed {seed}: promises were broken\n{verdict}");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_nothing_doubled_whatever_is_killed() {
    if testkit::server_url("TEST_DATABASE_URL").is_none() {
        return;
    }
    let seconds = number("CHAOS_SECONDS").map_or(SHORT, Duration::from_secs);
    // `CHAOS_SEED=0` asks for one that nobody chose.
    let seed = match number("CHAOS_SEED") {
        None => SEED,
        Some(0) => SystemTime::now().duration_since(UNIX_EPOCH).map_or(SEED, |now| now.as_secs()),
        Some(seed) => seed,
    };
    holds(seed, seconds).await;
}
