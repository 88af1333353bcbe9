//! Memory for messages: aligned for every dtype.

use std::slice;

/// Bytes of a message's piece. The memory of two pieces about fits into a core's second-level cache, so that the copies
/// cost little.
pub(crate) const PIECE: usize = 1 << 18;

/// Bytes at an address that a number of 8 bytes may have.
#[derive(Default)]
pub(crate) struct Memory(Vec<u64>);

impl Memory {
    /// Room for this many bytes at least, of any contents.
    pub(crate) fn grow(&mut self, bytes: usize) {
        let words = bytes.div_ceil(size_of::<u64>());
        if self.0.len() < words {
            self.0.resize(words, 0);
        }
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: every byte of the words is initialised.
        unsafe { slice::from_raw_parts(self.0.as_ptr().cast(), size_of_val(&self.0[..])) }
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: every byte of the words is initialised, and any bytes are a word.
        unsafe { slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), size_of_val(&self.0[..])) }
    }
}
