//! Which fault comes when: decided by the seed alone, before anything is started.

use super::Random;
use std::{fmt, ops::RangeInclusive, time::Duration};

/// Pause between two faults, milliseconds.
const PAUSE: RangeInclusive<u64> = 300..=1200;
/// How long a killed part stays away, milliseconds.
const AWAY: RangeInclusive<u64> = 0..=1500;
/// How long a frozen process does nothing, milliseconds. Longer than the delivery deadline of the
/// suite at times, so that others take over what it holds.
const FROZEN: RangeInclusive<u64> = 500..=4000;

/// How long a clock goes wrong before it is set right, milliseconds.
const WRONG: RangeInclusive<u64> = 1000..=6000;
/// How far a clock steps, seconds.
const STEP: i64 = 3600;

/// The service processes, by the names of their replicas; see [`super::Fleet`].
pub const MEMBERS: [&str; 9] = [
    "runtime-engine-0",
    "runtime-engine-1",
    "runtime-control-plane-0",
    "runtime-control-plane-1",
    "executor-0",
    "plugin-manager-0",
    "api-0",
    "secret-manager-0",
    "file-service-0",
];

/// What is done to the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// SIGKILL to a process, started again after a while.
    Kill(&'static str),
    /// SIGSTOP to a process, SIGCONT after a while: it comes back with everything that it believed.
    Freeze(&'static str),
    /// SIGTERM to a process, started again.
    Stop(&'static str),
    /// The wall clock of a process steps by so many seconds, and back after a while.
    Step(&'static str, i64),
    /// That of PostgreSQL and its standby does.
    StepDatabase(i64),
    /// The plugin forgets all its work at once and closes all connections; back after a while.
    KillPlugin,
    /// All connections to the engines and the control planes break.
    Cut,
    /// PostgreSQL stops in order and starts again.
    RestartDatabase,
    /// PostgreSQL and all its backends are killed; back after a while.
    KillDatabase,
    /// The primary is killed, the connections meet the read-only standby, the standby is promoted.
    FailOver,
    /// `FLUSHALL`: the queue is gone.
    FlushQueue,
    /// Redis stops in order and starts again, empty.
    RestartQueue,
    /// Redis is killed; back, empty, after a while.
    KillQueue,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Kill(member) => write!(f, "kill -9 {member}"),
            Self::Freeze(member) => write!(f, "freeze {member}"),
            Self::Stop(member) => write!(f, "stop {member}"),
            Self::Step(member, seconds) => write!(f, "step the clock of {member} by {seconds:+} s"),
            Self::StepDatabase(seconds) => write!(f, "step the clock of PostgreSQL by {seconds:+} s"),
            Self::KillPlugin => f.write_str("kill the plugin"),
            Self::Cut => f.write_str("cut all connections to engines and control planes"),
            Self::RestartDatabase => f.write_str("restart PostgreSQL"),
            Self::KillDatabase => f.write_str("kill -9 PostgreSQL"),
            Self::FailOver => f.write_str("fail PostgreSQL over"),
            Self::FlushQueue => f.write_str("FLUSHALL"),
            Self::RestartQueue => f.write_str("restart Redis"),
            Self::KillQueue => f.write_str("kill -9 Redis"),
        }
    }
}

/// A fault with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Planned {
    /// From the beginning of the load.
    pub at: Duration,
    /// What is done.
    pub fault: Fault,
    /// How long what is killed or frozen stays so.
    pub away: Duration,
}

impl fmt::Display for Planned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:>7} ms  {} (away {} ms)", self.at.as_millis(), self.fault, self.away.as_millis())
    }
}

/// The faults of this seed within `length`. The kinds come in rounds, each round in an order of its
/// own: every kind comes early, none comes twice before all others came.
pub fn plan(seed: u64, length: Duration) -> Vec<Planned> {
    let mut random = Random::new(seed, 1);
    let mut planned = Vec::new();
    let mut at = Duration::ZERO;
    loop {
        for fault in round(&mut random) {
            at += millis(&mut random, PAUSE);
            if at >= length {
                return planned;
            }
            let away = match fault {
                Fault::Freeze(_) => FROZEN,
                Fault::Step(..) | Fault::StepDatabase(_) => WRONG,
                _ => AWAY,
            };
            planned.push(Planned { at, fault, away: millis(&mut random, away) });
        }
    }
}

/// The kinds of processes that have replicas, and the others.
const ENGINES: [&str; 2] = [MEMBERS[0], MEMBERS[1]];
const CONTROL_PLANES: [&str; 2] = [MEMBERS[2], MEMBERS[3]];

/// Each kind once: each service is killed, one engine or control plane of the two.
fn round(random: &mut Random) -> Vec<Fault> {
    let mut one_of = |members: &[&'static str]| members[random.within(0..=members.len() as u64 - 1) as usize];
    let killed = [one_of(&ENGINES), one_of(&CONTROL_PLANES)];
    let (frozen, stopped) = (one_of(&MEMBERS), one_of(&MEMBERS));
    // Those that decide about time, and any.
    let (stepped, also_stepped) = (one_of(&MEMBERS[..4]), one_of(&MEMBERS));
    let mut direction = |seconds: i64| if random.one_in(2) { seconds } else { -seconds };
    let mut faults = vec![
        Fault::Freeze(frozen),
        Fault::Stop(stopped),
        Fault::Step(stepped, direction(STEP)),
        Fault::Step(also_stepped, direction(STEP)),
        Fault::StepDatabase(direction(STEP)),
        Fault::KillPlugin,
        Fault::Cut,
        Fault::RestartDatabase,
        Fault::KillDatabase,
        Fault::FailOver,
        Fault::FlushQueue,
        Fault::RestartQueue,
        Fault::KillQueue,
    ];
    faults.extend(killed.iter().chain(&MEMBERS[4..]).copied().map(Fault::Kill));
    random.shuffle(&mut faults);
    faults
}

fn millis(random: &mut Random, range: RangeInclusive<u64>) -> Duration {
    Duration::from_millis(random.within(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_seed_alone_decides_the_schedule() {
        let length = Duration::from_secs(60);
        assert_eq!(plan(7, length), plan(7, length));
        assert_ne!(plan(7, length), plan(8, length));
        assert!(plan(7, length).iter().all(|planned| planned.at < length));
    }

    #[test]
    fn every_service_is_killed_in_every_round() {
        let round = round(&mut Random::new(7, 1));
        let killed = round.iter().filter_map(|fault| match fault {
            Fault::Kill(member) => member.rsplit_once('-'),
            _ => None,
        });
        let mut killed: Vec<&str> = killed.map(|(service, _)| service).collect();
        killed.sort_unstable();
        let mut services = crate::deployment::SERVICES;
        services.sort_unstable();
        assert_eq!(killed, services);
    }

    #[test]
    fn a_longer_suite_begins_as_the_shorter_one_of_its_seed() {
        let short = plan(7, Duration::from_secs(20));
        let long = plan(7, Duration::from_secs(60));
        assert_eq!(short, long[..short.len()]);
    }
}
