//! The gate of every door: which address may speak (allowlist), whose address it is behind proxies,
//! and whether the credential is right (protocol sections 1 and 9). Pure: no I/O.

mod allow;
mod credential;
mod proxy;
mod proxy_header;
mod public;

pub use allow::AllowList;
pub use credential::{Credentials, Verdict, credential_in};
pub use proxy::TrustProxy;
pub(crate) use proxy_header::{FIXED_BYTES, Fixed};
pub use proxy_header::{ProxyHeaderError, parse_proxy_header};
pub use public::is_public;
