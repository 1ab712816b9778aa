//! The services as processes that a supervisor keeps running, with two engines and two control
//! planes, each pair behind one address.

use super::{Forwarder, schedule::MEMBERS};
use crate::{
    binary,
    deployment::{self, CONFIGURED, SERVING},
};
use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};
use testkit::{Clock, Process, Program, Signal};
use tokio::{
    sync::{mpsc, oneshot, watch},
    task::JoinHandle,
};

/// Long enough for a busy machine; nothing is asserted by it.
const START: Duration = Duration::from_secs(90);
/// How long a stop in order may take: the services' own limit is 30 s.
const STOP: Duration = Duration::from_secs(60);
/// The suite ends before.
const FOREVER: Duration = Duration::from_secs(24 * 60 * 60);
/// A process that ends by itself is started again after this.
const RESPAWN: Duration = Duration::from_millis(200);

/// What a supervisor is told.
#[derive(Clone, Copy, Debug)]
pub enum Order {
    /// SIGKILL, and a new process after this time.
    Kill(Duration),
    /// SIGTERM, and a new process when the old one has ended.
    Stop,
    /// SIGSTOP, and SIGCONT after this time.
    Freeze(Duration),
}

/// What happened to the processes.
#[derive(Debug, Default)]
pub struct Ends {
    /// Processes that ended by themselves after they had listened: the member and its last words.
    pub by_themselves: Mutex<Vec<String>>,
    /// Processes that ended before they listened, as they do when they find no database or only a
    /// read-only one; the supervisor tries again.
    pub refused_starts: AtomicUsize,
    /// Processes that did not end in time, or not with exit code 0, on SIGTERM: the member, how, and its
    /// last words.
    pub unclean_stops: Mutex<Vec<String>>,
}

/// An order; the sender is dropped when it was carried out.
type Ordered = (Order, oneshot::Sender<()>);

struct Member {
    orders: mpsc::UnboundedSender<Ordered>,
    listens: watch::Receiver<bool>,
    clock: Arc<Clock>,
    supervisor: JoinHandle<()>,
}

/// All service processes.
pub struct Fleet {
    /// The addresses that everybody uses.
    pub ports: deployment::Ports,
    /// How processes ended.
    pub ends: Arc<Ends>,
    members: BTreeMap<&'static str, Member>,
    forwarders: [Forwarder; 2],
    program: PathBuf,
}

impl std::fmt::Debug for Fleet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fleet").field("ports", &self.ports).field("ends", &self.ends).finish_non_exhaustive()
    }
}

impl Fleet {
    /// Starts everything at the same moment, and waits until all listen. Logs and data go to
    /// `folder`.
    pub async fn start(database_url: &str, redis_url: &str, folder: &Path) -> Self {
        let ports = deployment::Ports::free();
        let port = || testkit::free_port().expect("a free port");
        let (engines, control_planes) = ([port(), port()], [port(), port()]);
        let forwarders = [
            Forwarder::start(ports.engine, engines.to_vec()).await,
            Forwarder::start(ports.control_plane_tcp, control_planes.to_vec()).await,
        ];
        let mut environment = deployment::environment(ports, database_url, redis_url, &folder.join("data"));
        environment.extend(settings().map(|(name, value)| (name, value.to_owned())));
        let ends = Arc::new(Ends::default());
        let program = keep_binary(folder);
        let members = MEMBERS.map(|name| {
            let (service, replica) = name.rsplit_once('-').expect("a name and a number");
            let replica: usize = replica.parse().expect("a number");
            let mut environment = environment.clone();
            match service {
                "runtime-engine" => {
                    environment.insert("RUNTIME_ENGINE_RPC_TCP_PORT", engines[replica].to_string());
                }
                "runtime-control-plane" => {
                    environment.insert("RUNTIME_CONTROL_PLANE_TCP_PORT", control_planes[replica].to_string());
                    environment.insert("RUNTIME_CONTROL_PLANE_HTTP_PORT", port().to_string());
                }
                _ => {}
            }
            let log = folder.join(format!("{name}.log"));
            (
                name,
                Member::start(Supervised {
                    program: program.clone(),
                    service,
                    environment,
                    clock: Arc::new(Clock::new().expect("a clock")),
                    log,
                    ends: Arc::clone(&ends),
                }),
            )
        });
        let fleet = Self { ports, ends, members: BTreeMap::from(members), forwarders, program };
        fleet.all_listen().await;
        fleet
    }

    /// Gives an order to the supervisor of this member, after those before; the future ends when it
    /// was carried out.
    pub fn order(&self, member: &str, order: Order) -> impl Future<Output = ()> + use<> {
        let (sender, carried_out) = oneshot::channel();
        // The supervisor listens for as long as the fleet lives.
        let _ = self.members[member].orders.send((order, sender));
        async {
            // Nothing is sent: the end of the sender is the word.
            let _ = carried_out.await;
        }
    }

    /// The wall clock of this member, also of its next processes.
    pub fn clock(&self, member: &str) -> Arc<Clock> {
        Arc::clone(&self.members[member].clock)
    }

