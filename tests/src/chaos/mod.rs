//! The fault suite: a load, faults that a seed decides, and at the end the promises of the platform,
//! counted. Nothing that was answered is lost, nothing is done twice (failure matrix rows 1 to 12 and
//! 23 to 27). Wall clocks step too, those of services and that of PostgreSQL.

pub mod deeds;
mod document;
pub mod firings;
pub mod fleet;
pub mod forwarder;
pub mod history;
pub mod load;
pub mod random;
pub mod schedule;
pub mod servers;
pub mod shape;
pub mod verdict;
pub mod worker;

pub use fleet::{Fleet, Order};
pub use forwarder::Forwarder;
pub use random::Random;
pub use schedule::{Fault, Planned, plan};
pub use shape::Shape;
pub use verdict::Verdict;

use crate::{Platform, root};
use firings::{Fired, Firings};
use futures::{StreamExt, stream};
use load::{Asked, Done, Load, StoredFile};
use reqwest::Method;
use servers::{Database, kill_queue};
use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};
use testkit::{Clock, Redis};
use tokio::{
    sync::Mutex,
    task::JoinSet,
    time::{Instant, sleep, sleep_until, timeout},
};
use verdict::Ended;
use worker::{Execution, Worker};

/// In which everything must have ended once the faults have.
const SETTLED: Duration = Duration::from_secs(120);
/// The catalogue and the end of runs are asked for in this rhythm.
const POLL: Duration = Duration::from_millis(250);
/// Runs that are read side by side at the end.
const READS: usize = 8;

/// A whole system under load.
struct World {
    database: Arc<Mutex<Database>>,
    redis: Arc<Mutex<Redis>>,
    worker: Arc<Mutex<Worker>>,
    fleet: Fleet,
    platform: Platform,
    load: Arc<Load>,
    firings: Firings,
    clock: Arc<Clock>,
}

/// Runs the suite: load and faults for this time, then the end is waited for and judged. Prints the
/// schedule first and what was done as it is done. The processes' logs are left in
/// `target/chaos/SEED`.
pub async fn run(seed: u64, length: Duration) -> Verdict {
    let planned = plan(seed, length);
    println!("seed {seed}, {} faults in {} s", planned.len(), length.as_secs());
    let world = World::start(seed).await;
    let begin = Instant::now();
    let load = tokio::spawn(Arc::clone(&world.load).run(seed, length));
    world.inject(&planned, begin).await;
    let done = timeout(SETTLED, load).await;
    let done = done.unwrap_or_else(|_| panic!("calls were never answered:{}", world.load.unanswered()));
    let done = done.expect("the load does not panic");
    world.judge(done, planned.len(), begin).await
}

impl World {
    async fn start(seed: u64) -> Self {
        let database = Database::start().await.expect("PostgreSQL");
        let clock = database.clock();
        let redis = Redis::start().await.expect("Redis");
        let folder = log_folder(seed);
        let fleet = Fleet::start(&database.url(), &redis.url(), &folder).await;
        let worker = Worker::start(seed, fleet.ports.plugin_manager, fleet.ports.control_plane_tcp);
        let platform = Platform::at(fleet.ports.api);
        timeout(SETTLED, platform.wait_for_plugin(worker::PLUGIN_ID)).await.expect("the plugin is published");
        let load = Arc::new(Load::prepare(&platform).await);
        let firings = Firings::begin(&platform).await;
        Self {
            database: Arc::new(Mutex::new(database)),
            redis: Arc::new(Mutex::new(redis)),
            worker: Arc::new(Mutex::new(worker)),
            fleet,
            platform,
            load,
            firings,
            clock,
        }
    }

    /// Returns when the last fault is over and everything is up again.
    async fn inject(&self, planned: &[Planned], begin: Instant) {
        let mut under_way = JoinSet::new();
        for next in planned {
            sleep_until(begin + next.at).await;
            println!("{next}");
            self.begin(*next, &mut under_way);
        }
        under_way.join_all().await;
        self.fleet.all_listen().await;
    }

