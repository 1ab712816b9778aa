//! Examples with loops, delays, schedules and people.

use crate::{
    ended, platform, platform_with, run,
    site::{Answer, Asked, Site},
};
use reqwest::Method;
use serde_json::{Value, json};
use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};
use system_tests::{Platform, example};

#[tokio::test(flavor = "multi_thread")]
async fn fan_out_checks_every_address_and_no_more_than_five_at_once() {
    let now = Arc::new(Mutex::new((0, 0)));
    let most = Arc::clone(&now);
    let site = Site::start(move |asked: Asked| {
        let now = Arc::clone(&now);
        async move {
            {
                let (running, most) = &mut *now.lock().unwrap();
                *running += 1;
                *most = (*most).max(*running);
            }
            tokio::task::yield_now().await;
            now.lock().unwrap().0 -= 1;
            Answer::json(if asked.target == "/7" { 500 } else { 200 }, &json!({}))
        }
    })
    .await;
    let solo = platform().await;
    let mut urls: Vec<String> = (0..12).map(|n| site.url(&format!("/{n}"))).collect();
    // Nobody is there: the others are checked all the same.
    urls.push(format!("http://127.0.0.1:{}/", testkit::free_port().unwrap()));
    let ended = run(&solo.platform, "fan-out.json", &json!({"urls": urls})).await;
    let checked = ended.finished()["checked"].as_array().unwrap();
    let expected: Vec<Value> = urls
        .iter()
        .enumerate()
        .map(|(n, url)| match n {
            7 => json!({"url": url, "status": 500, "ok": false}),
            12 => json!({"url": url, "status": 0, "ok": false}),
            _ => json!({"url": url, "status": 200, "ok": true}),
        })
        .collect();
    assert_eq!(*checked, expected, "in the order of the list");
    assert_eq!(ended.finished()["broken"], json!([urls[7], urls[12]]));
    assert!(most.lock().unwrap().1 <= 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn polling_asks_until_the_report_is_ready() {
    let asked = Arc::new(AtomicUsize::new(0));
    let site = Site::start(move |_| {
        let state = match asked.fetch_add(1, Ordering::Relaxed) {
            0 => json!({"state": "queued"}),
            1 => json!({"state": "running"}),
            _ => json!({"state": "ready", "resultUrl": "https://reports/1"}),
        };
        async move { Answer::json(200, &state) }
    })
    .await;
    let solo = platform().await;
    let payload = json!({"statusUrl": site.url("/1"), "pauseMs": 1});
    let ended = run(&solo.platform, "polling.json", &payload).await;
    assert_eq!(*ended.finished(), json!({"state": "ready", "resultUrl": "https://reports/1"}));
    assert_eq!(site.asked().len(), 3);
}

/// Starts the process and, when a person is asked, answers.
async fn decided(platform: &Platform, amount: u64, answer: &Value) -> Value {
    let process = platform.import(&example("approval.json")).await;
    let run = platform.start(&process, &json!({"what": "станок", "amount": amount})).await;
    platform.follow(&process, &run, |_, event| event.to_string().contains("\"w-ask\"")).await;
    let path = format!("/flow/{process}/runs/{run}/steps/w-ask/confirm");
    platform.call(Method::POST, &path, Some(answer)).await;
    ended(platform, process, run).await.finished().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_waits_for_a_person_only_where_the_sum_is_large() {
    let solo = platform().await;
    let platform = &solo.platform;
    let small = run(platform, "approval.json", &json!({"what": "бумага", "amount": 900})).await;
    assert_eq!(*small.finished(), json!({"outcome": "Оплачено: бумага, 900 ₽"}));
    assert_eq!(small.step("w-ask")["status"], "skipped");

    let approved = decided(platform, 90_000, &json!({"approved": true})).await;
    assert_eq!(approved, json!({"outcome": "Оплачено: станок, 90000 ₽"}));
    let refused = decided(platform, 90_000, &json!({"approved": false, "comment": "дорого"})).await;
    assert_eq!(refused, json!({"outcome": "Отказано: станок (дорого)"}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_scheduled_report_is_put_together_and_sent() {
    let site = Site::start(|asked: Asked| async move {
        match asked.method.as_str() {
            "GET" => {
                Answer::json(200, &json!([{"shop": "Арбат", "sum": 1200}, {"shop": "Сокол", "sum": 800}]))
            }
            _ => Answer::json(200, &json!({})),
        }
    })
    .await;
    let solo = platform().await;
    let payload = json!({"salesUrl": site.url("/sales"), "chatUrl": site.url("/chat")});
    let ended = run(&solo.platform, "scheduled-report.json", &payload).await;
    let report = "Продажи за вчера\n• Арбат: 1200 ₽\n• Сокол: 800 ₽\nВсего: 2000 ₽";
    assert_eq!(*ended.finished(), json!({"report": report, "status": 200}));
    let sent: Value = serde_json::from_str(&site.asked()[1].body).unwrap();
    assert_eq!(sent, json!({"text": report}));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_canceled_run_breaks_off_its_requests_at_once_and_keeps_what_they_say() {
    // Nobody is answered, and no heartbeat would tell the executor of the end.
    let site = Site::start(|_| std::future::pending()).await;
    let solo = platform_with(&[("EXECUTOR_HEARTBEAT_MS", "3600000")]).await;
    let platform = &solo.platform;
    let process = platform.import(&example("parallel-steps.json")).await;
    let urls = [site.url("/profile"), site.url("/orders"), site.url("/balance")];
    let payload =
        json!({"clientId": "1", "profileUrl": urls[0], "ordersUrl": urls[1], "balanceUrl": urls[2]});
    let run = platform.start(&process, &payload).await;
    let mut acked = 0;
    platform
        .follow(&process, &run, |kind, _| {
            acked += usize::from(kind == "step_acked");
            acked == 3
        })
        .await;
    platform.call(Method::POST, &format!("/flow/{process}/runs/{run}/cancel"), None).await;
    let ended = ended(platform, process, run).await;
    assert_eq!(ended.detail["run"]["status"], "canceled");
    loop {
        let history = platform.history(&ended.process, &ended.run).await;
        if history.iter().filter(|event| event["kind"] == "late_result").count() == 3 {
            return;
        }
        // The stream of events ends with the run: asked again, bounded by the suite's own limit.
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
}
