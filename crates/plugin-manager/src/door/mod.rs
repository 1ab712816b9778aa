//! The TCP door: one table says which pattern does what; every call presents the ingress token.

mod catalogue;
mod versions;

use crate::{
    documents::Documents,
    hand_out::HandOuts,
    metrics::Metrics,
    publication::{Publisher, document},
    tokens::Tokens,
    view::View,
};
use contract::{
    ErrorCode, Json, RpcError,
    catalogue::{PublicationReply, PublishRequest},
    pattern::{self, Pattern},
};
use parking_lot::Mutex;
use secrecy::SecretString;
use serde::{Serialize, de::DeserializeOwned};
use std::{
    sync::Arc,
    time::{Duration, Instant},
};
use storage::Storage;
use wire::{Handler, Peer, Reply, Request};

/// What a pattern does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Publish,
    HandOut,
    List,
    Get,
    Versions,
    Enable,
    Disable,
    Remove,
    Pin,
    Unpin,
    Yank,
    Unyank,
    Quarantine,
    Release,
    Limit,
    Diff,
    PublishFor,
    Asset,
    Health,
    Explain,
}

/// The door's patterns; their aliases stand in `contract::pattern`.
const TABLE: [(Pattern, Call); 20] = [
    (pattern::MANIFEST_REQUEST_V2, Call::Publish),
    (pattern::MANIFEST_REQUEST, Call::HandOut),
    (pattern::PLUGIN_LIST, Call::List),
    (pattern::PLUGIN_GET, Call::Get),
    (pattern::PLUGIN_VERSIONS, Call::Versions),
    (pattern::PLUGIN_ENABLE, Call::Enable),
    (pattern::PLUGIN_DISABLE, Call::Disable),
    (pattern::PLUGIN_REMOVE, Call::Remove),
    (pattern::PLUGIN_PIN, Call::Pin),
    (pattern::PLUGIN_UNPIN, Call::Unpin),
    (pattern::PLUGIN_YANK, Call::Yank),
    (pattern::PLUGIN_UNYANK, Call::Unyank),
    (pattern::PLUGIN_QUARANTINE, Call::Quarantine),
    (pattern::PLUGIN_RELEASE, Call::Release),
    (pattern::PLUGIN_LIMIT, Call::Limit),
    (pattern::PLUGIN_DIFF, Call::Diff),
    (pattern::PLUGIN_PUBLISH, Call::PublishFor),
    (pattern::PLUGIN_ASSET, Call::Asset),
    (pattern::PLUGIN_HEALTH, Call::Health),
    (pattern::PLUGIN_EXPLAIN, Call::Explain),
];

/// Answers the calls of the TCP door.
#[derive(Debug)]
pub(crate) struct Door {
    pub(crate) storage: Storage,
    pub(crate) view: Arc<View>,
    pub(crate) documents: Arc<Documents>,
    pub(crate) publisher: Arc<Publisher>,
    pub(crate) hand_outs: HandOuts,
    pub(crate) tokens: Arc<Tokens>,
    pub(crate) metrics: Arc<Metrics>,
    /// Is a plugin enabled where nobody has decided about it?
    pub(crate) enabled_by_default: bool,
    /// When a refused call was last logged.
    pub(crate) last_unauthorized: Mutex<Option<Instant>>,
}

impl Handler for Door {
    async fn call(&self, request: Request) -> Reply {
        let Some((pattern, call)) = TABLE.iter().find(|(pattern, _)| pattern.is(&request.pattern)) else {
            return Reply::NoHandler;
        };
        let result = match self.tokens.admit(&request.data) {
            Ok(presented) => self.answer(*call, &request.data, presented).await,
            Err(error) => {
                self.log_unauthorized(pattern.name, request.peer);
                Err(error)
            }
        };
        let outcome = result.as_ref().err().map_or("ok", |error| error.code.as_str());
        self.metrics.called(pattern.name, outcome);
        result.into()
    }
}