    /// Cuts every connection to the engines and to the control planes, but for those between them
    /// and the databases: what was on the way is lost, in both directions.
    pub fn cut(&self) {
        self.forwarders.iter().for_each(Forwarder::cut);
    }

    /// Waits until every member listens.
    pub async fn all_listen(&self) {
        for (name, member) in &self.members {
            let mut listens = member.listens.clone();
            let waiting = tokio::time::timeout(START, listens.wait_for(|listens| *listens)).await;
            assert!(waiting.is_ok_and(|told| told.is_ok()), "{name} does not come up");
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        for member in self.members.values() {
            member.supervisor.abort();
        }
        // Only the logs are of use afterwards.
        let _ = std::fs::remove_file(&self.program);
    }
}

/// Short deadlines, so that what is lost is repeated while the suite looks on.
fn settings() -> [(&'static str, &'static str); 6] {
    [
        ("RUNTIME_ENGINE_DELIVERY_TIMEOUT_MS", "3000"),
        ("RUNTIME_CONTROL_PLANE_DELIVERY_TIMEOUT_MS", "2000"),
        ("RUNTIME_ENGINE_REPUBLISH_MS", "1000"),
        ("RUNTIME_ENGINE_REDELIVERIES", "100"),
        ("RUNTIME_ENGINE_REDELIVERY_BACKOFF_MS", "200"),
        ("RUNTIME_ENGINE_REDELIVERY_BACKOFF_MAX_MS", "1000"),
    ]
}

/// The binary as it is now: all processes of the suite are of one build, whatever is built meanwhile.
fn keep_binary(folder: &Path) -> PathBuf {
    let kept = folder.join("conveyor");
    std::fs::hard_link(binary("conveyor"), &kept)
        .or_else(|_| std::fs::copy(binary("conveyor"), &kept).map(drop))
        .expect("the binary is built");
    kept
}

struct Supervised {
    program: PathBuf,
    service: &'static str,
    environment: BTreeMap<&'static str, String>,
    clock: Arc<Clock>,
    log: PathBuf,
    ends: Arc<Ends>,
}

impl Member {
    fn start(supervised: Supervised) -> Self {
        let (orders, receiver) = mpsc::unbounded_channel();
        let (listening, listens) = watch::channel(false);
        let clock = Arc::clone(&supervised.clock);
        let supervisor = tokio::spawn(supervised.keep(receiver, listening));
        Self { orders, listens, clock, supervisor }
    }
}

impl Supervised {
    async fn keep(self, mut orders: mpsc::UnboundedReceiver<Ordered>, listening: watch::Sender<bool>) {
        loop {
            let process = self.spawn();
            let mut up = std::pin::pin!(process.wait_for_line(SERVING, START));
            let mut is_up = false;
            let (pause, _carried_out) = loop {
                tokio::select! {
                    line = &mut up, if !is_up => {
                        is_up = true;
                        listening.send_replace(line.is_ok());
                    }
                    _ = process.wait(FOREVER) => {
                        self.ended(&process, *listening.borrow());
                        break (RESPAWN, None);
                    }
                    order = orders.recv() => match order {
                        None => return,
                        Some((Order::Freeze(time), _carried_out)) => {
                            process.signal(Signal::STOP);
                            tokio::time::sleep(time).await;
                            process.signal(Signal::CONT);
                        }
                        Some((Order::Kill(away), carried_out)) => {
                            process.kill().await.expect("it dies");
                            break (away, Some(carried_out));
                        }
                        Some((Order::Stop, carried_out)) => {
                            self.stop(&process).await;
                            break (Duration::ZERO, Some(carried_out));
                        }
                    },
                }
            };
            listening.send_replace(false);
            tokio::time::sleep(pause).await;
        }
    }

    fn spawn(&self) -> Process {
        Program::new(&self.program)
            .args(["serve", self.service])
            .without_env(&CONFIGURED)
            .envs(self.environment.iter())
            .clock(&self.clock)
            .log_file(&self.log)
            .spawn()
            .expect("conveyor starts")
    }

    fn ended(&self, process: &Process, had_listened: bool) {
        if had_listened {
            self.note(&self.ends.by_themselves, process, "");
        } else {
            self.ends.refused_starts.fetch_add(1, Ordering::Relaxed);
        }
    }

    async fn stop(&self, process: &Process) {
        match process.stop(STOP).await {
            Ok(status) if status.success() => {}
            Ok(status) => self.note(&self.ends.unclean_stops, process, &format!(" ({status})")),
            Err(error) => {
                self.note(&self.ends.unclean_stops, process, &format!(" ({error})"));
                let _ = process.kill().await;
            }
        }
    }

    /// Notes an end with the last words of the process.
    fn note(&self, ends: &Mutex<Vec<String>>, process: &Process, how: &str) {
        let last = process.lines().pop().map(|line| line.text).unwrap_or_default();
        let mut ends = ends.lock().unwrap_or_else(PoisonError::into_inner);
        ends.push(format!("{}{how}: {last}", self.service));
    }
}
