//! The processes of `examples/processes`, each run as a user would run it: imported into
//! `conveyor up` on SQLite and started, against a website of the test's own.

#![allow(clippy::unwrap_used, reason = "tests: a failed unwrap is a failed test")]

mod large_values;
mod loops_and_waits;
mod page;
mod site;

use reqwest::Method;
use serde_json::{Value, json};
use site::{Answer, Asked, Site};
use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};
use system_tests::{Platform, Solo, binary, example};
use tokio::sync::Barrier;

/// The platform, with requests to this machine allowed.
async fn platform() -> Solo {
    platform_with(&[]).await
}

async fn platform_with(more: &[(&str, &str)]) -> Solo {
    let variables = [&[("EXECUTOR_HTTP_ALLOW_PRIVATE", "true")], more].concat();
    Solo::start(&binary("conveyor"), &variables).await
}

/// A run that has ended.
struct Ended {
    process: String,
    run: String,
    detail: Value,
    result: Value,
}

/// Imports the example and runs it to its end.
async fn run(platform: &Platform, name: &str, payload: &Value) -> Ended {
    let process = platform.import(&example(name)).await;
    let run = platform.start(&process, payload).await;
    ended(platform, process, run).await
}

async fn ended(platform: &Platform, process: String, run: String) -> Ended {
    let detail = platform.finished(&process, &run).await;
    let path = format!("/flow/{process}/runs/{run}/result");
    let (_, result) = platform.try_call(Method::GET, &path, None).await;
    Ended { process, run, detail, result: result["publicInputs"].clone() }
}

impl Ended {
    /// The result of a run that finished.
    fn finished(&self) -> &Value {
        assert_eq!(self.detail["run"]["status"], "finished", "{:#}", self.detail);
        &self.result
    }

    fn step(&self, node_id: &str) -> &Value {
        let steps = self.detail["steps"].as_array().unwrap();
        steps.iter().find(|step| step["nodeId"] == node_id).unwrap()
    }
}

