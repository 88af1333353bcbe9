//! Results that exist before they are computed. A variable can hold its next value already while the only handle to the
//! current value goes to the computation that overwrites it.

use std::sync::{Arc, atomic::Ordering};

use super::Recording;
use crate::{
    Tensor,
    device::Storage,
    graph::node::{Node, Sources, intern},
    op::Op,
    schedule::{RELEASED, RELEASES, claims},
};

/// The results of a replay that is still to run. Threads that read one of them wait until the promises are dropped.
/// Reading a result that was not set by then is an error.
pub struct Promises(Vec<Arc<Node>>);

impl Recording {
    /// Promises the results of a replay. `collects_gradients` says for each result, by its number, whether it is a leaf
    /// that collects gradients; other results are plain data.
    pub fn promise(&self, collects_gradients: impl Fn(usize) -> bool) -> (Vec<Tensor>, Promises) {
        let promised = |(number, made): (usize, &super::recording::Made)| {
            let signature = intern(Op::Buffer, made.dtype, made.shape.clone());
            let node = Node::pending(signature, made.device, Sources::new(), collects_gradients(number));
            // No other thread knows the node yet.
            node.in_flight.store(true, Ordering::Relaxed);
            node
        };
        let nodes: Vec<Arc<Node>> = self.results.iter().enumerate().map(promised).collect();
        (nodes.iter().cloned().map(Tensor::from_node).collect(), Promises(nodes))
    }
}

impl Promises {
    /// Sets the results' data.
    pub(super) fn keep(&self, data: Vec<Storage>) {
        self.0.iter().zip(data).for_each(|(node, data)| node.fulfil(data));
    }

    /// Sets a result to a tensor that has been computed, because the replay was not done.
    pub fn set(&self, result: usize, tensor: &Tensor) {
        if let Some(data) = tensor.node().data() {
            self.0[result].fulfil(data);
        }
    }
}

impl Drop for Promises {
    fn drop(&mut self) {
        let guard = claims();
        self.0.iter().for_each(|node| node.in_flight.store(false, Ordering::Relaxed));
        RELEASES.fetch_add(1, Ordering::Relaxed);
        drop(guard);
        RELEASED.notify_all();
    }
}
