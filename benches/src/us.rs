//! Conveyor: the real binary, everything in one process, on PostgreSQL.

use crate::load;
use serde_json::json;
use std::{error::Error, path::PathBuf, time::Duration};
use system_tests::{
    Solo, StubPlugin,
    stub::{Attempt, wide_process},
};
use wire::Client;

/// Nodes of one run: enough that a few hundred runs are a slice.
const WIDTH: usize = 100;

/// Runs that are started at once.
const STARTS: usize = 8;

/// How long no task may come while some are owed.
const SILENCE: Duration = Duration::from_secs(30);

/// A running platform with a plugin and a wide process.
#[derive(Debug)]
pub(crate) struct Us {
    pub(crate) solo: Solo,
    client: Client,
    pub(crate) plugin: StubPlugin,
    process_id: String,
    http: reqwest::Client,
}

impl Us {
    pub(crate) async fn start(database_url: &str) -> Result<Self, Box<dyn Error>> {
        let solo = Solo::start(&binary()?, &[("DATABASE_URL", database_url)]).await;
        let plugin = solo.plugin().await;
        let process_id = solo.platform.import(&wide_process(WIDTH)).await;
        let client = load::client(solo.tcp_port);
        Ok(Self { solo, client, plugin, process_id, http: reqwest::Client::new() })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }

    /// Starts runs until at least so many attempts are delivered and owe their results, and waits
    /// until the platform is at rest.
    pub(crate) async fn outstanding(&self, count: usize) -> Result<Vec<Attempt>, Box<dyn Error>> {
        let runs = count.div_ceil(WIDTH);
        let mut attempts = Vec::with_capacity(runs * WIDTH);
        let mut starts = tokio::task::JoinSet::new();
        for _ in 0..runs {
            if starts.len() >= STARTS {
                starts.join_next().await.transpose()?;
            }
            let (platform, id) = (self.solo.platform.clone(), self.process_id.clone());
            starts.spawn(async move { platform.start(&id, &json!({"go": "go"})).await });
        }
        while let Some(started) = starts.join_next().await {
            started?;
        }
        while attempts.len() < runs * WIDTH {
            let task = tokio::time::timeout(SILENCE, self.plugin.next()).await;
            attempts.push(task.map_err(|_| format!("{} of {} tasks came", attempts.len(), runs * WIDTH))?);
        }
        self.rest().await?;
        Ok(attempts)
    }

    /// Waits until no delivery is under way.
    async fn rest(&self) -> Result<(), Box<dyn Error>> {
        let url = format!("http://127.0.0.1:{}/metrics/self", self.solo.http_port);
        loop {
            let page = self.http.get(&url).send().await?.text().await?;
            let line =
                page.lines().find(|line| line.starts_with("conveyor_control_plane_dispatch_in_flight "));
            match line {
                Some(line) if line.ends_with(" 0") => return Ok(()),
                // A gauge has no event: asked again.
                Some(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                None => return Err("the control plane has no gauge of its deliveries".into()),
            }
        }
    }
}

/// `conveyor`, built beside this program with the same profile.
fn binary() -> Result<PathBuf, Box<dyn Error>> {
    let path = std::env::current_exe()?.with_file_name("conveyor");
    match path.exists() {
        true => Ok(path),
        false => Err(format!("{} is not built; `make bench` builds it", path.display()).into()),
    }
}
