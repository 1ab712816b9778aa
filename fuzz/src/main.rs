//! `fuzz [--seconds N] [--target NAME] [--seed N] [--input FILE]`

use fuzz::{Limits, TARGETS, Target, corpus, run};
use std::{
    env, fs, io,
    os::unix::fs::FileExt,
    process::ExitCode,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

const USAGE: &str = "usage: fuzz [--seconds N] [--target NAME] [--seed N] [--input FILE]";

/// What the command line says.
#[derive(Debug)]
struct Arguments {
    seconds: u64,
    target: Option<String>,
    seed: u64,
    input: Option<String>,
}

fn arguments() -> Result<Arguments, String> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let mut arguments = Arguments { seconds: 60, target: None, seed: now.as_secs(), input: None };
    let mut words = env::args().skip(1);
    while let Some(name) = words.next() {
        let value = words.next().ok_or_else(|| format!("{name} needs a value\n{USAGE}"))?;
        let number = || value.parse().map_err(|_| format!("{name}: `{value}` is no whole number"));
        match name.as_str() {
            "--seconds" => arguments.seconds = number()?,
            "--seed" => arguments.seed = number()?,
            "--target" => arguments.target = Some(value),
            "--input" => arguments.input = Some(value),
            _ => return Err(format!("{name} is unknown\n{USAGE}")),
        }
    }
    Ok(arguments)
}

fn main() -> ExitCode {
    match arguments().and_then(|arguments| work(&arguments)) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            eprintln!("{message}");
            ExitCode::from(2)
        }
    }
}

/// Runs what was asked for. Was nothing found?
fn work(arguments: &Arguments) -> Result<bool, String> {
    let wanted = |target: &&Target| arguments.target.as_ref().is_none_or(|name| *name == target.name);
    let targets: Vec<&Target> = TARGETS.iter().filter(wanted).collect();
    if targets.is_empty() {
        let names: Vec<_> = TARGETS.iter().map(|target| target.name).collect();
        return Err(format!("no such target; there are: {}", names.join(", ")));
    }
    // A finding is printed by us, once.
    std::panic::set_hook(Box::new(|_| {}));
    if let Some(path) = &arguments.input {
        let input = fs::read(path).map_err(|error| format!("cannot read {path}: {error}"))?;
        return Ok(targets.iter().all(|target| replay(target, &input)));
    }
    let time = Duration::from_secs(arguments.seconds) / u32::try_from(targets.len()).unwrap_or(1);
    let mut clean = true;
    for target in targets {
        clean &=
            fuzz_one(target, arguments.seed, time).map_err(|error| format!("{}: {error}", target.name))?;
    }
    Ok(clean)
}

fn replay(target: &Target, input: &[u8]) -> bool {
    match run::try_one(target, input) {
        Ok(behaviour) => {
            println!("{}: {behaviour}", target.name);
            true
        }
        Err(message) => {
            println!("{}: FAILED: {message}", target.name);
            false
        }
    }
}

fn fuzz_one(target: &Target, seed: u64, time: Duration) -> io::Result<bool> {
    let seeds = corpus::seeds(target)?;
    // Should an input end the process, this file is the input.
    let running = corpus::root().join("findings").join(format!("{}.running", target.name));
    fs::create_dir_all(corpus::root().join("findings"))?;
    let file = fs::File::create(&running)?;
    let limits = Limits { inputs: u64::MAX, time: Some(time) };
    let outcome = run(target, seeds, seed, limits, |input| {
        // Without the note a dead process only loses its input.
        let _ = file.write_all_at(input, 0).and_then(|()| file.set_len(input.len() as u64));
    });
    fs::remove_file(running)?;
    match outcome {
        Ok(summary) => {
            println!(
                "{:<14} {:>9} inputs, {:>4} behaviours, seed {seed}: ok",
                target.name, summary.inputs, summary.behaviours
            );
            Ok(true)
        }
        Err(finding) => {
            let path = corpus::keep_finding(target, &finding.input)?;
            println!(
                "{}: FAILED at input {} of seed {seed}: {}",
                target.name, finding.number, finding.message
            );
            println!("  input: {}", finding.input.escape_ascii());
            println!("  again: cargo run -p fuzz -- --target {} --input {}", target.name, path.display());
            Ok(false)
        }
    }
}
