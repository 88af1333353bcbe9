//! Processes made by `fork` have no threads but one, and locks as they were at that moment: a child that computes would
//! wait for ever.

use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Error, Result};

/// The process that has computed here; 0 while nobody has.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Refuses to go on in a child of a process that has computed. It takes no lock.
pub(super) fn check() -> Result<()> {
    let own = std::process::id();
    match PROCESS.compare_exchange(0, own, Ordering::Relaxed, Ordering::Relaxed) {
        Err(first) if first != own => Err(Error::Forked { parent: first, child: own }),
        _ => Ok(()),
    }
}
