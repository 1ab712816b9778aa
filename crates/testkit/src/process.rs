//! One child process, watched.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;
use tokio::sync::watch;
use tokio::time::timeout;

use crate::output::{Output, Stream};
use crate::tree::{Handle, descendants};
use crate::{Clock, Error, Line};

/// How long a dropped process may take to end after its own signal, before it is killed.
const DROP_LIMIT: Duration = Duration::from_secs(5);

/// How long the rest of an ended process's output is waited for: a descendant may hold it open.
const OUTPUT_LIMIT: Duration = Duration::from_secs(1);

/// How long one wait of the watching thread lasts; only a bound for the system call.
const WATCH_STEP: Duration = Duration::from_secs(3600);

/// What to start, and how; [`Program::spawn`] starts it.
#[derive(Debug)]
pub struct Program {
    name: String,
    command: Command,
    log_file: Option<PathBuf>,
    end_with: Signal,
    has_clock: bool,
}

impl Program {
    /// A program by path, or by name on `PATH`. It inherits the environment and has no input.
    pub fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref();
        let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
        let mut command = Command::new(program);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Self { name, command, log_file: None, end_with: Signal::KILL, has_clock: false }
    }

    /// Adds one argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn args<A: AsRef<OsStr>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.command.args(args);
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl AsRef<OsStr>, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Sets environment variables.
    #[must_use]
    pub fn envs<N: AsRef<OsStr>, V: AsRef<OsStr>>(mut self, vars: impl IntoIterator<Item = (N, V)>) -> Self {
        self.command.envs(vars);
        self
    }

    /// Removes inherited environment variables whose names begin with one of `prefixes`, so that
    /// the machine's own settings do not reach the test.
    #[must_use]
    pub fn without_env(mut self, prefixes: &[&str]) -> Self {
        let begins =
            |name: &OsString| name.to_str().is_some_and(|name| prefixes.iter().any(|p| name.starts_with(p)));
        for (name, _) in std::env::vars_os().filter(|(name, _)| begins(name)) {
            self.command.env_remove(name);
        }
        self
    }

    /// Sets the working directory.
    #[must_use]
    pub fn current_dir(mut self, folder: impl AsRef<Path>) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Its wall clock, and that of its descendants.
    #[must_use]
    pub fn clock(mut self, clock: &Clock) -> Self {
        self.has_clock = true;
        self.envs(clock.environment())
    }

    /// Also writes the output to this file (appended).
    #[must_use]
    pub fn log_file(mut self, path: impl Into<PathBuf>) -> Self {
        self.log_file = Some(path.into());
        self
    }

    /// Runs it as another user (needs root).
    #[must_use]
    pub(crate) fn user(mut self, user: u32, group: u32) -> Self {
        self.command.uid(user).gid(group);
        self
    }

    /// Its output goes where ours goes, instead of being watched, and its input comes from ours.
    #[must_use]
    pub fn inherit_streams(mut self) -> Self {
        self.command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
        self
    }

    /// The signal that a drop sends first; without this it is SIGKILL at once.
    #[must_use]
    pub fn end_with(mut self, signal: Signal) -> Self {
        self.end_with = signal;
        self
    }

    /// Starts it.
    ///
    /// # Errors
    /// [`Error::Spawn`] if the program cannot be started, [`Error::Io`] for the log file.
    pub fn spawn(mut self) -> Result<Process, Error> {
        let file = self.log_file.as_deref().map(open_log).transpose()?;
        let output = Output::new(file);
        let program = self.name;
        let spawned = self.command.spawn();
        let mut child = spawned.map_err(|source| Error::Spawn { program: program.clone(), source })?;
        let watched = Handle::open(child.id()).and_then(|handle| Some((handle.try_clone()?, handle)));
        let Some((watched, handle)) = watched else {
            // Not reaped yet, so it exists: only a kernel without pidfd gets here.
            let _ = child.kill();
            return Err(Error::Missing(
                "cannot hold a process by pidfd; Linux 5.3 or newer is needed".into(),
            ));
        };
        if let Some(stdout) = child.stdout.take() {
            output.follow(Stream::Stdout, stdout);
        }
        if let Some(stderr) = child.stderr.take() {
            output.follow(Stream::Stderr, stderr);
        }
        let ended = watch_end(watched);
        Ok(Process {
            program,
            pid: child.id(),
            child: Mutex::new(child),
            handle,
            ended,
            output,
            end_with: self.end_with,
            has_clock: self.has_clock,
        })
    }
}

/// Waits for the end of the process in a thread, which ends with it.
fn watch_end(process: Handle) -> watch::Receiver<bool> {
    let (sender, receiver) = watch::channel(false);
    thread::spawn(move || {
        while !process.wait_blocking(WATCH_STEP) {}
        sender.send_replace(true);
    });
    receiver
}

fn open_log(path: &Path) -> Result<File, Error> {
    let opened = File::options().create(true).append(true).open(path);
    opened.map_err(Error::io(format!("open the log file {}", path.display())))
}

/// A running (or ended) child process. Dropping it ends it and all its descendants.
#[derive(Debug)]
pub struct Process {
    program: String,
    pid: u32,
    child: Mutex<Child>,
    handle: Handle,
    /// Becomes true when the process has ended.
    ended: watch::Receiver<bool>,
    output: Output,
    end_with: Signal,
    has_clock: bool,
}

