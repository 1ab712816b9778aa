//! What plugin-manager is told: every variable of its page, with its default (protocol section 9).

use crate::publication::trust::SigningKeys;
use config::{Kind, Reader};
use run_files::RunFilesSettings;
use secrecy::SecretString;
use std::{net::IpAddr, time::Duration};
use wire::{
    AllowList, TlsClient, TlsServer,
    tls::{ClientVariables, ServerVariables},
};

/// A sweep that comes round faster than this is taken for a mistake and stays off, as the service
/// page says. Settings built in code are not held to it.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(15_000);

const MIB: u64 = 1024 * 1024;

/// Settings of plugin-manager.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Address of both listeners.
    pub bind: IpAddr,
    /// Port of the TCP door; 0 takes a free one.
    pub tcp_port: u16,
    /// Port of health and metrics over HTTP; 0 takes a free one.
    pub health_port: u16,
    /// What publishers and callers must present, and what plugins are pulled with. `None` (only with
    /// `CONVEYOR_INSECURE_DEV`) lets everyone in.
    pub ingress_token: Option<SecretString>,
    /// Accepted too, while tokens are being rotated.
    pub ingress_token_previous: Option<SecretString>,
    /// Who may connect to the TCP door.
    pub allow: AllowList,
    /// TLS of the TCP door; `None` is plain TCP.
    pub tls: Option<TlsServer>,
    /// TLS of health and metrics; `None` is plain HTTP.
    pub health_tls: Option<TlsServer>,
    /// How plugins are spoken to; `None` is plain TCP.
    pub plugin_tls: Option<TlsClient>,
    /// Bytes of one frame.
    pub max_frame_bytes: usize,
    /// Longest batch pull, and longest wait of a hand-out for a plugin that is not there yet.
    pub executor_pull_timeout: Duration,
    /// Are known plugins pulled again at start?
    pub startup_reconcile: bool,
    /// Longest time that all pulls at start take together.
    pub startup_pull_timeout: Duration,
    /// The health sweep.
    pub health: HealthSettings,
    /// Where static assets are kept.
    pub files: RunFilesSettings,
    /// May a version be published again with other content?
    pub allow_republish: bool,
    /// Is a plugin enabled where nobody has decided about it?
    pub enabled_by_default: bool,
    /// The public keys that publications may be signed with.
    pub signing_keys: SigningKeys,
    /// Are only publications taken that are signed with one of them?
    pub require_signed: bool,
    /// Bounds of static assets.
    pub assets: AssetLimits,
}

/// How plugins are probed.
#[derive(Clone, Debug, PartialEq)]
pub struct HealthSettings {
    /// Each plugin is probed once in this time; `None` turns the sweep off.
    pub interval: Option<Duration>,
    /// Most random delay of a probe, as a part of the interval.
    pub jitter_ratio: f64,
    /// When a plugin changes its state.
    pub thresholds: Thresholds,
    /// Longest probe, connecting included.
    pub probe_timeout: Duration,
}

/// How many probes in a row change a plugin's state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    /// Failed probes until `offline`.
    pub failures: u32,
    /// Successful probes until an offline plugin is `online` again.
    pub successes: u32,
}

/// Bounds of the static assets of one publication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssetLimits {
    /// Most assets.
    pub max_count: usize,
    /// Bytes of one asset.
    pub max_bytes: u64,
    /// Bytes of all assets together; they are held in memory until they are stored.
    pub max_total_bytes: u64,
    /// Longest fetch or upload of one asset.
    pub timeout: Duration,
    /// May assets be fetched from loopback, private and link-local addresses?
    pub allow_private: bool,
}

impl Default for AssetLimits {
    fn default() -> Self {
        Self {
            max_count: 64,
            max_bytes: 8 * MIB,
            max_total_bytes: 32 * MIB,
            timeout: Duration::from_secs(10),
            allow_private: true,
        }
    }
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { failures: 3, successes: 2 }
    }
}

impl Default for HealthSettings {
    fn default() -> Self {
        Self {
            interval: None,
            jitter_ratio: 0.2,
            thresholds: Thresholds::default(),
            probe_timeout: Duration::from_secs(5),
        }
    }
}

