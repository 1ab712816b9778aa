//! Who may come in: keys, addresses, proxies (failure matrix rows 13 to 18).

use crate::world::{KEY, PATIENCE, World, data, id};
use runtime_control_plane::{Error, Service};
use serde_json::{Value, json};
use wire::CallError;

#[tokio::test]
async fn key_is_found_in_every_accepted_place() {
    let world = World::start().await;
    let client = world.tcp();
    for place in [
        json!({"key": KEY}),
        json!({"controlPlaneKey": KEY}),
        json!({"token": KEY}),
        json!({"auth": {"key": KEY}}),
        json!({"auth": {"token": KEY}}),
    ] {
        let mut body = place.clone();
        body["executionId"] = json!(id());
        client
            .request("step_ack", &data(&body), PATIENCE)
            .await
            .unwrap_or_else(|error| panic!("{place}: {error}"));
    }
    let body = json!({"executionId": id()}).to_string();
    for (name, value) in
        [("authorization", format!("Bearer {KEY}")), ("x-plugin-control-plane-key", KEY.to_owned())]
    {
        let request = world.web.post(world.url("/internal/steps/ack")).header(name, value).body(body.clone());
        assert_eq!(request.send().await.unwrap().status().as_u16(), 200, "{name}");
    }
}

#[tokio::test]
async fn wrong_or_missing_key_says_only_that() {
    let mut world = World::start().await;
    let client = world.tcp();
    let malformed = json!({"executionId": "not an id"});
    for key in [Value::Null, json!(""), json!("wrong"), json!(5)] {
        let mut body = malformed.clone();
        body["key"] = key;
        match client.request("step_result", &data(&body), PATIENCE).await {
            Err(CallError::Remote(error)) => {
                assert_eq!(error.code.as_deref(), Some("unauthorized"));
                assert!(!error.retryable && !error.raw.text().contains("details"), "{}", error.raw.text());
            }
            other => panic!("{other:?}"),
        }
    }
    let request = world.web.post(world.url("/internal/steps/result")).body(malformed.to_string());
    let (status, body, _) = crate::world::answer(request.send().await.unwrap()).await;
    assert_eq!((status, &body["error"]["code"]), (401, &json!("unauthorized")));
    assert!(world.reports.try_recv().is_err());
}

#[tokio::test]
async fn refused_address_is_told_so_at_both_doors_and_before_the_key() {
    let world = World::with(|settings| settings.allow = "10.0.0.0/8".parse().unwrap()).await;
    for path in ["/internal/steps/ack", "/metrics", "/metrics/self"] {
        let request = world.web.post(world.url(path)).bearer_auth("wrong");
        let (status, body, _) = crate::world::answer(request.send().await.unwrap()).await;
        if path.starts_with("/internal") {
            assert_eq!((status, &body["error"]["code"]), (403, &json!("forbidden_address")));
        }
        let page = world.web.get(world.url(path)).send().await.unwrap();
        assert_ne!(page.status().as_u16(), 200);
    }
    let refused = crate::world::raw(world.tcp, b"").await;
    assert!(refused.contains("forbidden_address"), "{refused}");
}

#[tokio::test]
async fn forwarded_address_is_judged_only_behind_trusted_proxies() {
    for (trust, lines, status) in [
        ("false", &["203.0.113.7"][..], 403),
        ("true", &["203.0.113.7"][..], 200),
        ("true", &["1.1.1.1, 203.0.113.7"][..], 200),
        ("true", &["203.0.113.7, 1.1.1.1"][..], 403),
        ("true", &["1.1.1.1", "203.0.113.7, 10.0.0.5"][..], 200),
        ("true", &["203.0.113.7", "nonsense"][..], 403),
        ("true", &["[::ffff:203.0.113.7]:4711"][..], 200),
        ("192.0.2.0/24", &["203.0.113.7"][..], 403),
    ] {
        let world = World::with(|settings| {
            settings.allow = "203.0.113.0/24".parse().unwrap();
            settings.trust_proxy = trust.parse().unwrap();
        })
        .await;
        let mut request = world.web.post(world.url("/internal/steps/ack")).bearer_auth(KEY);
        for line in lines {
            request = request.header("x-forwarded-for", *line);
        }
        let response = request.body(json!({"executionId": id()}).to_string()).send().await.unwrap();
        assert_eq!(response.status().as_u16(), status, "{trust} {lines:?}");
    }
}

