//! Tracks memory that a plan had begun to overwrite when it failed. Tensors that still depend on it are pending and would
//! be computed wrongly, and an update would be applied twice.

use std::sync::{
    Arc, Mutex, PoisonError, Weak,
    atomic::{AtomicBool, Ordering},
};

use crate::{
    Error, Result,
    device::{Buffer, Memory, Storage},
};

/// Whether any memory was ever ruined.
static ANY: AtomicBool = AtomicBool::new(false);
static RUINED: Mutex<Vec<Weak<dyn Memory>>> = Mutex::new(Vec::new());

/// Records that the contents of these buffers are lost.
pub(super) fn note<'a>(buffers: impl Iterator<Item = &'a Buffer>) {
    ANY.store(true, Ordering::Relaxed);
    let buffers = buffers.map(|buffer| Arc::downgrade(&buffer.0));
    RUINED.lock().unwrap_or_else(PoisonError::into_inner).extend(buffers);
}

/// Fails if the contents of one of these leaves are lost.
pub(crate) fn check(leaves: &[&Storage]) -> Result<()> {
    if !ANY.load(Ordering::Relaxed) {
        return Ok(());
    }
    let mut ruined = RUINED.lock().unwrap_or_else(PoisonError::into_inner);
    ruined.retain(|memory| memory.strong_count() > 0);
    let is_lost = |leaf: &Storage| {
        ruined.iter().any(|memory| memory.as_ptr().addr() == Arc::as_ptr(&leaf.buffer.0).addr())
    };
    if leaves.iter().copied().any(is_lost) {
        return Err(Error::argument(
            "evaluate",
            "an earlier computation failed while it overwrote this tensor: load or compute it again",
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{oracle::reference_device, shape::Layout};

    #[test]
    fn lost_memory_is_refused_and_other_memory_is_not() {
        let storage = || Storage {
            buffer: reference_device().backend().allocate(64).unwrap(),
            layout: Layout::contiguous(&[16]),
        };
        let [lost, other] = [storage(), storage()];
        assert!(check(&[&lost]).is_ok());
        note([&lost.buffer].into_iter());
        assert!(check(&[&lost]).is_err() && check(&[&other]).is_ok());
        assert!(matches!(check(&[&other, &lost]), Err(Error::Argument { .. })));
    }
}
