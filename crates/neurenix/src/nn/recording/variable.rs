//! A variable that a recorded function reads: what a replay does with it.

use phynexus::{
    Tensor,
    schedule::capture::{Promises, in_rows, is_in_rows},
};

use super::{has_hooks, settled};
use crate::{Result, nn::Parameter};

/// A variable of a recorded function.
pub(super) struct Variable {
    pub(super) parameter: Parameter,
    pub(super) is_trainable: bool,
    pub(super) has_gradient: bool,
    pub(super) twin: Option<usize>,
    /// The result that becomes its value.
    pub(super) value: Option<usize>,
    pub(super) gradient: Gradient,
}

/// What becomes of a gradient.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Gradient {
    Stays,
    Goes,
    /// The result that becomes the gradient.
    Result(usize),
}

impl Variable {
    /// Computes what is pending and puts it in rows, while the variable still holds it. Returns whether the recording
    /// was made for such a variable.
    pub(super) fn is_ready(&self) -> Result<bool> {
        let mut value = settled(&self.parameter)?;
        if !value.requires_grad() && is_in_rows(&value) && value.grad().is_none() {
            return Ok(!self.is_trainable && !self.has_gradient);
        }
        let rows = in_rows(&value)?;
        if !rows.is_same(&value) && !self.parameter.stored().has_graph() {
            let gradient = value.grad();
            self.parameter.set(rows)?;
            value = settled(&self.parameter)?;
            value.set_grad(gradient);
        }
        if let Some(gradient) = value.grad() {
            let rows = in_rows(&gradient)?;
            if !rows.is_same(&gradient) {
                value.set_grad(Some(rows));
            }
        }
        let is_alike =
            self.parameter.is_trainable() == self.is_trainable && value.grad().is_some() == self.has_gradient;
        Ok(is_alike && !has_hooks(&value))
    }

    /// Takes the value, for which the promised one is put, if the function changes it.
    pub(super) fn take(&self, results: &[Tensor]) -> Tensor {
        match self.value {
            Some(result) => self.parameter.change(results[result].clone()),
            None => self.parameter.stored(),
        }
    }

    /// Sets the gradient after the function. `old` was the value before it.
    pub(super) fn put_gradient(&self, old: &Tensor, results: &[Tensor]) {
        let leaf = self.value.map_or(old, |result| &results[result]);
        match self.gradient {
            Gradient::Result(result) => leaf.set_grad(Some(results[result].clone())),
            Gradient::Stays if self.value.is_some() => leaf.set_grad(old.grad()),
            Gradient::Stays | Gradient::Goes => {}
        }
    }

    /// Undoes [`Recorded::take`]. The promise, which the variable holds, gets the old value. A variable that another
    /// thread has separated from its twin gets it back directly: the promise may be that of both.
    pub(super) fn restore(
        &self,
        old: &Tensor,
        gradient: Option<Tensor>,
        promises: &Promises,
        results: &[Tensor],
    ) {
        let holder = match self.value {
            Some(result) if results[result].is_evaluated() => {
                drop(self.parameter.change(old.clone()));
                old
            }
            Some(result) => {
                promises.set(result, old);
                &results[result]
            }
            None => old,
        };
        let kept = old.grad();
        holder.set_grad(gradient.or(kept));
    }
}
