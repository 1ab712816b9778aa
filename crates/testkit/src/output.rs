//! What a process writes: kept in memory for the test, and in a file for its reader.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use tokio::sync::watch;

/// More lines than this are kept in the file only.
const MAX_LINES: usize = 200_000;

/// Where a line was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// One line of output, without its line end.
#[derive(Clone, Debug)]
pub struct Line {
    /// Where it was written.
    pub stream: Stream,
    /// The text; what is no UTF-8 is replaced.
    pub text: String,
}

/// The growing output of one process.
#[derive(Clone, Debug)]
pub(crate) struct Output {
    content: Arc<Mutex<Content>>,
    /// Changes with every line and with the end of a stream.
    changed: watch::Sender<()>,
}

#[derive(Debug)]
struct Content {
    lines: Vec<Line>,
    open_streams: usize,
    file: Option<File>,
}

impl Output {
    pub(crate) fn new(file: Option<File>) -> Self {
        let content = Content { lines: Vec::new(), open_streams: 0, file };
        Self { content: Arc::new(Mutex::new(content)), changed: watch::Sender::new(()) }
    }

    /// Reads `source` in a thread of its own until it ends.
    pub(crate) fn follow(&self, stream: Stream, source: impl Read + Send + 'static) {
        self.lock().open_streams += 1;
        let output = self.clone();
        thread::spawn(move || {
            let mut source = BufReader::new(source);
            let mut bytes = Vec::new();
            while source.read_until(b'\n', &mut bytes).is_ok_and(|count| count > 0) {
                output.add(stream, &bytes);
                bytes.clear();
            }
            output.lock().open_streams -= 1;
            output.changed.send_replace(());
        });
    }

    fn add(&self, stream: Stream, bytes: &[u8]) {
        let mut content = self.lock();
        if let Some(file) = &mut content.file {
            // A full disk must not break the process that is watched.
            let _ = file.write_all(bytes);
        }
        if content.lines.len() < MAX_LINES {
            let text = String::from_utf8_lossy(bytes).trim_end_matches(['\r', '\n']).to_owned();
            content.lines.push(Line { stream, text });
        }
        drop(content);
        self.changed.send_replace(());
    }

    pub(crate) fn lines(&self) -> Vec<Line> {
        self.lock().lines.clone()
    }

    /// The last lines, for messages.
    pub(crate) fn tail(&self) -> String {
        let content = self.lock();
        let from = content.lines.len().saturating_sub(30);
        content.lines.iter().skip(from).map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n")
    }

    /// The first line, from line number `from` on, that `matches`; `None` if all streams ended
    /// without it.
    pub(crate) async fn wait_for(&self, from: usize, matches: impl Fn(&str) -> bool) -> Option<String> {
        let mut changed = self.changed.subscribe();
        let mut next = from;
        loop {
            // Marked as seen before looking, so that a later change is not missed.
            changed.borrow_and_update();
            {
                let content = self.lock();
                let fresh = content.lines.get(next..).unwrap_or_default();
                if let Some(line) = fresh.iter().find(|line| matches(&line.text)) {
                    return Some(line.text.clone());
                }
                next = next.max(content.lines.len());
                if content.open_streams == 0 {
                    return None;
                }
            }
            // Cannot fail: `self` holds the sender.
            let _ = changed.changed().await;
        }
    }

    /// A panic in `matches` of one test must not hide the output from the message of that panic.
    fn lock(&self) -> MutexGuard<'_, Content> {
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
