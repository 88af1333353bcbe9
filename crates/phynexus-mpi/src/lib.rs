//! MPI
#[cfg(unix)]
mod api;
#[cfg(unix)]
mod arrivals;
#[cfg(unix)]
mod collective;
#[cfg(unix)]
mod dialect;
#[cfg(unix)]
mod end;
#[cfg(unix)]
mod exchange;
#[cfg(unix)]
mod header;
#[cfg(unix)]
mod launcher;
#[cfg(unix)]
mod library;
#[cfg(unix)]
mod memory;
#[cfg(unix)]
mod start;
#[cfg(unix)]
mod transport;
#[cfg(unix)]
mod world;

use std::{sync::Arc, time::Duration};
use phynexus::{Result, distributed::Transport};

/// Connects
pub fn connect(limit: Duration) -> Result<Arc<dyn Transport>> {
    start::connect(limit)
}
