//! Where static assets may be fetched from. Plugins live on private networks, so by default
//! everywhere; an operator whose plugins do not can keep plugin-manager from being led inside.

use reqwest::{
    Url,
    dns::{Addrs, Name, Resolve, Resolving},
};
use wire::{OutOfReach, Reach};

/// Judges URLs, and names when they are resolved.
#[derive(Clone, Copy, Debug)]
pub(super) struct AssetReach(Reach);

impl AssetReach {
    pub(super) fn new(allow_private: bool) -> Self {
        Self(Reach { allow_private, setting: "PLUGIN_MANAGER_ASSET_ALLOW_PRIVATE=false" })
    }

    /// Judges a URL whose host is written as an address.
    pub(super) fn check(self, url: &Url) -> Result<(), OutOfReach> {
        self.0.check(url.host_str().unwrap_or_default())
    }
}

impl Resolve for AssetReach {
    fn resolve(&self, name: Name) -> Resolving {
        let reach = self.0;
        Box::pin(async move { Ok(Box::new(reach.resolve(name.as_str()).await?.into_iter()) as Addrs) })
    }
}
