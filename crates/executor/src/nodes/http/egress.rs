//! Where `system.http.request` may go.

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};
use wire::{OutOfReach, Reach};

/// Judges URLs, and names when they are resolved.
#[derive(Clone, Copy, Debug)]
pub(super) struct Egress(Reach);

impl Egress {
    /// `allow_private`: loopback, private and link-local addresses may be reached.
    pub(super) fn new(allow_private: bool) -> Self {
        Self(Reach { allow_private, setting: "EXECUTOR_HTTP_ALLOW_PRIVATE" })
    }

    /// Judges a URL whose host is written as an address.
    pub(super) fn check(self, url: &Url) -> Result<(), OutOfReach> {
        self.0.check(url.host_str().unwrap_or_default())
    }
}

impl Resolve for Egress {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0;
        Box::pin(async move { Ok(Box::new(reach.resolve(name.as_str()).await?.into_iter()) as Addrs) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(url: &str) -> bool {
        Egress::new(false).check(&url.parse().unwrap()).is_ok()
    }

    #[test]
    fn addresses_within_are_refused_in_every_spelling() {
        for host in [
            "127.0.0.1",
            "127.1",
            "2130706433",
            "0x7f.0.0.1",
            "0177.0.0.1",
            "0.0.0.0",
            "10.1.2.3",
            "172.16.0.1",
            "192.168.0.1",
            "169.254.169.254",
            "100.64.0.1",
            "192.0.0.1",
            "198.18.0.1",
            "224.0.0.1",
            "240.0.0.1",
            "255.255.255.255",
            "[::1]",
            "[::]",
            "[::ffff:127.0.0.1]",
            "[::ffff:a00:1]",
            "[fd00::1]",
            "[fe80::1]",
            "[fec0::1]",
            "[ff02::1]",
            "[64:ff9b::7f00:1]",
            "[2002:7f00:1::]",
            "[2001:db8::1]",
            "[::7f00:1]",
            "[::ffff:0:7f00:1]",
            "[64:ff9b:1::7f00:1]",
            "[2001::1]",
            "[3fff::1]",
            "[100::1]",
            "[5f00::1]",
        ] {
            assert!(!allows(&format!("http://{host}/")), "{host}");
        }
    }

    #[test]
    fn public_addresses_and_names_pass_this_check() {
        for host in
            ["1.1.1.1", "172.32.0.1", "[2606:4700::1111]", "[64:ff9b::101:101]", "example.org", "localhost"]
        {
            assert!(allows(&format!("http://{host}/")), "{host}");
        }
    }
}