impl Settings {
    /// Reads and declares the variables. Faults stay with the reader, which refuses the start.
    pub fn read(reader: &mut Reader<'_>) -> Self {
        let insecure = reader.insecure_dev();
        let (signing_keys, require_signed) = read_trust(reader);
        Self {
            signing_keys,
            require_signed,
            bind: reader.bind_address(),
            tcp_port: reader.port(
                "PLUGIN_MANAGER_TCP_PORT",
                3000,
                "Port of plugin-manager's TCP door: publications, hand-out, catalogue.",
            ),
            health_port: reader.port(
                "PLUGIN_MANAGER_HEALTH_PORT",
                3001,
                "Port of plugin-manager's health, readiness and metrics over HTTP.",
            ),
            ingress_token: reader.required_secret(
                "PLUGIN_MANAGER_INGRESS_TOKEN",
                insecure,
                "Token that publishers present and that plugins are pulled with.",
            ),
            ingress_token_previous: reader.secret(
                "PLUGIN_MANAGER_INGRESS_TOKEN_PREVIOUS",
                "Former ingress token, accepted too while tokens are being rotated.",
            ),
            allow: read_allow(reader),
            tls: TlsServer::read(reader, ServerVariables::PLUGIN_MANAGER),
            health_tls: TlsServer::read(reader, ServerVariables::PLUGIN_MANAGER_HEALTH),
            plugin_tls: TlsClient::read(reader, ClientVariables::PLUGINS),
            max_frame_bytes: read_size(
                reader,
                "CONVEYOR_MAX_FRAME_BYTES",
                "bytes",
                16 * MIB,
                "Largest frame of a TCP door.",
            ),
            executor_pull_timeout: reader.millis(
                "PLUGIN_MANAGER_EXECUTOR_PULL_TIMEOUT_MS",
                15_000,
                "Longest batch pull, and longest wait of a hand-out for a plugin that is not there yet.",
            ),
            startup_reconcile: reader.flag(
                "PLUGIN_MANAGER_STARTUP_RECONCILE",
                true,
                "Pull every known plugin again at start.",
            ),
            startup_pull_timeout: reader.millis(
                "PLUGIN_MANAGER_STARTUP_PULL_TIMEOUT_MS",
                30_000,
                "Longest time that the pulls at start take together.",
            ),
            health: HealthSettings::read(reader),
            files: RunFilesSettings {
                url: reader.base_url(
                    "PLUGIN_MANAGER_FILE_SERVICE_URL",
                    "http://file-service:3000",
                    "Where static assets of plugins are kept.",
                ),
                token: reader.secret(
                    "FILE_SERVICE_TOKEN",
                    "Bearer token that file-service wants from its neighbours.",
                ),
                tls: RunFilesSettings::read_tls(reader),
            },
            allow_republish: reader.flag(
                "PLUGIN_MANAGER_ALLOW_REPUBLISH",
                false,
                "Let a published version be replaced by other content; for development.",
            ),
            enabled_by_default: read_plugins_default(reader),
            assets: AssetLimits::read(reader),
        }
    }
}

fn read_trust(reader: &mut Reader<'_>) -> (SigningKeys, bool) {
    let keys = reader.optional(
        "PLUGIN_MANAGER_SIGNING_KEYS",
        "list",
        "Ed25519 public keys of signed publications, KEYID BASE64 a line; usually by \
         PLUGIN_MANAGER_SIGNING_KEYS_FILE.",
        str::parse::<SigningKeys>,
    );
    let keys = keys.unwrap_or_default();
    const REQUIRE: &str = "PLUGIN_MANAGER_REQUIRE_SIGNED";
    let require = reader.flag(REQUIRE, false, "Take only publications that are signed with a known key.");
    if require && keys.is_empty() {
        let remedy = "wants signatures, but there is no key; set PLUGIN_MANAGER_SIGNING_KEYS_FILE";
        reader.fault(REQUIRE, Some("true".to_owned()), remedy);
    }
    (keys, require)
}

fn read_allow(reader: &mut Reader<'_>) -> AllowList {
    let doc = "Addresses that may connect to plugin-manager's TCP door.";
    reader.list("PLUGIN_MANAGER_ALLOW_CIDRS", "CIDR list", "0.0.0.0/0,::/0", doc).unwrap_or_default()
}

/// A number of things or bytes in memory.
fn read_size(
    reader: &mut Reader<'_>,
    name: &'static str,
    kind: Kind,
    default: u64,
    doc: &'static str,
) -> usize {
    usize::try_from(reader.number(name, kind, default, doc)).unwrap_or(usize::MAX)
}

