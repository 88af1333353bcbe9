//! The state of random number generators: a seed and a counter.

use std::sync::{Arc, Mutex, PoisonError};

/// A random number generator: a seed and a counter of the blocks drawn (Threefry-2x32 with 20 rounds, Salmon et al.,
/// "Parallel random numbers: as easy as 1, 2, 3", 2011). Several threads can use it; which thread gets which numbers
/// then depends on timing.
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
