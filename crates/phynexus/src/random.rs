//! The state of random number generators: a seed and a counter.

use std::sync::{Arc, Mutex, PoisonError};

/// A source of random numbers: a seed and a counter of the numbers given out (Threefry-2x32 with 20 rounds, Salmon et
/// al., "Parallel random numbers: as easy as 1, 2, 3", 2011). It can be used from several threads; which of them gets
/// which numbers then depends on their timing.
#[derive(Debug)]
pub struct Generator {
    state: Arc<Mutex<GeneratorState>>,
}

/// All of a generator's state: restoring it repeats what came after.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GeneratorState {
    /// The seed: the generator's key.
    pub seed: u64,
    /// Blocks of 64 bits given out since the seed was set.
    pub counter: u64,
}

impl GeneratorState {
    /// The state so many blocks later.
    pub(crate) fn after(self, blocks: u64) -> GeneratorState {
        GeneratorState { counter: self.counter.wrapping_add(blocks), ..self }
    }
}

impl Generator {
    /// A generator with this seed.
    pub fn new(seed: u64) -> Generator {
        Generator { state: Arc::new(Mutex::new(GeneratorState { seed, counter: 0 })) }
    }

    /// Another handle to this generator.
    pub(crate) fn share(&self) -> Generator {
        Generator { state: self.state.clone() }
    }

    /// True if both are the same generator.
    pub(crate) fn is_same(&self, other: &Generator) -> bool {
        Arc::ptr_eq(&self.state, &other.state)
    }

    /// The state, to be restored later.
    pub fn state(&self) -> GeneratorState {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Continues from a state. [`Generator::set_state`] also tells a function that is being captured.
    pub(crate) fn replace_state(&self, state: GeneratorState) {
        *self.state.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// The state before the next `blocks` blocks, which are given out.
    pub(crate) fn advance(&self, blocks: u64) -> GeneratorState {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let before = *state;
        *state = before.after(blocks);
        before
    }

    /// Takes back the `blocks` blocks given out from a state on, unless somebody has drawn or set the state since.
    pub(crate) fn give_back(&self, before: GeneratorState, blocks: u64) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if *state == before.after(blocks) {
            *state = before;
        }
    }
}
