//! Checks that results are stored: a plan's memory is filled with a pattern before the plan runs, and a result that still
//! has the pattern afterwards is an internal error rather than whatever was in freed memory.
//!
//! On for the devices on the host in builds with debug assertions; elsewhere on request, since every result is read back,
//! and a GPU is waited for.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{
    Error, Result,
    device::{Backend, Buffer},
};

/// Eight bytes that no computation makes: NaNs as `f16`, `bf16`, `f32` and `f64`, four different integers of 16 bits.
const PATTERN: [u8; 8] = [0xF3, 0x7F, 0xF6, 0xFF, 0xFA, 0x7F, 0xFD, 0xFF];
/// Bytes written or read at once.
const PART: usize = 1 << 20;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Whether plans of every device fill their memory with a pattern before they run and check that it is gone from every
/// result. In builds with debug assertions those of devices on the host always do.
pub fn set_memory_checks(enabled: bool) {
    REQUESTED.store(enabled, Ordering::Relaxed);
}

pub(super) fn is_enabled(backend: &dyn Backend) -> bool {
    REQUESTED.load(Ordering::Relaxed) || cfg!(debug_assertions) && backend.target().is_none()
}

/// Fills the first `bytes` bytes of a buffer with the pattern.
pub(super) fn fill(backend: &dyn Backend, buffer: &Buffer, bytes: usize) -> Result<()> {
    let part = PATTERN.repeat(bytes.min(PART).div_ceil(PATTERN.len()));
    for at in (0..bytes).step_by(PART) {
        backend.write(buffer, at, &part[..PART.min(bytes - at)])?;
    }
    Ok(())
}

/// Looks for the pattern in the first `bytes` bytes of a result. Eight bytes of it in a row count, or all bytes of a
/// smaller result: single elements of 8 or 16 bits may have it by right.
///
/// # Errors
/// If it is there: nothing was stored in that place.
pub(super) fn check(backend: &dyn Backend, buffer: &Buffer, bytes: usize) -> Result<()> {
    let mut part = vec![0; bytes.min(PART)];
    for at in (0..bytes).step_by(PART) {
        let part = &mut part[..PART.min(bytes - at)];
        backend.read(buffer, at, part)?;
        let unwritten = match bytes {
            0..4 => None,
            4..8 => (*part == PATTERN[..bytes]).then_some(0),
            _ => part.chunks_exact(PATTERN.len()).position(|chunk| chunk == PATTERN),
        };
        if let Some(chunk) = unwritten {
            let first = at + chunk * PATTERN.len();
            let message = format!("byte {first} of a result of {bytes} bytes was not stored");
            return Err(Error::internal("plan", message));
        }
    }
    Ok(())
}
