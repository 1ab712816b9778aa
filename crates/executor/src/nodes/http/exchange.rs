//! Sending the request and following redirects.
//!
//! Redirects are followed here and not by the client, because what a process sends is meant for the
//! place that it names: headers may hold secrets, and go to the first origin only.

use super::{egress::Egress, invalid};
use contract::ErrorCode;
use plugin_sdk::Failure;
use reqwest::{
    Client, Method, Request, Response, StatusCode, Url,
    header::{ACCEPT, ACCEPT_LANGUAGE, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, LOCATION},
    redirect::Policy,
};
use std::{sync::Arc, time::Duration};
use wire::OutOfReach;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
const MAX_REDIRECTS: usize = 10;

/// Proxies of the environment are not used: they would connect where the check does not see.
pub(super) fn client(egress: Egress) -> reqwest::Result<Client> {
    Client::builder()
        .user_agent(concat!("conveyor/", env!("CARGO_PKG_VERSION")))
        .no_proxy()
        .dns_resolver(Arc::new(egress))
        .redirect(Policy::none())
        .connect_timeout(CONNECT_TIMEOUT)
        .build()
}

/// Sends the request; each hop is judged by where it leads.
pub(super) async fn exchange(
    client: &Client,
    egress: Egress,
    mut request: Request,
    follow: bool,
) -> Result<Response, Failure> {
    let mut redirects = 0;
    loop {
        egress.check(request.url()).map_err(|refused| forbidden(&refused))?;
        let host = request.url().host_str().unwrap_or_default().to_owned();
        let sent = if follow { request.try_clone() } else { None };
        let response = client.execute(request).await.map_err(|error| failure(&host, error))?;
        let Some(next) = sent.map(|sent| next_hop(sent, &response)).transpose()?.flatten() else {
            return Ok(response);
        };
        redirects += 1;
        if redirects > MAX_REDIRECTS {
            return Err(invalid(format!(
                "{host} redirects more than {MAX_REDIRECTS} times; give the final URL"
            )));
        }
        request = next;
    }
}

fn next_hop(sent: Request, response: &Response) -> Result<Option<Request>, Failure> {
    let location = response.headers().get(LOCATION).and_then(|location| location.to_str().ok());
    match location {
        Some(location) => redirected(sent, response.status(), location),
        None => Ok(None),
    }
}

/// The request that a redirect asks for; `None`: the response is no redirect that is followed.
fn redirected(sent: Request, status: StatusCode, location: &str) -> Result<Option<Request>, Failure> {
    let drops_body = match status.as_u16() {
        301 | 302 => *sent.method() == Method::POST,
        303 => *sent.method() != Method::HEAD,
        307 | 308 => false,
        _ => return Ok(None),
    };
    let url = sent.url().join(location).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let Some(url) = url else {
        let host = sent.url().host_str().unwrap_or_default();
        return Err(invalid(format!(
            "{host} redirects to what is no http or https URL; turn followRedirects off"
        )));
    };
    let is_same = is_same_origin(sent.url(), &url);
    let mut sent = sent;
    if drops_body {
        *sent.method_mut() = if *sent.method() == Method::HEAD { Method::HEAD } else { Method::GET };
        *sent.body_mut() = None;
        for header in [CONTENT_TYPE, CONTENT_LENGTH, CONTENT_ENCODING] {
            sent.headers_mut().remove(header);
        }
    }
    if !is_same {
        if sent.body().is_some() {
            // The body is not for others; the process sees the redirect.
            return Ok(None);
        }
        *sent.headers_mut() = harmless(sent.headers());
    }
    *sent.url_mut() = url;
    Ok(Some(sent))
}

fn is_same_origin(one: &Url, other: &Url) -> bool {
    one.scheme() == other.scheme()
        && one.host() == other.host()
        && one.port_or_known_default() == other.port_or_known_default()
}

/// The headers that say nothing about who asks.
fn harmless(headers: &HeaderMap) -> HeaderMap {
    let kept = |name| headers.get(&name).cloned().map(|value| (name, value));
    [ACCEPT, ACCEPT_LANGUAGE].into_iter().filter_map(kept).collect()
}

fn forbidden(refused: &OutOfReach) -> Failure {
    Failure::of(ErrorCode::ForbiddenAddress, refused.to_string())
}

