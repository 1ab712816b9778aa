//! Processor time of this process and everything it started: client, servers, databases.

use std::{fs, time::Duration};

/// `/proc` counts in these (`USER_HZ` is 100 on every Linux that Rust runs on).
const TICKS_PER_SECOND: u64 = 100;

/// Processor time at one moment.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cpu {
    /// Of our family, ended children included.
    pub(crate) family: Duration,
    /// What this process, which sends the load, took of it.
    pub(crate) client: Duration,
    /// What the database took of it.
    pub(crate) database: Duration,
    /// Of the whole machine.
    pub(crate) machine: Duration,
}

impl Cpu {
    /// Now.
    pub(crate) fn now() -> Self {
        let pid = std::process::id();
        let machine = fs::read_to_string("/proc/stat").ok().and_then(|text| busy(text.lines().next()?));
        Self {
            family: ticks(family(pid, &|_| true)),
            client: ticks(own(pid).unwrap_or(0)),
            database: ticks(family(pid, &|name| name == "postgres")),
            machine: ticks(machine.unwrap_or(0)),
        }
    }

    /// What was used since `earlier`.
    pub(crate) fn since(self, earlier: Self) -> Self {
        Self {
            family: self.family.saturating_sub(earlier.family),
            client: self.client.saturating_sub(earlier.client),
            database: self.database.saturating_sub(earlier.database),
            machine: self.machine.saturating_sub(earlier.machine),
        }
    }
}

fn ticks(count: u64) -> Duration {
    Duration::from_millis(count * 1000 / TICKS_PER_SECOND)
}

/// User, nice, system, interrupts: not idle, not waiting, not stolen.
fn busy(line: &str) -> Option<u64> {
    let fields: Vec<u64> = line.split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    Some(fields.iter().take(3).sum::<u64>() + fields.get(5..7)?.iter().sum::<u64>())
}

/// Ticks of a process and all that it started, as far as their names are wanted.
fn family(pid: u32, wanted: &dyn Fn(&str) -> bool) -> u64 {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
    let own = if wanted(name.trim_end()) { own(pid).unwrap_or(0) } else { 0 };
    own + children(pid).into_iter().map(|child| family(child, wanted)).sum::<u64>()
}

/// A process and its children that have ended.
fn own(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces: fields are counted behind its bracket.
    let (_, fields) = text.rsplit_once(')')?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    Some(fields.get(11..15)?.iter().filter_map(|field| field.parse::<u64>().ok()).sum())
}

fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let lists =
        threads.flatten().filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}