/// A PROXY protocol v2 header (TCP over IPv4) that conveys this address.
fn conveying(address: [u8; 4]) -> Vec<u8> {
    let (to, ports) = ([127, 0, 0, 1], [0x12, 0x67, 0x0f, 0xb5]);
    [&b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c"[..], &address, &to, &ports].concat()
}

#[tokio::test]
async fn address_that_a_proxy_conveys_over_tcp_is_judged_only_behind_trusted_proxies() {
    let (allowed, other) = ([203, 0, 113, 7], [198, 51, 100, 1]);
    for (trust, address, answer) in [
        ("true", allowed, "applied"),
        ("127.0.0.0/8", allowed, "applied"),
        ("true", other, "forbidden_address"),
        ("false", allowed, "forbidden_address"),
        ("192.0.2.0/24", allowed, "forbidden_address"),
    ] {
        let world = World::with(|settings| {
            settings.allow = "203.0.113.0/24".parse().unwrap();
            settings.proxy_protocol = trust.parse().unwrap();
        })
        .await;
        let body = json!({"key": KEY, "executionId": id()});
        let packet = json!({"pattern": "step_ack", "data": body, "id": "1"}).to_string();
        let frame = [conveying(address), format!("{}#{packet}", packet.len()).into_bytes()].concat();
        let reply = crate::world::raw(world.tcp, &frame).await;
        assert!(reply.contains(answer), "{trust} {address:?}: {reply:?}");
    }
}

#[tokio::test]
async fn without_a_key_the_service_starts_only_on_a_machine_of_ones_own() {
    let world = World::with(|settings| {
        settings.key = None;
        settings.insecure = true;
    })
    .await;
    let body = json!({"executionId": id()});
    world.tcp().request("step_ack", &data(&body), PATIENCE).await.unwrap();
    let mut settings = crate::world::settings();
    settings.key = None;
    let refused = Service::bind(settings, world.deps()).await;
    assert!(matches!(refused, Err(Error::KeyMissing)));
}

#[tokio::test]
async fn every_refusal_is_counted_by_door_and_reason() {
    let world = World::with(|settings| settings.max_frame_bytes = 4096).await;
    let client = world.tcp();
    for _ in 0..3 {
        let guessed = data(&json!({"key": "guessed", "executionId": id()}));
        client.request("step_ack", &guessed, PATIENCE).await.unwrap_err();
        let unknown = data(&json!({"key": KEY, "executionId": id(), "names": ["a"]}));
        client.request("executor.secrets", &unknown, PATIENCE).await.unwrap_err();
        let guess = world.web.post(world.url("/internal/steps/results")).bearer_auth("guessed");
        assert_eq!(guess.send().await.unwrap().status().as_u16(), 401);
        assert_eq!(world.post("/internal/steps/ack", "{").await.0, 400);
        assert_eq!(world.post("/internal/steps/ack", &" ".repeat(4097)).await.0, 413);
    }
    for (door, reason) in [
        ("tcp", "unauthorized"),
        ("tcp", "unknown_execution"),
        ("http", "unauthorized"),
        ("http", "invalid_report"),
        ("http", "payload_too_large"),
    ] {
        let line = format!(r#"conveyor_control_plane_refusals_total{{door="{door}",reason="{reason}"}} 3"#);
        crate::pages::until_metric(&world, &line).await;
    }
}
