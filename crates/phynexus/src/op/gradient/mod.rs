//! What gradient rules know and give. A rule is part of its operation: it makes nodes of the derivative, which can be
//! fused, printed and differentiated like any other. Also the per-thread switch for recording gradients.

pub(crate) mod rule;

use std::{cell::Cell, marker::PhantomData};

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// True unless this thread has disabled gradients, for example with [`no_grad`].
pub fn is_enabled() -> bool {
    ENABLED.get()
}

/// Disables gradients for operations that this thread records, until the guard is dropped.
#[must_use = "gradients are off only while the guard lives"]
pub fn no_grad() -> GradientMode {
    record_gradients(false)
}

/// Enables or disables gradients for operations that this thread records, until the guard is dropped.
#[must_use = "the mode holds only while the guard lives"]
pub fn record_gradients(enabled: bool) -> GradientMode {
    GradientMode { before: ENABLED.replace(enabled), thread_bound: PhantomData }
}

/// Restores the previous mode when dropped. See [`no_grad`].
pub struct GradientMode {
    before: bool,
    thread_bound: PhantomData<*const ()>,
}

impl Drop for GradientMode {
    fn drop(&mut self) {
        ENABLED.set(self.before);
    }
}
