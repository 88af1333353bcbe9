//! What happens when the gradient of a tensor is known: functions of users that see it, and may replace it.

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

/// A function of a gradient.
pub trait HookFunction: Any + Send + Sync {
    /// What it gives takes the gradient's place.
    fn call(&self, gradient: &Tensor) -> Result<Option<Tensor>>;
}

impl<F: Fn(&Tensor) -> Result<Option<Tensor>> + Send + Sync + 'static> HookFunction for F {
    fn call(&self, gradient: &Tensor) -> Result<Option<Tensor>> {
        self(gradient)
    }
}

/// A function of a gradient, shared by the backward passes that call it.
pub type Hook = Arc<dyn HookFunction>;

/// A hook among those of its tensor. It does not keep them.
#[derive(Debug)]
pub struct HookHandle {
    hooks: Weak<Shared>,
    number: u64,
}

impl HookHandle {
    /// Takes the hook away; nothing if it is gone.
    pub fn remove(&self) {
        let Some(hooks) = self.hooks.upgrade() else { return };
        let mut list = hooks.list.lock().unwrap_or_else(PoisonError::into_inner);
        let removed: Vec<_> = list.extract_if(.., |(known, _)| *known == self.number).collect();
        drop(list);
        drop(removed);
    }
}

/// The hooks of one tensor. Clones share them: see [`Tensor::set_hooks`].
#[derive(Clone, Default)]
pub struct Hooks(Arc<Shared>);

#[derive(Default)]
struct Shared {
    next: AtomicU64,
    list: Mutex<Vec<(u64, Hook)>>,
    retains: AtomicBool,
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

    /// Shows the functions that nobody but these hooks and their one holder has. It waits for nothing, so that a garbage
    /// collector may call it anywhere.
    pub fn visit_own(&self, visit: &mut dyn FnMut(&dyn HookFunction)) {
        if Arc::strong_count(&self.0) != 1 {
            return;
        }
        let Ok(list) = self.0.list.try_lock() else { return };
        list.iter().filter(|(_, hook)| Arc::strong_count(hook) == 1).for_each(|(_, hook)| visit(&**hook));
    }

    /// Takes out what [`Hooks::visit_own`] shows. To be dropped where no lock is held.
    pub fn take_own(&self) -> Vec<Hook> {
        if Arc::strong_count(&self.0) != 1 {
            return Vec::new();
        }
        let Ok(mut list) = self.0.list.try_lock() else { return Vec::new() };
        list.extract_if(.., |(_, hook)| Arc::strong_count(hook) == 1).map(|(_, hook)| hook).collect()
    }

    /// What the functions make of a gradient, in the order in which they were added.
    pub(crate) fn apply(&self, mut gradient: Tensor) -> Result<Tensor> {
        let list = self.0.list.lock().unwrap_or_else(PoisonError::into_inner).clone();
        for (_, hook) in list {
            let Some(new) = hook.call(&gradient)? else { continue };
            if new.shape() != gradient.shape() || new.device() != gradient.device() {
                let hint = "a hook gives a gradient of the shape, and on the device, of the one it was given";
                return Err(Error::shape("hook", &[gradient.shape(), new.shape()], hint));
            }
            gradient = new.to_dtype(gradient.dtype())?;
        }
        Ok(gradient)
    }

    pub(crate) fn retains(&self) -> bool {
        self.0.retains.load(Ordering::Acquire)
    }
}

/// The hooks of a node, if it has any.
pub(crate) fn of(node: &Node) -> Option<Hooks> {
    node.body().hooks.as_deref().cloned()
}

impl Tensor {
    /// The hooks, made if there are none yet.
    fn hooks(&self, op: &'static str) -> Result<Hooks> {
        if !self.requires_grad() {
            let hint = "it takes no part in gradients".to_owned();
            return Err(Error::NoGradient { op, hint });
        }
        Ok(self.node().body().hooks.get_or_insert_default().as_ref().clone())
    }

    /// Calls a function with this tensor's gradient whenever one is found; what it gives takes the gradient's place.
    ///
    /// # Errors
    /// [`Error::NoGradient`] if no gradient flows here.
    pub fn add_hook(&self, hook: Hook) -> Result<HookHandle> {
        let hooks = self.hooks("add_hook")?;
        let number = hooks.add(hook);
        Ok(HookHandle { hooks: Arc::downgrade(&hooks.0), number })
    }

    /// Lets `look` see this tensor's hooks if this is the only handle of the tensor, so that no graph calls them and nobody
    /// else shows them. It waits for nothing.
    pub fn with_own_hooks(&self, look: &mut dyn FnMut(&Hooks)) {
        if self.is_only_handle()
            && let Some(body) = self.node().try_body()
            && let Some(hooks) = &body.hooks
        {
            look(hooks);
        }
    }

    /// From now on [`Tensor::backward`] leaves this tensor's gradient in [`Tensor::grad`], as it does for leaves.
    ///
    /// # Errors
    /// [`Error::NoGradient`] if no gradient flows here.
    pub fn retain_grad(&self) -> Result<()> {
        if !self.is_leaf() {
            self.hooks("retain_grad")?.0.retains.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// True if [`Tensor::retain_grad`] was asked for of a tensor that is no leaf.
    pub fn retains_grad(&self) -> bool {
        of(self.node()).is_some_and(|hooks| hooks.retains())
    }

    /// The hooks, if there are any.
    pub fn hooks_of_gradient(&self) -> Option<Hooks> {
        of(self.node())
    }

    /// Gives this tensor the hooks of another one, whose place it takes.
    pub fn set_hooks(&self, hooks: Hooks) {
        self.node().body().hooks = Some(Box::new(hooks));
    }
}
