//! Pauses between attempts: exponential, with full jitter, so that many processes do not come back
//! in the same instant.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(50);
const LONGEST: Duration = Duration::from_secs(2);

/// The pauses of one sequence of failures.
#[derive(Debug)]
pub(crate) struct Backoff {
    ceiling: Duration,
}

impl Backoff {
    pub(crate) fn new() -> Self {
        Self { ceiling: FIRST }
    }

    /// The next pause: between 1 ms and a ceiling that doubles up to two seconds.
    pub(crate) fn next_pause(&mut self) -> Duration {
        let pause = jittered(self.ceiling);
        self.ceiling = (self.ceiling * 2).min(LONGEST);
        pause
    }

    /// An attempt succeeded: the next failure starts from the shortest pause.
    pub(crate) fn reset(&mut self) {
        self.ceiling = FIRST;
    }
}

fn jittered(ceiling: Duration) -> Duration {
    rand::random_range(Duration::from_millis(1)..=ceiling)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_longest_and_start_again_after_a_success() {
        let mut backoff = Backoff::new();
        for _ in 0..20 {
            assert!(backoff.next_pause() <= LONGEST);
        }
        assert_eq!(backoff.ceiling, LONGEST);
        backoff.reset();
        assert!(backoff.next_pause() <= FIRST);
    }
}
