//! Tensors that share another tensor's variable: gradient-free aliases, such as `data`.

use std::sync::{
    OnceLock,
    atomic::{AtomicU32, Ordering},
};

use neurenix::nn::Parameter;
use phynexus::Tensor;

use super::PyTensor;
use crate::error::Result;

/// What is special about a tensor, in one number so that ordinary tensors pay for a single check.
pub(crate) struct Special {
    bits: AtomicU32,
    /// The variable of a formerly plain tensor that has its own gradients.
    apart: OnceLock<Parameter>,
}

/// A gradient-free alias of a variable.
const PLAIN: u32 = 1;
/// A formerly plain tensor that has its own gradients now.
const APART: u32 = 2;

impl Special {
    pub(crate) fn none() -> Special {
        Special { bits: AtomicU32::new(0), apart: OnceLock::new() }
    }
    pub(crate) fn plain() -> Special {
        Special { bits: AtomicU32::new(PLAIN), apart: OnceLock::new() }
    }
    fn bits(&self) -> u32 {
        self.bits.load(Ordering::Relaxed)
    }
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.bits() != 0
    }
    pub(crate) fn is_plain(&self) -> bool {
        self.bits() == PLAIN
    }
    /// Gives a plain tensor its own variable for gradients.
    pub(crate) fn part(&self, variable: Parameter) {
        if self.apart.set(variable).is_ok() {
            self.bits.store(APART, Ordering::Relaxed);
        }
    }
}

impl PyTensor {
    /// The tensor's variable.
    pub(crate) fn variable(&self) -> &Parameter {
        self.special.apart.get().unwrap_or(&self.own)
    }

    /// The current value of a special tensor.
    #[cold]
    pub(crate) fn special_tensor(&self) -> Result<Tensor> {
        let variable = self.variable();
        if self.special.is_plain() {
            return Ok(variable.fresh()?.detach()?);
        }
        if variable.is_trainable() { Ok(variable.leaf()?) } else { Ok(variable.fresh()?) }
    }
}
