//! `conveyor config SERVICE`

use crate::{cli::Config, compose::Plan, failure::Failure, profile::Profile};
use ::config::{Entry, Environment, Reader};
use serde_json::{Value, json};

/// Prints the effective configuration of a service; faults refuse it as they would refuse the start.
pub(super) fn config(args: &Config) -> Result<(), Failure> {
    let profile = Profile::single();
    let mut reader = Reader::new(&Environment).with_profile(profile.name, profile.defaults);
    Plan::declare(&mut reader, &[args.service].into());
    if args.json {
        let entries: Vec<Value> = reader.entries().iter().map(object).collect();
        println!(
            "{}",
            json!({ "service": args.service.as_str(), "variables": entries, "valid": reader.faults().is_empty() })
        );
    } else {
        print!("{}", table(reader.entries()));
    }
    reader.finish().map(drop).map_err(Failure::invalid)
}

fn object(entry: &Entry) -> Value {
    json!({
        "name": entry.name,
        "value": entry.value,
        "origin": entry.origin.to_string(),
        "default": entry.default,
        "kind": entry.kind,
        "secret": entry.secret,
        "doc": entry.doc,
    })
}

fn table(entries: &[Entry]) -> String {
    let names = entries.iter().map(|entry| entry.name.len()).max().unwrap_or(0);
    let values = entries.iter().map(|entry| entry.value.chars().count()).max().unwrap_or(0).min(40);
    let line =
        |entry: &Entry| format!("{:<names$}  {:<values$}  {}\n", entry.name, entry.value, entry.origin);
    entries.iter().map(line).collect()
}
