//! The command line of `conveyor plugin check`. Its doc comments are the help text.
#![allow(clippy::doc_markdown, reason = "help text is no markdown")]

use crate::commands::plugin::args::endpoint;
use clap::Args;
use contract::{Json, manifest::Endpoint};
use std::net::IpAddr;

/// The command line of `conveyor plugin check`.
#[derive(Args, Debug)]
pub(crate) struct Check {
    /// A plugin that runs.
    #[arg(value_name = "HOST:PORT", value_parser = endpoint, required_unless_present = "listen")]
    pub(super) plugin: Option<Endpoint>,
    /// Be plugin-manager and control plane on these ports, and wait for a plugin; 0 takes a free one.
    #[arg(long, value_name = "PM:CP", value_parser = ports, conflicts_with = "plugin")]
    pub(super) listen: Option<(u16, u16)>,
    /// The address to listen on.
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1", requires = "listen")]
    pub(super) bind: IpAddr,
    /// The ingress token that the plugin has [default: PLUGIN_MANAGER_INGRESS_TOKEN]
    #[arg(long, value_name = "TOKEN")]
    pub(super) token: Option<String>,
    /// The control plane's key that the plugin has [default: PLUGIN_CONTROL_PLANE_KEY]
    #[arg(long, value_name = "KEY", requires = "listen")]
    pub(super) key: Option<String>,
    /// A node to run. Its work is done in earnest, several times.
    #[arg(long, value_name = "TYPE")]
    pub(super) node: Option<String>,
    /// An input of the node: JSON, or text where it is none.
    #[arg(long = "input", value_name = "NAME=VALUE", value_parser = input, requires = "node")]
    pub(super) inputs: Vec<(String, Json)>,
    /// How long to wait for a publication, a report or the end of the work, seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u64).range(1..=86_400))]
    pub(super) wait: u64,
    /// How long a plugin that was told to stop must stay silent, seconds: more than its pause between
    /// heartbeats.
    #[arg(long, value_name = "SECONDS", default_value_t = 12, value_parser = clap::value_parser!(u64).range(1..=3600), requires = "listen")]
    pub(super) quiet: u64,
    /// Print one line of JSON at the end.
    #[arg(long)]
    pub(super) json: bool,
}

/// `PM:CP`.
fn ports(text: &str) -> Result<(u16, u16), String> {
    let read = text.split_once(':').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    read.ok_or_else(|| format!("{text:?} is no pair of ports; use PM:CP, for example 4016:4021"))
}

/// `name=value`.
fn input(text: &str) -> Result<(String, Json), String> {
    let (name, value) = text.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
        format!("{text:?} is no input; use NAME=VALUE, for example text=hello or numbers=[1,2]")
    })?;
    let value = Json::parse(value).unwrap_or_else(|_| Json::from(serde_json::Value::from(value)));
    Ok((name.to_owned(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_input_is_json_or_else_text() {
        let read = |text: &str| input(text).map(|(name, value)| (name, value.text().to_owned()));
        let expected = |name: &str, value: &str| Ok((name.to_owned(), value.to_owned()));
        assert_eq!(read("n=12345678901234567890"), expected("n", "12345678901234567890"));
        assert_eq!(read("t=hi=there"), expected("t", r#""hi=there""#));
        assert_eq!(read("t="), expected("t", r#""""#));
        assert!(read("=1").is_err() && read("t").is_err());
    }

    #[test]
    fn ports_come_in_pairs() {
        assert_eq!(ports("4016:0"), Ok((4016, 0)));
        for text in ["4016", "a:b", "1:70000"] {
            assert!(ports(text).is_err(), "{text}");
        }
    }
}
