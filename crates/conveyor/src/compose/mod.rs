//! Services put together in one process: read every setting, open store and queue once, bind in the
//! order of dependencies, run under one supervisor.
//!
//! Services never see each other. A neighbour in the same process is reached over loopback like any
//! other; the only difference is that its address is known here and not from a variable.

mod bind;
mod listening;
mod plan;
mod supervise;

pub(crate) use bind::{bind, make_folder};
pub(crate) use plan::Plan;
pub(crate) use supervise::{Platform, Started};
