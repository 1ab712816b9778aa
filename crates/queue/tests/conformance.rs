//! What every backend does. In process always; over Redis where `TEST_REDIS_URL` and
//! `TEST_REDIS_CLUSTER_URL` name servers. Each test has a prefix of its own.

#![allow(clippy::unwrap_used, reason = "a test ends where its helper fails")]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use queue::{
    Error, Lane, MAX_ITEM_BYTES, MAX_LANE_ITEMS, MAX_NOTICE_BYTES, Notice, Notices, Queue, RedisSettings,
    Topic,
};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Long enough for what must happen at all; nothing here depends on how long it takes.
const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(20);

/// One backend with one prefix, seen from any number of processes.
enum Bed {
    InProcess(Queue),
    Redis(RedisSettings),
}

impl Bed {
    fn in_process() -> Option<Self> {
        Some(Self::InProcess(Queue::in_process()))
    }

    fn redis() -> Option<Self> {
        Self::over(&testkit::server_url("TEST_REDIS_URL")?, false)
    }

    fn cluster() -> Option<Self> {
        Self::over(&testkit::server_url("TEST_REDIS_CLUSTER_URL")?, true)
    }

    fn over(url: &str, cluster: bool) -> Option<Self> {
        let prefix = format!("test-{}", uuid::Uuid::now_v7());
        Some(Self::Redis(RedisSettings { url: url.to_owned().into(), cluster, prefix }))
    }

    /// The queue as one more process opens it.
    async fn open(&self) -> Queue {
        match self {
            Self::InProcess(queue) => queue.clone(),
            Self::Redis(settings) => Queue::redis(settings.clone()).await.unwrap(),
        }
    }

    /// The same kind of backend where nobody else takes part.
    fn elsewhere(&self) -> Self {
        match self {
            Self::InProcess(_) => Self::InProcess(Queue::in_process()),
            Self::Redis(settings) => Self::Redis(RedisSettings {
                prefix: format!("{}-elsewhere", settings.prefix),
                ..settings.clone()
            }),
        }
    }
}

macro_rules! conformance {
    ($($case:ident)*) => {
        conformance! { @backend in_process $($case)* }
        conformance! { @backend redis $($case)* }
        conformance! { @backend cluster $($case)* }
    };
    (@backend $backend:ident $($case:ident)*) => {
        mod $backend {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    if let Some(bed) = super::Bed::$backend() {
                        super::$case(bed).await;
                    }
                }
            )*
        }
    };
}

conformance! {
    each_item_is_handed_out_once_among_eight_takers
    one_taker_gets_the_items_in_the_order_of_the_pushes
    a_waiting_take_wakes_on_a_push_from_elsewhere
    one_push_wakes_as_many_waiting_takers_as_it_has_items
    a_take_returns_empty_after_its_wait
    a_take_returns_no_more_than_asked_for
    a_dropped_take_loses_nothing
    lanes_are_apart_and_depth_counts_what_is_left
    a_large_item_and_any_text_pass_unchanged
    what_is_too_large_is_refused_before_anything_is_sent
    a_full_lane_refuses_and_says_so
    a_notice_reaches_every_subscriber_of_its_topic_in_order
    a_subscriber_that_lags_is_told_to_read_again
    a_lease_has_one_holder_until_it_is_released
    a_lease_that_is_not_renewed_ends
    other_prefixes_are_other_worlds
    a_healthy_backend_answers_a_ping
}

fn numbered(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("item-{n}")).collect()
}

async fn take_all(queue: &Queue, lane: Lane, count: usize) -> Vec<String> {
    let mut all = Vec::new();
    while all.len() < count {
        let some = queue.take(lane, count - all.len(), LONG).await.unwrap();
        assert!(!some.is_empty(), "only {} of {count} items came", all.len());
        all.extend(some);
    }
    all
}

async fn hear(notices: &mut Notices) -> Notice {
    timeout(LONG, notices.recv()).await.unwrap()
}

