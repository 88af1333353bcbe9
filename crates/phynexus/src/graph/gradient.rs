//! Gradients, graph to graph.

use std::{cell::Cell, marker::PhantomData};

thread_local! {
    static ENABLED: Cell<bool> = const { Cell::new(true) };
}

/// True unless a [`no_grad`] guard lives on this thread.
pub(crate) fn is_enabled() -> bool {
    ENABLED.get()
}

/// While the guard lives, operations recorded by this thread take no part in gradients.
#[must_use = "gradients are off only while the guard lives"]
pub fn no_grad() -> NoGrad {
    NoGrad { before: ENABLED.replace(false), thread_bound: PhantomData }
}

/// See [`no_grad`].
pub struct NoGrad {
    before: bool,
    thread_bound: PhantomData<*const ()>,
}

impl Drop for NoGrad {
    fn drop(&mut self) {
        ENABLED.set(self.before);
    }
}
