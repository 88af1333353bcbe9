//! Steps with the same kernel share its machine code.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use super::{Driver, heap::Heap};
use crate::{Result, kernel::loops::Kernel};

/// The modules that steps hold.
pub(super) struct Modules<D: Driver> {
    known: Mutex<Known<D::Module>>,
}

struct Known<M> {
    modules: HashMap<Arc<Kernel>, Weak<M>>,
    /// Above this many entries, those whose modules are gone are removed.
    sweep_at: usize,
}

impl<D: Driver> Modules<D> {
    pub(super) fn new() -> Modules<D> {
        Modules { known: Mutex::new(Known { modules: HashMap::new(), sweep_at: 1024 }) }
    }

    /// Returns the kernel's module, compiled if necessary. If two threads compile the same kernel at once, one result
    /// is discarded.
    pub(super) fn get(&self, heap: &Heap<D>, kernel: &Arc<Kernel>) -> Result<Arc<D::Module>> {
        let lock = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(module) = lock().modules.get(kernel).and_then(Weak::upgrade) {
            return Ok(module);
        }
        let module =
            Arc::new(heap.compiled(|| heap.driver.compile(kernel)).map_err(|e| heap.not_compiled(e))?);
        let mut known = lock();
        if known.modules.len() >= known.sweep_at {
            known.modules.retain(|_, module| module.strong_count() > 0);
            known.sweep_at = 2 * known.modules.len() + 1024;
        }
        known.modules.insert(kernel.clone(), Arc::downgrade(&module));
        Ok(module)
    }
}