fn message(text: &str) -> Notice {
    Notice::Message(text.to_owned())
}

async fn each_item_is_handed_out_once_among_eight_takers(bed: Bed) {
    const COUNT: usize = 4000;
    let taken = Arc::new(AtomicUsize::new(0));
    let mut takers = JoinSet::new();
    for n in 0..8 {
        let (queue, taken) = (bed.open().await, Arc::clone(&taken));
        takers.spawn(async move {
            let mut mine = Vec::new();
            while taken.load(Ordering::Relaxed) < COUNT {
                let items = queue.take(Lane::Plugin, 1 + n * 5, SHORT).await.unwrap();
                taken.fetch_add(items.len(), Ordering::Relaxed);
                mine.extend(items);
            }
            mine
        });
    }
    let queue = bed.open().await;
    for chunk in numbered(COUNT).chunks(37) {
        queue.push(Lane::Plugin, chunk.to_vec()).await.unwrap();
    }

    let all: Vec<String> = timeout(LONG, takers.join_all()).await.unwrap().concat();

    assert_eq!(all.len(), COUNT);
    assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), numbered(COUNT).into_iter().collect());
}

async fn one_taker_gets_the_items_in_the_order_of_the_pushes(bed: Bed) {
    let queue = bed.open().await;
    for chunk in numbered(2500).chunks(1100) {
        queue.push(Lane::Executor, chunk.to_vec()).await.unwrap();
    }
    assert_eq!(take_all(&queue, Lane::Executor, 2500).await, numbered(2500));
}

async fn a_waiting_take_wakes_on_a_push_from_elsewhere(bed: Bed) {
    let (there, here) = (bed.open().await, bed.open().await);
    // So many hand-overs that they end in time only if each push wakes the taker at once.
    let hand_over = async {
        for n in 0..200 {
            let item = n.to_string();
            let push = async {
                tokio::task::yield_now().await;
                there.push(Lane::Plugin, vec![item.clone()]).await.unwrap();
            };
            let (taken, ()) = tokio::join!(here.take(Lane::Plugin, 10, LONG), push);
            assert_eq!(taken.unwrap(), [item]);
        }
    };
    timeout(LONG, hand_over).await.unwrap();
}

async fn one_push_wakes_as_many_waiting_takers_as_it_has_items(bed: Bed) {
    let queue = bed.open().await;
    let mut takers = JoinSet::new();
    for _ in 0..8 {
        let queue = queue.clone();
        takers.spawn(async move { queue.take(Lane::Plugin, 1, LONG).await.unwrap() });
    }
    bed.open().await.push(Lane::Plugin, numbered(8)).await.unwrap();

    let mut all = timeout(LONG, takers.join_all()).await.unwrap().concat();
    all.sort();
    assert_eq!(all, numbered(8));
}

async fn a_take_returns_empty_after_its_wait(bed: Bed) {
    let queue = bed.open().await;
    for wait in [Duration::ZERO, SHORT] {
        assert_eq!(queue.take(Lane::Plugin, 10, wait).await.unwrap(), Vec::<String>::new());
    }
    queue.push(Lane::Plugin, numbered(1)).await.unwrap();
    assert_eq!(queue.take(Lane::Plugin, 10, Duration::ZERO).await.unwrap(), numbered(1));
}

async fn a_take_returns_no_more_than_asked_for(bed: Bed) {
    let queue = bed.open().await;
    queue.push(Lane::Plugin, numbered(5)).await.unwrap();
    assert_eq!(queue.take(Lane::Plugin, 0, LONG).await.unwrap().len(), 0);
    assert_eq!(queue.take(Lane::Plugin, 3, LONG).await.unwrap(), numbered(5)[..3]);
    assert_eq!(queue.take(Lane::Plugin, 3, LONG).await.unwrap(), numbered(5)[3..]);
    queue.push(Lane::Plugin, Vec::new()).await.unwrap();
    assert_eq!(queue.depth(Lane::Plugin).await.unwrap(), 0);
}

