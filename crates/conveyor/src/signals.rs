//! What the system tells the process.

/// Waits for Ctrl-C or SIGTERM. When signals cannot be listened to, it never returns and the system
/// ends the process as it likes.
pub(crate) async fn terminated() {
    if let Err(error) = listen().await {
        tracing::warn!(event = "signals_unavailable", "signals cannot be listened to: {error}");
        std::future::pending::<()>().await;
    }
}

#[cfg(unix)]
async fn listen() -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}

#[cfg(not(unix))]
async fn listen() -> std::io::Result<()> {
    tokio::signal::ctrl_c().await
}
