use config::Reader;
use secrecy::SecretString;
use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    time::Duration,
};
use wire::{TlsServer, tls::ServerVariables};

const MIB: u64 = 1024 * 1024;

/// How file-service listens and where it keeps bytes.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Where to listen; port 0 takes a free one.
    pub address: SocketAddr,
    /// TLS of the listener; `None` is plain HTTP.
    pub tls: Option<TlsServer>,
    /// Folder of the bytes.
    pub dir: PathBuf,
    /// Bytes of the largest file.
    pub max_file_bytes: u64,
    /// What callers must present as a bearer token; `None` lets everybody call.
    pub token: Option<SecretString>,
    /// When the files of runs that are gone are removed.
    pub sweep: SweepSettings,
}

/// When the files of runs that are gone are removed.
#[derive(Clone, Copy, Debug)]
pub struct SweepSettings {
    /// How often they are looked for.
    pub every: Duration,
    /// How old a file's owner must be: a repetition shares files before its run exists.
    pub grace: Duration,
}

impl Default for SweepSettings {
    fn default() -> Self {
        Self { every: Duration::from_secs(10 * 60), grace: Duration::from_secs(60 * 60) }
    }
}

impl Settings {
    /// Reads and declares the variables. Faults are collected by the reader; what comes back after
    /// a fault is only a placeholder.
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let insecure = reader.insecure_dev();
        let bind = reader.bind_address();
        let port = reader.port("FILE_SERVICE_HTTP_PORT", 3000, "HTTP port of file-service.");
        let data =
            reader.text("CONVEYOR_DATA_DIR", "data", "Folder of everything that is kept on this machine.");
        let dir = reader
            .optional_text("FILE_SERVICE_DIR", "Folder of the files; `files` in the data folder when unset.");
        let max_mib = reader.number("FILE_MAX_SIZE_MB", "MiB", 100, "Size of the largest file.");
        Self {
            address: SocketAddr::new(bind, port),
            tls: TlsServer::read(reader, ServerVariables::FILE_SERVICE),
            dir: dir.map_or_else(|| Path::new(&data).join("files"), PathBuf::from),
            max_file_bytes: max_mib.saturating_mul(MIB),
            token: reader.required_secret(
                "FILE_SERVICE_TOKEN",
                insecure,
                "Bearer token that the other services present to file-service.",
            ),
            sweep: SweepSettings::default(),
        }
    }
}
