//! Health and UI bundles over HTTP, where `PLUGIN_HEALTH_HTTP_PORT` is set (facts section 1.5).

use crate::{
    steps::Steps,
    ui::{Asset, Ui, path_of},
};
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Body, Bytes, Frame, Incoming, SizeHint},
    header::{self, HeaderValue},
};
use serde_json::{Value, json};
use std::{
    collections::HashMap,
    convert::Infallible,
    future::ready,
    net::SocketAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};
use tokio_util::sync::CancellationToken;
use wire::{HttpConfig, HttpLimits, HttpListener};

/// Plugin-manager and probes need few.
const MAX_CONNECTIONS: usize = 256;

/// What is served, by path.
#[derive(Debug)]
struct Pages {
    plugin_id: String,
    assets: HashMap<String, Asset>,
    steps: Arc<Steps>,
}

/// The bound listener.
#[derive(Debug)]
pub(crate) struct Http {
    listener: HttpListener,
    pages: Arc<Pages>,
}

impl Http {
    /// Listens.
    ///
    /// # Errors
    /// [`wire::Error`] when the address is taken.
    pub(crate) fn bind(
        address: SocketAddr,
        plugin_id: &str,
        ui: &Ui,
        steps: Arc<Steps>,
    ) -> Result<Self, wire::Error> {
        let limits = HttpLimits { max_connections: MAX_CONNECTIONS, ..HttpLimits::default() };
        let listener = HttpListener::bind(HttpConfig { limits, ..HttpConfig::new("plugin-http", address) })?;
        let assets = ui.assets.iter().map(|(key, asset)| (path_of(key), asset.clone())).collect();
        Ok(Self { listener, pages: Arc::new(Pages { plugin_id: plugin_id.to_owned(), assets, steps }) })
    }

    pub(crate) fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// Serves until `stop`.
    pub(crate) async fn run(self, stop: CancellationToken) {
        let pages = self.pages;
        let service = tower::service_fn(move |request: Request<Incoming>| {
            ready(Ok::<_, Infallible>(pages.answer(&request)))
        });
        self.listener.run(service, stop.clone(), stop).await;
    }
}

impl Pages {
    fn answer<B>(&self, request: &Request<B>) -> Response<Page> {
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            let mut response = refusal(StatusCode::METHOD_NOT_ALLOWED, "method_not_allowed", "use GET");
            response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match request.uri().path() {
            "/health" => self.health(),
            path => match self.assets.get(path) {
                Some(asset) => page(StatusCode::OK, &content_type(&asset.media_type), asset.bytes.clone()),
                None => {
                    refusal(StatusCode::NOT_FOUND, "not_found", "there are /health and the plugin's assets")
                }
            },
        }
    }

    fn health(&self) -> Response<Page> {
        let (status, word) = match self.steps.is_closed() {
            false => (StatusCode::OK, "ok"),
            true => (StatusCode::SERVICE_UNAVAILABLE, "stopping"),
        };
        let facts = json!({"status": word, "pluginId": self.plugin_id, "steps": self.steps.in_flight()});
        page_of(status, &facts)
    }
}

fn refusal(status: StatusCode, code: &str, message: &str) -> Response<Page> {
    page_of(status, &json!({"error": {"code": code, "message": message}}))
}

fn page_of(status: StatusCode, body: &Value) -> Response<Page> {
    page(status, "application/json; charset=utf-8", body.to_string().into())
}

fn page(status: StatusCode, content_type: &str, bytes: Bytes) -> Response<Page> {
    let mut response = Response::new(Page(Some(bytes)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    // What cannot stand in a header is no media type.
    if let Ok(content_type) = HeaderValue::from_str(content_type) {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// Text of ours is UTF-8; anything else says for itself what it is.
fn content_type(media_type: &str) -> String {
    let is_text = media_type.starts_with("text/")
        || matches!(media_type, "application/javascript" | "application/json");
    if is_text { format!("{media_type}; charset=utf-8") } else { media_type.to_owned() }
}

/// A whole body at once.
struct Page(Option<Bytes>);

impl Body for Page {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(self.0.take().filter(|bytes| !bytes.is_empty()).map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(Bytes::is_empty)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.0.as_ref().map_or(0, |bytes| bytes.len() as u64))
    }
}
