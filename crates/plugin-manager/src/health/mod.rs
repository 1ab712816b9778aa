//! Health of plugins: what is found, how it changes the state, and the sweep that looks.

mod ledger;
mod machine;
mod probe;
mod schedule;
mod sweep;

pub(crate) use ledger::Ledger;
pub(crate) use sweep::Sweep;
