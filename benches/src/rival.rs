//! The stack of the existing platform.

use crate::load;
use contract::{ExecutionId, RunId};
use std::{error::Error, path::Path, time::Duration};
use system_tests::{deployment::CONTROL_PLANE_KEY, stub::Attempt};
use testkit::{Process, Program};
use uuid::Uuid;
use wire::Client;

const START: Duration = Duration::from_secs(30);

/// A running microservice.
#[derive(Debug)]
pub(crate) struct Rival {
    client: Client,
    _process: Process,
}

impl Rival {
    pub(crate) async fn start(database_url: &str) -> Result<Self, Box<dyn Error>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("rival");
        if !folder.join("node_modules/@nestjs/microservices").exists() {
            return Err(format!("run `npm ci` in {} first, as `make bench` does", folder.display()).into());
        }
        let port = testkit::free_port()?;
        let process = Program::new("node")
            .arg("server.js")
            .args([&port.to_string(), database_url, CONTROL_PLANE_KEY])
            .env("NODE_ENV", "production")
            .current_dir(folder)
            .spawn()?;
        process.wait_for_line("listening", START).await?;
        Ok(Self { client: load::client(port), _process: process })
    }

    pub(crate) fn client(&self) -> &Client {
        &self.client
    }
}

/// Attempts that the rival takes without asking.
pub(crate) fn attempts(count: usize) -> Vec<Attempt> {
    (0..count.max(1000))
        .map(|_| Attempt { run_id: RunId(Uuid::now_v7()), execution_id: ExecutionId(Uuid::now_v7()) })
        .collect()
}