impl Door {
    async fn answer(
        &self,
        call: Call,
        data: &Json,
        presented: Option<SecretString>,
    ) -> Result<Json, RpcError> {
        match call {
            Call::Publish => self.publish(data, presented).await,
            // Old plugins publish under the pattern of the hand-out.
            Call::HandOut if document::is_manifest(data) => self.publish(data, presented).await,
            Call::HandOut => self.hand_outs.hand_out(&read(data)?).await,
            Call::List => write(&self.list(&read(data)?).await?),
            Call::Get => write(&self.get(&read(data)?).await?),
            Call::Versions => write(&self.versions(&read(data)?).await?),
            Call::Enable => write(&self.set_enabled(&read(data)?, true).await?),
            Call::Disable => write(&self.set_enabled(&read(data)?, false).await?),
            Call::Remove => write(&self.remove(&read(data)?).await?),
            Call::Pin => write(&self.pin(&read(data)?).await?),
            Call::Unpin => write(&self.unpin(&read(data)?).await?),
            Call::Yank => write(&self.set_yanked(&read(data)?, true).await?),
            Call::Unyank => write(&self.set_yanked(&read(data)?, false).await?),
            Call::Quarantine => write(&self.set_quarantined(&read(data)?, true).await?),
            Call::Release => write(&self.set_quarantined(&read(data)?, false).await?),
            Call::Limit => write(&self.limit(&read(data)?).await?),
            Call::Diff => write(&self.diff(&read(data)?).await?),
            Call::PublishFor => self.publish_for(read(data)?, presented).await,
            Call::Asset => write(&self.asset(&read(data)?).await?),
            Call::Health => write(&self.health(&read(data)?).await?),
            Call::Explain => write(&self.explain(&read(data)?).await?),
        }
    }

    async fn publish(&self, data: &Json, presented: Option<SecretString>) -> Result<Json, RpcError> {
        let (publisher, data) = (Arc::clone(&self.publisher), data.clone());
        let tokens = self.tokens.for_pull(presented);
        to_the_end(async move { publisher.publish(&data, tokens).await }).await
    }

    async fn publish_for(
        &self,
        request: PublishRequest,
        presented: Option<SecretString>,
    ) -> Result<Json, RpcError> {
        let publisher = Arc::clone(&self.publisher);
        let tokens = self.tokens.for_pull(presented);
        to_the_end(async move { publisher.publish_for(request, tokens).await }).await
    }

    /// At most one line a second: the metric counts them all.
    fn log_unauthorized(&self, pattern: &'static str, peer: Peer) {
        let now = Instant::now();
        let mut last = self.last_unauthorized.lock();
        if last.is_none_or(|last| now.saturating_duration_since(last) >= Duration::from_secs(1)) {
            *last = Some(now);
            tracing::warn!(
                event = "unauthorized",
                pattern,
                peer = %peer.address,
                "a call without the right ingress token was refused"
            );
        }
    }
}

/// In a task of its own: a publication that was begun ends, also when the caller hangs up, so that
/// what it stored is announced and what it uploaded is used or given back.
async fn to_the_end(
    publication: impl Future<Output = Result<PublicationReply, RpcError>> + Send + 'static,
) -> Result<Json, RpcError> {
    match tokio::spawn(publication).await {
        Ok(result) => write(&result?),
        Err(error) => {
            tracing::error!(event = "publication_broke_off", error = %error, "a publication broke off");
            Err(RpcError::new(ErrorCode::Internal, "the publication broke off; see plugin-manager's log"))
        }
    }
}

fn read<T: DeserializeOwned>(data: &Json) -> Result<T, RpcError> {
    data.read().map_err(|error| {
        RpcError::new(ErrorCode::InvalidRequest, format!("the request cannot be read: {error}"))
    })
}

fn write<T: Serialize>(answer: &T) -> Result<Json, RpcError> {
    Json::of(answer)
        .map_err(|error| RpcError::new(ErrorCode::Internal, format!("the answer cannot be written: {error}")))
}
