//! What the engine is told: every variable with its default (protocol section 9).

use super::Retention;
use crate::core::Policy;
use config::Reader;
use run_files::RunFilesSettings;
use secrecy::SecretString;
use std::{
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};
use wire::{AllowList, TlsServer, tls::ServerVariables};

const MIB: u64 = 1024 * 1024;

/// Settings of the engine.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of the RPC door.
    pub bind: IpAddr,
    /// Port of the RPC door; 0 takes a free one.
    pub rpc_port: u16,
    /// Who may connect.
    pub allow: AllowList,
    /// TLS of the RPC door; `None` is plain TCP.
    pub tls: Option<TlsServer>,
    /// What callers must present in `token`; `None`: nothing is asked for.
    pub rpc_token: Option<SecretString>,
    /// The largest frame of the platform's outer doors. The engine's own door takes twice that, so
    /// that a report which passed an outer door fits with what is around it.
    pub max_frame_bytes: usize,
    /// Deadlines, retries and deliveries.
    pub policy: Policy,
    /// How often deadlines that have passed are looked for.
    pub sweep_interval: Duration,
    /// What is kept of the runs that have ended.
    pub retention: Retention,
    /// Transactions that run at the same time; 0: one on SQLite, on PostgreSQL as many as processors, at most three.
    pub committers: usize,
    /// Memory of the runs that are held, over all committers.
    pub cache_bytes: usize,
    /// Where outputs lie that are too large for the history.
    pub files: RunFilesSettings,
    /// Bytes of the outputs of one step that stand in the history.
    pub inline_output_bytes: usize,
    /// How long a stop may take.
    pub drain_timeout: Duration,
}

impl Default for Settings {
    /// The defaults, on a free port of the loopback address.
    fn default() -> Self {
        Self {
            bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            rpc_port: 0,
            allow: AllowList::default(),
            tls: None,
            rpc_token: None,
            max_frame_bytes: 16 * 1024 * 1024,
            policy: Policy::default(),
            sweep_interval: Duration::from_secs(1),
            retention: Retention::default(),
            committers: 0,
            cache_bytes: 64 * 1024 * 1024,
            files: RunFilesSettings { url: "http://file-service:3000".to_owned(), token: None, tls: None },
            inline_output_bytes: 1024 * 1024,
            drain_timeout: Duration::from_secs(30),
        }
    }
}

impl Settings {
    /// Reads and declares the variables. Faults stay with the reader, which refuses the start.
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let default = Self::default();
        Self {
            bind: reader.bind_address(),
            rpc_port: reader.port("RUNTIME_ENGINE_RPC_TCP_PORT", 3000, "TCP port of the engine's RPC."),
            allow: reader
                .list(
                    "RUNTIME_ENGINE_ALLOW_CIDRS",
                    "CIDR list",
                    "0.0.0.0/0,::/0",
                    "Addresses that may connect to the engine's RPC.",
                )
                .unwrap_or_default(),
            tls: TlsServer::read(reader, ServerVariables::ENGINE),
            rpc_token: reader
                .secret("RUNTIME_ENGINE_RPC_TOKEN", "Token of the engine's RPC; unset: none is asked for."),
            max_frame_bytes: bytes(reader, "CONVEYOR_MAX_FRAME_BYTES", 16 * MIB, "Largest frame of a TCP door."),
            policy: read_policy(reader),
            sweep_interval: positive_millis(
                reader,
                "RUNTIME_ENGINE_SWEEP_INTERVAL_MS",
                default.sweep_interval,
                "How often deadlines that have passed are looked for.",
            ),
            retention: Retention::read(reader),
            committers: usize::try_from(reader.number(
                "RUNTIME_ENGINE_COMMITTERS",
                "count",
                0,
                "Transactions of the engine that run at the same time; 0: one on SQLite, on PostgreSQL as many as processors, at most three.",
            ))
            .unwrap_or(usize::MAX),
            cache_bytes: bytes(
                reader,
                "RUNTIME_ENGINE_CACHE_BYTES",
                64 * MIB,
                "Memory for runs that the engine holds ready; the others are read from the database when needed.",
            ),
            files: RunFilesSettings::read(reader),
            inline_output_bytes: bytes(
                reader,
                "RUNTIME_ENGINE_INLINE_OUTPUT_BYTES",
                MIB,
                "Outputs of one step that stand in the history of the run; larger ones lie in file-service.",
            ),
            drain_timeout: default.drain_timeout,
        }
    }
}

