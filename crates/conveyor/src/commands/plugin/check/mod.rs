//! `conveyor plugin check`: the conformance kit. It plays plugin-manager and control plane against a
//! plugin in any language; the rules are those of `docs/plugin-protocol.md`.

mod args;
mod door;
mod findings;
mod listen;
mod stage;
mod steps;

use crate::failure::Failure;
use ::config::{Environment, Reader};
pub(crate) use args::Check;
use contract::{
    Json,
    manifest::{Endpoint, ExecutorItem},
    task::ExecutorTask,
};
use door::{Delivery, Plugin};
use findings::{self as rule, Findings};
use indexmap::IndexMap;
use secrecy::SecretString;
use std::time::Duration;
use tokio::net::TcpStream;
use wire::{
    Client, ClientConfig, TlsClient, TlsServer,
    tls::{ClientVariables, ServerVariables},
};

/// How long a plugin may take to accept a connection.
const CONNECT_LIMIT: Duration = Duration::from_secs(5);

/// What the plugin is expected to have.
struct Expected {
    token: SecretString,
    key: Option<SecretString>,
    wait: Duration,
    tls: Tls,
}

/// TLS as the services that are played have it, from their variables.
struct Tls {
    plugin: Option<TlsClient>,
    plugin_manager: Option<TlsServer>,
    control_plane: Option<TlsServer>,
}

impl Expected {
    fn client(&self, place: &Endpoint) -> Client {
        let config = ClientConfig { tls: self.tls.plugin.clone(), ..ClientConfig::default() };
        Client::new(place.host.clone(), place.port, config)
    }
}

/// Checks a plugin.
///
/// # Errors
/// Exit code 1: a rule is broken. Exit code 2: there is no plugin to check.
pub(super) async fn check(args: Check) -> Result<(), Failure> {
    let mut reader = Reader::new(&Environment);
    let token = reader.secret("PLUGIN_MANAGER_INGRESS_TOKEN", "Token of the plugin.");
    let key = reader.secret("PLUGIN_CONTROL_PLANE_KEY", "Key of the plugin's reports.");
    let tls = Tls {
        plugin: TlsClient::read(&mut reader, ClientVariables::PLUGINS),
        plugin_manager: TlsServer::read(&mut reader, ServerVariables::PLUGIN_MANAGER),
        control_plane: TlsServer::read(&mut reader, ServerVariables::CONTROL_PLANE),
    };
    reader.finish().map_err(Failure::invalid)?;
    let expected = Expected {
        token: args.token.clone().map(SecretString::from).or(token).unwrap_or_default(),
        key: args.key.clone().map(SecretString::from).or(key),
        wait: Duration::from_secs(args.wait),
        tls,
    };
    let mut findings = Findings::new(args.json);
    match (&args.plugin, args.listen) {
        (Some(place), _) => running(&args, place, expected, &mut findings).await?,
        (None, Some(ports)) => listen::check(&args, ports, expected, &mut findings).await?,
        // The command line asks for one of the two.
        (None, None) => return Err(Failure::invalid("name HOST:PORT of a plugin, or --listen")),
    }
    if findings.finish() { Ok(()) } else { Err(Failure::Told) }
}

/// Checks a plugin that runs and reports elsewhere.
async fn running(
    args: &Check,
    place: &Endpoint,
    expected: Expected,
    findings: &mut Findings,
) -> Result<(), Failure> {
    let connected =
        tokio::time::timeout(CONNECT_LIMIT, TcpStream::connect((place.host.as_str(), place.port))).await;
    match connected {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => {
            return Err(Failure::invalid(format!("{place}: {error}; is the plugin running there?")));
        }
        Err(_) => {
            let limit = CONNECT_LIMIT.as_secs();
            return Err(Failure::invalid(format!("{place} accepts no connection within {limit} s")));
        }
    }
    let client = expected.client(place);
    let mut plugin = Plugin { client, token: expected.token, manifest: None };
    let items = plugin.check_pull(findings).await;
    plugin.check_packets(findings).await;
    if plugin.check_unknown_node_type(&door::unknown_task(), findings).await {
        findings.skip(rule::UNKNOWN_NODE_TYPE, "it was taken; what is reported is heard with --listen");
    }
    let Some(task) = wanted(args, &items) else {
        findings.skip(rule::TASK, "name a node with --node and its --input");
        return Ok(());
    };
    let outcome = match plugin.deliver(&task).await {
        Delivery::Taken | Delivery::Answered(_) => Ok(()),
        Delivery::Refused(detail) | Delivery::Late(detail) | Delivery::Unanswered(detail) => Err(detail),
    };
    findings.note(rule::TASK, outcome);
    Ok(())
}

/// The task that the command line asks for.
fn wanted(args: &Check, items: &[ExecutorItem]) -> Option<ExecutorTask> {
    let node_type = args.node.as_deref()?;
    let item = items.iter().find(|item| item.node_type == node_type);
    let outputs = item.into_iter().flat_map(|item| &item.outputs).map(|output| output.name.clone());
    let inputs: IndexMap<String, Json> = args.inputs.iter().cloned().collect();
    Some(door::task(node_type, inputs, outputs.collect()))
}