async fn a_dropped_take_loses_nothing(bed: Bed) {
    let queue = bed.open().await;
    queue.push(Lane::Plugin, numbered(100)).await.unwrap();
    let mut all = BTreeSet::new();
    // A take is dropped after each number of polls that it may have got.
    for polls in 0..100 {
        let mut take = Box::pin(queue.take(Lane::Plugin, 3, LONG));
        for _ in 0..polls % 5 {
            tokio::task::yield_now().await;
            if let std::task::Poll::Ready(items) = futures::poll!(&mut take) {
                all.extend(items.unwrap());
                break;
            }
        }
    }
    while all.len() < 100 {
        let items = queue.take(Lane::Plugin, 10, LONG).await.unwrap();
        assert!(!items.is_empty(), "{} of 100 items are lost", 100 - all.len());
        all.extend(items);
    }
    assert_eq!(all, numbered(100).into_iter().collect());
}

async fn lanes_are_apart_and_depth_counts_what_is_left(bed: Bed) {
    let queue = bed.open().await;
    queue.push(Lane::Plugin, numbered(3)).await.unwrap();
    assert_eq!(queue.take(Lane::Executor, 10, SHORT).await.unwrap().len(), 0);
    assert_eq!(
        (queue.depth(Lane::Plugin).await.unwrap(), queue.depth(Lane::Executor).await.unwrap()),
        (3, 0)
    );
    take_all(&queue, Lane::Plugin, 2).await;
    assert_eq!(queue.depth(Lane::Plugin).await.unwrap(), 1);
}

async fn a_large_item_and_any_text_pass_unchanged(bed: Bed) {
    let queue = bed.open().await;
    let items = vec![
        "x".repeat(1024 * 1024),
        String::new(),
        "Grüße, 世界 🦀 \u{0}\r\n\u{10FFFF}".to_owned(),
        r#"{"n":123456789012345678901234567890,"f":1.10}"#.to_owned(),
        "ä".repeat(5 * 1024 * 1024),
    ];
    queue.push(Lane::Executor, items.clone()).await.unwrap();
    assert!(take_all(&queue, Lane::Executor, items.len()).await == items);

    let mut notices = queue.subscribe(Topic::Steps).await.unwrap();
    let longest = "é".repeat(MAX_NOTICE_BYTES / 2);
    for text in ["", "Grüße 🦀", &longest] {
        queue.notify(Topic::Steps, text).await.unwrap();
        assert!(hear(&mut notices).await == message(text));
    }
}

async fn what_is_too_large_is_refused_before_anything_is_sent(bed: Bed) {
    let queue = bed.open().await;
    let items = vec!["fits".to_owned(), "x".repeat(MAX_ITEM_BYTES + 1)];
    let error = queue.push(Lane::Plugin, items).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit_bytes: MAX_ITEM_BYTES, .. }));
    assert_eq!(queue.depth(Lane::Plugin).await.unwrap(), 0);

    let error = queue.notify(Topic::Runs, &"x".repeat(MAX_NOTICE_BYTES + 1)).await.unwrap_err();
    assert!(matches!(error, Error::TooLarge { limit_bytes: MAX_NOTICE_BYTES, .. }));
}

async fn a_full_lane_refuses_and_says_so(bed: Bed) {
    let queue = bed.open().await;
    queue.push(Lane::Plugin, numbered(MAX_LANE_ITEMS)).await.unwrap();

    let error = queue.push(Lane::Plugin, numbered(1)).await.unwrap_err();
    assert!(matches!(error, Error::Full { lane: Lane::Plugin, limit: MAX_LANE_ITEMS, .. }), "{error}");

    take_all(&queue, Lane::Plugin, 1).await;
    queue.push(Lane::Plugin, numbered(1)).await.unwrap();
    assert_eq!(queue.depth(Lane::Plugin).await.unwrap(), MAX_LANE_ITEMS as u64);
}

