//! Gradient hooks: user functions that see a tensor's gradient and may replace it.

use std::{
    any::Any,
    fmt,
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
};

use super::{Tensor, node::Node};
use crate::{Error, Result};

/// A user function of a gradient.
pub trait HookFunction: Any + Send + Sync {
    /// Returns the gradient that replaces `gradient`, or `None` to leave it unchanged.
    fn call(&self, gradient: &Tensor) -> Result<Option<Tensor>>;

    /// Returns the gradient after the call, or `None` if the function ends its flow.
    fn pass(&self, gradient: Tensor) -> Result<Option<Tensor>> {
        Ok(Some(self.call(&gradient)?.unwrap_or(gradient)))
    }
}

impl<F: Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static> HookFunction for F {
    fn call(&self, gradient: &Tensor) -> Result<Option<Tensor>> {
        self(gradient)
    }
}

/// A hook, shared with the backward passes that call it.
pub type Hook = Arc<dyn HookFunction>;

/// Combines the gradients of several leaves, such as over the processes that train a network together, once a backward
/// pass has all of them.
pub trait GradientReducer: Send + Sync {
    /// Returns whether backward passes call it now.
    fn is_active(&self) -> bool;
    /// Returns the leaves with the gradients that they get, given each leaf's number, the leaf and its gradient. It may
    /// add leaves that the loss does not depend on.
    ///
    /// # Errors
    /// Those of the combination. The leaves' gradients then stay as they were.
    fn reduce(&self, gradients: Vec<(usize, Tensor, Tensor)>) -> Result<Vec<(Tensor, Tensor)>>;
}

/// A reducer, and the number that it has given to a leaf.
type Reduced = (Arc<dyn GradientReducer>, usize);

/// Identifies a hook of a tensor. It does not keep the hooks alive.
#[derive(Debug)]
pub struct HookHandle {
    hooks: Weak<Shared>,
    number: u64,
}

impl HookHandle {
    /// Removes the hook. Does nothing if it is already gone.
    pub fn remove(&self) {
        let Some(hooks) = self.hooks.upgrade() else { return };
        let mut list = hooks.list.lock().unwrap_or_else(PoisonError::into_inner);
        let removed: Vec<_> = list.extract_if(.., |(known, _)| *known == self.number).collect();
        drop(list);
        drop(removed);
    }
}

/// The hooks of one tensor. Clones share them; see [`Tensor::set_hooks`].
#[derive(Clone, Default)]
pub struct Hooks(Arc<Shared>);

#[derive(Default)]
struct Shared {
    next: AtomicU64,
    list: Mutex<Vec<(u64, Hook)>>,
    retains: AtomicBool,
    reducer: Mutex<Option<Reduced>>,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_tuple("Hooks").field(&list.len()).finish()
    }
}

impl Hooks {
    fn add(&self, hook: Hook) -> u64 {
        let number = self.0.next.fetch_add(1, Ordering::Relaxed);
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner).push((number, hook));
        number
    }

    /// Returns whether there is no function, and the gradient is not retained. There may be a reducer.
    pub fn is_empty(&self) -> bool {
        self.0.list.lock().unwrap_or_else(PoisonError::into_inner).is_empty() && !self.retains()
    }

    pub(crate) fn reducer(&self) -> Option<Reduced> {
        self.0.reducer.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Visits the functions that only these hooks hold, if these hooks have a single owner. Never blocks, so a garbage
    /// collector may call it at any time.
    pub fn visit_own(&self, visit: &mut dyn FnMut(&dyn HookFunction)) {
        if Arc::strong_count(&self.0) != 1 {
            return;
        }
        let Ok(list) = self.0.list.try_lock() else { return };
        list.iter().filter(|(_, hook)| Arc::strong_count(hook) == 1).for_each(|(_, hook)| visit(&**hook));
    }

    /// Takes out the functions that [`Hooks::visit_own`] visits. Drop them where no lock is held.
    pub fn take_own(&self) -> Vec<Hook> {
        if Arc::strong_count(&self.0) != 1 {
            return Vec::new();
        }
        let Ok(mut list) = self.0.list.try_lock() else { return Vec::new() };
        list.extract_if(.., |(_, hook)| Arc::strong_count(hook) == 1).map(|(_, hook)| hook).collect()
    }

    /// Applies the functions to a gradient, in the order in which they were added. `None` if one ends its flow.
    pub(crate) fn apply(&self, mut gradient: Tensor) -> Result<Option<Tensor>> {
        let list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (_, hook) in list {
            let Some(new) = hook.pass(gradient.clone())? else { return Ok(None) };
            if new.shape() != gradient.shape() || new.device() != gradient.device() {
                let hint = "a hook must return a gradient with the shape and device of its argument";
                return Err(Error::shape("hook", &[gradient.shape(), new.shape()], hint));
            }
            gradient = new.to_dtype(gradient.dtype())?;
        }
        Ok(Some(gradient))
    }

    pub(crate) fn retains(&self) -> bool {
        self.0.retains.load(Ordering::Acquire)
    }
}

