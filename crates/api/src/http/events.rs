//! `GET /flow/{id}/runs/{runId}/events`: a run's events as they happen (server-sent events).
//!
//! Notices say when to look, a poll is the guarantee, and the history is what is sent: a stream that
//! breaks is taken up again with `Last-Event-ID` and loses nothing.

use crate::{
    app::App,
    http::{
        extract::{Asked, Caller, OfRun},
        problem::{Answer, ErrorBody, Problem},
        runs::{events_after, owned_run},
        views::{HistoryItem, Moment},
    },
};
use axum::{
    extract::State,
    http::HeaderMap,
    response::sse::{Event, KeepAlive, Sse},
};
use contract::{ErrorCode, ExecutionId, Json, NodePath, RpcError};
use futures::{Stream, stream};
use queue::{Notice, Notices, Topic};
use serde::{Deserialize, Serialize};
use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    sync::Arc,
    time::Duration,
};
use storage::{
    runs::{RunRow, StepWord},
    users::Principal,
};
use tokio::sync::OwnedSemaphorePermit;
use utoipa::IntoParams;

/// How often a run is looked at when no notice comes.
const POLL: Duration = Duration::from_secs(2);
/// Running steps of a run whose words are sent.
const MAX_WORDS: u32 = 200;
/// Events asked for at once.
const PAGE: u32 = 200;

#[derive(Debug, Deserialize, IntoParams)]
pub(crate) struct Since {
    /// Only events after this sequence number; `Last-Event-ID` goes before.
    after: Option<u64>,
}

/// The events of a run as server-sent events, from the beginning or from `after`.
///
/// Each has the event's kind as its name, its sequence number as its id, and the same data as in the
/// history. Between them `progress` tells what a running step says of itself, `{nodePath, executionId,
/// at?, progress?, message?}`: it has no id, is sent when it changed, and is not in the history. The
/// last one is named `end` with `{status}`; `error` with the error object ends a stream
/// that cannot go on: connect again with `Last-Event-ID`.
#[utoipa::path(get, path = "/flow/{id}/runs/{runId}/events", tag = "runs",
    params(("id" = String, Path), ("runId" = String, Path), Since, ("Last-Event-ID" = Option<u64>, Header)),
    responses((status = 200, content_type = "text/event-stream", body = String), (status = 404, body = ErrorBody),
        (status = 503, body = ErrorBody, description = "too many streams are open")))]
pub(crate) async fn events(
    State(app): State<Arc<App>>,
    Caller(caller): Caller,
    run: OfRun,
    Asked(since): Asked<Since>,
    headers: HeaderMap,
) -> Answer<Sse<impl Stream<Item = Result<Event, Infallible>>>> {
    let permit = Arc::clone(&app.event_streams).try_acquire_owned().map_err(|_| {
        Problem::new(ErrorCode::Overloaded, "too many event streams are open; try again or poll the run")
    })?;
    owned_run(&app, &caller, run).await?;
    let resumed = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    let after = resumed.or(since.after).unwrap_or(0);
    // Subscribed before the first look, so that no change falls between them.
    let notices = app.queue.subscribe(Topic::Runs).await.map_err(|error| {
        Problem::new(ErrorCode::Unavailable, format!("run notices cannot be subscribed to: {error}"))
    })?;
    let feed = Feed {
        app,
        caller,
        run,
        after,
        notices,
        ready: VecDeque::new(),
        words: VecDeque::new(),
        said: HashMap::new(),
        ended: false,
        _permit: permit,
    };
    Ok(Sse::new(stream::unfold(feed, Feed::next)).keep_alive(KeepAlive::default()))
}

/// One open stream.
struct Feed {
    app: Arc<App>,
    caller: Principal,
    run: OfRun,
    /// The last sequence number that was read.
    after: u64,
    notices: Notices,
    ready: VecDeque<HistoryItem>,
    /// What running steps say of themselves, to be sent.
    words: VecDeque<Word>,
    /// What was sent of it last, by attempt.
    said: HashMap<ExecutionId, Said>,
    ended: bool,
    _permit: OwnedSemaphorePermit,
}

