//! TLS below the frames (protocol section 1): what a door shows and demands, what a client trusts and
//! shows. The frames inside are the same.

mod renewal;
mod settings;

pub use settings::{ClientVariables, ServerVariables};

use crate::Error;
use renewal::{Material, PAUSE, Pem, Renewed};
use rustls::{
    ClientConfig, RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use secrecy::SecretString;
use std::{fmt, sync::Arc, time::Duration};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// What a TLS door shows of itself and demands of its clients. TLS 1.2 and 1.3. Certificates that came
/// from files are read again, so that renewed ones count without a restart.
#[derive(Clone)]
pub struct TlsServer(Arc<Renewed<ServerConfig>>);

/// Whom a TLS client trusts and what it shows of itself. The server's certificate must name the host
/// that is connected to, as a DNS name or an IP address, or else [`TlsClient::expecting`]. Files are
/// read again as those of a [`TlsServer`].
#[derive(Clone)]
pub struct TlsClient {
    config: Arc<Renewed<ClientConfig>>,
    server_name: Option<Arc<str>>,
}

/// A certificate chain with its key, both as PEM text.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The certificate itself first, then those that lead to the authority.
    pub certificates: String,
    /// The certificate's key: PKCS#8, PKCS#1 or SEC1.
    pub key: SecretString,
}

impl TlsServer {
    /// A door that shows `identity`. With `client_ca` (PEM) only clients get in that show a
    /// certificate of one of these authorities.
    ///
    /// # Errors
    /// [`Error::Tls`] when a text holds no such thing, or the key is not the certificate's.
    pub fn new(identity: &Identity, client_ca: Option<&str>) -> Result<Self, Error> {
        Self::of(Material::of(Some(identity), client_ca), PAUSE)
    }

    fn of(material: Material, pause: Duration) -> Result<Self, Error> {
        Ok(Self(Arc::new(Renewed::new(material, pause, server_config)?)))
    }

    /// The same, but its files are looked at again after `pause` instead of 10 s.
    #[must_use]
    pub fn looking_every(&self, pause: Duration) -> Self {
        Self(Arc::new(self.0.every(pause)))
    }

    pub(crate) async fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(self.0.current().await)
    }
}

impl TlsClient {
    /// A client that trusts the authorities `ca` (PEM) and no others. With `identity` it shows that
    /// certificate to servers that ask for one.
    ///
    /// # Errors
    /// [`Error::Tls`] when a text holds no such thing, or the key is not the certificate's.
    pub fn new(ca: &str, identity: Option<&Identity>) -> Result<Self, Error> {
        Self::of(Material::of(identity, Some(ca)), PAUSE)
    }

    /// The same, for servers whose certificate has this name instead of the host's.
    #[must_use]
    pub fn expecting(mut self, server_name: &str) -> Self {
        self.server_name = Some(server_name.into());
        self
    }

    /// The same, but its files are looked at again after `pause` instead of 10 s.
    #[must_use]
    pub fn looking_every(&self, pause: Duration) -> Self {
        Self { config: Arc::new(self.config.every(pause)), server_name: self.server_name.clone() }
    }

    fn of(material: Material, pause: Duration) -> Result<Self, Error> {
        let config = Arc::new(Renewed::new(material, pause, client_config)?);
        Ok(Self { config, server_name: None })
    }

    pub(crate) async fn connector(&self) -> TlsConnector {
        TlsConnector::from(self.config.current().await)
    }

    /// What it is made of now, for clients of other protocols such as HTTP. The same `Arc` until a file
    /// has changed.
    pub async fn config(&self) -> Arc<ClientConfig> {
        self.config.current().await
    }

    /// The name that the certificate of `host` must have.
    pub(crate) fn name_of<'a>(&'a self, host: &'a str) -> &'a str {
        self.server_name.as_deref().unwrap_or(host)
    }
}

impl Material {
    fn of(identity: Option<&Identity>, authorities: Option<&str>) -> Self {
        let pem = |text: &str| Pem::new(text.into(), None);
        Self {
            certificate: identity.map(|identity| pem(&identity.certificates)),
            key: identity.map(|identity| Pem::new(identity.key.clone(), None)),
            authorities: authorities.map(pem),
        }
    }

    /// The certificate with its key, when there are both.
    fn identity(&self) -> Option<Result<Chain, Error>> {
        let (certificate, key) = self.certificate.as_ref().zip(self.key.as_ref())?;
        Some(chain(certificate.text(), key.text()))
    }
}

fn server_config(material: &Material) -> Result<ServerConfig, Error> {
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("configuration", error))?;
    let builder = match &material.authorities {
        None => builder.with_no_client_auth(),
        Some(pem) => {
            let roots = Arc::new(authorities("client authorities", pem.text())?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                .build()
                .map_err(|error| unusable("client authorities", error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let (chain, key) =
        material.identity().unwrap_or_else(|| Err(unusable("certificate", "there is none")))?;
    builder.with_single_cert(chain, key).map_err(|error| unusable("key", error))
}

fn client_config(material: &Material) -> Result<ClientConfig, Error> {
    let ca = material.authorities.as_ref().map_or("", Pem::text);
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("configuration", error))?
        .with_root_certificates(authorities("authorities", ca)?);
    match material.identity() {
        None => Ok(builder.with_no_client_auth()),
        Some(identity) => {
            let (chain, key) = identity?;
            builder.with_client_auth_cert(chain, key).map_err(|error| unusable("key", error))
        }
    }
}

impl fmt::Debug for TlsServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsServer")
    }
}

impl fmt::Debug for TlsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TlsClient")
    }
}

impl PartialEq for TlsClient {
    /// Is it a clone of the same?
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.config, &other.config) && self.server_name == other.server_name
    }
}

impl Eq for TlsClient {}

type Chain = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn chain(certificate: &str, key: &str) -> Result<Chain, Error> {
    let chain = certificates("certificate", certificate)?;
    // The parser's error may quote the text: it is not passed on.
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|_| unusable("key", "it holds no private key in PEM form (PKCS#8, PKCS#1 or SEC1)"))?;
    Ok((chain, key))
}

/// The provider is named, so that nothing depends on what the process installed as its default.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(aws_lc_rs::default_provider())
}

fn authorities(what: &'static str, pem: &str) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(what, pem)? {
        roots.add(certificate).map_err(|error| unusable(what, error))?;
    }
    Ok(roots)
}

fn certificates(what: &'static str, pem: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let parsed = CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<Vec<_>, _>>();
    match parsed {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) | Err(_) => Err(unusable(what, "it holds no certificate in PEM form")),
    }
}

fn unusable(what: &'static str, reason: impl fmt::Display) -> Error {
    Error::Tls { what, reason: reason.to_string() }
}

#[cfg(test)]
mod tests;
