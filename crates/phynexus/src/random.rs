//! The state of random number generators: a seed and a counter.

use std::sync::{Arc, Mutex, PoisonError};

/// Two random words from a key and a counter, each two words, the low one first: Threefry-2x32 with 20 rounds (Salmon et
/// al., "Parallel random numbers: as easy as 1, 2, 3", 2011).
pub fn threefry2x32(key: [u32; 2], counter: [u32; 2]) -> [u32; 2] {
    const ROTATIONS: [u32; 8] = [13, 15, 26, 6, 17, 29, 16, 24];
    const PARITY: u32 = 0x1BD1_1BDA;
    let keys = [key[0], key[1], PARITY ^ key[0] ^ key[1]];
    let mut x = [counter[0].wrapping_add(keys[0]), counter[1].wrapping_add(keys[1])];
    for round in 0..20 {
        x[0] = x[0].wrapping_add(x[1]);
        x[1] = x[1].rotate_left(ROTATIONS[round % 8]) ^ x[0];
        if round % 4 == 3 {
            let injection = round / 4 + 1;
            x[0] = x[0].wrapping_add(keys[injection % 3]);
            x[1] = x[1].wrapping_add(keys[(injection + 1) % 3]).wrapping_add(injection as u32);
        }
    }
    x
}

/// A random number generator: a seed and a counter of the blocks drawn ([`threefry2x32`]). Several threads can use it;
/// which thread gets which numbers then depends on timing.
#[derive(Debug)]
pub struct Generator {
    state: Arc<Mutex<GeneratorState>>,
}

/// The full state of a generator. Restoring it repeats the sequence from that point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratorState {
    /// The seed: the generator's key.
    pub seed: u64,
    /// Blocks of 64 bits drawn since the seed was set.
    pub counter: u64,
}

impl GeneratorState {
    /// Returns the state after `blocks` more blocks.
    pub(crate) fn after(self, blocks: u64) -> GeneratorState {
        GeneratorState { counter: self.counter.wrapping_add(blocks), ..self }
    }
}

impl Generator {
    /// Makes a generator with this seed.
    pub fn new(seed: u64) -> Generator {
        Generator { state: Arc::new(Mutex::new(GeneratorState { seed, counter: 0 })) }
    }

    /// Returns another handle to this generator.
    pub(crate) fn share(&self) -> Generator {
        Generator { state: self.state.clone() }
    }

    /// Returns whether both are the same generator.
    pub(crate) fn is_same(&self, other: &Generator) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    /// Returns the state, which can be restored later.
    pub fn state(&self) -> GeneratorState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the state. Unlike [`Generator::set_state`], this does not notify a function being captured.
    pub(crate) fn replace_state(&self, state: GeneratorState) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Draws `blocks` blocks and returns the state before them.
    pub(crate) fn advance(&self, blocks: u64) -> GeneratorState {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *state;
        *state = before.after(blocks);
        before
    }

    /// Returns `blocks` blocks drawn since the state `before`, unless more were drawn or the state was set in the
    /// meantime.
    pub(crate) fn give_back(&self, before: GeneratorState, blocks: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *state == before.after(blocks) {
            *state = before;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Known-answer vectors of Random123, `tests/kat_vectors`, the rows `threefry2x32 20`.
    #[test]
    fn known_answers() {
        assert_eq!(threefry2x32([0, 0], [0, 0]), [0x6b20_0159, 0x99ba_4efe]);
        assert_eq!(threefry2x32([u32::MAX; 2], [u32::MAX; 2]), [0x1cb9_96fc, 0xbb00_2be7]);
        assert_eq!(
            threefry2x32([0x1319_8a2e, 0x0370_7344], [0x243f_6a88, 0x85a3_08d3]),
            [0xc492_3a9c, 0x483d_f7a0]
        );
    }
}
