//! What holds while this thread traces a function of one example, to compute it for a batch of examples: nothing is
//! evaluated, and random numbers are drawn for all examples.

use std::cell::RefCell;

use crate::{Error, Result};

/// What random operations of a function do that is computed for a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Randomness {
    /// They are an error.
    Error,
    /// All examples get the same numbers.
    Same,
    /// Each example gets numbers of its own.
    Different,
}

/// A function that is being traced.
#[derive(Clone, Copy)]
struct Level {
    examples: usize,
    randomness: Randomness,
}

thread_local! {
    /// The outermost first.
    static LEVELS: RefCell<Vec<Level>> = const { RefCell::new(Vec::new()) };
}

/// Ends the tracing of a function when dropped.
pub(crate) struct Tracing(());

impl Tracing {
    pub(crate) fn begin(examples: usize, randomness: Randomness) -> Tracing {
        LEVELS.with_borrow_mut(|levels| levels.push(Level { examples, randomness }));
        Tracing(())
    }
}

impl Drop for Tracing {
    fn drop(&mut self) {
        LEVELS.with_borrow_mut(|levels| levels.pop());
    }
}

/// Whether this thread traces a function of one example.
pub fn is_tracing() -> bool {
    LEVELS.with_borrow(|levels| !levels.is_empty())
}

/// How often a random operation draws, over all examples of the functions that this thread traces.
///
/// # Errors
/// [`Error::Argument`] if one of them must not draw.
pub(crate) fn draws() -> Result<u64> {
    LEVELS.with_borrow(|levels| {
        levels.iter().try_fold(1u64, |draws, level| match level.randomness {
            Randomness::Error => Err(Error::argument(
                "vmap",
                "the function draws random numbers, which randomness=\"error\" does not allow: pass \
                 randomness=\"different\" or randomness=\"same\"",
            )),
            Randomness::Same => Ok(draws),
            Randomness::Different => Ok(draws.saturating_mul(level.examples as u64)),
        })
    })
}
