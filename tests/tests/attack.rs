//! Hostile clients at both doors of the real control plane: each limit closes them, the process stays
//! within its memory, and a healthy plugin's reports keep passing meanwhile (failure matrix rows 19 to
//! 22).

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

use contract::Json;
use serde_json::{Value, json};
use std::{net::Ipv4Addr, time::Duration};
use system_tests::{
    Solo, StubPlugin, binary,
    deployment::CONTROL_PLANE_KEY,
    stub::{Attempt, wide_process},
};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    task::JoinSet,
};
use wire::{Client, ClientConfig, codec};

/// What no healthy answer takes, and no limit of the doors either: a hanging test fails instead.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sockets that say nothing, at each door.
const SILENT: usize = 1000;
/// Sockets that say a byte now and then, at each door.
const DRIBBLERS: usize = 50;
const DRIBBLE: Duration = Duration::from_millis(100);

/// The doors' budget of buffered bytes (256 MiB), and as much for everything else in the process.
const MEMORY: u64 = 512 * 1024 * 1024;

/// A platform with a healthy plugin that works on a few steps.
struct World {
    solo: Solo,
    plugin: StubPlugin,
    /// The step that the healthy plugin works on.
    attempt: Attempt,
    client: Client,
    http: reqwest::Client,
}

impl World {
    async fn start() -> Self {
        raise_file_limit();
        let solo = Solo::start(&binary("conveyor"), &[]).await;
        let plugin = solo.plugin().await;
        let process = solo.platform.import(&wide_process(8)).await;
        solo.platform.start(&process, &json!({"go": "go"})).await;
        let attempt = plugin.next().await;
        let client = Client::new("127.0.0.1", solo.tcp_port, ClientConfig::default());
        Self { solo, plugin, attempt, client, http: reqwest::Client::new() }
    }

    fn body(&self, attempt: Attempt, fields: &Value) -> Value {
        let mut body = json!({"executionId": attempt.execution_id, "runId": attempt.run_id});
        for (name, value) in fields.as_object().unwrap() {
            body[name] = value.clone();
        }
        body
    }

    /// The healthy plugin reports at both doors, and both answer that it is stored.
    async fn healthy(&self) {
        let mut body = self.body(self.attempt, &json!({"progress": 0.5}));
        let url = format!("http://127.0.0.1:{}/internal/steps/heartbeat", self.solo.http_port);
        let answer = self.http.post(url).bearer_auth(CONTROL_PLANE_KEY).json(&body).timeout(PATIENCE).send();
        let answer = answer.await.unwrap();
        assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
        body["key"] = json!(CONTROL_PLANE_KEY);
        let body = Json::from(body);
        let answer = self.client.request("plugin.executor.step_heartbeat", &body, PATIENCE);
        assert!(answer.await.unwrap().text().contains("\"status\""));
    }

    async fn connect(&self, port: u16) -> TcpStream {
        TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.unwrap()
    }

    async fn tcp(&self) -> TcpStream {
        self.connect(self.solo.tcp_port).await
    }

    /// The code with which the answer to a report, as text of its frame, comes back over TCP.
    async fn report(&self, pattern: &str, data: &str) -> String {
        let mut stream = self.tcp().await;
        let packet = format!(r#"{{"pattern":"plugin.executor.{pattern}","data":{data},"id":"1"}}"#);
        stream.write_all(&codec::encode(&packet)).await.unwrap();
        let packet = read_frame(&mut stream).await;
        let packet: Value = serde_json::from_str(&packet).unwrap();
        let code = packet["response"]["status"].as_str().or(packet["err"]["code"].as_str());
        code.unwrap_or_else(|| panic!("no answer but {packet}")).to_owned()
    }
}

/// The test holds thousands of sockets; many machines give a process 1024 descriptors at first.
fn raise_file_limit() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).unwrap();
}

/// One frame of ASCII.
async fn read_frame(stream: &mut TcpStream) -> String {
    let read = async {
        let mut length = 0;
        loop {
            match stream.read_u8().await.unwrap() {
                b'#' => break,
                digit => length = length * 10 + usize::from(digit - b'0'),
            }
        }
        let mut text = vec![0; length];
        stream.read_exact(&mut text).await.unwrap();
        String::from_utf8(text).unwrap()
    };
    tokio::time::timeout(PATIENCE, read).await.unwrap()
}

