//! Tensors that are computed together with whatever is evaluated next, such as running statistics: they follow from
//! intermediate results that nothing holds afterwards, so computing them later would keep or repeat these.

use std::{
    cell::RefCell,
    sync::{Arc, Weak},
};

use super::capture::is_recording;
use crate::{Device, Tensor, graph::node::Node};

thread_local! {
    static COMPANIONS: RefCell<Vec<Weak<Node>>> = const { RefCell::new(Vec::new()) };
}

/// Computes the tensor with this thread's next evaluation on its device, if it is still held then. What is recorded for
/// replay has no data yet, and its results are computed by every replay anyway.
pub(crate) fn note_companion(tensor: &Tensor) {
    if is_recording() {
        return;
    }
    // While the thread is torn down, nothing is evaluated.
    let _ = COMPANIONS.try_with(|all| all.borrow_mut().push(Arc::downgrade(tensor.node())));
}

/// The companions on this device that are pending. They are no longer listed.
pub(super) fn take_companions(device: Device) -> Vec<Tensor> {
    let taken = COMPANIONS.try_with(|all| {
        let nodes: Vec<Arc<Node>> = all.borrow().iter().filter_map(Weak::upgrade).collect();
        let (taken, others): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| node.device == device);
        *all.borrow_mut() = others.iter().map(Arc::downgrade).collect();
        taken
    });
    let pending = taken.unwrap_or_default().into_iter().filter(|node| !node.is_ready());
    pending.map(Tensor::from_node).collect()
}