    /// Faults of different parts overlap; those of one part come one after another.
    fn begin(&self, planned: Planned, under_way: &mut JoinSet<()>) {
        let Planned { fault, away, .. } = planned;
        match fault {
            Fault::Cut => return self.fleet.cut(),
            Fault::Step(member, seconds) => {
                let clock = self.fleet.clock(member);
                drop(under_way.spawn(step(clock, seconds, away)));
                return;
            }
            Fault::StepDatabase(seconds) => {
                let (database, clock) = (Arc::clone(&self.database), Arc::clone(&self.clock));
                under_way.spawn(async move {
                    // A server that is started or promoted by a wrong clock is another story.
                    let _up = database.lock().await;
                    step(clock, seconds, away).await;
                });
                return;
            }
            _ => {}
        }
        let (database, redis, worker) =
            (Arc::clone(&self.database), Arc::clone(&self.redis), Arc::clone(&self.worker));
        match fault {
            Fault::Kill(member) => under_way.spawn(self.fleet.order(member, Order::Kill(away))),
            Fault::Stop(member) => under_way.spawn(self.fleet.order(member, Order::Stop)),
            Fault::Freeze(member) => under_way.spawn(self.fleet.order(member, Order::Freeze(away))),
            Fault::KillPlugin => under_way.spawn(async move {
                let mut worker = worker.lock().await;
                worker.die().await;
                sleep(away).await;
                worker.live();
            }),
            _ => under_way.spawn(async move {
                let done = match fault {
                    Fault::RestartDatabase => database.lock().await.restart().await,
                    Fault::KillDatabase => database.lock().await.kill(away).await,
                    Fault::FailOver => database.lock().await.fail_over(away).await,
                    Fault::RestartQueue => redis.lock().await.restart().await,
                    Fault::KillQueue => kill_queue(&mut *redis.lock().await, away).await,
                    // The others are above.
                    _ => redis.lock().await.command("FLUSHALL").await.map(drop),
                };
                done.unwrap_or_else(|error| panic!("{fault}: {error}"));
            }),
        };
    }

    async fn judge(&self, done: Done, faults: usize, begin: Instant) -> Verdict {
        let Done { runs: mut asked, files } = done;
        let mut verdict = Verdict::default();
        verdict.count("faults", faults);
        let goes_on = timeout(SETTLED, self.fires_again()).await.is_ok();
        verdict.check(goes_on, || "after the faults, the schedule does not fire".to_owned());
        self.firings.end(&self.load).await;
        // Nobody tells when the engines have seen it: the rule does.
        sleep(firings::SEEN).await;
        let settled = timeout(SETTLED, self.settle()).await.is_ok();
        verdict.check(settled, || "after the faults, runs or reports are still under way".to_owned());
        println!("{:>7} ms  settled: {settled}", begin.elapsed().as_millis());
        let fired = self.fired().await;
        verdict.judge_firings(&fired, begin.elapsed(), faults);
        asked.extend(self.firings.asked(&fired));
        self.judge_files(&mut verdict, files).await;
        self.judge_tables(&mut verdict, asked.len()).await;
        self.judge_processes(&mut verdict);

        let executions = self.worker.lock().await.executions();
        let mut by_run: BTreeMap<String, Vec<&Execution>> = BTreeMap::new();
        for execution in &executions {
            by_run.entry(execution.run_id.to_string()).or_default().push(execution);
        }
        let mut all = stream::iter(asked).map(|asked| self.ended(asked)).buffered(READS);
        while let Some(ended) = all.next().await {
            let runs = &ended.asked.runs;
            verdict.check(runs.len() == 1, || format!("one key, several runs: {runs:?}"));
            let executions = by_run.remove(&ended.run).unwrap_or_default();
            verdict.judge_run(&ended, &executions);
        }
        let strangers: Vec<_> = by_run.keys().collect();
        verdict.check(strangers.is_empty(), || format!("runs that nobody asked for: {strangers:?}"));
        verdict
    }

