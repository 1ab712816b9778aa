//! Where the listener's news meet those who wait for them.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, broadcast, watch};

use super::keys::Channel;
use crate::notices::{BACKLOG, Notice};
use crate::{Lane, Topic};

/// Wake-ups and topics of one process.
#[derive(Debug)]
pub(super) struct Hub {
    wakes: [Notify; Lane::ALL.len()],
    topics: [broadcast::Sender<Notice>; Topic::ALL.len()],
    /// Channels that somebody in this process needs; only grows.
    wanted: AtomicU8,
    /// Told when `wanted` grew.
    pub(super) wanted_more: Notify,
    /// Channels that the present connection is subscribed to.
    confirmed: watch::Sender<u8>,
}

impl Hub {
    pub(super) fn new() -> Self {
        Self {
            wakes: std::array::from_fn(|_| Notify::new()),
            topics: std::array::from_fn(|_| broadcast::channel(BACKLOG).0),
            wanted: AtomicU8::new(0),
            wanted_more: Notify::new(),
            confirmed: watch::Sender::new(0),
        }
    }

    /// Holds one permit when the lane may have items that no taker of this process was woken for.
    pub(super) fn wake(&self, lane: Lane) -> &Notify {
        &self.wakes[lane as usize]
    }

    /// Asks the listener for the channel, now and after every reconnect.
    pub(super) fn want(&self, channel: Channel) {
        let before = self.wanted.fetch_or(channel.bit(), Ordering::Relaxed);
        if before & channel.bit() == 0 {
            self.wanted_more.notify_one();
        }
    }

    /// The channels that are wanted and not yet confirmed, as bits.
    pub(super) fn unconfirmed(&self) -> u8 {
        self.wanted.load(Ordering::Relaxed) & !*self.confirmed.borrow()
    }

    /// The connection is subscribed to `channels` (bits). What was said before was not heard: the
    /// lanes are looked at once, and subscribers are told to read the truth.
    pub(super) fn confirm(&self, channels: u8) {
        for channel in Channel::of_bits(channels) {
            match channel {
                Channel::Wake(lane) => self.wake(lane).notify_one(),
                Channel::Notice(topic) => self.publish(topic, Notice::Missed),
            }
        }
        self.confirmed.send_modify(|bits| *bits |= channels);
    }

    /// The connection is gone.
    pub(super) fn disconnected(&self) {
        self.confirmed.send_replace(0);
    }

    pub(super) fn publish(&self, topic: Topic, notice: Notice) {
        // An error only says that nobody listens.
        let _ = self.topics[topic as usize].send(notice);
    }

    /// A receiver of the topic, returned when the connection is subscribed, or after `patience`
    /// without that; in the second case it hears [`Notice::Missed`] once it is.
    pub(super) async fn subscribe(&self, topic: Topic, patience: Duration) -> broadcast::Receiver<Notice> {
        let bit = Channel::Notice(topic).bit();
        let receiver = self.topics[topic as usize].subscribe();
        let mut confirmed = self.confirmed.subscribe();
        self.want(Channel::Notice(topic));
        let in_time = tokio::time::timeout(patience, confirmed.wait_for(|bits| bits & bit != 0)).await;
        match in_time {
            // Nothing was missed before the subscription began: skip the word of `confirm`.
            Ok(_) => receiver.resubscribe(),
            Err(_) => receiver,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_subscription_that_is_confirmed_in_time_begins_without_missed() {
        let hub = Hub::new();
        let (mut receiver, ()) = tokio::join!(hub.subscribe(Topic::Runs, Duration::from_secs(60)), async {
            hub.wanted_more.notified().await;
            hub.confirm(hub.unconfirmed());
        });
        hub.publish(Topic::Runs, Notice::Message("first".into()));
        assert_eq!(receiver.recv().await.unwrap(), Notice::Message("first".into()));
    }

    #[tokio::test]
    async fn a_subscription_that_is_confirmed_late_or_again_hears_missed() {
        let hub = Hub::new();
        let mut receiver = hub.subscribe(Topic::Runs, Duration::ZERO).await;
        for _ in 0..2 {
            hub.confirm(hub.unconfirmed());
            assert_eq!(receiver.recv().await.unwrap(), Notice::Missed);
            hub.disconnected();
        }
    }

    #[test]
    fn a_channel_is_asked_for_until_it_is_confirmed_and_again_after_a_disconnect() {
        let hub = Hub::new();
        let wake = Channel::Wake(Lane::Executor);
        assert_eq!(hub.unconfirmed(), 0);
        hub.want(wake);
        assert_eq!(hub.unconfirmed(), wake.bit());
        hub.confirm(wake.bit());
        assert_eq!(hub.unconfirmed(), 0);
        hub.disconnected();
        assert_eq!(hub.unconfirmed(), wake.bit());
    }
}
