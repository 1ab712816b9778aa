use config::Reader;
use secrecy::SecretString;

/// Where file-service is.
#[derive(Clone, Debug)]
pub struct RunFilesSettings {
    /// Base URL, without a slash at the end.
    pub url: String,
    /// What file-service wants to see, when it wants something.
    pub token: Option<SecretString>,
}

impl RunFilesSettings {
    /// Reads and declares the variables; faults stay with the reader.
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let url = reader.parsed(
            "FILE_SERVICE_BASE_URL",
            "URL",
            "http://file-service:3000".to_owned(),
            "Base URL of file-service, where values lie that are too large for the history of a run.",
            |text| match text.parse::<reqwest::Url>() {
                Ok(url) if matches!(url.scheme(), "http" | "https") && url.has_host() => {
                    Ok(text.trim_end_matches('/').to_owned())
                }
                _ => Err("is no URL; write it like http://host:3000".to_owned()),
            },
        );
        let token = reader.secret("FILE_SERVICE_TOKEN", "Bearer token of file-service.");
        Self { url, token }
    }
}
