//! What was measured, as a table and as JSON.

use crate::{
    chains::Chains,
    load::{Slice, hundredths, median},
    siege::Siege,
};
use serde_json::{Value, json};
use std::{collections::BTreeMap, error::Error, fmt, fs, path::Path};

/// Attempts that are prepared for a slice before it is known how fast the machine is: results per
/// second that are expected at most.
const FIRST_GUESS: [(usize, usize); 3] = [(1, 2_000), (64, 12_000), (256, 20_000)];

/// Slices of both sides by concurrency.
#[derive(Debug, Default)]
pub(crate) struct Report {
    slices: BTreeMap<usize, (Vec<Slice>, Vec<Slice>)>,
    pub(crate) chains: Option<Chains>,
    pub(crate) siege: Option<Siege>,
}

impl Report {
    pub(crate) fn add(&mut self, in_flight: usize, ours: Slice, theirs: Option<Slice>) {
        let (us, rival) = self.slices.entry(in_flight).or_default();
        us.push(ours);
        rival.extend(theirs);
    }

    /// Attempts that last for a slice: half as many again as the fastest one used.
    pub(crate) fn enough(&self, in_flight: usize) -> usize {
        let used = self.slices.get(&in_flight).and_then(|(us, _)| us.iter().map(|slice| slice.results).max());
        let guess =
            FIRST_GUESS.iter().find(|(level, _)| *level == in_flight).map_or(10_000, |(_, guess)| *guess);
        used.map_or(guess, |used| used + used / 2)
    }

    fn rows(&self) -> Vec<Value> {
        let side = |slice: &Slice, all: &[Slice]| {
            json!({
                "results_per_second": slice.per_second().round(),
                "slices": all.iter().map(|slice| slice.per_second().round()).collect::<Vec<_>>(),
                "p50_ms": hundredths(slice.quantile_ms(0.5)),
                "p99_ms": hundredths(slice.quantile_ms(0.99)),
                "cpu_us_per_result": slice.cpu_micros().round(),
                "foreign_cpu_percent": slice.foreign_percent().round(),
            })
        };
        let rows = self.slices.iter().filter_map(|(in_flight, (us, rival))| {
            let (ours, theirs) = (median(us)?, median(rival)?);
            Some(json!({
                "in_flight": in_flight,
                "conveyor": side(ours, us),
                "nestjs_11": side(theirs, rival),
                "ratio": hundredths(ours.per_second() / theirs.per_second()),
            }))
        });
        rows.collect()
    }

    /// Writes `benches/results/door.json`.
    pub(crate) fn save(&self) -> Result<(), Box<dyn Error>> {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("results");
        fs::create_dir_all(&folder)?;
        let siege = self.siege.as_ref().map(Siege::json);
        let chains = self.chains.as_ref().map(Chains::json);
        let document = json!({"benchmark": "door", "rows": self.rows(), "chains": chains, "siege": siege});
        fs::write(folder.join("door.json"), serde_json::to_string_pretty(&document)? + "\n")?;
        Ok(())
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.slices.is_empty() {
            writeln!(
                f,
                "| in flight | | results/s, median (slices) | p50 / p99 ms | CPU µs/result | foreign CPU % | ratio |"
            )?;
            writeln!(f, "|---|---|---|---|---|---|---|")?;
        }
        for (in_flight, (us, rival)) in &self.slices {
            let Some(ours) = median(us) else { continue };
            let theirs = median(rival);
            let ratio = theirs.map(|theirs| format!("**{:.1}×**", ours.per_second() / theirs.per_second()));
            let sides = [("Conveyor", Some(ours), us, ratio.unwrap_or_default())];
            for (name, slice, all, ratio) in
                sides.into_iter().chain([("NestJS 11 + pg", theirs, rival, String::new())])
            {
                let Some(slice) = slice else { continue };
                let slices: Vec<_> = all.iter().map(|slice| format!("{:.0}", slice.per_second())).collect();
                writeln!(
                    f,
                    "| {in_flight} | {name} | {:.0} ({}) | {:.2} / {:.2} | {:.0} | {:.0} | {ratio} |",
                    slice.per_second(),
                    slices.join(", "),
                    slice.quantile_ms(0.5),
                    slice.quantile_ms(0.99),
                    slice.cpu_micros(),
                    slice.foreign_percent(),
                )?;
            }
        }
        if let Some(chains) = &self.chains {
            write!(f, "\n{chains}")?;
        }
        match &self.siege {
            Some(siege) => write!(f, "\n{siege}"),
            None => Ok(()),
        }
    }
}
