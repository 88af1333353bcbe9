//! Gradient rules, graph to graph: a table from each operation to the operations of its derivative, which fuse, print and
//! differentiate again like any other; and whether this thread records gradients.

mod indexing;
pub(super) mod linear;
mod reduction;
pub(crate) mod rule;

use std::{cell::Cell, marker::PhantomData};

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// True unless a [`no_grad`] guard lives on this thread.
pub fn is_enabled() -> bool {
    ENABLED.get()
}

/// While the guard lives, operations recorded by this thread take no part in gradients.
#[must_use = "gradients are off only while the guard lives"]
pub fn no_grad() -> GradientMode {
    record_gradients(false)
}

/// While the guard lives, operations recorded by this thread take part in gradients exactly if `enabled`.
#[must_use = "the mode holds only while the guard lives"]
pub fn record_gradients(enabled: bool) -> GradientMode {
    GradientMode { before: ENABLED.replace(enabled), thread_bound: PhantomData }
}

/// A guard that restores, when dropped, whether this thread records gradients. See [`no_grad`].
pub struct GradientMode {
    before: bool,
    thread_bound: PhantomData<*const ()>,
}

impl Drop for GradientMode {
    fn drop(&mut self) {
        ENABLED.set(self.before);
    }
}
