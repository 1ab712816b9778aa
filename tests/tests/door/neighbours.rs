//! Work under way while services leave and come back: the control plane itself, stopped and killed, and
//! plugin-manager (failure matrix rows 10, 11 and 36).

use crate::PATIENCE;
use contract::Json;
use futures::future::join_all;
use serde_json::{Value, json};
use std::{sync::Arc, time::Duration};
use system_tests::{
    Deployment, Platform, Servers, StubPlugin,
    deployment::{CONTROL_PLANE_KEY, INGRESS_TOKEN},
    servers,
    stub::{Attempt, PLUGIN_ID, wide_process},
};
use tokio::sync::Notify;
use wire::{CallError, Client, ClientConfig};

/// Steps whose results are reported while the control plane leaves.
const STEPS: usize = 200;
/// Reports under way at once.
const REPORTERS: usize = 8;
/// Pause before a report that met no control plane is sent again.
const PACE: Duration = Duration::from_millis(20);

/// A deployment with a plugin that has taken this many steps of one run.
struct World {
    deployment: Deployment,
    platform: Platform,
    process: String,
    run: String,
    attempts: Vec<Attempt>,
    _plugin: StubPlugin,
    _servers: Servers,
}

impl World {
    async fn start(steps: usize) -> Option<Self> {
        let servers = servers().await?;
        let deployment = Deployment::start(&servers, &[]).await;
        let plugin = StubPlugin::start(deployment.ports.plugin_manager, INGRESS_TOKEN).await;
        let platform = Platform::at(deployment.ports.api);
        platform.wait_for_plugin(PLUGIN_ID).await;
        let process = platform.import(&wide_process(steps)).await;
        let run = platform.start(&process, &json!({"go": "go"})).await;
        let mut attempts = Vec::with_capacity(steps);
        while attempts.len() < steps {
            attempts.push(plugin.next().await);
        }
        Some(Self { deployment, platform, process, run, attempts, _plugin: plugin, _servers: servers })
    }

    fn client(&self) -> Client {
        Client::new("127.0.0.1", self.deployment.ports.control_plane_tcp, ClientConfig::default())
    }

    /// The run has finished, and each of its steps was given out once.
    async fn finished_once(&self) {
        let detail = self.platform.finished(&self.process, &self.run).await;
        assert_eq!(detail["run"]["status"], "finished", "{detail:#}");
        let history = self.platform.history(&self.process, &self.run).await;
        let count = |kind: &str| history.iter().filter(|event| event["kind"] == kind).count();
        assert_eq!(
            (count("step_scheduled"), count("step_finished")),
            (self.attempts.len(), self.attempts.len())
        );
    }
}

/// Sends a report once: how it was answered, or why it was not.
async fn once(client: &Client, kind: &str, attempt: Attempt) -> Result<String, CallError> {
    let body = json!({
        "key": CONTROL_PLANE_KEY, "executionId": attempt.execution_id, "runId": attempt.run_id,
        "outputs": {"text": "done"}
    });
    let answer = client.request(&format!("plugin.executor.step_{kind}"), &Json::from(body), PATIENCE).await?;
    let answer: Value = answer.value().unwrap();
    Ok(answer["status"].as_str().unwrap().to_owned())
}

/// Sends a result until it is answered, as a plugin does.
async fn answered(client: &Client, attempt: Attempt) -> String {
    loop {
        match once(client, "result", attempt).await {
            Ok(code) => return code,
            Err(CallError::Remote(error)) => assert!(error.retryable, "{error:?}"),
            Err(_) => {}
        }
        tokio::time::sleep(PACE).await;
    }
}

/// Reports the results of these attempts, some at once; what each was answered at last. `begun` hears
/// of the first answer.
async fn report_all(client: Client, attempts: Vec<Attempt>, begun: Arc<Notify>) -> Vec<String> {
    let shares = attempts.chunks(attempts.len().div_ceil(REPORTERS)).map(|share| {
        let (client, begun) = (client.clone(), Arc::clone(&begun));
        async move {
            let mut codes = Vec::with_capacity(share.len());
            for attempt in share {
                codes.push(answered(&client, *attempt).await);
                begun.notify_one();
            }
            codes
        }
    });
    join_all(shares).await.concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_control_plane_that_is_stopped_or_killed_loses_no_report_that_it_answered() {
    let Some(mut world) = World::start(STEPS).await else { return };
    for (half, is_killed) in [(0..STEPS / 2, false), (STEPS / 2..STEPS, true)] {
        let begun = Arc::new(Notify::new());
        let attempts = world.attempts[half].to_vec();
        let reporting = tokio::spawn(report_all(world.client(), attempts, Arc::clone(&begun)));
        begun.notified().await;
        match is_killed {
            true => world.deployment.kill("runtime-control-plane").await,
            false => {
                assert!(world.deployment.stop("runtime-control-plane").await, "it ends with exit code 0");
            }
        }
        world.deployment.start_service("runtime-control-plane").await;
        let codes = reporting.await.unwrap();
        assert_eq!(codes.len(), STEPS / 2);
        assert!(codes.iter().all(|code| code == "applied" || code == "duplicate"), "{codes:?}");
    }
    let client = world.client();
    for attempt in &world.attempts {
        assert_eq!(
            once(&client, "result", *attempt).await.unwrap(),
            "duplicate",
            "what was answered is kept"
        );
    }
    world.finished_once().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_runs_is_not_touched_when_plugin_manager_leaves_and_comes_back() {
    let Some(mut world) = World::start(2).await else { return };
    let client = world.client();
    for attempt in &world.attempts {
        assert_eq!(once(&client, "ack", *attempt).await.unwrap(), "applied");
    }
    world.deployment.kill("plugin-manager").await;
    assert_eq!(once(&client, "result", world.attempts[0]).await.unwrap(), "applied");
    world.deployment.start_service("plugin-manager").await;
    assert_eq!(once(&client, "heartbeat", world.attempts[1]).await.unwrap(), "applied");
    assert_eq!(once(&client, "result", world.attempts[1]).await.unwrap(), "applied");
    world.finished_once().await;
}
