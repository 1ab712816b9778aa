//! The core as a specification: flow rules, what reporters are told, repetitions, and properties
//! over random processes and random orders of reports.

mod flow_rules;
mod histories;
mod loop_properties;
mod loops;
mod properties;
mod reach;
mod reference;
mod repetitions;
mod reporters;
mod simulation;
mod stage;
mod waits;
