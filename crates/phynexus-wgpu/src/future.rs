//! Waits for wgpu's futures.

use std::{
    pin::pin,
    task::{Context, Poll, Waker},
};

/// The result of a future that makes progress without an executor, like wgpu's outside browsers.
pub(crate) fn wait_for<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}
