//! What is fuzzed. A target runs one input, asserts its rules, and tells in a few words what came out.

mod address;
mod codec;
mod documents;
mod packet;
mod proxy_header;
mod report;

/// One thing that reads bytes of strangers.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name: of its folder in the corpus and on the command line.
    pub name: &'static str,
    /// Runs one input. Panics when a rule is broken; else tells what it did.
    pub run: fn(&[u8]) -> String,
}

/// All targets.
pub const TARGETS: &[Target] = &[
    Target { name: "codec", run: codec::run },
    Target { name: "packet", run: packet::run },
    Target { name: "report", run: report::run },
    Target { name: "manifest", run: documents::manifest },
    Target { name: "process", run: documents::process },
    Target { name: "address", run: address::run },
    Target { name: "proxy_header", run: proxy_header::run },
];
