//! TLS everywhere, with certificates on both sides: the platform, a plugin, the check and the commands.

use crate::plugin::{LIMIT, examples, process, published, run, spawn};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, IsCa, KeyPair};
use reqwest::Method;
use serde_json::json;
use std::fs;
use system_tests::{Solo, binary, deployment::INGRESS_TOKEN};
use testkit::{Program, Stream};

/// An authority and a certificate of it for 127.0.0.1, as files.
struct Certificates(tempfile::TempDir);

impl Certificates {
    fn new() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name = DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, "test authority");
        let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &authority).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let texts = [("ca", authority.pem()), ("cert", certificate.pem()), ("key", key.serialize_pem())];
        for (name, text) in texts {
            fs::write(folder.path().join(name), text).unwrap();
        }
        Self(folder)
    }

    fn file(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// A door that asks for certificates.
    fn door(&self, prefix: &str) -> [(String, String); 3] {
        self.named(prefix, [("CERT", "cert"), ("KEY", "key"), ("CLIENT_CA", "ca")])
    }

    /// A client that shows one.
    fn client(&self, prefix: &str) -> [(String, String); 3] {
        self.named(prefix, [("CA", "ca"), ("CLIENT_CERT", "cert"), ("CLIENT_KEY", "key")])
    }

    fn named(&self, prefix: &str, files: [(&str, &str); 3]) -> [(String, String); 3] {
        files.map(|(variable, file)| (format!("{prefix}_TLS_{variable}_FILE"), self.file(file)))
    }
}

fn pairs(variables: &[(String, String)]) -> Vec<(&str, &str)> {
    variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_through_doors_that_all_speak_tls_ends_as_through_plain_ones() {
    let Some(_) = examples() else { return };
    let certificates = Certificates::new();
    let doors = [
        "RUNTIME_CONTROL_PLANE",
        "RUNTIME_CONTROL_PLANE_HTTP",
        "PLUGIN_MANAGER",
        "PLUGIN_MANAGER_HEALTH",
        "RUNTIME_ENGINE",
        "SECRET_MANAGER",
        "FILE_SERVICE",
    ];
    let clients = [
        "CONVEYOR_PLUGIN",
        "CONTROL_PLANE",
        "PLUGIN_MANAGER",
        "RUNTIME_ENGINE",
        "SECRET_MANAGER",
        "FILE_SERVICE",
    ];
    let doors = doors.into_iter().flat_map(|prefix| certificates.door(prefix));
    let platform: Vec<_> =
        doors.chain(clients.into_iter().flat_map(|prefix| certificates.client(prefix))).collect();
    let solo = Solo::start(&binary("conveyor"), &pairs(&platform)).await;

    let plugin = [
        certificates.door("PLUGIN"),
        certificates.client("PLUGIN_MANAGER"),
        certificates.client("CONTROL_PLANE"),
    ]
    .concat();
    let _plugin = published(&solo, "tracker", &pairs(&plugin)).await;
    solo.platform.call(Method::PUT, "/secrets/tracker", Some(&json!({"value": "k"}))).await;
    let settings = json!({"baseUrl": "memory:tls", "apiKey": {"$secret": "tracker"}});
    let create = process("plugin.tracker.issue.create", &["title"], &settings, &["id"]);
    assert_eq!(*run(&solo, &create, &json!({"title": "Тема"})).await.finished(), json!({"id": 1}));

    let path = format!("/internal/diagram/{}/files", solo.platform.import(&create).await);
    let file = json!({"name": "a.txt", "mediaType": "text/plain", "data": "YWJj"});
    let stored = solo.platform.call(Method::POST, &path, Some(&file)).await;
    let (media_type, bytes) = solo.platform.download(stored["fileId"].as_str().unwrap()).await;
    assert_eq!((media_type.as_str(), bytes.as_slice()), ("text/plain", b"abc".as_slice()));

    // The control plane's HTTP: with a certificate, and not without.
    let url = format!("https://127.0.0.1:{}/ready", solo.http_port);
    let ca = reqwest::Certificate::from_pem(&fs::read(certificates.file("ca")).unwrap()).unwrap();
    let browser = || reqwest::Client::builder().no_proxy().tls_certs_only([ca.clone()]);
    let identity =
        [fs::read(certificates.file("cert")).unwrap(), fs::read(certificates.file("key")).unwrap()];
    let identity = reqwest::Identity::from_pem(&identity.concat()).unwrap();
    let shown = browser().identity(identity).build().unwrap();
    assert_eq!(shown.get(&url).send().await.unwrap().status(), 200);
    assert!(browser().build().unwrap().get(&url).send().await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_speaks_tls_to_a_plugin_where_it_is_told_whom_to_trust() {
    let Some(folder) = examples() else { return };
    let certificates = Certificates::new();
    let solo = Solo::start(&binary("conveyor"), &[]).await;
    let port = testkit::free_port().unwrap().to_string();
    let mut door = certificates.door("PLUGIN").to_vec();
    door.push(("PLUGIN_TCP_PORT".to_owned(), port.clone()));
    door.push(("PLUGIN_MANAGER_MANIFEST_ON_INIT_DISABLED".to_owned(), "true".to_owned()));
    let plugin = spawn(&solo, &folder.join("example"), "dist/main.js", &pairs(&door));
    plugin.wait_for_line("the plugin listens", LIMIT).await.unwrap();
    for (trust, expected) in [(certificates.client("CONVEYOR_PLUGIN").to_vec(), 0), (vec![], 1)] {
        let check = Program::new(binary("conveyor"))
            .args(["plugin", "check", &format!("127.0.0.1:{port}"), "--token", INGRESS_TOKEN])
            .args(["--node", "plugin.example.echo", "--input", "text=hi"])
            .without_env(&["CONVEYOR_", "PLUGIN_"])
            .envs(pairs(&trust))
            .spawn()
            .unwrap();
        let code = check.wait(LIMIT * 3).await.unwrap().code();
        assert_eq!(code, Some(expected), "{}", check.text(Stream::Stdout) + &check.text(Stream::Stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_trust_the_authority_of_an_api_that_speaks_https() {
    let certificates = Certificates::new();
    let (port, ca) = (testkit::free_port().unwrap().to_string(), certificates.file("ca"));
    let mut door = certificates.door("API")[..2].to_vec();
    door.push(("API_HTTP_PORT".to_owned(), port.clone()));
    let solo = Solo::start(&binary("conveyor"), &pairs(&door)).await;
    let url = format!("https://127.0.0.1:{port}");
    assert!(solo.process.text(Stream::Stdout).contains(&url));
    for (trust, expected) in [(vec![("CONVEYOR_API_CA_FILE", ca.as_str())], 0), (vec![], 1)] {
        let list = Program::new(binary("conveyor"))
            .args(["process", "list", "--url", &url])
            .without_env(&["CONVEYOR_"])
            .env("CONVEYOR_API_TOKEN", system_tests::deployment::API_TOKEN)
            .envs(trust)
            .spawn()
            .unwrap();
        let code = list.wait(LIMIT).await.unwrap().code();
        assert_eq!(code, Some(expected), "{}", list.text(Stream::Stderr));
    }
}
