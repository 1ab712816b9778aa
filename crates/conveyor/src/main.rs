//! The `conveyor` binary: services put together in one process or many, and the commands of people.
//! It holds no business rule: those are the services', which it only reads settings for, binds in
//! the order of their dependencies and runs under one supervisor.

#[macro_use]
mod output;

mod cli;
mod client;
mod commands;
mod compose;
mod credentials;
mod descriptors;
mod document;
mod failure;
mod logs;
mod platform;
mod profile;
mod remote;
mod services;
mod signals;
mod source;

use clap::Parser;
use std::process::ExitCode;

/// Frames and rows of all sizes come and go on all threads: the C library's allocator spent a fifth of
/// a report's processor time on that.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    // One TLS provider for every client and server of the process; a second call changes nothing.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            eprintln!("conveyor: the runtime cannot start: {error}");
            return ExitCode::from(1);
        }
    };
    match runtime.block_on(commands::run(cli)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}
