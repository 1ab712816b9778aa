//! Tasks of plugins that may have only so many attempts at once (protocol section 6, *Limits*).

use crate::{
    pages::{until_metric, until_ready},
    world::{NODE_TYPE, Neighbour, PATIENCE, World, local},
};
use contract::{ExecutionId, run::RunStatus, task::ExecutorTask, task::Task};
use queue::{Lane, Topic};
use storage::runs::{Append, AttemptState, NewEvent};
use tokio::sync::mpsc;
use wire::{Reply, Request};

const OTHER: &str = "plugin.other.echo";

/// A plugin that takes every task and shows its id.
fn plugin() -> (Neighbour, mpsc::UnboundedReceiver<ExecutionId>) {
    let (seen, tasks) = mpsc::unbounded_channel();
    let plugin = Neighbour::start(local(), move |request: Request| {
        let seen = seen.clone();
        async move {
            let task: ExecutorTask = request.data.read().unwrap();
            let _ = seen.send(task.execution_id);
            Reply::Empty
        }
    });
    (plugin, tasks)
}

async fn next(tasks: &mut mpsc::UnboundedReceiver<ExecutionId>) -> ExecutionId {
    tokio::time::timeout(PATIENCE, tasks.recv()).await.expect("no task came").unwrap()
}

/// A plugin with this limit, before the control plane knows of it.
async fn limited(world: &World, plugin: &Neighbour, most: u32) {
    until_ready(world).await;
    world.publish("test", NODE_TYPE, plugin.endpoint()).await;
    world.storage.catalogue().set_max_attempts("test", Some(most)).await.unwrap();
}

async fn queued(world: &World) -> Task {
    let task = world.attempt(NODE_TYPE).await;
    world.push(&task).await;
    task
}

/// The attempt ends, as the engine would store it.
async fn end(world: &World, task: &Task) {
    let event = NewEvent { kind: "step_finished".into(), body: contract::Json::null() };
    let append = Append {
        events: vec![event],
        close: vec![task.execution_id],
        ..Append::new(task.run_id, 0, RunStatus::Running, contract::Millis(2))
    };
    world.storage.runs().append(&[append]).await.unwrap();
}

const WAITS: &str = "conveyor_control_plane_dispatch_at_limit 1";

#[tokio::test]
async fn a_task_beyond_the_limit_waits_as_queued_until_a_run_with_a_place_goes_on() {
    let world = World::start().await;
    let (plugin, mut tasks) = plugin();
    limited(&world, &plugin, 1).await;
    let first = queued(&world).await;
    assert_eq!(next(&mut tasks).await, first.execution_id);
    let second = queued(&world).await;
    until_metric(&world, WAITS).await;
    let row = world.storage.runs().outstanding(second.run_id).await.unwrap().remove(0);
    assert_eq!((row.state, tasks.try_recv().is_err()), (AttemptState::Queued, true));
    end(&world, &first).await;
    world.queue.notify(Topic::Runs, &first.run_id.to_string()).await.unwrap();
    assert_eq!(next(&mut tasks).await, second.execution_id);
}

#[tokio::test]
async fn a_place_is_found_free_also_when_the_notice_is_lost() {
    let world = World::start().await;
    let (plugin, mut tasks) = plugin();
    limited(&world, &plugin, 1).await;
    let first = queued(&world).await;
    assert_eq!(next(&mut tasks).await, first.execution_id);
    let second = queued(&world).await;
    until_metric(&world, WAITS).await;
    end(&world, &first).await;
    assert_eq!(next(&mut tasks).await, second.execution_id);
}

#[tokio::test]
async fn those_who_wait_keep_nothing_from_other_plugins() {
    let world = World::with(|settings| settings.dispatch.in_flight = 1).await;
    let ((plugin, mut tasks), (other, mut others)) = (plugin(), plugin());
    limited(&world, &plugin, 1).await;
    world.publish("other", OTHER, other.endpoint()).await;
    let first = queued(&world).await;
    assert_eq!(next(&mut tasks).await, first.execution_id);
    queued(&world).await;
    until_metric(&world, WAITS).await;
    let free = world.queued(OTHER).await;
    assert_eq!(next(&mut others).await, free);
}

#[tokio::test]
async fn one_goes_for_one_that_ends_and_all_when_the_limit_is_lifted() {
    let world = World::start().await;
    let (plugin, mut tasks) = plugin();
    limited(&world, &plugin, 1).await;
    let first = queued(&world).await;
    assert_eq!(next(&mut tasks).await, first.execution_id);
    let waiting = [queued(&world).await, queued(&world).await, queued(&world).await];
    until_metric(&world, "conveyor_control_plane_dispatch_at_limit 3").await;
    end(&world, &first).await;
    world.queue.notify(Topic::Runs, &first.run_id.to_string()).await.unwrap();
    let mut gone = vec![next(&mut tasks).await];
    until_metric(&world, "conveyor_control_plane_dispatch_at_limit 2").await;
    assert!(tasks.try_recv().is_err());
    world.storage.catalogue().set_max_attempts("test", None).await.unwrap();
    world.queue.notify(Topic::Catalogue, "changed").await.unwrap();
    gone.extend([next(&mut tasks).await, next(&mut tasks).await]);
    gone.sort();
    assert_eq!(gone, waiting.map(|task| task.execution_id));
}

#[tokio::test]
async fn a_stop_gives_those_who_wait_back_to_the_lane() {
    let mut world = World::start().await;
    let (plugin, mut tasks) = plugin();
    limited(&world, &plugin, 1).await;
    let first = queued(&world).await;
    assert_eq!(next(&mut tasks).await, first.execution_id);
    let second = queued(&world).await;
    until_metric(&world, WAITS).await;
    world.shut_down().await;
    let left = world.queue.take(Lane::Plugin, 10, PATIENCE).await.unwrap();
    let [left] = left.as_slice() else { panic!("{left:?}") };
    assert_eq!(serde_json::from_str::<Task>(left).unwrap().execution_id, second.execution_id);
}