impl HealthSettings {
    fn read(reader: &mut Reader<'_>) -> Self {
        let default = Self::default();
        let interval = reader.millis(
            "PLUGIN_MANAGER_PLUGIN_HEALTH_INTERVAL_MS",
            0,
            "Each plugin is probed once in this time; 0 or less than 15000 turns the sweep off.",
        );
        Self {
            interval: (interval >= SHORTEST_INTERVAL).then_some(interval),
            jitter_ratio: reader.ratio(
                "PLUGIN_MANAGER_PLUGIN_HEALTH_JITTER_RATIO",
                default.jitter_ratio,
                "Most random delay of a probe, as a part of the interval.",
            ),
            thresholds: Thresholds {
                failures: read_threshold(
                    reader,
                    "PLUGIN_MANAGER_PLUGIN_HEALTH_FAILURE_THRESHOLD",
                    default.thresholds.failures,
                    "Failed probes in a row until a plugin is offline.",
                ),
                successes: read_threshold(
                    reader,
                    "PLUGIN_MANAGER_PLUGIN_HEALTH_SUCCESS_THRESHOLD",
                    default.thresholds.successes,
                    "Successful probes in a row until an offline plugin is online again.",
                ),
            },
            probe_timeout: reader.millis(
                "PLUGIN_MANAGER_PLUGIN_HEALTH_PROBE_TIMEOUT_MS",
                5_000,
                "Longest health probe of a plugin.",
            ),
        }
    }
}

impl AssetLimits {
    fn read(reader: &mut Reader<'_>) -> Self {
        let default = Self::default();
        let max_count = u64::try_from(default.max_count).unwrap_or(u64::MAX);
        Self {
            max_count: read_size(
                reader,
                "PLUGIN_MANAGER_ASSET_MAX_COUNT",
                "count",
                max_count,
                "Most static assets of one publication.",
            ),
            max_bytes: reader.number(
                "PLUGIN_MANAGER_ASSET_MAX_BYTES",
                "bytes",
                default.max_bytes,
                "Largest static asset.",
            ),
            max_total_bytes: reader.number(
                "PLUGIN_MANAGER_ASSETS_MAX_TOTAL_BYTES",
                "bytes",
                default.max_total_bytes,
                "Bytes of all static assets of one publication together.",
            ),
            timeout: reader.millis(
                "PLUGIN_MANAGER_ASSET_TIMEOUT_MS",
                10_000,
                "Longest fetch, and longest upload, of one static asset.",
            ),
            allow_private: reader.flag(
                "PLUGIN_MANAGER_ASSET_ALLOW_PRIVATE",
                default.allow_private,
                "May static assets be fetched from loopback, private and link-local addresses?",
            ),
        }
    }
}

fn read_threshold(reader: &mut Reader<'_>, name: &'static str, default: u32, doc: &'static str) -> u32 {
    reader.parsed(name, "count", default, doc, |text| match text.parse() {
        Ok(count) if count > 0 => Ok(count),
        _ => Err("is no threshold; use a whole number from 1 up".to_owned()),
    })
}

fn read_plugins_default(reader: &mut Reader<'_>) -> bool {
    let text = reader.parsed(
        "CONVEYOR_PLUGINS_DEFAULT",
        "choice",
        "disabled".to_owned(),
        "Is a plugin `enabled` or `disabled` where nobody has decided about it?",
        |text| match text {
            "enabled" | "disabled" => Ok(text.to_owned()),
            _ => Err("is neither enabled nor disabled".to_owned()),
        },
    );
    text == "enabled"
}

#[cfg(test)]
mod tests {
    use super::*;
    use config::Variables;

    fn read(pairs: &[(&str, &str)]) -> (Settings, Vec<String>) {
        let source: Variables = pairs.iter().copied().collect();
        let mut reader = Reader::new(&source);
        let settings = Settings::read(&mut reader);
        (settings, reader.faults().iter().map(|fault| fault.variable.clone()).collect())
    }

    #[test]
    fn defaults_are_those_of_the_service_page() {
        let (settings, faults) = read(&[("PLUGIN_MANAGER_INGRESS_TOKEN", "t")]);
        assert_eq!(faults, [""; 0]);
        assert_eq!((settings.tcp_port, settings.health_port), (3000, 3001));
        assert_eq!(settings.executor_pull_timeout, Duration::from_millis(15_000));
        assert_eq!(settings.startup_pull_timeout, Duration::from_millis(30_000));
        assert!(settings.startup_reconcile && !settings.allow_republish && !settings.enabled_by_default);
        assert_eq!(settings.health, HealthSettings::default());
        assert_eq!(settings.assets, AssetLimits::default());
        assert_eq!(settings.files.url, "http://file-service:3000");
        assert_eq!(settings.allow, AllowList::everyone());
    }