    async fn fired(&self) -> Vec<Fired> {
        let lines = self.database.lock().await.sql(&self.firings.query()).await.expect("the database is up");
        Firings::read(&lines)
    }

    /// Until the schedule has fired once more.
    async fn fires_again(&self) {
        let before = self.fired().await.len();
        while self.fired().await.len() == before {
            sleep(POLL).await;
        }
    }

    async fn judge_files(&self, verdict: &mut Verdict, files: Vec<StoredFile>) {
        for StoredFile { id, content } in files {
            verdict.count("files stored and read again", 1);
            let (_, bytes) = self.platform.download(&id).await;
            verdict.check(bytes == content.as_bytes(), || format!("file {id} is not what was stored"));
        }
    }

    /// Until no run is under way and the plugin has an answer to everything.
    async fn settle(&self) {
        loop {
            let runs = self.count("select count(*) from runs where status = 'running'").await;
            let reports = self.worker.lock().await.executions();
            let owed = reports.iter().any(|execution| execution.result.is_none() && !execution.is_lost);
            if runs == 0 && !owed {
                return;
            }
            // The database has no event for it.
            sleep(POLL).await;
        }
    }

    async fn judge_tables(&self, verdict: &mut Verdict, asked: usize) {
        let outstanding = self.count("select count(*) from attempts where outstanding").await;
        verdict.check(outstanding == 0, || format!("{outstanding} outstanding attempts at the end"));
        let runs = self.count("select count(*) from runs").await;
        verdict.check(runs == asked, || format!("{asked} runs were asked for, there are {runs}"));
        verdict.count("attempts", self.count("select count(*) from attempts").await);
    }

    fn judge_processes(&self, verdict: &mut Verdict) {
        let ends = &self.fleet.ends;
        let by_themselves = ends.by_themselves.lock().unwrap_or_else(PoisonError::into_inner);
        verdict
            .check(by_themselves.is_empty(), || format!("processes ended by themselves: {by_themselves:?}"));
        let refused = ends.refused_starts.load(Ordering::Relaxed);
        verdict.count("starts refused while there was no writable database", refused);
        let unclean = ends.unclean_stops.lock().unwrap_or_else(PoisonError::into_inner);
        unclean.iter().for_each(|end| eprintln!("a stop by SIGTERM did not end well: {end}"));
        verdict.count("stops by SIGTERM that did not end well", unclean.len());
    }

    async fn count(&self, statement: &str) -> usize {
        let answer = self.database.lock().await.sql(statement).await.expect("the database is up");
        answer.trim().parse().expect("a number")
    }

    async fn ended(&self, asked: Asked) -> Ended {
        let run = asked.runs.first().expect("a start is answered with a run").clone();
        let path = format!("/flow/{}/runs/{run}", asked.process);
        let detail = self.platform.call(Method::GET, &path, None).await;
        let (_, result) = self.platform.try_call(Method::GET, &format!("{path}/result"), None).await;
        let history = history::History::new(self.platform.history(&asked.process, &run).await);
        Ended { asked, run, detail, public_inputs: result["publicInputs"].clone(), history }
    }
}

/// A clock goes wrong for a while.
async fn step(clock: Arc<Clock>, seconds: i64, away: Duration) {
    clock.step(seconds).expect("the clock can be set");
    sleep(away).await;
    clock.step(0).expect("the clock can be set");
}

/// An empty folder for the logs of this seed.
fn log_folder(seed: u64) -> PathBuf {
    let folder = root().join("target/chaos").join(seed.to_string());
    // The logs of the run before; if there are none, so much the better.
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(folder.join("data")).expect("a folder for logs");
    folder
}
