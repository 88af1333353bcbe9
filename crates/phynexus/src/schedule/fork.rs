//! A child process made by `fork` has a single thread and inherits locks in whatever state they were. If it computed,
//! it could deadlock.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Error, Result};

/// The id of the process that first computed; 0 if none has.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Fails in a child of a process that has computed. Takes no lock.
pub(super) fn check() -> Result<()> {
    let own = std::process::id();
    match PROCESS.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed) {
        Err(first) if first != own => Err(Error::Forked { parent: first, child: own }),
        _ => Ok(()),
    }
}