    #[test]
    fn every_fault_is_collected() {
        let (_, faults) = read(&[
            ("PLUGIN_MANAGER_TCP_PORT", "x"),
            ("PLUGIN_MANAGER_ALLOW_CIDRS", ""),
            ("PLUGIN_MANAGER_FILE_SERVICE_URL", "ftp://files"),
            ("CONVEYOR_PLUGINS_DEFAULT", "maybe"),
            ("PLUGIN_MANAGER_PLUGIN_HEALTH_FAILURE_THRESHOLD", "0"),
        ]);
        for variable in [
            "PLUGIN_MANAGER_TCP_PORT",
            "PLUGIN_MANAGER_ALLOW_CIDRS",
            "PLUGIN_MANAGER_FILE_SERVICE_URL",
            "PLUGIN_MANAGER_INGRESS_TOKEN",
            "CONVEYOR_PLUGINS_DEFAULT",
            "PLUGIN_MANAGER_PLUGIN_HEALTH_FAILURE_THRESHOLD",
        ] {
            assert!(faults.iter().any(|fault| fault == variable), "{variable}");
        }
        assert_eq!(faults.len(), 6, "{faults:?}");
    }

    /// Failure matrix rows 14 to 16.
    #[test]
    fn one_wrong_entry_in_the_allowlist_refuses_the_start_and_an_unset_one_lets_both_families_in() {
        let token = ("PLUGIN_MANAGER_INGRESS_TOKEN", "t");
        for list in ["10.0.0.0/8,192.168.0.0/33", "10.0.0.0/8,plugin", ""] {
            let (_, faults) = read(&[token, ("PLUGIN_MANAGER_ALLOW_CIDRS", list)]);
            assert!(faults.iter().all(|fault| fault == "PLUGIN_MANAGER_ALLOW_CIDRS"), "{list}: {faults:?}");
            assert!(!faults.is_empty(), "{list}");
        }
        let allowed = |list: Option<&'static str>, address: &str| {
            let list = list.map(|list| ("PLUGIN_MANAGER_ALLOW_CIDRS", list));
            let pairs: Vec<_> = std::iter::once(token).chain(list).collect();
            read(&pairs).0.allow.allows(address.parse().unwrap())
        };
        assert!(allowed(None, "203.0.113.7") && allowed(None, "2001:db8::7"));
        assert!(allowed(Some("10.0.0.0/8"), "::ffff:10.1.2.3"), "mapped addresses are judged as IPv4");
        assert!(!allowed(Some("10.0.0.0/8"), "::ffff:11.1.2.3"));
    }

    #[test]
    fn requiring_signatures_without_a_key_refuses_the_start() {
        let token = ("PLUGIN_MANAGER_INGRESS_TOKEN", "t");
        let require = ("PLUGIN_MANAGER_REQUIRE_SIGNED", "true");
        let key = ("PLUGIN_MANAGER_SIGNING_KEYS", "release AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=");
        assert_eq!(read(&[token, require]).1, ["PLUGIN_MANAGER_REQUIRE_SIGNED"]);
        assert_eq!(read(&[token, require, key]).1, [""; 0]);
        assert_eq!(
            read(&[token, ("PLUGIN_MANAGER_SIGNING_KEYS", "release x")]).1,
            ["PLUGIN_MANAGER_SIGNING_KEYS"]
        );
    }

    #[test]
    fn a_missing_token_is_allowed_only_in_insecure_development() {
        assert_eq!(read(&[]).1, ["PLUGIN_MANAGER_INGRESS_TOKEN"]);
        assert_eq!(read(&[("CONVEYOR_INSECURE_DEV", "true")]).1, [""; 0]);
    }

    #[test]
    fn a_sweep_below_fifteen_seconds_is_off() {
        let interval = |text| {
            read(&[("PLUGIN_MANAGER_INGRESS_TOKEN", "t"), ("PLUGIN_MANAGER_PLUGIN_HEALTH_INTERVAL_MS", text)])
                .0
                .health
                .interval
        };
        assert_eq!(interval("0"), None);
        assert_eq!(interval("14999"), None);
        assert_eq!(interval("15000"), Some(Duration::from_millis(15_000)));
    }
}
