//! Fuzzing on the stable toolchain: seeded mutation of a kept corpus, guided by what the targets say
//! they did. See `README.md` beside this crate.

pub mod corpus;
pub mod mutate;
pub mod run;
pub mod targets;

pub use mutate::Mutator;
pub use run::{Finding, Limits, Summary, run};
pub use targets::{TARGETS, Target};
