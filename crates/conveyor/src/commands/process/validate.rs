//! `conveyor process validate FILE`

use super::args::Validate;
use crate::{
    document::{self, Unusable, printable, refuse},
    failure::Failure,
};
use contract::{Fault, process::Strictness};
use serde_json::json;

/// Checks every diagram of a document as if it were to run now.
pub(super) async fn validate(args: &Validate) -> Result<(), Failure> {
    let diagrams =
        document::read(&args.file).map_err(|unusable| refuse(args.file.display(), unusable, args.json))?;
    let catalogue = document::catalogue(args.data.as_deref()).await?;
    let (mut faults, mut warnings): (Vec<Fault>, Vec<Fault>) = (Vec::new(), Vec::new());
    for diagram in &diagrams {
        match document::check(diagram, &catalogue, Strictness::Run) {
            Ok((_, found)) => warnings.extend(found),
            Err(found) => faults.extend(found),
        }
    }
    if !faults.is_empty() {
        return Err(refuse(args.file.display(), Unusable::Faulty(faults), args.json));
    }
    if args.json {
        println!("{}", json!({ "valid": true, "warnings": warnings }));
        return Ok(());
    }
    for warning in warnings {
        eprintln!("  warning: {}", printable(&warning.to_string()));
    }
    println!("{} is valid: {} diagram(s)", args.file.display(), diagrams.len());
    Ok(())
}
