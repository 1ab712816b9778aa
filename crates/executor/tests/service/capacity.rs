//! How much an executor takes from its lane.

use crate::stage::template;
use contract::{
    ExecutionId, pattern,
    report::{ReportBody, ReportKind, read_report},
};
use executor::{Service, Settings};
use plugin_sdk::reporter::ReporterSettings;
use queue::{Lane, Queue};
use run_files::RunFilesSettings;
use serde_json::json;
use std::{sync::Arc, time::Duration};
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;
use wire::{Handler, Reply, Request, Server, ServerConfig};

/// A control plane that answers an ack when there is leave to.
struct ControlPlane {
    acks: mpsc::UnboundedSender<ExecutionId>,
    results: mpsc::UnboundedSender<ExecutionId>,
    leave: Semaphore,
}

impl Handler for ControlPlane {
    async fn call(&self, request: Request) -> Reply {
        if pattern::STEP_RESULT.is(&request.pattern) {
            let report = read_report(ReportKind::Result, &request.data).unwrap();
            self.results.send(report.execution_id).unwrap();
            return Reply::Value(json!({"status": "applied"}).into());
        }
        let report = read_report(ReportKind::Ack, &request.data).unwrap();
        let ReportBody::Ack(ack) = report.body else { panic!("only acks are held up") };
        self.acks.send(report.execution_id).unwrap();
        self.leave.acquire().await.unwrap().forget();
        Reply::Value(json!({"status": "applied", "workerId": ack.worker_id}).into())
    }
}

#[tokio::test]
async fn an_executor_takes_as_many_tasks_as_it_has_room_for_and_leaves_the_others_on_the_lane() {
    const ROOM: usize = 2;
    const TASKS: usize = 5;
    let (acks, mut acked) = mpsc::unbounded_channel();
    let (results, mut ended) = mpsc::unbounded_channel();
    let control_plane = Arc::new(ControlPlane { acks, results, leave: Semaphore::new(0) });
    let config = ServerConfig::new("control-plane", "127.0.0.1:0".parse().unwrap());
    let server = Server::bind(config, Arc::clone(&control_plane)).unwrap();
    let port = server.local_addr().port();
    tokio::spawn(server.run(CancellationToken::new(), CancellationToken::new()));

    let queue = Queue::in_process();
    let items = (0..TASKS).map(|_| serde_json::to_string(&template()).unwrap()).collect();
    queue.push(Lane::Executor, items).await.unwrap();
    let settings = Settings {
        concurrency: ROOM,
        control_plane: ReporterSettings { host: "127.0.0.1".into(), port, key: Some("k".into()), tls: None },
        heartbeat: Duration::from_secs(60),
        allow_private: false,
        files: RunFilesSettings { url: "http://127.0.0.1:9".into(), token: None, tls: None },
        drain: Duration::from_secs(20),
    };
    let (service, stop) = (Service::bind(settings, queue.clone()).await.unwrap(), CancellationToken::new());
    let executor = tokio::spawn(service.run(stop.clone()));

    for _ in 0..ROOM {
        acked.recv().await.unwrap();
    }
    assert_eq!(queue.depth(Lane::Executor).await.unwrap(), (TASKS - ROOM) as u64);
    for left in (0..TASKS - ROOM).rev() {
        control_plane.leave.add_permits(1);
        ended.recv().await.unwrap();
        acked.recv().await.unwrap();
        assert_eq!(queue.depth(Lane::Executor).await.unwrap(), left as u64, "one ended, one was taken");
    }
    control_plane.leave.add_permits(ROOM);
    for _ in 0..ROOM {
        ended.recv().await.unwrap();
    }
    stop.cancel();
    executor.await.unwrap().unwrap();
}
