//! What hostile clients do to a healthy one (failure matrix rows 19 and 20): its p99 with and without
//! them, in turns.

use crate::{
    load::{self, Slice, Work},
    us::Us,
};
use serde_json::{Value, json};
use std::{error::Error, fmt, net::Ipv4Addr, time::Duration};
use tokio::{io::AsyncWriteExt, net::TcpStream, task::JoinSet};

/// The healthy client: a busy plugin.
const IN_FLIGHT: usize = 16;
const SLICE: Duration = Duration::from_secs(2);
const ROUNDS: usize = 3;

const SILENT: usize = 1000;
const DRIBBLERS: usize = 100;
const HALF_FRAMES: usize = 20;

/// Slices without and with the attack.
#[derive(Debug)]
pub(crate) struct Siege {
    quiet: Vec<Slice>,
    besieged: Vec<Slice>,
}

/// Measures both in turns.
pub(crate) async fn measure(us: &Us) -> Result<Siege, Box<dyn Error>> {
    let attempts = us.outstanding(1).await?;
    let attempt = attempts.first().ok_or("no attempt")?;
    let mut siege = Siege { quiet: Vec::new(), besieged: Vec::new() };
    for _ in 0..ROUNDS {
        let heartbeats = || load::slice(us.client(), Work::Heartbeats(*attempt), IN_FLIGHT, SLICE);
        siege.quiet.push(heartbeats().await?);
        let attack = attack(us).await;
        siege.besieged.push(heartbeats().await?);
        drop(attack);
    }
    Ok(siege)
}

/// Hostile clients at both doors, until the set is dropped.
async fn attack(us: &Us) -> JoinSet<()> {
    let mut attack = JoinSet::new();
    let connect = |port: u16| TcpStream::connect((Ipv4Addr::LOCALHOST, port));
    for port in [us.solo.tcp_port, us.solo.http_port] {
        for _ in 0..SILENT {
            if let Ok(stream) = connect(port).await {
                attack.spawn(async move {
                    std::future::pending::<()>().await;
                    drop(stream);
                });
            }
        }
        for _ in 0..DRIBBLERS {
            attack.spawn(async move {
                let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { return };
                for byte in b"POST /internal/steps/ack HTTP/1.1\r\nX: ".iter().cycle() {
                    if stream.write_all(&[*byte]).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            });
        }
    }
    for _ in 0..HALF_FRAMES {
        let port = us.solo.tcp_port;
        attack.spawn(async move {
            let Ok(mut stream) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await else { return };
            let half = [b"16000000#\"".to_vec(), vec![b'x'; 8_000_000]].concat();
            // The server may refuse at any byte.
            let _ = stream.write_all(&half).await;
            std::future::pending::<()>().await;
        });
    }
    attack
}

impl Siege {
    fn p99(slices: &[Slice]) -> f64 {
        let mut all: Vec<f64> = slices.iter().map(|slice| slice.quantile_ms(0.99)).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    }

    /// For the file.
    pub(crate) fn json(&self) -> Value {
        let side = |slices: &[Slice]| -> Vec<Value> {
            let slice = |slice: &Slice| {
                json!({
                    "results_per_second": slice.per_second().round(),
                    "p99_ms": (slice.quantile_ms(0.99) * 100.0).round() / 100.0,
                    "foreign_cpu_percent": slice.foreign_percent().round(),
                })
            };
            slices.iter().map(slice).collect()
        };
        json!({"quiet": side(&self.quiet), "besieged": side(&self.besieged)})
    }
}

impl fmt::Display for Siege {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (quiet, besieged) = (Self::p99(&self.quiet), Self::p99(&self.besieged));
        writeln!(
            f,
            "A healthy client with {IN_FLIGHT} heartbeats in flight, p99, medians of {ROUNDS}: {quiet:.1} ms quiet, \
             {besieged:.1} ms while {SILENT} silent sockets and {DRIBBLERS} dribblers stand at each door and \
             {HALF_FRAMES} peers send half frames of 16 MB: {:.1}×",
            besieged / quiet.max(f64::EPSILON)
        )
    }
}
