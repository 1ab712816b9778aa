//! Settings, and the connection for commands: one multiplexed connection to a server, or one per
//! node of a Cluster. Nothing on it ever blocks.

use std::fmt;
use std::time::Duration;

use redis::aio::{ConnectionLike, ConnectionManager, ConnectionManagerConfig};
use redis::cluster::ClusterClient;
use redis::cluster_async::ClusterConnection;
use redis::{Client, Cmd, ErrorKind, Pipeline, RedisError, RedisFuture, RedisResult, RetryMethod, Value};
use secrecy::{ExposeSecret, SecretString};

use super::keys::Keys;
use crate::Error;

/// How long to wait for a connection.
pub(super) const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// How long to wait before a refused connection is tried once more.
const RECONNECT_DELAY: Duration = Duration::from_millis(50);
/// How long one answer may take.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(4);
/// How long an operation may take with everything: reconnect, one repetition, redirects.
pub(super) const OPERATION_TIMEOUT: Duration = Duration::from_secs(6);

/// Where Redis is.
#[derive(Clone, Debug)]
pub struct RedisSettings {
    /// `redis://` or `rediss://` (TLS, checked against the system's certificates or
    /// `SSL_CERT_FILE`): `redis://[user][:password@]host[:port][/db]`. With `cluster` several,
    /// separated by commas: any of them serves to find the others.
    pub url: SecretString,
    /// Is it a Redis Cluster?
    pub cluster: bool,
    /// What all keys and channels begin with; processes with the same prefix work together.
    pub prefix: String,
}

impl RedisSettings {
    /// A single server with the prefix `conveyor`.
    pub fn new(url: SecretString) -> Self {
        Self { url, cluster: false, prefix: "conveyor".to_owned() }
    }

    /// Judges the URL, before anybody is connected to.
    ///
    /// # Errors
    /// [`Error::Settings`] with the form that it must have; never a part of the URL.
    pub fn check(&self) -> Result<(), Error> {
        self.clients().map(drop)
    }

    /// Judges a prefix.
    ///
    /// # Errors
    /// [`Error::Settings`] with the form that it must have.
    pub fn check_prefix(prefix: &str) -> Result<(), Error> {
        Keys::new(prefix).map(drop)
    }

    /// Clients for the addresses of the URL.
    pub(super) fn clients(&self) -> Result<Vec<Client>, Error> {
        let urls: Vec<&str> = self.url.expose_secret().split(',').map(str::trim).collect();
        if urls.len() > 1 && !self.cluster {
            return Err(Error::Settings("several Redis URLs are for a Cluster only; give one".into()));
        }
        if urls.iter().any(|url| url.starts_with("rediss:")) {
            install_crypto_provider();
        }
        // The text of the error is left out: it may quote the URL, which may hold a password.
        urls.into_iter()
            .map(|url| Client::open(url).map_err(|_| malformed_url()))
            .collect::<Result<Vec<_>, _>>()
    }
}

fn malformed_url() -> Error {
    Error::Settings(
        "the Redis URL is malformed; it looks like redis://[user][:password@]host[:port][/db], or rediss:// for TLS"
            .into(),
    )
}

/// TLS takes the cryptography of the process; a process that chose one keeps it.
fn install_crypto_provider() {
    if rustls::crypto::CryptoProvider::get_default().is_none() {
        // An error means that another thread was first: then there is one.
        let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    }
}

/// A connection for commands; clones share it. Reconnects by itself.
#[derive(Clone)]
pub(super) enum Connection {
    One(ConnectionManager),
    Many(ClusterConnection),
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One(_) => "Connection::One",
            Self::Many(_) => "Connection::Many",
        })
    }
}

impl Connection {
    pub(super) async fn open(clients: &[Client], cluster: bool) -> RedisResult<Self> {
        if cluster {
            let nodes = clients.iter().map(|client| client.get_connection_info().clone());
            let client = ClusterClient::builder(nodes)
                .connection_timeout(CONNECT_TIMEOUT)
                .response_timeout(RESPONSE_TIMEOUT)
                .overall_response_timeout(Some(OPERATION_TIMEOUT))
                .retries(3)
                .build()?;
            return Ok(Self::Many(client.get_async_connection().await?));
        }
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT_TIMEOUT))
            .set_response_timeout(Some(RESPONSE_TIMEOUT))
            // Few and short: while Redis is away a push should fail soon and let its caller go on.
            .set_min_delay(RECONNECT_DELAY)
            .set_number_of_retries(1);
        let Some(client) = clients.first() else {
            return Err((ErrorKind::InvalidClientConfig, "no Redis address").into());
        };
        Ok(Self::One(client.get_connection_manager_with_config(config).await?))
    }
}

impl ConnectionLike for Connection {
    fn req_packed_command<'a>(&'a mut self, cmd: &'a Cmd) -> RedisFuture<'a, Value> {
        match self {
            Self::One(connection) => connection.req_packed_command(cmd),
            Self::Many(connection) => connection.req_packed_command(cmd),
        }
    }

    fn req_packed_commands<'a>(
        &'a mut self,
        pipeline: &'a Pipeline,
        offset: usize,
        count: usize,
    ) -> RedisFuture<'a, Vec<Value>> {
        match self {
            Self::One(connection) => connection.req_packed_commands(pipeline, offset, count),
            Self::Many(connection) => connection.req_packed_commands(pipeline, offset, count),
        }
    }

    fn get_db(&self) -> i64 {
        match self {
            Self::One(connection) => connection.get_db(),
            Self::Many(connection) => connection.get_db(),
        }
    }
}

/// Sorts an error of Redis: will the same call succeed later?
pub(super) fn classify(operation: &'static str, error: RedisError) -> Error {
    let refused = match error.kind() {
        ErrorKind::AuthenticationFailed => true,
        ErrorKind::Io => false,
        _ => matches!(error.retry_method(), RetryMethod::NoRetry),
    };
    let source = Box::new(error);
    if refused { Error::Refused { operation, source } } else { Error::Unavailable { operation, source } }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(url: &str) -> RedisSettings {
        RedisSettings::new(SecretString::from(url))
    }

    #[test]
    fn a_malformed_url_is_refused_without_its_password() {
        for url in ["http://:hunter2@host", "redis://:hunter2@host:port", "", "redis://:hunter2@a,redis://b"]
        {
            let error = settings(url).clients().unwrap_err();
            assert!(matches!(error, Error::Settings(_)), "{url}");
            assert!(!error.to_string().contains("hunter2"));
        }
    }

    #[test]
    fn settings_do_not_show_the_url() {
        assert!(!format!("{:?}", settings("redis://:hunter2@host")).contains("hunter2"));
    }

    #[test]
    fn tls_and_several_cluster_nodes_are_understood() {
        assert_eq!(settings("rediss://user:secret@host:6380/3").clients().unwrap().len(), 1);
        let cluster = RedisSettings { cluster: true, ..settings("redis://a:1, redis://b:2") };
        assert_eq!(cluster.clients().unwrap().len(), 2);
    }

    #[test]
    fn an_outage_is_retryable_and_a_refusal_is_not() {
        let gone = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert!(classify("push", gone.into()).is_retryable());
        let denied = RedisError::from((ErrorKind::AuthenticationFailed, "wrong password"));
        assert!(matches!(classify("push", denied), Error::Refused { .. }));
    }
}
