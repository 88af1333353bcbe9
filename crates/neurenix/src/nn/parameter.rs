//! Parameters: named places whose tensors change while a network learns.

use std::sync::{
    Arc, Mutex, PoisonError, RwLock, Weak,
    atomic::{AtomicBool, Ordering},
};

use phynexus::{DType, Error as EngineError, Tensor, graph::Hooks, text::show_shape};

use crate::Result;

/// A shared place that holds a tensor: a weight that an optimiser updates, or a buffer such as a running mean.
///
/// Clones share the place, so a layer and an optimiser see the same value. The tensor itself is a value: whoever took
/// it before an update still has the old one.
#[derive(Clone, Debug)]
pub struct Parameter(Arc<Shared>);

/// Tells whether somebody still holds a place.
#[derive(Clone, Debug)]
pub struct Watch(Weak<Shared>);

impl Watch {
    /// True while the place is held.
    pub fn is_held(&self) -> bool {
        self.0.strong_count() > 0
    }
}

#[derive(Debug)]
struct Shared {
    value: RwLock<Tensor>,
    trainable: AtomicBool,
    /// The hooks of the leaf that was in the place, until there is one again.
    hooks: Mutex<Option<Hooks>>,
}

impl Parameter {
    /// A weight: gradients are collected for it.
    pub fn new(value: &Tensor) -> Result<Parameter> {
        Ok(Parameter::holding(value.with_grad()?, true))
    }

    /// A buffer: part of the state, but not learnt.
    pub fn buffer(value: Tensor) -> Parameter {
        Parameter::holding(value, false)
    }

    fn holding(value: Tensor, trainable: bool) -> Parameter {
        Parameter(Arc::new(Shared {
            value: RwLock::new(value),
            trainable: AtomicBool::new(trainable),
            hooks: Mutex::default(),
        }))
    }

    /// The tensor now.
    pub fn tensor(&self) -> Tensor {
        self.0.value.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The tensor with gradients collected if the parameter is trainable: what forward passes use.
    ///
    /// An update leaves a pending tensor in the place; here it is computed if the optimiser has not done so.
    pub fn leaf(&self) -> Result<Tensor> {
        let tensor = self.tensor();
        if tensor.requires_grad() == self.is_trainable() {
            return Ok(tensor);
        }
        let leaf = if self.is_trainable() { tensor.with_grad()? } else { tensor.detach()? };
        self.replace(leaf.clone(), true);
        Ok(leaf)
    }

    /// Puts another tensor of the same shape, dtype and device into the place.
    pub fn set(&self, value: Tensor) -> Result<()> {
        let old = self.tensor();
        if old.shape() != value.shape() || old.dtype() != value.dtype() || old.device() != value.device() {
            let hint = format!(
                "the parameter holds {} of shape {} on {}, the new value is {} on {}; convert it first",
                old.dtype(),
                show_shape(old.shape()),
                old.device(),
                value.dtype(),
                value.device()
            );
            return Err(EngineError::shape("Parameter::set", &[old.shape(), value.shape()], hint).into());
        }
        self.replace(value, self.is_trainable());
        Ok(())
    }

    /// Writes over one element of the tensor in the place if nobody else can see it; else returns false: see
    /// [`Tensor::overwrite_element`].
    pub fn overwrite_element(&self, index: &[usize], bytes: &[u8]) -> Result<bool> {
        let mut place = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        Ok(place.overwrite_element(index, bytes)?)
    }

    /// Converts what the place holds to another floating-point dtype; tensors of integers stay as they are.
    ///
    /// Optimisers keep state of the parameter's dtype: convert before one is made.
    pub fn convert(&self, dtype: DType) -> Result<()> {
        let old = self.tensor();
        if !dtype.is_float() {
            let hint = "parameters are floating-point numbers";
            return Err(EngineError::dtype("Parameter::convert", &[old.dtype(), dtype], hint).into());
        }
        if !old.dtype().is_float() || old.dtype() == dtype {
            return Ok(());
        }
        let new = old.detach()?.to_dtype(dtype)?.evaluated()?;
        let new = if self.is_trainable() { new.with_grad()? } else { new };
        self.replace(new, self.is_trainable());
        Ok(())
    }

    /// Puts another tensor of the same shape into the place, whatever its dtype and device: what moves a model.
    ///
    /// Optimisers keep state of the parameter's dtype and device: move before one is made.
    pub fn convert_to(&self, value: Tensor) -> Result<()> {
        let old = self.tensor();
        if old.shape() != value.shape() {
            let hint = "the new value has the shape of the old";
            return Err(
                EngineError::shape("Parameter::convert_to", &[old.shape(), value.shape()], hint).into()
            );
        }
        let trainable = self.is_trainable();
        self.replace(if trainable { value.with_grad()? } else { value }, trainable);
        Ok(())
    }

    /// `own` says that a leaf in the place is the place's: a buffer may hold the leaf of another one, whose gradients go on.
    fn replace(&self, value: Tensor, own: bool) {
        if value.requires_grad() {
            value.set_replaced(false);
        }
        let mut place = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        // Hooks are the place's. A value that is no leaf may be somebody else's too: they wait for the leaf.
        if self.is_trainable() {
            let mut waiting = self.0.hooks.lock().unwrap_or_else(PoisonError::into_inner);
            let hooks =
                place.hooks_of_gradient().filter(|_| place.requires_grad()).or_else(|| waiting.take());
            match hooks {
                Some(hooks) if value.requires_grad() => value.set_hooks(hooks),
                hooks => *waiting = hooks,
            }
        }
        let old = std::mem::replace(&mut *place, value);
        // Dropping a graph takes time: not while others wait for the place.
        drop(place);
        if own && old.requires_grad() && old.is_leaf() {
            old.set_replaced(true);
        }
        drop(old);
    }

    /// Lets `look` see the hooks of the tensor in the place that no graph may call, and those that wait for one. It waits for
    /// nothing, so that a garbage collector may call it anywhere.
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

    /// True if gradients are collected and optimisers may change it.
    pub fn is_trainable(&self) -> bool {
        self.0.trainable.load(Ordering::Acquire)
    }

    /// Freezes (`false`) or thaws (`true`) the parameter.
    pub fn set_trainable(&self, trainable: bool) {
        self.0.trainable.store(trainable, Ordering::Release);
    }

    /// A watch on the place, which does not keep it.
    pub fn watch(&self) -> Watch {
        Watch(Arc::downgrade(&self.0))
    }

    /// True if both are the same place.
    pub fn is_same(&self, other: &Parameter) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
