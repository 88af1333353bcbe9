//! Parameters: shared, mutable tensors of a network.

use std::sync::{
    Arc, Mutex, PoisonError, RwLock, Weak,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use phynexus::{DType, Error as EngineError, Tensor, gradient::is_enabled, graph::Hooks, text::show_shape};

use super::{
    recording,
    view::{Family, Link, with_gradient_of},
};
use crate::Result;

/// A shared variable that holds a tensor: a weight that an optimiser updates, or a buffer such as a running mean.
///
/// Clones share the variable, so that a layer and an optimiser see the same value. The tensor itself is immutable: a
/// tensor read before an update keeps the old value.
#[derive(Clone, Debug)]
pub struct Parameter(pub(super) Arc<Shared>);

#[derive(Debug)]
pub(super) struct Shared {
    /// Unique among all variables of the process.
    id: u64,
    value: RwLock<Tensor>,
    trainable: AtomicBool,
    /// Hooks that wait for the next leaf, while the variable holds a tensor that is not a leaf.
    hooks: Mutex<Option<Hooks>>,
    /// How often the value was changed; for a view, the version of its base that it shows.
    pub(super) version: AtomicU64,
    /// What the variable depends on.
    pub(super) link: Option<Box<Link>>,
    /// What depends on the variable.
    pub(super) links: Mutex<Links>,
}

/// What depends on a variable: its views, and the variable of its gradient.
#[derive(Debug, Default)]
pub(super) struct Links {
    pub(super) family: Weak<Family>,
    pub(super) gradient: Weak<Shared>,
}

impl Drop for Shared {
    fn drop(&mut self) {
        let links = self.links.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(family) = links.family.upgrade() {
            let value = self.value.get_mut().unwrap_or_else(PoisonError::into_inner);
            family.leave(value, *self.trainable.get_mut(), *self.version.get_mut());
        }
    }
}

impl Parameter {
    /// Creates a trainable weight, which accumulates gradients.
    pub fn new(value: &Tensor) -> Result<Parameter> {
        Ok(Parameter::holding(value.with_grad()?, true))
    }

    /// Creates a buffer: part of the state, but not trained.
    pub fn buffer(value: Tensor) -> Parameter {
        Parameter::holding(value, false)
    }

    pub(super) fn holding(value: Tensor, trainable: bool) -> Parameter {
        Parameter::made(value, trainable, None, 0)
    }

    /// A variable that depends on another.
    pub(super) fn linked(value: Tensor, link: Link, version: u64) -> Parameter {
        Parameter::made(value, false, Some(Box::new(link)), version)
    }

    fn made(value: Tensor, trainable: bool, link: Option<Box<Link>>, version: u64) -> Parameter {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let parameter = Parameter(Arc::new(Shared {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            value: RwLock::new(value),
            trainable: AtomicBool::new(trainable),
            hooks: Mutex::default(),
            version: AtomicU64::new(version),
            link,
            links: Mutex::default(),
        }));
        recording::note_made(&parameter);
        parameter
    }

    /// The current tensor. If that of a view cannot be recorded, it is the view's previous one: see
    /// [`Parameter::fresh`].
    pub fn tensor(&self) -> Tensor {
        self.fresh().unwrap_or_else(|_| self.stored())
    }

    /// The current tensor.
    ///
    /// # Errors
    /// If the value of a view cannot be taken from its base.
    pub fn fresh(&self) -> Result<Tensor> {
        if self.0.link.is_some()
            && let Some(value) = self.refresh()?
        {
            return Ok(value);
        }
        Ok(recording::current(self).unwrap_or_else(|| self.stored()))
    }

    /// The variable's own tensor as a leaf, if it is trainable.
    pub(super) fn stored_leaf(&self) -> Result<Tensor> {
        let tensor = self.stored();
        if tensor.requires_grad() == self.is_trainable() {
            return Ok(tensor);
        }
        let leaf = if self.is_trainable() { tensor.with_grad()? } else { tensor.detach()? };
        drop(self.exchange(leaf.clone(), true));
        Ok(leaf)
    }

    /// The variable's tensor, whatever a recorded function makes of it.
    pub(super) fn stored(&self) -> Tensor {
        self.0.value.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The same for all handles to the variable, and unique among variables.
    pub(super) fn id(&self) -> u64 {
        self.0.id
    }

    /// The current tensor as a leaf that accumulates gradients, if the parameter is trainable. Forward passes use it.
    ///
    /// After an optimiser update the tensor may still be pending; this evaluates it.
    pub fn leaf(&self) -> Result<Tensor> {
        if self.0.link.is_some()
            && let Some(value) = self.refresh()?
        {
            return Ok(value);
        }
        match recording::current(self) {
            None => self.stored_leaf(),
            Some(value) if value.requires_grad() == self.is_trainable() || !is_enabled() => Ok(value),
            Some(value) if !self.is_trainable() => Ok(value.detach()?),
            Some(_) => {
                let message = "the compiled function uses a parameter after it has updated it: update each parameter \
                               once, at the end of the function, and call the function for each step";
                Err(EngineError::argument("compile", message).into())
            }
        }
    }

    /// The leaf that holds the gradient, if the parameter is trainable. In a recorded function it is still the one of
    /// the value that gradients were computed for, also after an optimiser's step.
    pub fn collector(&self) -> Result<Tensor> {
        recording::collector(self).map_or_else(|| self.leaf(), Ok)
    }

    /// Replaces the tensor by one of the same shape, dtype and device.
    pub fn set(&self, value: Tensor) -> Result<()> {
        let old = self.tensor();
        if old.shape() != value.shape() || old.dtype() != value.dtype() || old.device() != value.device() {
            let hint = format!(
                "the parameter holds {} of shape {} on {}, but the new value is {} on {}: convert it first",
                old.dtype(),
                show_shape(old.shape()),
                old.device(),
                value.dtype(),
                value.device()
            );
            return Err(EngineError::shape("Parameter::set", &[old.shape(), value.shape()], hint).into());
        }
        self.replace(value, self.is_trainable())
    }

    /// As [`Parameter::set`]. A trainable variable keeps the gradient that it has accumulated.
    pub fn store(&self, value: Tensor) -> Result<()> {
        if !self.is_trainable() {
            let old = self.fresh()?;
            // Without recording, PyTorch changes the elements and leaves the graph.
            return self.set(match old.requires_grad() && !value.requires_grad() && !is_enabled() {
                true => with_gradient_of(&old, &value)?,
                false => value,
            });
        }
        let gradient = self.collector()?.grad();
        self.set(value.detach()?)?;
        if gradient.is_some() {
            self.collector()?.set_grad(gradient);
        }
        Ok(())
    }

    /// Overwrites one element in memory if nothing else refers to the tensor. Otherwise it returns false and changes
    /// nothing: see [`Tensor::overwrite_element`].
    pub fn overwrite_element(&self, index: &[usize], bytes: &[u8]) -> Result<bool> {
        if self.has_base() {
            return Ok(false);
        }
        let mut current = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        let is_done = current.overwrite_element(index, bytes)?;
        self.0.version.fetch_add(u64::from(is_done), Ordering::Relaxed);
        Ok(is_done)
    }

    /// Converts the tensor to another floating-point dtype. Integer tensors are unchanged.
    ///
    /// Convert before creating an optimiser, because optimiser state has the parameter's dtype.
    pub fn convert(&self, dtype: DType) -> Result<()> {
        let old = self.tensor();
        if !dtype.is_float() {
            let hint = "a parameter must have a floating-point dtype";
            return Err(EngineError::dtype("Parameter::convert", &[old.dtype(), dtype], hint).into());
        }
        if !old.dtype().is_float() || old.dtype() == dtype {
            return Ok(());
        }
        let new = old.detach()?.to_dtype(dtype)?.evaluated()?;
        let new = if self.is_trainable() { new.with_grad()? } else { new };
        self.leave();
        self.replace(new, self.is_trainable())
    }

    /// Replaces the tensor by one of the same shape, of any dtype and device. Use it to move a model.
    ///
    /// Move before creating an optimiser, because optimiser state has the parameter's dtype and device.
    pub fn convert_to(&self, value: Tensor) -> Result<()> {
        let old = self.tensor();
        if old.shape() != value.shape() {
            let hint = "the new value must have the shape of the old value";
            return Err(
                EngineError::shape("Parameter::convert_to", &[old.shape(), value.shape()], hint).into()
            );
        }
        let trainable = self.is_trainable();
        let value = if trainable { value.with_grad()? } else { value };
        self.leave();
        self.replace(value, trainable)
    }

    /// `own`: whether a leaf in this variable belongs to it. A buffer may hold another variable's leaf, whose gradients
    /// must continue.
    fn replace(&self, value: Tensor, own: bool) -> Result<()> {
        let value = match &self.0.link {
            Some(_) => match self.write_through(value, own)? {
                Some(value) => value,
                None => return Ok(()),
            },
            None => value,
        };
        self.0.version.fetch_add(1, Ordering::Relaxed);
        if let Some(value) = recording::change(self, value) {
            drop(self.exchange(value, own));
        }
        Ok(())
    }

    /// Replaces the variable's tensor by another value and returns the old one.
    pub(super) fn change(&self, value: Tensor) -> Tensor {
        self.0.version.fetch_add(1, Ordering::Relaxed);
        self.exchange(value, true)
    }

    /// Replaces the variable's tensor and returns the old one.
    pub(super) fn exchange(&self, value: Tensor, own: bool) -> Tensor {
        if value.requires_grad() {
            value.set_replaced(false);
        }
        let mut current = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        // Hooks belong to the variable. A value that is not a leaf may be shared, so the hooks wait for the next leaf.
        if self.is_trainable() {
            let mut waiting = self.0.hooks.lock().unwrap_or_else(PoisonError::into_inner);
            let hooks =
                current.hooks_of_gradient().filter(|_| current.requires_grad()).or_else(|| waiting.take());
            match hooks {
                Some(hooks) if value.requires_grad() => value.set_hooks(hooks),
                hooks => *waiting = hooks,
            }
        }
        let old = std::mem::replace(&mut *current, value);
        // Release the lock first, because dropping a graph takes time.
        drop(current);
        if own && old.requires_grad() && old.is_leaf() {
            old.set_replaced(true);
        }
        old
    }

    /// Calls `look` with the hooks of the current tensor, if no graph may call them, and with the hooks that wait for a
    /// leaf. It never blocks, so a garbage collector can call it at any time.
    pub fn with_own_hooks(&self, look: &mut dyn FnMut(&Hooks)) {
        if let Ok(value) = self.0.value.try_read() {
            value.with_own_hooks(look);
        }
        if let Ok(waiting) = self.0.hooks.try_lock()
            && let Some(hooks) = &*waiting
        {
            look(hooks);
        }
    }

    /// True if the parameter accumulates gradients and optimisers may change it.
    pub fn is_trainable(&self) -> bool {
        self.0.trainable.load(Ordering::Acquire)
    }

    /// Freezes (`false`) or unfreezes (`true`) the parameter.
    pub fn set_trainable(&self, trainable: bool) {
        self.0.trainable.store(trainable, Ordering::Release);
    }

    /// True if both refer to the same variable.
    pub fn is_same(&self, other: &Parameter) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