/// Everything until the server closes; a reset closes as well.
async fn until_closed(mut stream: TcpStream) -> String {
    let mut bytes = Vec::new();
    let _ = tokio::time::timeout(PATIENCE, stream.read_to_end(&mut bytes)).await.expect("the server closes");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Says a byte now and then until the server has enough of it.
async fn dribble(stream: TcpStream, bytes: &'static [u8]) {
    let (mut read, mut write) = stream.into_split();
    let mut answer = Vec::new();
    let closed = read.read_to_end(&mut answer);
    let writing = async {
        let mut pace = tokio::time::interval(DRIBBLE);
        for byte in bytes.iter().cycle() {
            pace.tick().await;
            if write.write_all(&[*byte]).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        _ = closed => {}
        () = writing => {}
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_sockets_and_dribblers_are_closed_in_the_limit_and_reports_pass_meanwhile() {
    let world = World::start().await;
    let mut attackers = JoinSet::new();
    for (port, dribbled) in [
        (world.solo.tcp_port, &b"16000000#\"xxxxxxxx"[..]),
        (world.solo.http_port, &b"POST /internal/steps/ack HTTP/1.1\r\nX-A: xxxxxxx"[..]),
    ] {
        for _ in 0..SILENT {
            let stream = world.connect(port).await;
            attackers.spawn(async move {
                until_closed(stream).await;
            });
        }
        for _ in 0..DRIBBLERS {
            let stream = world.connect(port).await;
            attackers.spawn(async move {
                tokio::time::timeout(PATIENCE, dribble(stream, dribbled)).await.expect("the server closes");
            });
        }
    }
    world.healthy().await;
    assert_eq!(attackers.len(), 2 * (SILENT + DRIBBLERS));
    let (mut closed, mut passed) = (0, 0);
    while closed < 2 * (SILENT + DRIBBLERS) {
        tokio::select! {
            ended = attackers.join_next() => {
                ended.unwrap().unwrap();
                closed += 1;
            }
            () = world.healthy() => passed += 1,
        }
    }
    assert!(passed > 0, "no report passed while the attack went on");
    assert!(world.solo.peak_memory() < MEMORY, "{} bytes", world.solo.peak_memory());
}

#[tokio::test(flavor = "multi_thread")]
async fn half_frames_stay_within_the_memory_and_delay_nobody() {
    let world = World::start().await;
    // Over the limit: refused at the header, whatever follows.
    for _ in 0..20 {
        let mut stream = world.tcp().await;
        let half = [b"20000000#\"".to_vec(), vec![b'x'; 10_000_000]].concat();
        // The server may close before it has read them all.
        let _ = stream.write_all(&half).await;
        assert!(until_closed(stream).await.contains("payload_too_large"));
    }
    // Within the limit: held until the time for a frame is over.
    let mut half_frames = JoinSet::new();
    for _ in 0..20 {
        let mut stream = world.tcp().await;
        half_frames.spawn(async move {
            let half = [b"16000000#\"".to_vec(), vec![b'x'; 8_000_000]].concat();
            let _ = stream.write_all(&half).await;
            until_closed(stream).await
        });
    }
    let mut refused = 0;
    while refused < 20 {
        tokio::select! {
            ended = half_frames.join_next() => {
                let told = ended.unwrap().unwrap();
                assert!(told.contains("\"timeout\"") || told.contains("\"overloaded\""), "{told}");
                refused += 1;
            }
            () = world.healthy() => {}
        }
    }
    world.healthy().await;
    assert!(world.solo.peak_memory() < MEMORY, "{} bytes", world.solo.peak_memory());
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_never_reads_is_closed_and_its_answers_are_not_kept() {
    let world = World::start().await;
    let mut stream = world.tcp().await;
    let id = "x".repeat(100_000);
    let frame = codec::encode(&format!(r#"{{"pattern":"nobody","data":1,"id":"{id}"}}"#));
    let writing = async { while stream.write_all(&frame).await.is_ok() {} };
    tokio::time::timeout(PATIENCE, writing).await.expect("the server closes");
    // Over HTTP the server stops reading instead: one answer at a time.
    let mut stream = world.connect(world.solo.http_port).await;
    let request = b"GET /metrics/self HTTP/1.1\r\nHost: x\r\n\r\n".repeat(1000);
    tokio::select! {
        () = async { while stream.write_all(&request).await.is_ok() {} } => {}
        () = async { for _ in 0..20 { world.healthy().await } } => {}
    }
    assert!(world.solo.peak_memory() < MEMORY, "{} bytes", world.solo.peak_memory());
}

#[tokio::test(flavor = "multi_thread")]
async fn bytes_that_are_no_frames_are_refused_and_reports_pass() {
    let world = World::start().await;
    for (bytes, told) in [
        (&b"4294967296#{\"pattern\""[..], "payload_too_large"),
        (b"9999999999#", "payload_too_large"),
        (b"99999999999999999999#", "payload_too_large"),
        (b"GET / HTTP/1.1\r\nHost: conveyor\r\n\r\n", "payload_too_large"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 a client hello", ""),
        (b"-1#{}", ""),
        (b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c 127.0.0.1:1", ""),
    ] {
        let mut stream = world.tcp().await;
        stream.write_all(bytes).await.unwrap();
        let answer = until_closed(stream).await;
        assert!(answer.contains(told), "{}: {answer}", bytes.escape_ascii());
    }
    let mut noise = 0x9e37_79b9_7f4a_7c15_u64;
    for port in [world.solo.tcp_port, world.solo.http_port] {
        for _ in 0..100 {
            let bytes: Vec<u8> = std::iter::repeat_with(|| {
                noise ^= noise << 13;
                noise ^= noise >> 7;
                noise ^= noise << 17;
                noise.to_le_bytes()[0]
            })
            .take(4096)
            .collect();
            let mut stream = world.connect(port).await;
            // What the server cannot read it may close at once.
            let _ = stream.write_all(&bytes).await;
            let _ = stream.shutdown().await;
            until_closed(stream).await;
        }
        world.healthy().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn strange_json_is_answered_and_harms_nobody() {
    let world = World::start().await;
    let depth = 100_000;
    let deep = format!("{}1{}", "[".repeat(depth), "]".repeat(depth));
    for (outputs, codes) in [
        (format!(r#"{{"text":{deep}}}"#), &["applied", "invalid_report"][..]),
        (r#"{"text":"\ud800","\udfff\ud800":1}"#.to_owned(), &["applied", "invalid_report"]),
        (r#"{"text":1,"text":2}"#.to_owned(), &["applied", "invalid_report"]),
        (r#"{"text":1e999999,"n":-0,"big":123456789012345678901234567890.5}"#.to_owned(), &["applied"]),
    ] {
        let attempt = world.plugin.next().await;
        let (key, execution_id) = (CONTROL_PLANE_KEY, attempt.execution_id);
        let data = format!(r#"{{"key":"{key}","executionId":"{execution_id}","outputs":{outputs}}}"#);
        let code = world.report("step_result", &data).await;
        assert!(codes.contains(&code.as_str()), "{code}: {outputs:.100}");
        // The other door judges the same body the same way.
        let url = format!("http://127.0.0.1:{}/internal/steps/result", world.solo.http_port);
        let answer = world.http.post(url).bearer_auth(key).body(data).timeout(PATIENCE).send().await.unwrap();
        let status = answer.status().as_u16();
        assert_eq!(status, if code == "applied" { 200 } else { 400 }, "{}", answer.text().await.unwrap());
        world.healthy().await;
    }
    // Where no depth is meant, it is a fault like any other.
    for (pattern, data) in [
        ("step_heartbeat", format!(r#"{{"key":{deep},"executionId":"x"}}"#)),
        ("step_ack", format!(r#"{{"key":"{CONTROL_PLANE_KEY}","executionId":{deep}}}"#)),
        ("step_ack", deep.clone()),
        ("step_partial", r#"{"key":"\ud800"}"#.to_owned()),
    ] {
        let code = world.report(pattern, &data).await;
        assert!(
            ["unauthorized", "invalid_report", "missing_execution_id"].contains(&code.as_str()),
            "{code}"
        );
    }
    world.healthy().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_frames_in_one_segment_are_all_answered() {
    const FRAMES: usize = 10_000;
    let world = World::start().await;
    let data = world.body(world.attempt, &json!({"key": CONTROL_PLANE_KEY, "progress": 0.25}));
    let mut bytes = Vec::new();
    for id in 0..FRAMES {
        let packet = json!({"pattern": "plugin.executor.step_heartbeat", "data": data, "id": id});
        bytes.extend_from_slice(&codec::encode(&packet.to_string()));
    }
    let mut stream = world.tcp().await;
    stream.write_all(&bytes).await.unwrap();
    let mut answered = vec![false; FRAMES];
    for _ in 0..FRAMES {
        let packet: Value = serde_json::from_str(&read_frame(&mut stream).await).unwrap();
        assert!(packet["response"]["status"].is_string(), "{packet}");
        let id = usize::try_from(packet["id"].as_u64().unwrap()).unwrap();
        assert!(!std::mem::replace(&mut answered[id], true), "{id} is answered twice");
    }
    world.healthy().await;
}
