//! Eager evaluation: each operation is computed when it is recorded. Tests compare it with lazy evaluation.

use std::{cell::Cell, marker::PhantomData};

thread_local! {
    static EAGER: Cell<bool> = const { Cell::new(false) };
}

/// Evaluates every operation that this thread records, at once and separately, while the guard lives. Values are
/// bitwise equal to those of lazy evaluation; only time and memory differ.
#[must_use = "operations are evaluated at once only while the guard lives"]
pub fn eager() -> EagerMode {
    EagerMode { before: EAGER.replace(true), thread_bound: PhantomData }
}

/// Restores this thread's previous evaluation mode when dropped. See [`eager`].
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
