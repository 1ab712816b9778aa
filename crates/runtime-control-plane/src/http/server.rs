//! The HTTP server: a bounded number of connections, headers within a time, a stop in two steps.

use crate::metrics::Metrics;
use axum::{Router, body::Body};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{net::SocketAddr, pin::pin, sync::Arc, time::Duration};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service;

/// Pause after a failed accept (no file descriptors): the next may succeed.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Longest request head, bytes.
const MAX_HEAD_BYTES: usize = 32 * 1024;

/// Bounds of the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HttpLimits {
    /// Open connections; one more is closed at once.
    pub(crate) max_connections: usize,
    /// For the head of a request, the first one counted from the connection.
    pub(crate) head_timeout: Duration,
}

/// Who is at the other end of the connection: an extension of every request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) SocketAddr);

/// Serves until `stop`; then each connection ends after the request that it has in work. `cut` drops
/// what is left.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    limits: HttpLimits,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    cut: CancellationToken,
) {
    let slots = Arc::new(Semaphore::new(limits.max_connections.clamp(1, Semaphore::MAX_PERMITS)));
    let connections = TaskTracker::new();
    while let Some(accepted) = stop.run_until_cancelled(listener.accept()).await {
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(event = "accept_failed", server = "http", error = %error, "cannot accept a connection");
                stop.run_until_cancelled(tokio::time::sleep(ACCEPT_PAUSE)).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
            metrics.refusal("http", "too_many_connections");
            continue;
        };
        let connection = serve_connection(stream, peer, router.clone(), limits, stop.clone());
        let cut = cut.clone();
        connections.spawn(async move {
            cut.run_until_cancelled(connection).await;
            drop(slot);
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn serve_connection(
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    limits: HttpLimits,
    stop: CancellationToken,
) {
    // A socket that is gone already fails again at the first read.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |mut request: hyper::Request<Incoming>| {
        request.extensions_mut().insert(PeerAddress(peer));
        // A router is always ready.
        router.clone().call(request.map(Body::new))
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_header_size(MAX_HEAD_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let result = tokio::select! {
        result = &mut connection => result,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(event = "http_connection_ended", peer = %peer, error = %error, "connection ended");
    }
}