/// Progress and message.
type Said = (Option<Json>, Option<String>);

/// What a running step says of itself.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Word {
    node_path: NodePath,
    execution_id: ExecutionId,
    #[serde(skip_serializing_if = "Option::is_none")]
    at: Option<Moment>,
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<String>,
}

impl From<&StepWord> for Word {
    fn from(word: &StepWord) -> Self {
        Self {
            node_path: word.node_path.clone(),
            execution_id: word.execution_id,
            at: word.heartbeat_at.map(Moment::from),
            progress: word.progress.clone(),
            message: word.message.clone(),
        }
    }
}

#[derive(Serialize)]
struct End<'a> {
    status: &'a str,
}

impl Feed {
    async fn next(mut self) -> Option<(Result<Event, Infallible>, Self)> {
        let event = self.event().await?;
        Some((Ok(event), self))
    }

    async fn event(&mut self) -> Option<Event> {
        loop {
            if let Some(item) = self.ready.pop_front() {
                return Some(named(&item.kind, &item).id(item.sequence.to_string()));
            }
            if let Some(word) = self.words.pop_front() {
                return Some(named("progress", &word));
            }
            if self.ended {
                return None;
            }
            match self.look().await {
                Err(Problem(error)) => {
                    self.ended = true;
                    return Some(named("error", &error));
                }
                Ok(row) if self.ready.is_empty() && row.status.is_terminal() => {
                    self.ended = true;
                    return Some(named("end", &End { status: row.status.as_str() }));
                }
                Ok(_) if self.ready.is_empty() && self.words.is_empty() => self.changed().await?,
                Ok(_) => {}
            }
        }
    }

    /// Reads the run's row, and its new events if there are any.
    async fn look(&mut self) -> Answer<RunRow> {
        let row = owned_run(&self.app, &self.caller, self.run).await?;
        if row.sequence > self.after {
            let page = events_after(&self.app, self.run, self.after, PAGE).await?;
            if let Some(last) = page.events.last() {
                self.after = last.sequence;
            }
            self.ready.extend(page.events.into_iter().map(HistoryItem::from));
        }
        if !row.status.is_terminal() {
            self.listen().await?;
        }
        Ok(row)
    }

    /// What running steps say of themselves and have not said before.
    async fn listen(&mut self) -> Answer<()> {
        let words = self.app.storage.runs().words(self.run.run_id, MAX_WORDS).await?;
        let before = std::mem::take(&mut self.said);
        for word in words {
            let said = (word.progress.clone(), word.message.clone());
            if before.get(&word.execution_id) != Some(&said) {
                self.words.push_back(Word::from(&word));
            }
            self.said.insert(word.execution_id, said);
        }
        Ok(())
    }

    /// Waits until the run may have changed; `None` when the service stops.
    async fn changed(&mut self) -> Option<()> {
        let run_id = self.run.run_id.to_string();
        let told = async {
            loop {
                match self.notices.recv().await {
                    Notice::Message(message) if !message.contains(&run_id) => {}
                    Notice::Message(_) | Notice::Missed => break,
                }
            }
        };
        tokio::select! {
            () = self.app.stop.cancelled() => None,
            // Elapsed or told: look again in both cases.
            _ = tokio::time::timeout(POLL, told) => Some(()),
        }
    }
}

/// An event whose data is JSON on one line; kinds are `snake_case` (contract) and hold no line break.
fn named<T: Serialize>(kind: &str, data: &T) -> Event {
    let kind: String = kind.chars().filter(|c| !c.is_control()).collect();
    let event = Event::default().event(kind);
    match serde_json::to_string(data) {
        // Raw payloads may be spread over lines; outside of strings JSON does not mind.
        Ok(text) => event.data(text.replace(['\r', '\n'], " ")),
        Err(error) => event.data(RpcError::new(ErrorCode::Internal, error.to_string()).to_string()),
    }
}
