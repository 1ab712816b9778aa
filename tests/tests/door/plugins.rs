//! A `NestJS` microservice as the plugin of the real control plane: the ways in which it answers a task,
//! or does not.

use crate::{
    PATIENCE,
    nest::{Nest, versions},
};
use contract::Json;
use reqwest::Method;
use serde_json::{Value, json};
use system_tests::{
    Solo, binary,
    deployment::{CONTROL_PLANE_KEY, INGRESS_TOKEN},
};
use wire::{Client, ClientConfig};

const PLUGIN_ID: &str = "nest";

/// A process of one node of the plugin, which answers as its input says.
fn process() -> Value {
    json!({"settings": {"name": "nest"}, "widgets": [
        {"id": "start", "source": {"nodeType": "system.trigger.input"}, "config": [{"name": "how", "type": "string"}]},
        {"id": "work", "source": {"nodeType": "plugin.nest.work"},
         "config": [{"name": "how", "type": "string", "isPort": true}], "outputs": ["text"]},
        {"id": "end", "source": {"nodeType": "system.output"}, "config": [{"name": "text", "type": "string"}]}
    ], "edges": [
        {"source": "start", "sourceHandle": "how", "target": "work", "targetHandle": "how"},
        {"source": "work", "sourceHandle": "text", "target": "end", "targetHandle": "text"}
    ]})
}

/// A platform with the plugin in its catalogue.
struct World {
    solo: Solo,
    plugin: Nest,
    process: String,
}

impl World {
    async fn start(version: u32) -> Option<Self> {
        let port = testkit::free_port().unwrap();
        let plugin = Nest::plugin(version, port).await?;
        let solo =
            Solo::start(&binary("conveyor"), &[("RUNTIME_CONTROL_PLANE_DELIVERY_TIMEOUT_MS", "500")]).await;
        let manager = Client::new("127.0.0.1", solo.plugin_manager, ClientConfig::default());
        let manifest = json!({
            "kind": contract::manifest::MANIFEST_KIND, "token": INGRESS_TOKEN, "pluginId": PLUGIN_ID,
            "publicationVersion": "1.0.0", "label": "Nest", "executors": [{"nodeType": "plugin.nest.work"}],
            "pull": {"host": "127.0.0.1", "port": port},
        });
        manager.request("manifest_request_v2", &Json::from(manifest), PATIENCE).await.unwrap();
        solo.platform.wait_for_plugin(PLUGIN_ID).await;
        let process = solo.platform.import(&process()).await;
        Some(Self { solo, plugin, process })
    }

    /// Starts a run; its id, and the task that the plugin got.
    async fn task(&mut self, how: &str) -> (String, Value) {
        let run = self.solo.platform.start(&self.process, &json!({"how": how})).await;
        let task = self.plugin.line().await["task"].take();
        assert_eq!((&task["runId"], &task["inputs"]), (&json!(run), &json!({"how": how})), "{task}");
        for field in
            ["executionId", "nodeId", "nodePath", "nodeType", "attempt", "deadline", "workspaceId", "userId"]
        {
            assert!(!task[field].is_null(), "{field}: {task}");
        }
        (run, task)
    }

    /// Reports the result of a task, as the plugin's notifier would.
    async fn report(&self, task: &Value) {
        let body = json!({
            "key": CONTROL_PLANE_KEY, "executionId": task["executionId"], "runId": task["runId"],
            "outputs": {"text": "by report"}
        });
        let client = Client::new("127.0.0.1", self.solo.tcp_port, ClientConfig::default());
        let told = client.request("plugin.executor.step_result", &Json::from(body), PATIENCE).await.unwrap();
        assert_eq!(told.value().unwrap(), json!({"status": "applied"}));
    }

    /// What the run ended with, once it has.
    async fn outputs(&self, run: &str) -> Value {
        let detail = self.solo.platform.finished(&self.process, run).await;
        assert_eq!(detail["run"]["status"], "finished", "{detail:#}");
        let path = format!("/flow/{}/runs/{run}/result", self.process);
        self.solo.platform.call(Method::GET, &path, None).await["publicInputs"].take()
    }

    /// The error of a run that has failed after one attempt.
    async fn failure(&self, run: &str) -> String {
        let detail = self.solo.platform.finished(&self.process, run).await;
        assert_eq!(detail["run"]["status"], "failed", "{detail:#}");
        let history = self.solo.platform.history(&self.process, run).await;
        let attempts = history.iter().filter(|event| event["kind"] == "step_scheduled").count();
        assert_eq!(attempts, 1, "{history:#?}");
        detail.to_string()
    }
}

async fn ways_to_answer(version: u32) {
    let Some(mut world) = World::start(version).await else { return };

    let (run, task) = world.task("nothing").await;
    world.report(&task).await;
    assert_eq!(world.outputs(&run).await, json!({"text": "by report"}));

    let (run, _) = world.task("result").await;
    assert_eq!(world.outputs(&run).await, json!({"text": "by reply"}));

    let (run, _) = world.task("refuses").await;
    let failure = world.failure(&run).await;
    assert!(failure.contains("bad_input") && failure.contains("cannot do that"), "{failure}");

    let (run, _) = world.task("throws").await;
    let failure = world.failure(&run).await;
    assert!(failure.contains("Internal server error") && !failure.contains("secret detail"), "{failure}");

    // Acks off and no reply: the task counts as delivered at the deadline, and the result is taken.
    let (run, task) = world.task("never").await;
    let platform = &world.solo.platform;
    let delivered = platform.follow(&world.process, &run, |kind, _| kind == "step_delivered");
    assert!(delivered.await.is_some(), "delivered implicitly");
    world.report(&task).await;
    assert_eq!(world.outputs(&run).await, json!({"text": "by report"}));
}

versions! { ways_to_answer;
    a_nest_10_plugin_may_answer_a_task_in_every_way
    a_nest_11_plugin_may_answer_a_task_in_every_way
    a_nest_12_plugin_may_answer_a_task_in_every_way
}
