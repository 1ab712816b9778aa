//! TLS below the frames (protocol section 1): what a door shows and demands, what a client trusts and
//! shows. The frames inside are the same.

mod settings;

pub use settings::{ClientVariables, ServerVariables};

use crate::Error;
use rustls::{
    RootCertStore,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use secrecy::{ExposeSecret, SecretString};
use std::{fmt, sync::Arc};
use tokio_rustls::{TlsAcceptor, TlsConnector};

/// What a TLS door shows of itself and demands of its clients. TLS 1.2 and 1.3.
#[derive(Clone)]
pub struct TlsServer(Arc<rustls::ServerConfig>);

/// Whom a TLS client trusts and what it shows of itself. The server's certificate must name the host
/// that is connected to, as a DNS name or an IP address.
#[derive(Clone)]
pub struct TlsClient(Arc<rustls::ClientConfig>);

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
        let builder = rustls::ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable("configuration", error))?;
        let builder = match client_ca {
            None => builder.with_no_client_auth(),
            Some(pem) => {
                let roots = Arc::new(authorities("client authorities", pem)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider())
                    .build()
                    .map_err(|error| unusable("client authorities", error))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let (chain, key) = identity.parse()?;
        let config = builder.with_single_cert(chain, key).map_err(|error| unusable("key", error))?;
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        TlsAcceptor::from(Arc::clone(&self.0))
    }
}

impl TlsClient {
    /// A client that trusts the authorities `ca` (PEM) and no others. With `identity` it shows that
    /// certificate to servers that ask for one.
    ///
    /// # Errors
    /// [`Error::Tls`] when a text holds no such thing, or the key is not the certificate's.
    pub fn new(ca: &str, identity: Option<&Identity>) -> Result<Self, Error> {
        let builder = rustls::ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable("configuration", error))?
            .with_root_certificates(authorities("authorities", ca)?);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => {
                let (chain, key) = identity.parse()?;
                builder.with_client_auth_cert(chain, key).map_err(|error| unusable("key", error))?
            }
        };
        Ok(Self(Arc::new(config)))
    }

    pub(crate) fn connector(&self) -> TlsConnector {
        TlsConnector::from(Arc::clone(&self.0))
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
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for TlsClient {}

impl Identity {
    fn parse(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Error> {
        let chain = certificates("certificate", &self.certificates)?;
        // The parser's error may quote the text: it is not passed on.
        let key = PrivateKeyDer::from_pem_slice(self.key.expose_secret().as_bytes())
            .map_err(|_| unusable("key", "it holds no private key in PEM form (PKCS#8, PKCS#1 or SEC1)"))?;
        Ok((chain, key))
    }
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
