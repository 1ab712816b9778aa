//! What people do with runs that are under way or over: they answer a waiting step, cancel, repeat.
//! And what must be true of such runs at the end.

use super::{
    Random, Shape, Verdict,
    load::{Asked, Load},
    shape::{ASK, KEPT},
    verdict::Ended,
    worker::Execution,
};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// A run's state is asked for in this rhythm.
const POLL: Duration = Duration::from_millis(200);
/// The latest moment after its start at which a run is canceled, milliseconds. Some are over then.
const LATEST_CANCEL: u64 = 3000;
/// After the answer to a cancel a task may still be on its way to the plugin, from a control plane that
/// had claimed it and was frozen then; not longer than this.
const ON_THE_WAY: Duration = Duration::from_secs(12);

/// What is going to be done with a run.
#[derive(Clone, Copy, Debug)]
pub(super) enum Intent {
    /// Nothing.
    Nothing,
    /// It is answered so.
    Answer { approved: bool },
    /// It is canceled after this time.
    Cancel { after: Duration },
    /// It is repeated when it has failed.
    Repeat,
}

impl Intent {
    /// For a run of this shape.
    pub(super) fn of(shape: Shape, random: &mut Random) -> Self {
        match shape {
            Shape::Approval => Self::Answer { approved: random.one_in(2) },
            Shape::Cancel => Self::Cancel { after: Duration::from_millis(random.within(0..=LATEST_CANCEL)) },
            Shape::Repeat => Self::Repeat,
            _ => Self::Nothing,
        }
    }
}

/// What was done with a run.
#[derive(Clone, Debug)]
pub enum Deed {
    /// Nothing.
    Nothing,
    /// Persons said this; was it accepted?
    Answered(Vec<(bool, bool)>),
    /// It was to be canceled.
    Canceled {
        /// Was that accepted?
        accepted: bool,
        /// When it was answered.
        at: Instant,
    },
    /// It failed and was repeated by another run.
    Repeated,
    /// It repeats another run.
    Repeats,
}

impl Load {
    /// Does it: the run as asked for, and the one that repeats it.
    pub(super) async fn carry_out(&self, intent: Intent, asked: Asked, twice: bool) -> Vec<Asked> {
        let run = asked.runs.first().cloned().unwrap_or_default();
        let path = format!("/flow/{}/runs/{run}", asked.process);
        let deed = match intent {
            Intent::Nothing => Deed::Nothing,
            Intent::Answer { approved } => self.answer(&path, approved, twice).await,
            Intent::Cancel { after } => {
                sleep(after).await;
                let (status, _) = self.insist(Method::POST, &format!("{path}/cancel"), None, None).await;
                Deed::Canceled { accepted: status.is_success(), at: Instant::now() }
            }
            Intent::Repeat => {
                self.wait_until(&path, |detail| detail["run"]["status"] != "running").await;
                let key = format!("repeat-{}", asked.input);
                let runs = self.start(&format!("{path}/retry"), &key, &Value::Null, twice).await;
                let repetition = Asked { runs, deed: Deed::Repeats, ..asked.clone() };
                return vec![Asked { deed: Deed::Repeated, ..asked }, repetition];
            }
        };
        vec![Asked { deed, ..asked }]
    }

    /// Answers the step when it waits for a person; twice: another person says the opposite at the same
    /// time.
    async fn answer(&self, path: &str, approved: bool, twice: bool) -> Deed {
        let waits = |detail: &Value| {
            let steps = detail["steps"].as_array().map(Vec::as_slice).unwrap_or_default();
            let is_asked = steps.iter().any(|step| step["nodeId"] == ASK && step["status"] == "running");
            is_asked || detail["run"]["status"] != "running"
        };
        self.wait_until(path, waits).await;
        let path = format!("{path}/steps/{ASK}/confirm");
        let say = async |approved: bool| {
            let body = json!({"approved": approved});
            let (status, _) = self.insist(Method::POST, &path, None, Some(&body)).await;
            (approved, status.is_success())
        };
        if twice {
            let (one, other) = tokio::join!(say(approved), say(!approved));
            return Deed::Answered(vec![one, other]);
        }
        Deed::Answered(vec![say(approved).await])
    }

    /// Until the run's detail is such.
    async fn wait_until(&self, path: &str, is_so: impl Fn(&Value) -> bool) {
        let what = format!("wait for {path}");
        loop {
            let (status, detail) = self.insist(Method::GET, path, None, None).await;
            if status == StatusCode::OK && is_so(&detail) {
                self.note(&what, None);
                return;
            }
            self.note(&what, Some(format!("{status} {detail}")));
            sleep(POLL).await;
        }
    }
}

impl Verdict {
    /// Judges what was done with the run.
    pub(super) fn judge_deed(&mut self, ended: &Ended, executions: &[&Execution]) {
        let (run, status) = (&ended.run, ended.status());
        match &ended.asked.deed {
            Deed::Nothing | Deed::Repeated => {}
            Deed::Answered(said) => self.judge_answers(ended, said),
            Deed::Canceled { accepted, at } => {
                let what = if *accepted { "cancels accepted" } else { "cancels refused: the run was over" };
                self.count(what, 1);
                self.check(*accepted == (status == "canceled"), || {
                    format!("run {run} is {status}, and its cancel was accepted: {accepted}")
                });
                let late = |execution: &&&Execution| execution.began > (*at + ON_THE_WAY).into_std();
                for execution in executions.iter().filter(late).filter(|_| *accepted) {
                    let node = &execution.node_path;
                    self.check(false, || {
                        format!("run {run}: {node} began long after the cancel was answered")
                    });
                }
            }
            Deed::Repeats => {
                self.count("runs repeated", 1);
                self.check(ended.history.has_kept(KEPT), || format!("run {run}: {KEPT} was not kept"));
                let is_kept = |execution: &&Execution| execution.node_path == KEPT;
                self.check(!executions.iter().copied().any(|execution| is_kept(&execution)), || {
                    format!("run {run}: {KEPT} was executed, though it was kept")
                });
            }
        }
    }

    fn judge_answers(&mut self, ended: &Ended, said: &[(bool, bool)]) {
        let stored = ended.history.decisions();
        self.count("steps that waited for a person", 1);
        let run = &ended.run;
        self.check(stored.len() == 1, || {
            format!("run {run}: one question, the answers {stored:?} in the history")
        });
        for (approved, accepted) in said {
            self.count(if *accepted { "persons' answers accepted" } else { "persons' answers refused" }, 1);
            // The same answer again is a duplicate and accepted: what was accepted is what is stored.
            let is_stored = stored.first() == Some(approved);
            self.check(is_stored == *accepted, || {
                format!("run {run}: {approved} was accepted: {accepted}; in the history: {stored:?}")
            });
        }
    }
}
