//! How long things may take and how often they are repeated (protocol section 5).

use super::graph::Node;
use contract::{ErrorCode, process::Retry, report::StepError};
use std::time::Duration;

/// Limits of deliveries and steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// From dispatch to ack or delivery reply.
    pub delivery_timeout: Duration,
    /// From ack to result, for nodes that set no `execution.timeoutMs`.
    pub step_timeout: Duration,
    /// How far heartbeats extend a step after its ack. A node whose `execution.timeoutMs` is longer
    /// has that as its maximum.
    pub longest_step: Duration,
    /// How long a task may wait on its lane before it is put there again.
    pub republish_after: Duration,
    /// How often a task that nobody acknowledged is delivered again.
    pub redeliveries: u32,
    /// The bound of the random wait before the first redelivery; doubles from then on.
    pub redelivery_backoff: Duration,
    /// The largest bound of that wait.
    pub redelivery_backoff_max: Duration,
}

impl Default for Policy {
    /// The defaults of the protocol.
    fn default() -> Self {
        Self {
            delivery_timeout: Duration::from_secs(30),
            step_timeout: Duration::from_secs(60 * 60),
            longest_step: Duration::from_secs(24 * 60 * 60),
            republish_after: Duration::from_secs(5),
            redeliveries: 5,
            redelivery_backoff: Duration::from_secs(1),
            redelivery_backoff_max: Duration::from_secs(30),
        }
    }
}

impl Policy {
    /// From ack to result.
    pub(crate) fn step_timeout(&self, node: &Node) -> Duration {
        node.timeout_ms.map_or(self.step_timeout, Duration::from_millis)
    }

    /// From ack to result, with heartbeats.
    pub(crate) fn longest_step(&self, node: &Node) -> Duration {
        self.longest_step.max(self.step_timeout(node))
    }

    /// The wait before the redelivery that follows the `failed`-th failed delivery in a row:
    /// exponential with full jitter (`chance` of the bound); `None`: the budget is used up.
    pub(super) fn redelivery_wait(&self, failed: u32, chance: f64) -> Option<Duration> {
        if failed > self.redeliveries {
            return None;
        }
        let bound = doubled(self.redelivery_backoff, failed - 1).min(self.redelivery_backoff_max);
        Some(bound.mul_f64(chance.clamp(0.0, 1.0)))
    }

    /// The wait before the attempt that follows the `failed`-th failed one; `None`: there is none.
    pub(super) fn retry_wait(&self, retry: &Retry, failed: u32) -> Option<Duration> {
        if failed >= retry.max_attempts {
            return None;
        }
        let longest = Duration::from_millis(retry.max_backoff_ms);
        Some(doubled(Duration::from_millis(retry.backoff_ms), failed - 1).min(longest))
    }

    /// The error of a step that could not be delivered `failed` times.
    pub(super) fn undeliverable(&self, failed: u32, last: &StepError) -> StepError {
        let message =
            format!("the task could not be delivered in {failed} attempts; last cause: {}", last.message);
        let details = serde_json::json!({ "lastCode": last.code, "attempts": failed });
        StepError { details: Some(details.into()), ..StepError::of(ErrorCode::DeliveryFailed, message) }
    }
}

fn doubled(base: Duration, times: u32) -> Duration {
    2u32.checked_pow(times).map_or(Duration::MAX, |factor| base.saturating_mul(factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redelivery_waits_double_up_to_the_bound_and_end_with_the_budget() {
        let policy = Policy { redelivery_backoff_max: Duration::from_secs(5), ..Policy::default() };
        let waits: Vec<_> = (1..=6).map(|failed| policy.redelivery_wait(failed, 0.5)).collect();
        let half = |seconds: u64| Some(Duration::from_millis(seconds * 500));
        assert_eq!(waits, [half(1), half(2), half(4), half(5), half(5), None]);
    }

    #[test]
    fn retry_waits_double_up_to_the_bound_and_end_with_the_attempts() {
        let retry = Retry { max_attempts: 4, backoff_ms: 100, max_backoff_ms: 150 };
        let waits: Vec<_> = (1..=4).map(|failed| Policy::default().retry_wait(&retry, failed)).collect();
        assert_eq!(waits, [Some(100), Some(150), Some(150), None].map(|ms| ms.map(Duration::from_millis)));
    }

    #[test]
    fn absurd_settings_do_not_overflow() {
        let retry = Retry { max_attempts: u32::MAX, backoff_ms: u64::MAX, max_backoff_ms: u64::MAX };
        assert!(Policy::default().retry_wait(&retry, 90).is_some());
    }
}
