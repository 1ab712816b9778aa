//! `conveyor up`

use super::serve::until_told;
use crate::{
    cli::Up,
    compose::{self, Plan, Platform},
    credentials::Credentials,
    failure::Failure,
    platform::PlatformSettings,
    profile::Profile,
    services::ServiceName,
    signals::Termination,
    source::CommandSource,
};
use ::config::Reader;
use secrecy::{ExposeSecret, SecretString};
use std::path::{Path, PathBuf};

/// Everything in this process until it is told to end.
pub(super) async fn up(args: Up) -> Result<(), Failure> {
    let told = Termination::listen()?;
    let source = CommandSource::with_data_dir(args.data.as_deref());
    let data_dir = data_folder(&source)?;
    let profile = Profile::up(&data_dir, args.port_offset, &Credentials::load_or_create(&data_dir)?);
    let plan = Plan::read(&source, profile, &ServiceName::ALL.into())?;
    let token = plan.api.as_ref().and_then(|api| api.token.clone());
    let platform = Box::pin(compose::bind(plan)).await?;
    println!("{}", announcement(&platform, token.as_ref(), &data_dir));
    until_told(platform, told).await
}

/// The data folder that the variables name; made if it is not there.
///
/// # Errors
/// When the variables are not valid or the folder cannot be made.
pub(super) fn data_folder(source: &CommandSource) -> Result<PathBuf, Failure> {
    let mut reader = Reader::new(source);
    let data_dir = PlatformSettings::read(&mut reader).data_dir;
    reader.finish().map_err(Failure::invalid)?;
    compose::make_folder(&data_dir)?;
    Ok(data_dir)
}

/// Addresses and the local token, for people.
pub(super) fn announcement(platform: &Platform, token: Option<&SecretString>, data_dir: &Path) -> String {
    let doors = [
        ("API", ServiceName::Api, "http"),
        ("Control plane, HTTP", ServiceName::RuntimeControlPlane, "http"),
        ("Control plane, TCP", ServiceName::RuntimeControlPlane, "tcp"),
        ("Plugin-manager, TCP", ServiceName::PluginManager, "tcp"),
        ("Plugin-manager, health", ServiceName::PluginManager, "health"),
    ];
    let mut lines = vec!["Conveyor is up.".to_owned()];
    for (title, service, door) in doors {
        if let Some(listening) = platform.find(service, door) {
            let address = if door == "tcp" { listening.reachable().to_string() } else { listening.url() };
            lines.push(format!("  {title:<24}{address}"));
        }
    }
    if let Some(token) = token {
        lines.push(format!("  {:<24}{}", "API token", token.expose_secret()));
    }
    lines.push(format!("  {:<24}{}", "Data folder", data_dir.display()));
    lines.join("\n")
}
