//! Checks that results are stored. A plan's memory is filled with a pattern before it runs. A result that still
//! contains the pattern afterwards is an internal error, rather than silently holding freed memory.
//!
//! Always on for host devices in builds with debug assertions. Elsewhere it must be requested, because it reads every
//! result back and synchronises the GPU.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::{
    Error, Result,
    device::{Backend, Buffer},
    host_memory,
};

/// Eight bytes that no computation produces: NaNs as `f16`, `bf16`, `f32` and `f64`, and four different 16-bit
/// integers.
const PATTERN: [u8; 8] = [0xF3, 0x7F, 0xF6, 0xFF, 0xFA, 0x7F, 0xFD, 0xFF];
/// Bytes written or read at once.
const PART: usize = 1 << 20;

static REQUESTED: AtomicBool = AtomicBool::new(false);

/// Turns memory checks on or off for every device: plans fill their memory with a pattern before they run and verify
/// that no result still contains it. In builds with debug assertions, host devices are always checked.
pub fn set_memory_checks(enabled: bool) {
    REQUESTED.store(enabled, Ordering::Relaxed);
}

pub(super) fn is_enabled(backend: &dyn Backend) -> bool {
    REQUESTED.load(Ordering::Relaxed) || cfg!(debug_assertions) && backend.target().is_none()
}

/// Fills the first `bytes` bytes of a buffer with the pattern.
pub(super) fn fill(backend: &dyn Backend, buffer: &Buffer, bytes: usize) -> Result<()> {
    let count = bytes.min(PART).div_ceil(PATTERN.len());
    let mut part = host_memory::room(count * PATTERN.len())?;
    part.extend(std::iter::repeat_n(PATTERN, count).flatten());
    for at in (0..bytes).step_by(PART) {
        backend.write(buffer, at, &part[..PART.min(bytes - at)])?;
    }
    Ok(())
}

/// Searches the first `bytes` bytes of a result for the pattern. Only eight consecutive bytes count, or all bytes of a
/// smaller result. A single 8-bit or 16-bit element may match by chance.
///
/// # Errors
/// If the pattern is found: nothing was stored there.
pub(super) fn check(backend: &dyn Backend, buffer: &Buffer, bytes: usize) -> Result<()> {
    let mut part = host_memory::filled(0, bytes.min(PART))?;
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
