//! Evaluating every operation where it is recorded: the same values one at a time, as tests compare them.

use std::{cell::Cell, marker::PhantomData};

thread_local! {
    static EAGER: Cell<bool> = const { Cell::new(false) };
}

/// While the guard lives, every operation that this thread records is computed at once and alone. Values are those of
/// lazy evaluation, to the last bit; only time and memory differ.
#[must_use = "operations are evaluated at once only while the guard lives"]
pub fn eager() -> EagerMode {
    EagerMode { before: EAGER.replace(true), thread_bound: PhantomData }
}

/// A guard that restores, when dropped, when this thread evaluates. See [`eager`].
pub struct EagerMode {
    before: bool,
    thread_bound: PhantomData<*const ()>,
}

impl Drop for EagerMode {
    fn drop(&mut self) {
        EAGER.set(self.before);
    }
}

pub(crate) fn is_eager() -> bool {
    EAGER.get()
}
