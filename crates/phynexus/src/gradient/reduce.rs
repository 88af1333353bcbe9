//! Gives leaves their gradients: added to what they have collected, and combined over processes if they have a reducer.

use std::sync::Arc;

use crate::{
    Error, Result, Tensor,
    graph::{GradientReducer, hooks_of},
    op::formula::Formula,
};

/// A leaf and its gradient.
pub(super) type LeafGradient = (Tensor, Tensor);

/// A leaf's number at its reducer, the leaf and its gradient.
type NumberedGradient = (usize, Tensor, Tensor);

/// What a sweep found.
#[derive(Default)]
pub(super) struct Found {
    /// Gradients of leaves that no reducer combines.
    pub(super) own: Vec<LeafGradient>,
    /// What reducers made of the others. If the leaves collect gradients, it includes what they have collected.
    pub(super) reduced: Vec<LeafGradient>,
}

/// Hands gradients to the leaves' reducers, together with what the leaves have collected, if they do.
pub(super) fn reduce(found: Vec<LeafGradient>, leaves_collect: bool) -> Result<Found> {
    let mut all = Found::default();
    let mut reducers: Vec<(Arc<dyn GradientReducer>, Vec<NumberedGradient>)> = Vec::new();
    for (leaf, gradient) in found {
        let reducer = hooks_of(leaf.node()).and_then(|hooks| hooks.reducer());
        let Some((reducer, number)) = reducer.filter(|(reducer, _)| reducer.is_active()) else {
            all.own.push((leaf, gradient));
            continue;
        };
        leaf.refuse_replaced()?;
        let total = match leaf.grad().filter(|_| leaves_collect) {
            Some(collected) => (Formula::of(&collected) + Formula::of(&gradient)).tensor()?,
            None => gradient,
        };
        match reducers.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &reducer)) {
            Some((_, gradients)) => gradients.push((number, leaf, total)),
            None => reducers.push((reducer, vec![(number, leaf, total)])),
        }
    }
    for (reducer, gradients) in reducers {
        all.reduced.extend(reducer.reduce(gradients)?);
    }
    Ok(all)
}

/// Gives the leaves their gradients.
pub(super) fn store(found: Found) -> Result<()> {
    found.reduced.iter().try_for_each(|(leaf, _)| leaf.refuse_replaced())?;
    found.own.iter().try_for_each(|(leaf, gradient)| leaf.add_grad(gradient))?;
    found.reduced.into_iter().for_each(|(leaf, gradient)| leaf.set_grad(Some(gradient)));
    Ok(())
}

impl Tensor {
    /// Fails if another leaf has replaced this one.
    fn refuse_replaced(&self) -> Result<()> {
        if self.node().body().replaced {
            let hint =
                "its value was replaced after the forward pass (by an update or an in-place change), so \
                        the gradient would be lost: call backward() first, or compute the loss again"
                    .to_owned();
            return Err(Error::NoGradient { op: "a replaced leaf", hint });
        }
        Ok(())
    }

    /// Adds to the collected gradient. If another thread replaces it in the meantime, the sum is computed again.
    fn add_grad(&self, gradient: &Tensor) -> Result<()> {
        self.refuse_replaced()?;
        let number = |grad: &Option<Tensor>| grad.as_ref().map(|t| t.node().number);
        loop {
            let before = self.grad();
            let sum = match &before {
                Some(before) => (Formula::of(before) + Formula::of(gradient)).tensor()?,
                None => gradient.clone(),
            };
            let mut body = self.node().body();
            if number(&body.grad) == number(&before) {
                let old = body.grad.replace(sum);
                drop(body);
                drop(old);
                return Ok(());
            }
        }
    }
}
