use config::Reader;
use secrecy::SecretString;
use wire::{TlsClient, neighbours, tls::ClientVariables};

/// Where file-service is.
#[derive(Clone, Debug)]
pub struct RunFilesSettings {
    /// Base URL, without a slash at the end.
    pub url: String,
    /// What file-service wants to see, when it wants something.
    pub token: Option<SecretString>,
    /// Whom to trust where the URL is `https://`; `None` trusts the authorities of the system.
    pub tls: Option<TlsClient>,
}

impl RunFilesSettings {
    /// Reads and declares the variables; faults stay with the reader.
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let url = neighbours::file_service(reader);
        let token = reader.secret("FILE_SERVICE_TOKEN", "Bearer token of file-service.");
        Self { url, token, tls: Self::read_tls(reader) }
    }

    /// The variables of TLS alone, for services that read the others under their own rules.
    pub fn read_tls(reader: &mut Reader<'_>) -> Option<TlsClient> {
        TlsClient::read(reader, ClientVariables::FILE_SERVICE)
    }
}
