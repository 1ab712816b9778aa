//! `make bench`: durable step results per second through the whole door (plugin socket → control plane
//! → engine → PostgreSQL commit → answer), interleaved with a `NestJS` 11 TCP microservice that checks a
//! key and inserts one row per result, on the same PostgreSQL in the same minutes. Also what a crowd of
//! hostile clients does to a healthy one.

mod cpu;
mod load;
mod report;
mod rival;
mod siege;
mod us;

use load::Work;
use report::Report;
use std::{
    error::Error,
    process::ExitCode,
    time::{Duration, Instant},
};
use testkit::{Postgres, PostgresSettings};

/// Results in flight at once.
const IN_FLIGHT: [usize; 3] = [1, 64, 256];

/// Rounds; in each both sides run every concurrency once.
const ROUNDS: usize = 3;

/// One slice of measuring.
const SLICE: Duration = Duration::from_secs(2);

/// When this is over no round is begun.
const NO_MORE_ROUNDS: Duration = Duration::from_secs(75);

/// Everything together takes less.
const LIMIT: Duration = Duration::from_secs(180);

#[tokio::main]
async fn main() -> ExitCode {
    match tokio::time::timeout(LIMIT, measure()).await {
        Ok(Ok(report)) => {
            print!("{report}");
            ExitCode::SUCCESS
        }
        Ok(Err(error)) => {
            eprintln!("the benchmark failed: {error}");
            ExitCode::FAILURE
        }
        Err(_) => {
            eprintln!("the benchmark did not end within {} s; is the machine busy?", LIMIT.as_secs());
            ExitCode::FAILURE
        }
    }
}

async fn measure() -> Result<Report, Box<dyn Error>> {
    let settings = PostgresSettings {
        durable: true,
        extra: ["synchronous_commit=on", "shared_buffers=512MB", "max_wal_size=4GB"]
            .map(str::to_owned)
            .into(),
    };
    let postgres = Postgres::start_with(settings).await?;
    let rival = rival::Rival::start(&testkit::fresh_database(&postgres.url()).await?).await?;
    let us = us::Us::start(&testkit::fresh_database(&postgres.url()).await?).await?;
    let mut report = Report::default();
    let start = Instant::now();
    for round in 0..ROUNDS {
        // On a busy machine fewer rounds are better than none.
        if start.elapsed() > NO_MORE_ROUNDS {
            break;
        }
        for in_flight in IN_FLIGHT {
            // Attempts enough for the slice, whatever the machine; they are not part of the measuring.
            let preparing = Instant::now();
            let attempts = us.outstanding(report.enough(in_flight)).await?;
            let prepared = preparing.elapsed();
            let ours = load::slice(us.client(), Work::Results(attempts), in_flight, SLICE).await?;
            let theirs = Work::Results(rival::attempts(ours.results * 2));
            let theirs = load::slice(rival.client(), theirs, in_flight, SLICE).await?;
            eprintln!(
                "round {} of {ROUNDS}, {in_flight} in flight: {ours} against {theirs}; prepared in {} ms",
                round + 1,
                prepared.as_millis()
            );
            report.add(in_flight, ours, theirs);
        }
    }
    report.siege = Some(siege::measure(&us).await?);
    report.save()?;
    Ok(report)
}
