//! Every seed and a few thousand mutations of each target, the same at every run.

// Helpers are test code too, which the lint's own exception does not see.
#![allow(clippy::unwrap_used)]

use fuzz::{Limits, TARGETS, corpus, run};

#[test]
fn no_target_breaks_its_rules() {
    for target in TARGETS {
        let seeds = corpus::seeds(target).unwrap();
        assert!(seeds.len() >= 3, "{} has too few seeds", target.name);
        let limits = Limits { inputs: 3000, time: None };
        let summary = run(target, seeds, 20_261_130, limits, |_| {}).unwrap_or_else(|finding| {
            panic!("{}: {}\ninput: {}", target.name, finding.message, finding.input.escape_ascii())
        });
        assert!(summary.behaviours >= 3, "{} sees nothing: {summary:?}", target.name);
    }
}