fn read_policy(reader: &mut Reader<'_>) -> Policy {
    let default = Policy::default();
    Policy {
        delivery_timeout: positive_millis(
            reader,
            "RUNTIME_ENGINE_DELIVERY_TIMEOUT_MS",
            default.delivery_timeout,
            "Longest time from the dispatch of a task to its ack or delivery reply.",
        ),
        step_timeout: positive_millis(
            reader,
            "RUNTIME_ENGINE_STEP_TIMEOUT_MS",
            default.step_timeout,
            "Longest time from a step's ack or last heartbeat to its result, unless its node sets timeoutMs.",
        ),
        longest_step: positive_millis(
            reader,
            "RUNTIME_ENGINE_STEP_MAX_MS",
            default.longest_step,
            "Longest time from a step's ack to its result, however many heartbeats come.",
        ),
        republish_after: positive_millis(
            reader,
            "RUNTIME_ENGINE_REPUBLISH_MS",
            default.republish_after,
            "A task that nobody took for so long is put on its lane again.",
        ),
        redeliveries: u32::try_from(reader.number(
            "RUNTIME_ENGINE_REDELIVERIES",
            "count",
            u64::from(default.redeliveries),
            "How often a task that nobody acknowledged is delivered again.",
        ))
        .unwrap_or(u32::MAX),
        redelivery_backoff: positive_millis(
            reader,
            "RUNTIME_ENGINE_REDELIVERY_BACKOFF_MS",
            default.redelivery_backoff,
            "Bound of the random wait before the first redelivery; doubles with each further one.",
        ),
        redelivery_backoff_max: positive_millis(
            reader,
            "RUNTIME_ENGINE_REDELIVERY_BACKOFF_MAX_MS",
            default.redelivery_backoff_max,
            "Largest bound of the random wait before a redelivery.",
        ),
    }
}

fn positive_millis(
    reader: &mut Reader<'_>,
    name: &'static str,
    default: Duration,
    doc: &'static str,
) -> Duration {
    let millis = u64::try_from(default.as_millis()).unwrap_or(u64::MAX);
    reader.positive_millis(name, millis, doc)
}

fn bytes(reader: &mut Reader<'_>, name: &'static str, default: u64, doc: &'static str) -> usize {
    usize::try_from(reader.number(name, "bytes", default, doc)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Variables;

    #[test]
    fn defaults_are_those_of_the_protocol() {
        let source = Variables::default();
        let mut reader = Reader::new(&source);
        let settings = Settings::read(&mut reader);
        assert_eq!(reader.faults(), []);
        assert_eq!((settings.rpc_port, settings.policy), (3000, Policy::default()));
    }

    #[test]
    fn times_of_zero_and_empty_allowlists_are_refused_by_name() {
        let source =
            Variables::of([("RUNTIME_ENGINE_SWEEP_INTERVAL_MS", "0"), ("RUNTIME_ENGINE_ALLOW_CIDRS", "")]);
        let mut reader = Reader::new(&source);
        Settings::read(&mut reader);
        let names: Vec<_> = reader.faults().iter().map(|fault| fault.variable.as_str()).collect();
        assert_eq!(names, ["RUNTIME_ENGINE_ALLOW_CIDRS", "RUNTIME_ENGINE_SWEEP_INTERVAL_MS"]);
    }
}