async fn put_secret(platform: &Platform, name: &str, value: &str) {
    platform.call(Method::PUT, &format!("/secrets/{name}"), Some(&json!({"value": value}))).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_to_http_repeats_a_request_until_the_other_side_takes_it() {
    let tries = Arc::new(AtomicUsize::new(0));
    let crm = Site::start(move |_| {
        let failed = tries.fetch_add(1, Ordering::Relaxed) < 2;
        async move {
            if failed { Answer::json(503, &json!({})) } else { Answer::json(201, &json!({"id": "L-1"})) }
        }
    })
    .await;
    let solo = platform().await;
    let lead = json!({"name": "Аня \"А\"", "phone": "+7", "crmUrl": crm.url("/leads")});
    let ended = run(&solo.platform, "webhook-to-http.json", &lead).await;
    assert_eq!(*ended.finished(), json!({"status": 201, "leadId": "L-1"}));
    assert_eq!(ended.step("w-send")["attempts"], 3);
    let asked = crm.asked();
    assert_eq!(asked.len(), 3);
    for Asked { method, headers, body, .. } in asked {
        assert_eq!((method.as_str(), headers["content-type"].as_str()), ("POST", "application/json"));
        let sent: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(sent, json!({"name": "Аня \"А\"", "phone": "+7", "comment": ""}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_reach_the_request_and_nothing_else() {
    let weather = Site::start(|_| async { Answer::json(200, &json!({"main": {"temp": -3.50}})) }).await;
    let solo = platform().await;
    let payload = json!({"city": "Казань", "url": weather.url("/now")});
    put_secret(&solo.platform, "weather-key", "s3cret-key").await;

    let ended = run(&solo.platform, "secrets.json", &payload).await;
    assert_eq!(ended.detail["run"]["status"], "failed");
    let error = ended.step("w-weather")["error"].to_string();
    assert!(error.contains("secret_missing") && error.contains("weather-token"), "{error}");
    assert!(weather.asked().is_empty());

    put_secret(&solo.platform, "weather-token", "s3cret-token").await;
    let ended = run(&solo.platform, "secrets.json", &payload).await;
    assert_eq!(*ended.finished(), json!({"city": "Казань", "degrees": -3.5}));
    let asked = weather.asked();
    assert_eq!(asked[0].target, "/now?city=%D0%9A%D0%B0%D0%B7%D0%B0%D0%BD%D1%8C");
    assert_eq!(asked[0].headers["x-api-key"], "s3cret-key");
    assert_eq!(asked[0].headers["authorization"], "Bearer s3cret-token");

    let history = solo.platform.history(&ended.process, &ended.run).await;
    let told = [json!(history), ended.detail.clone()].map(|value| value.to_string()).concat();
    let log: String = solo.process.lines().into_iter().map(|line| line.text).collect();
    assert!(!told.contains("s3cret") && !log.contains("s3cret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_error_branch_takes_the_fallback_and_tells_somebody() {
    let site = Site::start(|asked: Asked| async move {
        match asked.target.as_str() {
            "/usd" => Answer::json(200, &json!({"rate": 81.25})),
            "/duty" => Answer::json(202, &json!({})),
            _ => Answer::json(500, &json!({"error": "out of order"})),
        }
    })
    .await;
    let solo = platform().await;
    let rates = |url: String| json!({"ratesUrl": url, "alertUrl": site.url("/duty")});

    let ended = run(&solo.platform, "error-branch.json", &rates(site.url("/usd"))).await;
    assert_eq!(*ended.finished(), json!({"rate": 81.25, "alertStatus": 0}));
    assert_eq!(ended.step("w-alert")["status"], "skipped");

    // An answer that is none, and no answer at all.
    let nobody = format!("http://127.0.0.1:{}/usd", testkit::free_port().unwrap());
    for broken in [site.url("/eur"), nobody] {
        let ended = run(&solo.platform, "error-branch.json", &rates(broken)).await;
        assert_eq!(*ended.finished(), json!({"rate": 90, "alertStatus": 202}));
    }
    let told: Vec<_> = site.asked().into_iter().filter(|asked| asked.target == "/duty").collect();
    let reasons = ["(http_status)", "(unavailable)"];
    assert_eq!(told.len(), reasons.len());
    for (told, reason) in told.iter().zip(reasons) {
        assert!(told.body.contains(reason), "{}", told.body);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn parallel_steps_run_at_the_same_time() {
    // Nobody is answered before all three have asked.
    let together = Arc::new(Barrier::new(3));
    let site = Site::start(move |asked: Asked| {
        let together = Arc::clone(&together);
        async move {
            together.wait().await;
            let body = match asked.target.as_str() {
                "/profile?id=42" => json!({"name": "Аня"}),
                "/orders?id=42" => json!([{"title": "чай"}, {"title": "булка 🥐"}]),
                "/balance?id=42" => json!({"amount": 100.50}),
                other => panic!("{other}"),
            };
            Answer::json(200, &body)
        }
    })
    .await;
    let solo = platform().await;
    let payload = json!({
        "clientId": "42", "profileUrl": site.url("/profile"), "ordersUrl": site.url("/orders"),
        "balanceUrl": site.url("/balance"),
    });
    let ended = run(&solo.platform, "parallel-steps.json", &payload).await;
    assert_eq!(ended.finished()["card"], "Аня: заказов 2, последний «булка 🥐», баланс 100.5 ₽");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_order_letter_is_rendered_from_its_order() {
    let solo = platform().await;
    let order = json!({
        "number": 9_007_199_254_740_993_u64, "urgent": true,
        "items": [{"title": "чай ☕", "count": 2, "price": 150}, {"title": "булка 🥐", "count": 1, "price": 40}],
    });
    let ended = run(&solo.platform, "order-letter.json", &json!({"customer": "аня", "order": order})).await;
    let letter = ended.finished();
    assert_eq!(letter["subject"], "Заказ № 9007199254740993 — срочно");
    assert_eq!(
        letter["text"],
        "Здравствуйте, Аня!\n\n1. чай ☕ — 2 × 150 ₽ = 300 ₽\n2. булка 🥐 — 1 × 40 ₽ = 40 ₽\n\nИтого позиций: 2. Комментарий: нет."
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_stored_byte_by_byte() {
    // A beginning of a PNG, and no text.
    const BYTES: &[u8] = b"\x89PNG\r\n\x1a\n\x00\xff\xfe binary";
    let site =
        Site::start(|_| async { Answer { status: 200, media_type: "image/png", body: BYTES.to_vec() } })
            .await;
    let solo = platform().await;
    let platform = &solo.platform;
    put_secret(platform, "platform-token", system_tests::deployment::API_TOKEN).await;
    let process = platform.import(&example("files.json")).await;
    let upload = platform.url(&format!("/internal/diagram/{process}/files"));
    let payload = json!({"fileUrl": site.url("/a.png"), "name": "чертёж.png", "uploadUrl": upload});
    let run = platform.start(&process, &payload).await;
    let ended = ended(platform, process, run).await;
    let file = ended.finished();
    assert_eq!(file["size"], BYTES.len());
    let (media_type, bytes) = platform.download(file["fileId"].as_str().unwrap()).await;
    assert_eq!((media_type.as_str(), bytes.as_slice()), ("image/png", BYTES));
}