/// Returns the hooks of a node, if it has any.
pub(crate) fn of(node: &Node) -> Option<Hooks> {
    node.body().hooks.as_deref().cloned()
}

impl Tensor {
    /// Returns the hooks. Creates them if necessary.
    fn hooks(&self, op: &'static str) -> Result<Hooks> {
        if !self.requires_grad() {
            let hint = "it does not require gradients".to_owned();
            return Err(Error::NoGradient { op, hint });
        }
        Ok(self.node().body().hooks.get_or_insert_default().as_ref().clone())
    }

    /// Registers a function that is called with this tensor's gradient whenever one is computed. The gradient it
    /// returns replaces the original.
    ///
    /// # Errors
    /// [`Error::NoGradient`] if the tensor does not require gradients.
    pub fn add_hook(&self, hook: Hook) -> Result<HookHandle> {
        let hooks = self.hooks("add_hook")?;
        let number = hooks.add(hook);
        Ok(HookHandle { hooks: Arc::downgrade(&hooks.0), number })
    }

    /// Calls `look` with this tensor's hooks if this is the tensor's only handle. In that case no graph calls the hooks
    /// and no other handle visits them. Never blocks.
    pub fn with_own_hooks(&self, look: &mut dyn FnMut(&Hooks)) {
        if self.is_only_handle()
            && let Some(body) = self.node().try_body()
            && let Some(hooks) = &body.hooks
        {
            look(hooks);
        }
    }

    /// Returns what combines this leaf's gradients, and the leaf's number there.
    pub fn reducer(&self) -> Option<(Arc<dyn GradientReducer>, usize)> {
        of(self.node())?.reducer()
    }

    /// Lets a reducer combine this leaf's gradients, under a number of its own; `None` ends that.
    ///
    /// # Errors
    /// [`Error::NoGradient`] if the tensor does not require gradients.
    pub fn set_reducer(&self, reducer: Option<(Arc<dyn GradientReducer>, usize)>) -> Result<()> {
        let hooks = self.hooks("set_reducer")?;
        let old =
            std::mem::replace(&mut *hooks.0.reducer.lock().unwrap_or_else(PoisonError::into_inner), reducer);
        drop(old);
        Ok(())
    }

    /// Makes [`Tensor::backward`] store this tensor's gradient in [`Tensor::grad`], as it does for leaves.
    ///
    /// # Errors
    /// [`Error::NoGradient`] if the tensor does not require gradients.
    pub fn retain_grad(&self) -> Result<()> {
        if !self.is_leaf() {
            self.hooks("retain_grad")?.0.retains.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Returns whether [`Tensor::retain_grad`] was called on this non-leaf tensor.
    pub fn retains_grad(&self) -> bool {
        of(self.node()).is_some_and(|hooks| hooks.retains())
    }

    /// Returns the hooks, if there are any.
    pub fn hooks_of_gradient(&self) -> Option<Hooks> {
        of(self.node())
    }

    /// Gives this tensor the hooks of the tensor that it replaces.
    pub fn set_hooks(&self, hooks: Hooks) {
        self.node().body().hooks = Some(Box::new(hooks));
    }
}
