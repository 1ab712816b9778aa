//! Making the plugin known to plugin-manager (protocol section 3, Publication).

use crate::{backoff::Backoff, settings::PublicationSettings};
use contract::{ErrorCode, catalogue::PublicationReply, manifest::Manifest, pattern};
use secrecy::ExposeSecret;
use serde::Serialize;
use std::time::Duration;
use wire::{CallError, Client, ClientConfig};

/// Plugin-manager pulls the batch and fetches assets before it answers.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

#[derive(Serialize)]
struct Publication<'m> {
    #[serde(skip_serializing_if = "Option::is_none")]
    token: Option<&'m str>,
    #[serde(flatten)]
    manifest: &'m Manifest,
}

/// Publishes until it is accepted, refused for good, or the tries are used up. The plugin serves
/// in any case: a later reconcile of plugin-manager may still find it.
pub(crate) async fn publish(settings: PublicationSettings, manifest: Manifest) {
    let config = ClientConfig { tls: settings.tls, ..ClientConfig::default() };
    let client = Client::new(settings.host, settings.port, config);
    let mut backoff = Backoff::new(settings.retry_base, LONGEST_PAUSE);
    let token = settings.token.as_ref().map(ExposeSecret::expose_secret);
    let publication = Publication { token, manifest: &manifest };
    for attempt in 1..=settings.max_attempts {
        match client.call(pattern::MANIFEST_REQUEST_V2.name, &publication, ANSWER_TIMEOUT).await {
            Ok(reply) => return tell_accepted(&reply),
            Err(error) if error.retryable() && attempt < settings.max_attempts => {
                let pause = backoff.next_pause();
                tracing::warn!(
                    event = "plugin_wire_outbound_manifest_retry",
                    plugin_manager = client.address(),
                    attempt,
                    max_attempts = settings.max_attempts,
                    retry_in_ms = u64::try_from(pause.as_millis()).unwrap_or(u64::MAX),
                    %error,
                    "not published yet"
                );
                tokio::time::sleep(pause).await;
            }
            Err(error) => return tell_refused(&client, &manifest, attempt, &error),
        }
    }
}

fn tell_accepted(reply: &PublicationReply) {
    tracing::info!(
        event = "plugin_wire_outbound_manifest_ok",
        plugin_id = reply.plugin_id,
        publication_version = reply.publication_version,
        publication_id = %reply.publication_id,
        status = ?reply.status,
        "published"
    );
    for warning in &reply.warnings {
        tracing::warn!(
            event = "plugin_publication_warning",
            path = warning.path,
            warning = warning.message,
            "plugin-manager remarks"
        );
    }
}

fn tell_refused(client: &Client, manifest: &Manifest, attempt: u32, error: &CallError) {
    let error = error.to_rpc(ErrorCode::Unavailable, "plugin-manager");
    tracing::error!(
        event = "plugin_wire_outbound_manifest_failed",
        plugin_manager = client.address(),
        plugin_id = manifest.plugin_id,
        publication_version = manifest.publication_version,
        attempt,
        code = error.code.as_str(),
        reason = error.message,
        "not published; the plugin serves without being known"
    );
}
