//! `NestJS` of one version as a process: `tests/interop/door.js`.

use crate::PATIENCE;
use serde_json::{Value, json};
use std::{path::PathBuf, process::Stdio};
use tokio::{
    io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines},
    process::{Child, ChildStdin, ChildStdout, Command},
};

/// The folder of a version's node modules; `None` when they are not installed and nobody promised
/// them (`make test` installs them and sets `CI_SERVERS=1`).
fn modules(version: u32) -> Option<PathBuf> {
    let folder = system_tests::root().join(format!("tests/interop/nest{version}"));
    let is_installed = folder.join("node_modules/@nestjs/microservices").exists();
    let promised = std::env::var("CI_SERVERS").is_ok_and(|value| value == "1");
    assert!(is_installed || !promised, "npm ci was not run in {}", folder.display());
    is_installed.then_some(folder)
}

/// A process that speaks lines of JSON.
pub(crate) struct Nest {
    _child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    asked: u64,
}

impl Nest {
    async fn start(version: u32, arguments: &[String]) -> Option<Self> {
        let folder = modules(version)?;
        let mut child = Command::new("node")
            .arg(system_tests::root().join("tests/interop/door.js"))
            .args(arguments)
            .current_dir(folder)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut nest = Self { _child: child, input, output: BufReader::new(output).lines(), asked: 0 };
        assert_eq!(nest.line().await, json!({"ready": true}));
        Some(nest)
    }

    /// A client; `None` where this version is not installed.
    pub(crate) async fn client(version: u32) -> Option<Self> {
        Self::start(version, &[]).await
    }

    /// A plugin that listens on this port; `None` where this version is not installed.
    pub(crate) async fn plugin(version: u32, port: u16) -> Option<Self> {
        Self::start(version, &["plugin".to_owned(), port.to_string()]).await
    }

    /// The next line that it prints.
    pub(crate) async fn line(&mut self) -> Value {
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await;
        serde_json::from_str(&line.expect("a line in time").unwrap().expect("it runs")).unwrap()
    }

    async fn ask(&mut self, mut question: Value) -> Value {
        self.asked += 1;
        question["n"] = json!(self.asked);
        self.input.write_all(format!("{question}\n").as_bytes()).await.unwrap();
        let answer = self.line().await;
        assert_eq!(answer["n"], question["n"]);
        answer
    }

    /// What `client.send(pattern, data)` gives: `{value}` or `{error}`.
    pub(crate) async fn send(&mut self, port: u16, pattern: &str, data: &Value) -> Value {
        self.ask(json!({"how": "send", "port": port, "pattern": pattern, "data": data})).await
    }

    /// What `client.emit(pattern, data)` gives.
    pub(crate) async fn emit(&mut self, port: u16, pattern: &str, data: &Value) -> Value {
        self.ask(json!({"how": "emit", "port": port, "pattern": pattern, "data": data})).await
    }

    /// What `fetch` gives: `{status, retryAfter, body}`.
    pub(crate) async fn post(&mut self, port: u16, route: &str, key: Option<&str>, body: &Value) -> Value {
        let url = format!("http://127.0.0.1:{port}/internal/steps/{route}");
        let mut question = json!({"how": "post", "url": url, "body": body});
        if let Some(key) = key {
            question["key"] = json!(key);
        }
        self.ask(question).await["value"].take()
    }
}

/// One test per version: `versions! { rule; name_10 name_11 name_12 }`.
macro_rules! versions {
    ($rule:ident; $ten:ident $eleven:ident $twelve:ident) => {
        #[tokio::test(flavor = "multi_thread")]
        async fn $ten() {
            $rule(10).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn $eleven() {
            $rule(11).await;
        }

        #[tokio::test(flavor = "multi_thread")]
        async fn $twelve() {
            $rule(12).await;
        }
    };
}
pub(crate) use versions;