async fn a_notice_reaches_every_subscriber_of_its_topic_in_order(bed: Bed) {
    let (here, there) = (bed.open().await, bed.open().await);
    let mut subscribers = Vec::new();
    for queue in [&here, &here, &there] {
        subscribers.push(queue.subscribe(Topic::Catalogue).await.unwrap());
    }
    let mut other_topic = here.subscribe(Topic::Runs).await.unwrap();

    for text in ["first", "second"] {
        there.notify(Topic::Catalogue, text).await.unwrap();
    }
    there.notify(Topic::Runs, "of runs").await.unwrap();

    for subscriber in &mut subscribers {
        assert_eq!(hear(subscriber).await, message("first"));
        assert_eq!(hear(subscriber).await, message("second"));
    }
    assert_eq!(hear(&mut other_topic).await, message("of runs"));
}

async fn a_subscriber_that_lags_is_told_to_read_again(bed: Bed) {
    let queue = bed.open().await;
    let mut slow = queue.subscribe(Topic::Runs).await.unwrap();
    let mut attentive = queue.subscribe(Topic::Runs).await.unwrap();
    for n in 0..3000 {
        queue.notify(Topic::Runs, &n.to_string()).await.unwrap();
        assert_eq!(hear(&mut attentive).await, message(&n.to_string()));
    }
    assert_eq!(hear(&mut slow).await, Notice::Missed);
    // And goes on with what is still there, up to the newest.
    while hear(&mut slow).await != message("2999") {}
}

async fn a_lease_has_one_holder_until_it_is_released(bed: Bed) {
    let (a, b) = (bed.open().await, bed.open().await);
    assert!(a.lease("sweep", "a", LONG).await.unwrap());
    assert!(!b.lease("sweep", "b", LONG).await.unwrap());
    assert!(a.lease("sweep", "a", LONG).await.unwrap(), "the holder renews");
    assert!(b.lease("another", "b", LONG).await.unwrap());

    b.release("sweep", "b").await.unwrap();
    assert!(!b.lease("sweep", "b", LONG).await.unwrap(), "only the holder releases");

    a.release("sweep", "a").await.unwrap();
    assert!(b.lease("sweep", "b", LONG).await.unwrap());
}

async fn a_lease_that_is_not_renewed_ends(bed: Bed) {
    let queue = bed.open().await;
    assert!(queue.lease("sweep", "a", SHORT).await.unwrap());
    let taken_over = async {
        while !queue.lease("sweep", "b", LONG).await.unwrap() {
            tokio::task::yield_now().await;
        }
    };
    timeout(LONG, taken_over).await.unwrap();
    assert!(!queue.lease("sweep", "a", LONG).await.unwrap());
}

async fn other_prefixes_are_other_worlds(bed: Bed) {
    let (here, elsewhere) = (bed.open().await, bed.elsewhere().open().await);
    let mut notices = here.subscribe(Topic::Catalogue).await.unwrap();

    elsewhere.push(Lane::Plugin, numbered(1)).await.unwrap();
    elsewhere.notify(Topic::Catalogue, "from elsewhere").await.unwrap();
    assert!(elsewhere.lease("sweep", "them", LONG).await.unwrap());

    assert_eq!(here.take(Lane::Plugin, 1, SHORT).await.unwrap().len(), 0);
    assert!(here.lease("sweep", "us", LONG).await.unwrap());
    here.notify(Topic::Catalogue, "from here").await.unwrap();
    assert_eq!(hear(&mut notices).await, message("from here"));
    assert_eq!(elsewhere.depth(Lane::Plugin).await.unwrap(), 1);
}

async fn a_healthy_backend_answers_a_ping(bed: Bed) {
    let queue = bed.open().await;
    queue.ping().await.unwrap();
    assert_eq!(queue.is_shared(), matches!(bed, Bed::Redis(_)));
}
