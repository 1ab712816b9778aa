//! `conveyor serve SERVICE…`

use crate::{
    cli::Serve,
    compose::{self, Plan},
    failure::Failure,
    profile::Profile,
    signals::Termination,
};
use ::config::Environment;
use std::collections::BTreeSet;
use tokio_util::sync::CancellationToken;

/// Serves these services until the process is told to end.
pub(super) async fn serve(args: Serve) -> Result<(), Failure> {
    let told = Termination::listen()?;
    let services: BTreeSet<_> = args.services.into_iter().collect();
    let profile = if services.len() == 1 { Profile::single() } else { Profile::several() };
    let plan = Plan::read(&Environment, profile, &services)?;
    let platform = Box::pin(compose::bind(plan)).await?;
    for listening in &platform.listening {
        tracing::info!(event = "listening", service = listening.service.as_str(), door = listening.door, address = %listening.address, "listening");
    }
    // The one line for whoever waits for the start: some services have several doors, some none.
    let names: Vec<_> = services.iter().map(|service| service.as_str()).collect();
    tracing::info!(event = "serving", services = names.join(","), "serving");
    until_told(platform, told).await
}

/// Serves until a signal comes.
pub(super) async fn until_told(platform: compose::Platform, mut told: Termination) -> Result<(), Failure> {
    let stop = CancellationToken::new();
    let stopping = stop.clone();
    tokio::spawn(async move {
        told.told().await;
        tracing::info!(event = "stopping", "told to stop; what is under way may end");
        stopping.cancel();
    });
    Ok(platform.run(stop).await?)
}
