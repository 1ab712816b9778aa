//! One HTTP connection, from its first byte to its end.

use super::{HttpLimits, HttpPeer, guarded::Guarded};
use crate::{
    TlsServer,
    server::{Refusal, Stats},
};
use hyper::{
    Request, Response,
    body::{Body, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::{
    convert::Infallible,
    error, io,
    net::SocketAddr,
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::server::TlsStream;
use tokio_util::sync::CancellationToken;
use tower::{Service, ServiceExt};

/// What all connections of a listener share.
#[derive(Clone, Debug)]
pub(super) struct Door {
    pub(super) name: &'static str,
    pub(super) limits: HttpLimits,
    pub(super) tls: Option<TlsServer>,
    pub(super) stats: Arc<Stats>,
    pub(super) accept_stop: CancellationToken,
}

impl Door {
    /// Serves one connection to its end.
    pub(super) async fn serve<S, B>(self, stream: TcpStream, peer: SocketAddr, service: S)
    where
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let _open = self.stats.open_connection();
        let bytes = Arc::new(AtomicU64::new(0));
        let Some(tls) = &self.tls else {
            let stream = Guarded::new(stream, self.limits.write_timeout, Arc::clone(&bytes));
            return self.converse(stream, bytes, peer, service).await;
        };
        match self.shake_hands(tls, stream, &bytes).await {
            Ok(Some(stream)) => {
                // What counts is what comes after the handshake.
                bytes.store(0, Ordering::Relaxed);
                self.converse(stream, bytes, peer, service).await;
            }
            Ok(None) => {}
            Err(error) => {
                let message = format!("the TLS handshake failed: {error}; this door speaks HTTPS only");
                self.stats.refuse(self.name, peer, Refusal::TlsHandshake, &message);
            }
        }
    }

    /// The connection inside TLS, within the time of a head. `None` when the door stops, or when the peer
    /// goes without a word, as probes of a port do.
    async fn shake_hands(
        &self,
        tls: &TlsServer,
        stream: TcpStream,
        bytes: &Arc<AtomicU64>,
    ) -> io::Result<Option<TlsStream<Guarded>>> {
        let handshake = async {
            if stream.peek(&mut [0]).await.unwrap_or(0) == 0 {
                return Ok(None);
            }
            let stream = Guarded::new(stream, self.limits.write_timeout, Arc::clone(bytes));
            tls.acceptor().await.accept(stream).await.map(Some)
        };
        let late = |_| io::Error::new(io::ErrorKind::TimedOut, "it was not completed in time");
        match self.accept_stop.run_until_cancelled(timeout(self.limits.head_timeout, handshake)).await {
            None => Ok(None),
            Some(outcome) => outcome.map_err(late)?,
        }
    }

    async fn converse<I, S, B>(&self, stream: I, bytes: Arc<AtomicU64>, peer: SocketAddr, service: S)
    where
        I: AsyncRead + AsyncWrite + Send + Unpin + 'static,
        S: Service<Request<Incoming>, Response = Response<B>, Error = Infallible> + Clone + Send + 'static,
        S::Future: Send,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn error::Error + Send + Sync>>,
    {
        let requests = Arc::new(AtomicU64::new(0));
        let (asked, stats) = (Arc::clone(&requests), Arc::clone(&self.stats));
        let answer = service_fn(move |mut request: Request<Incoming>| {
            asked.fetch_add(1, Ordering::Relaxed);
            stats.requests.fetch_add(1, Ordering::Relaxed);
            request.extensions_mut().insert(HttpPeer(peer));
            service.clone().oneshot(request)
        });
        let connection = http1::Builder::new()
            // Without a timer the head's time limit would be void.
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_timeout)
            .max_header_size(self.limits.max_head_bytes)
            .serve_connection(TokioIo::new(stream), answer);
        let mut connection = pin!(connection);
        let result = tokio::select! {
            result = &mut connection => result,
            () = self.accept_stop.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = result {
            let is_idle = requests.load(Ordering::Relaxed) > 0;
            match refusal(&error, bytes.load(Ordering::Relaxed) > 0) {
                // The end of an idle connection is nobody's fault.
                Some(Refusal::FirstByteTimeout | Refusal::FrameTimeout) if is_idle => {}
                Some(reason) => self.stats.refuse(self.name, peer, reason, &error.to_string()),
                None => tracing::debug!(server = self.name, peer = %peer, error = %error, "connection ended"),
            }
        }
    }
}

/// The limit, if it was one, that ended a connection.
fn refusal(error: &hyper::Error, has_spoken: bool) -> Option<Refusal> {
    let stalled = error::Error::source(error)
        .and_then(|source| source.downcast_ref::<io::Error>())
        .is_some_and(|source| source.kind() == io::ErrorKind::TimedOut);
    match () {
        () if stalled => Some(Refusal::WriteQueue),
        () if error.is_timeout() && has_spoken => Some(Refusal::FrameTimeout),
        () if error.is_timeout() => Some(Refusal::FirstByteTimeout),
        () if error.is_parse_too_large() => Some(Refusal::HeaderTooLong),
        () if error.is_parse() => Some(Refusal::Malformed),
        () => None,
    }
}