impl Process {
    /// The process id, for messages and `/proc`.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// All lines so far, of both streams in the order in which they were read.
    pub fn lines(&self) -> Vec<Line> {
        self.output.lines()
    }

    /// All lines of one stream so far.
    pub fn text(&self, stream: Stream) -> String {
        let lines = self.output.lines().into_iter().filter(|line| line.stream == stream);
        lines.map(|line| line.text + "\n").collect()
    }

    /// Waits for a line, past or future, that contains `text`, and returns it.
    ///
    /// # Errors
    /// [`Error::Ended`] if the process closes its output without it, [`Error::Timeout`].
    pub async fn wait_for_line(&self, text: &str, limit: Duration) -> Result<String, Error> {
        self.wait_for_line_from(0, text, limit).await
    }

    /// Like [`Process::wait_for_line`], but looks only at lines from number `from` on: with the
    /// length of [`Process::lines`] taken before, at what is written afterwards.
    ///
    /// # Errors
    /// As [`Process::wait_for_line`].
    pub async fn wait_for_line_from(
        &self,
        from: usize,
        text: &str,
        limit: Duration,
    ) -> Result<String, Error> {
        let waited_for = || format!("line with {text:?}");
        match timeout(limit, self.output.wait_for(from, |line| line.contains(text))).await {
            Ok(Some(line)) => Ok(line),
            Ok(None) => Err(self.ended_before(waited_for())),
            Err(_) => Err(self.timeout(waited_for(), limit)),
        }
    }

    /// Sends a signal; nothing happens if the process has ended.
    pub fn signal(&self, signal: Signal) {
        // The only possible error is that the process has ended.
        let _ = self.handle.signal(signal);
    }

    /// Has it ended, and how?
    pub fn status(&self) -> Option<ExitStatus> {
        let mut child = self.child.lock().unwrap_or_else(PoisonError::into_inner);
        child.try_wait().ok().flatten()
    }

    /// Waits for its end; all that it has written is there then.
    ///
    /// # Errors
    /// [`Error::Timeout`], [`Error::Io`].
    pub async fn wait(&self, limit: Duration) -> Result<ExitStatus, Error> {
        let mut ended = self.ended.clone();
        // The watcher leaves only after it has said so; both ways the process has ended.
        if timeout(limit, ended.wait_for(|ended| *ended)).await.is_err() {
            return Err(self.timeout("end of the process".into(), limit));
        }
        // What it wrote last is read by other threads; no line matches, so this is the end of both
        // streams.
        let _ = timeout(OUTPUT_LIMIT, self.output.wait_for(usize::MAX, |_| false)).await;
        self.status().ok_or_else(|| self.ended_before("its status could be read".into()))
    }

    /// Waits until its output has been read to the end; after [`Process::wait`] that is soon.
    pub(crate) async fn output_end(&self) {
        self.output.wait_for(0, |_| false).await;
    }

    /// Asks it to end with SIGTERM and waits for that.
    ///
    /// # Errors
    /// [`Error::Timeout`] if it does not end within `limit`; it then still runs.
    pub async fn stop(&self, limit: Duration) -> Result<ExitStatus, Error> {
        self.signal(Signal::TERM);
        self.wait(limit).await
    }

    /// Kills it (not its descendants) with SIGKILL and waits for that.
    ///
    /// # Errors
    /// As [`Process::wait`].
    pub async fn kill(&self) -> Result<ExitStatus, Error> {
        self.signal(Signal::KILL);
        self.wait(DROP_LIMIT).await
    }

    /// Kills it and all its descendants at once, as a power cut does, and waits for that.
    ///
    /// # Errors
    /// As [`Process::wait`].
    pub async fn kill_tree(&self) -> Result<ExitStatus, Error> {
        let family = descendants(self.pid);
        let status = self.kill().await?;
        end_family(&family);
        Ok(status)
    }

    /// The error for a process that ended with a failure.
    pub(crate) fn failed(&self, waited_for: &str) -> Error {
        self.ended_before(waited_for.to_owned())
    }

    fn ended_before(&self, waited_for: String) -> Error {
        // Its output has ended; its end follows at once, unless it closed its output itself.
        self.handle.wait_blocking(Duration::from_secs(1));
        let (program, status, tail) = (self.program.clone(), self.status(), self.output.tail());
        Error::Ended { program, status, waited_for, tail }
    }

    fn timeout(&self, waited_for: String, limit: Duration) -> Error {
        Error::Timeout { program: self.program.clone(), waited_for, limit, tail: self.output.tail() }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
        if self.has_clock {
            Clock::clear(self.pid);
        }
    }
}

impl Process {
    /// Ends it and its descendants, if it has not ended.
    fn end(&mut self) {
        if self.status().is_some() {
            return;
        }
        let family = descendants(self.pid);
        self.signal(self.end_with);
        if !self.handle.wait_blocking(DROP_LIMIT) {
            self.signal(Signal::KILL);
        }
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner);
        // Nothing is left to do about a child that cannot be reaped.
        let _ = child.wait();
        end_family(&family);
    }
}

fn end_family(family: &[Handle]) {
    for member in family {
        // The only possible error is that it has ended.
        let _ = member.signal(Signal::KILL);
    }
    for member in family {
        member.wait_blocking(DROP_LIMIT);
    }
}

#[cfg(test)]
mod tests;
