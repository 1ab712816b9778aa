//! Leases: a key with the holder as value and an expiry, changed only by its holder.

use std::time::Duration;

use redis::Script;

use super::Shared;
use crate::Error;

/// `KEYS[1]` the lease; `ARGV`: holder, time to live in ms. Answers 1 if the holder has it now.
const TAKE: &str = r"
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then
  return 0
end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1";

/// `KEYS[1]` the lease; `ARGV`: holder.
const RELEASE: &str = r"
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return 1";

pub(super) struct Scripts {
    take: Script,
    release: Script,
}

impl Scripts {
    pub(super) fn new() -> Self {
        Self { take: Script::new(TAKE), release: Script::new(RELEASE) }
    }
}

impl Shared {
    pub(crate) async fn lease(&self, name: &str, holder: &str, ttl: Duration) -> Result<bool, Error> {
        let mut invocation = self.lease.take.prepare_invoke();
        // The caller bounds `ttl` to a day, so the milliseconds fit.
        invocation.key(self.keys.lease(name)).arg(holder).arg(ttl.as_millis() as u64);
        let invocation = &invocation;
        self.call("lease", |mut connection| async move { invocation.invoke_async(&mut connection).await })
            .await
    }

    pub(crate) async fn release(&self, name: &str, holder: &str) -> Result<(), Error> {
        let mut invocation = self.lease.release.prepare_invoke();
        invocation.key(self.keys.lease(name)).arg(holder);
        let invocation = &invocation;
        let _done: i64 = self
            .call("release", |mut connection| async move { invocation.invoke_async(&mut connection).await })
            .await?;
        Ok(())
    }
}
