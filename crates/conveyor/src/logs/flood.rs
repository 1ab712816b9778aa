//! Warnings and errors come as fast as work fails: while a database is away that may be thousands of
//! equal lines a second, and a disk is soon full of them. Each place in the code may write some lines
//! a second; then one line says how many were left out. Counting exactly is the metrics' part.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};
use tracing::{Event, Level, Subscriber, callsite::Identifier};
use tracing_subscriber::layer::{Context, Layer};

/// Lines of one place within [`SECOND`].
const LINES: u32 = 20;
const SECOND: Duration = Duration::from_secs(1);

/// The layer that holds floods back.
#[derive(Debug, Default)]
pub(super) struct Flood(Mutex<HashMap<Identifier, Place>>);

/// The lines of one place.
#[derive(Debug)]
struct Place {
    since: Instant,
    lines: u32,
    left_out: u64,
}

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Line {
    Written,
    /// Written, after so many were not.
    WrittenAfter(u64),
    LeftOut,
}

impl Place {
    fn new(now: Instant) -> Self {
        Self { since: now, lines: 0, left_out: 0 }
    }

    fn line(&mut self, now: Instant) -> Line {
        if now.saturating_duration_since(self.since) >= SECOND {
            (self.since, self.lines) = (now, 0);
        }
        if self.lines >= LINES {
            self.left_out += 1;
            return Line::LeftOut;
        }
        self.lines += 1;
        match std::mem::take(&mut self.left_out) {
            0 => Line::Written,
            left_out => Line::WrittenAfter(left_out),
        }
    }
}

impl<S: Subscriber> Layer<S> for Flood {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        let about = event.metadata();
        // Levels of more detail are greater. What is asked for with them is wanted whole, and records
        // of what was done, at `info`, are never left out.
        if *about.level() > Level::WARN || about.target() == module_path!() {
            return true;
        }
        let now = Instant::now();
        let line = {
            // Nothing in here panics half done: what a panic elsewhere left behind is as good as ever.
            let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            places.entry(about.callsite()).or_insert_with(|| Place::new(now)).line(now)
        };
        if let Line::WrittenAfter(lines) = line {
            tracing::warn!(
                event = "log_lines_left_out",
                place = about.name(),
                lines,
                "lines like the next one were left out: there were too many a second"
            );
        }
        line != Line::LeftOut
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io, sync::Arc};
    use tracing_subscriber::{fmt, layer::SubscriberExt};

    #[test]
    fn place_writes_some_lines_a_second_and_then_tells_how_many_it_did_not() {
        let start = Instant::now();
        let mut place = Place::new(start);
        let written = (0..LINES + 5).filter(|_| place.line(start) == Line::Written).count();
        assert_eq!(written, LINES as usize);
        assert_eq!(place.line(start), Line::LeftOut);
        assert_eq!(place.line(start + SECOND), Line::WrittenAfter(6));
        assert_eq!(place.line(start + SECOND), Line::Written);
    }

    #[derive(Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn only_warnings_and_errors_of_the_same_place_are_left_out() {
        let page = Page::default();
        let writer = page.clone();
        let layers = tracing_subscriber::registry()
            .with(Flood::default())
            .with(fmt::layer().with_writer(move || writer.clone()));
        tracing::subscriber::with_default(layers, || {
            for _ in 0..1000 {
                tracing::error!("flooding");
                tracing::info!("recording");
            }
            tracing::error!("elsewhere");
        });
        let page = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        let count = |word: &str| page.matches(word).count();
        // Two seconds' worth at most, should one end meanwhile.
        assert!((LINES as usize..=2 * LINES as usize).contains(&count("flooding")), "{}", count("flooding"));
        assert_eq!((count("recording"), count("elsewhere")), (1000, 1));
    }
}