/// The URL stays out of the message: it may hold secrets.
pub(super) fn failure(host: &str, error: reqwest::Error) -> Failure {
    if let Some(refused) = OutOfReach::find(&error) {
        return forbidden(refused);
    }
    let code = match () {
        () if error.is_timeout() => ErrorCode::Timeout,
        () if error.is_builder() => ErrorCode::InvalidNodeInput,
        () => ErrorCode::Unavailable,
    };
    let reason = Failure::from(error.without_url());
    Failure::of(code, format!("the request to {host} failed: {reason}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use reqwest::header::AUTHORIZATION;
    use std::{
        net::SocketAddr,
        sync::atomic::{AtomicUsize, Ordering},
    };
    use tokio::{
        io::{AsyncReadExt, AsyncWriteExt},
        net::TcpListener,
    };

    fn sent(method: Method, has_body: bool) -> Request {
        let mut request = Request::new(method, "https://a.example/x?key=hush".parse().unwrap());
        for (name, value) in [("authorization", "hush"), ("x-api-key", "hush"), ("accept", "text/csv")] {
            request.headers_mut().insert(name, value.parse().unwrap());
        }
        if has_body {
            request.headers_mut().insert(CONTENT_TYPE, "text/plain".parse().unwrap());
            *request.body_mut() = Some("body".into());
        }
        request
    }

    fn next(method: Method, has_body: bool, status: u16, location: &str) -> Option<Request> {
        redirected(sent(method, has_body), StatusCode::from_u16(status).unwrap(), location).unwrap()
    }

    #[test]
    fn a_redirect_within_the_origin_keeps_the_headers() {
        let next = next(Method::GET, false, 302, "/y").unwrap();
        assert_eq!(next.url().as_str(), "https://a.example/y");
        assert_eq!(next.headers()[AUTHORIZATION], "hush");
        assert_eq!(next.headers()["x-api-key"], "hush");
    }

    #[test]
    fn headers_of_the_process_reach_no_other_origin() {
        for other in ["https://b.example/", "http://a.example/", "https://a.example:444/", "//b.example/x"] {
            let next = next(Method::GET, false, 301, other).unwrap();
            assert_eq!(next.headers().iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), ["accept"]);
        }
    }

    #[test]
    fn a_body_reaches_no_other_origin() {
        assert!(next(Method::POST, true, 307, "https://b.example/").is_none());
        assert!(next(Method::PUT, true, 301, "https://b.example/").is_none());
        let same = next(Method::PUT, true, 308, "https://a.example/y").unwrap();
        assert!(same.body().is_some() && *same.method() == Method::PUT);
    }

    #[test]
    fn a_post_that_is_redirected_becomes_a_get_without_its_body() {
        for status in [301, 302, 303] {
            let next = next(Method::POST, true, status, "https://b.example/").unwrap();
            assert_eq!(*next.method(), Method::GET);
            assert!(next.body().is_none() && !next.headers().contains_key(CONTENT_TYPE));
        }
    }

    #[test]
    fn only_redirects_to_web_addresses_are_followed() {
        assert!(next(Method::GET, false, 304, "/y").is_none());
        assert!(next(Method::GET, false, 200, "/y").is_none());
        assert!(redirected(sent(Method::GET, false), StatusCode::FOUND, "file:///etc/passwd").is_err());
    }

    /// A website that sends whoever asks to the address that their path names, and counts them.
    async fn misleading() -> (SocketAddr, Arc<AtomicUsize>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, asked) = (listener.local_addr().unwrap(), Arc::new(AtomicUsize::new(0)));
        let counted = Arc::clone(&asked);
        tokio::spawn(async move {
            loop {
                let (mut socket, _) = listener.accept().await.unwrap();
                let mut head = vec![0; 4096];
                let length = socket.read(&mut head).await.unwrap();
                counted.fetch_add(1, Ordering::SeqCst);
                let head = String::from_utf8_lossy(&head[..length]).into_owned();
                let target = head.split(['/', ' ']).nth(2).unwrap();
                let answer = format!(
                    "HTTP/1.1 302 Found\r\nLocation: http://{target}/\r\nContent-Length: 0\r\n\
                     Connection: close\r\n\r\n"
                );
                socket.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        (address, asked)
    }

    #[tokio::test]
    async fn each_redirect_is_judged_anew() {
        let (website, asked) = misleading().await;
        // To the check this name is a public place, wherever the client finds it.
        let client = Client::builder().no_proxy().redirect(Policy::none());
        let client = client.resolve("public.example", website).build().unwrap();
        let targets = [website.to_string(), "169.254.169.254".into(), "[::ffff:10.0.0.1]:80".into()];
        for (before, target) in targets.iter().enumerate() {
            let url = format!("http://public.example:{}/{target}", website.port());
            let request = Request::new(Method::GET, url.parse().unwrap());
            let refused = exchange(&client, Egress::new(false), request, true).await.unwrap_err();
            assert_eq!(refused.into_step_error().code.as_deref(), Some("forbidden_address"), "{target}");
            assert_eq!(asked.load(Ordering::SeqCst), before + 1, "{target}: nobody is asked again");
        }
    }
}
