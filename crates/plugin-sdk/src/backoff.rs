//! Pauses between tries: exponential with full jitter, so that many plugins do not come back in the
//! same instant.

use std::time::Duration;

/// The pauses of one sequence of failures.
#[derive(Debug)]
pub struct Backoff {
    ceiling: Duration,
    longest: Duration,
}

impl Backoff {
    /// Pauses whose ceiling grows from `first` to `longest`.
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { ceiling: first.clamp(Duration::from_millis(1), longest), longest }
    }

    /// A random pause up to a ceiling that doubles from `first` to `longest`.
    pub fn next_pause(&mut self) -> Duration {
        let ceiling = self.ceiling;
        self.ceiling = (ceiling * 2).min(self.longest);
        rand::random_range(Duration::from_millis(1)..=ceiling)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_longest() {
        let longest = Duration::from_secs(1);
        let mut backoff = Backoff::new(Duration::from_millis(10), longest);
        for _ in 0..40 {
            assert!(backoff.next_pause() <= longest);
        }
        assert_eq!(backoff.ceiling, longest);
        assert_eq!(Backoff::new(Duration::ZERO, longest).next_pause(), Duration::from_millis(1));
    }
}
