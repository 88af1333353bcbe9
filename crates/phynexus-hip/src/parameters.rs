//! The parameters of a launch, as the runtime expects them.

use std::{ffi::c_void, ptr};

use smallvec::SmallVec;

/// Pointers to the addresses, as the runtime expects them.
pub(crate) fn parameters(addresses: &mut [u64]) -> SmallVec<[*mut c_void; 8]> {
    addresses.iter_mut().map(|address| ptr::from_mut(address).cast()).collect()
}

/// The parameters of a kernel as laid out in memory: each is aligned to its size.
#[repr(C, align(16))]
pub(crate) struct Packed {
    pub(crate) bytes: [u8; 4096],
    end: usize,
}

impl Packed {
    pub(crate) fn new() -> Packed {
        Packed { bytes: [0; 4096], end: 0 }
    }

    /// The offset of a parameter of this size that follows the parameters before `end`.
    pub(crate) fn start(end: usize, bytes: usize) -> usize {
        end.next_multiple_of(bytes.max(1))
    }

    /// Adds a parameter. Returns false if it does not fit.
    pub(crate) fn push(&mut self, value: &[u8]) -> bool {
        let start = Packed::start(self.end, value.len());
        let place = self.bytes.get_mut(start..start + value.len());
        let fits = place.is_some();
        place.into_iter().for_each(|place| place.copy_from_slice(value));
        self.end = start + value.len();
        fits
    }
}
