//! Tensors that share another tensor's variable: gradient-free aliases, such as `data`.

use std::sync::{
    OnceLock,
    atomic::{AtomicU32, Ordering},
};

use neurenix::nn::Parameter;
use phynexus::Tensor;

use super::PyTensor;
use crate::{error::Result, refusal::no_complex};

/// What is special about a tensor, in one number so that ordinary tensors pay for a single check.
pub(crate) struct Special {
    bits: AtomicU32,
    /// The variable that the tensor stands for instead of its own.
    other: Other,
}

/// A variable instead of another, and the one instead of that. The last one counts.
#[derive(Clone, Default)]
struct Other(OnceLock<Box<(Parameter, Other)>>);

impl Other {
    fn last(&self) -> Option<&Parameter> {
        let (variable, next) = &**self.0.get()?;
        next.last().or(Some(variable))
    }

    fn push(&self, variable: Parameter) {
        let mut place = self;
        while let Some(link) = place.0.get() {
            place = &link.1;
        }
        // Another thread may have been faster.
        if let Err(link) = place.0.set(Box::new((variable, Other::default()))) {
            place.push(link.0);
        }
    }
}

/// A gradient-free alias of a variable.
const PLAIN: u32 = 1;
/// A tensor that stands for another variable than its own.
const APART: u32 = 2;
/// Pairs of parts that are seen as complex numbers. The engine's operations refuse them.
const COMPLEX: u32 = 4;

impl Special {
    pub(crate) fn none() -> Special {
        Special { bits: AtomicU32::new(0), other: Other::default() }
    }
    pub(crate) fn plain() -> Special {
        Special { bits: AtomicU32::new(PLAIN), other: Other::default() }
    }
    fn bits(&self) -> u32 {
        self.bits.load(Ordering::Relaxed)
    }
    #[inline]
    pub(crate) fn is_any(&self) -> bool {
        self.bits() != 0
    }
    pub(crate) fn is_plain(&self) -> bool {
        self.bits() & !COMPLEX == PLAIN
    }
    pub(crate) fn is_complex(&self) -> bool {
        self.bits() & COMPLEX != 0
    }
    /// The same for a tensor that sees the variable as complex numbers, or as pairs.
    pub(crate) fn seen(&self, as_complex: bool) -> Special {
        let bits = self.bits() & !COMPLEX | if as_complex { COMPLEX } else { 0 };
        Special { bits: AtomicU32::new(bits), other: self.other.clone() }
    }
    /// Lets the tensor stand for another variable: for its own gradients, or for a view of its own variable.
    pub(crate) fn part(&self, variable: Parameter) {
        self.other.push(variable);
        self.bits.store(APART | self.bits() & COMPLEX, Ordering::Relaxed);
    }
}

impl PyTensor {
    /// The tensor's variable.
    pub(crate) fn variable(&self) -> &Parameter {
        self.special.other.last().unwrap_or(&self.own)
    }

    /// The current value of a special tensor.
    #[cold]
    pub(crate) fn special_tensor(&self) -> Result<Tensor> {
        if self.special.is_complex() {
            return Err(no_complex());
        }
        let variable = self.variable();
        if self.special.is_plain() {
            return Ok(variable.fresh()?.detach()?);
        }
        if variable.is_trainable() { Ok(variable.leaf()?) } else { Ok(variable.fresh()?) }
    }
}
