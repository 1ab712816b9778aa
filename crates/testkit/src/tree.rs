//! Processes by file descriptor, and the descendants of a process.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process that cannot be confused with another one that gets its number later.
#[derive(Debug)]
pub(crate) struct Handle(OwnedFd);

impl Handle {
    /// `None` if there is no such process any more.
    pub(crate) fn open(pid: u32) -> Option<Self> {
        let pid = Pid::from_raw(i32::try_from(pid).ok()?)?;
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Self)
    }

    pub(crate) fn signal(&self, signal: Signal) -> std::io::Result<()> {
        Ok(pidfd_send_signal(&self.0, signal)?)
    }

    /// Blocks until the process has ended, or for `limit`. Has it ended?
    pub(crate) fn wait_blocking(&self, limit: Duration) -> bool {
        let limit = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: i64::from(limit.subsec_nanos()) };
        poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&limit)).is_ok_and(|ready| ready > 0)
    }

    pub(crate) fn try_clone(&self) -> Option<Self> {
        self.0.try_clone().ok().map(Self)
    }
}

/// All present descendants of a process, children before grandchildren.
pub(crate) fn descendants(pid: u32) -> Vec<Handle> {
    let mut found = Vec::new();
    let mut parents = vec![pid];
    while let Some(parent) = parents.pop() {
        for child in children(parent) {
            if let Some(handle) = Handle::open(child) {
                found.push(handle);
                parents.push(child);
            }
        }
    }
    found
}

/// Children belong to the thread that made them, so all threads are asked.
fn children(pid: u32) -> Vec<u32> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    threads
        .flatten()
        .filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok())
        .flat_map(|list| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}
