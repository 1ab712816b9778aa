//! A Redis server from the system's packages.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::{Error, Process, Program, free_port};

const LIMIT: Duration = Duration::from_secs(60);
const BINARY: &str = "/usr/bin/redis-server";

/// A running (or stopped) server that keeps everything in memory; gone when it is dropped.
#[derive(Debug)]
pub struct Redis {
    // Before the folder: the server ends before its files go.
    process: Option<Process>,
    port: u16,
    cluster: bool,
    folder: TempDir,
}

impl Redis {
    /// Starts a single server.
    ///
    /// # Errors
    /// If Redis is not installed or does not start; the message has its output.
    pub async fn start() -> Result<Self, Error> {
        Self::start_as(false).await
    }

    /// Starts a Cluster of one node, which has all slots.
    ///
    /// # Errors
    /// As [`Redis::start`].
    pub async fn start_cluster() -> Result<Self, Error> {
        let server = Self::start_as(true).await?;
        let answer = server.command("CLUSTER ADDSLOTSRANGE 0 16383").await?;
        if answer != "+OK" {
            return Err(Error::Missing(format!("Redis did not take the slots of the Cluster: {answer}")));
        }
        server.wait_for_cluster().await?;
        Ok(server)
    }

    async fn start_as(cluster: bool) -> Result<Self, Error> {
        if !Path::new(BINARY).exists() {
            return Err(Error::Missing(format!("no {BINARY}; install the package redis-server")));
        }
        let folder = tempfile::Builder::new().prefix("testkit-redis-").tempdir();
        let folder = folder.map_err(Error::io("make a temporary folder"))?;
        let mut server = Self { process: None, port: 0, cluster, folder };
        for attempt in 1.. {
            server.port = free_port()?;
            match server.launch().await {
                Err(error) if error.is_port_taken() && attempt < 5 => {}
                outcome => return outcome.map(|()| server),
            }
        }
        unreachable!("the loop ends with its fifth attempt")
    }

    /// `redis://…` of the server.
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}/", self.port)
    }

    /// The port; it stays the same over restarts.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Stops the server in order; its data is gone. Does nothing if it is not running.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it does not end.
    pub async fn stop(&mut self) -> Result<(), Error> {
        if let Some(process) = self.process.take() {
            process.stop(LIMIT).await?;
        }
        Ok(())
    }

    /// Kills the server; its data is gone. Does nothing if it is not running.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it does not end.
    pub async fn kill(&mut self) -> Result<(), Error> {
        if let Some(process) = self.process.take() {
            process.kill_tree().await?;
        }
        Ok(())
    }

    /// Starts the server again, empty, on the same port, after stopping it if it runs.
    ///
    /// # Errors
    /// If it does not stop or start.
    pub async fn restart(&mut self) -> Result<(), Error> {
        self.stop().await?;
        self.launch().await?;
        if self.cluster {
            self.wait_for_cluster().await?;
        }
        Ok(())
    }

    /// Sends one command, such as `FLUSHALL`, on a connection of its own, and returns the first
    /// line of the answer as it is on the wire, such as `+OK`.
    ///
    /// # Errors
    /// [`Error::Io`] if the server cannot be reached or does not answer.
    pub async fn command(&self, command: &str) -> Result<String, Error> {
        let talk = async {
            let mut stream = BufReader::new(TcpStream::connect(("127.0.0.1", self.port)).await?);
            stream.write_all(format!("{command}\r\n").as_bytes()).await?;
            let mut line = String::new();
            stream.read_line(&mut line).await?;
            Ok(line.trim_end().to_owned())
        };
        let outcome = timeout(LIMIT, talk).await.unwrap_or_else(|elapsed| Err(elapsed.into()));
        outcome.map_err(Error::io(format!("send `{command}` to Redis")))
    }

    async fn wait_for_cluster(&self) -> Result<(), Error> {
        if let Some(process) = &self.process {
            process.wait_for_line("Cluster state changed: ok", LIMIT).await?;
        }
        Ok(())
    }

    async fn launch(&mut self) -> Result<(), Error> {
        let port = self.port.to_string();
        let mut program = Program::new(BINARY)
            .args(["--port", &port, "--bind", "127.0.0.1", "--daemonize", "no"])
            .args(["--save", "", "--appendonly", "no", "--dir"])
            .arg(self.folder.path())
            .log_file(self.folder.path().join("log"));
        if self.cluster {
            program = program
                .args(["--cluster-enabled", "yes", "--cluster-config-file", "nodes.conf"])
                .args(["--cluster-announce-ip", "127.0.0.1"]);
        }
        let process = program.spawn()?;
        process.wait_for_line("Ready to accept connections", LIMIT).await?;
        self.process = Some(process);
        Ok(())
    }
}
