//! `make bench`: durable step results per second through the whole door (plugin socket → control plane
//! → engine → PostgreSQL commit → answer), interleaved with a `NestJS` 11 TCP microservice that checks a
//! key and inserts one row per result, on the same PostgreSQL in the same minutes. Also what a crowd of
//! hostile clients does to a healthy one.

mod arguments;
mod chains;
mod cpu;
mod load;
mod report;
mod rival;
mod siege;
mod us;

use arguments::{Arguments, Part};
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
const LIMIT: Duration = Duration::from_secs(240);

// One thread: the load generator shares the processors with what it measures.
#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let arguments = match Arguments::read() {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("{message}");
            return ExitCode::from(2);
        }
    };
    match tokio::time::timeout(LIMIT, measure(&arguments)).await {
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

async fn measure(arguments: &Arguments) -> Result<Report, Box<dyn Error>> {
    let settings = PostgresSettings {
        durable: true,
        extra: ["synchronous_commit=on", "shared_buffers=512MB", "max_wal_size=4GB"]
            .map(str::to_owned)
            .into(),
        ..PostgresSettings::default()
    };
    let postgres = Postgres::start_with(settings).await?;
    let us = us::Us::start(&testkit::fresh_database(&postgres.url()).await?).await?;
    let mut report = Report::default();
    if arguments.wants(Part::Door) {
        measure_door(arguments, &postgres, &us, &mut report).await?;
    }
    if arguments.wants(Part::Chains) {
        report.chains = Some(chains::measure(&us, arguments.rounds(ROUNDS)).await?);
    }
    if arguments.wants(Part::Siege) {
        report.siege = Some(siege::measure(&us).await?);
    }
    if arguments.is_whole() {
        report.save()?;
    }
    Ok(report)
}

/// Results through the whole door, in turns with the rival.
async fn measure_door(
    arguments: &Arguments,
    postgres: &Postgres,
    us: &us::Us,
    report: &mut Report,
) -> Result<(), Box<dyn Error>> {
    let rival = match arguments.skip_rival {
        true => None,
        false => Some(rival::Rival::start(&testkit::fresh_database(&postgres.url()).await?).await?),
    };
    let (levels, rounds) = (arguments.levels(&IN_FLIGHT), arguments.rounds(ROUNDS));
    let start = Instant::now();
    for round in 0..rounds {
        // On a busy machine fewer rounds are better than none.
        if start.elapsed() > NO_MORE_ROUNDS {
            break;
        }
        for in_flight in levels.iter().copied() {
            // Attempts enough for the slice, whatever the machine; they are not part of the measuring.
            let preparing = Instant::now();
            let attempts = us.outstanding(report.enough(in_flight)).await?;
            let prepared = preparing.elapsed();
            let ours = load::slice(us.client(), Work::Results(attempts), in_flight, SLICE).await?;
            let theirs = match &rival {
                None => None,
                Some(rival) => {
                    let work = Work::Results(rival::attempts(ours.results * 2));
                    Some(load::slice(rival.client(), work, in_flight, SLICE).await?)
                }
            };
            eprintln!(
                "round {} of {rounds}, {in_flight} in flight: {ours} against {}; prepared in {} ms",
                round + 1,
                theirs.as_ref().map_or_else(|| "nobody".to_owned(), ToString::to_string),
                prepared.as_millis()
            );
            report.add(in_flight, ours, theirs);
        }
    }
    Ok(())
}
