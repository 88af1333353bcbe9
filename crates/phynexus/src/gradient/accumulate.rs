//! Sums the gradients that a tensor receives, one per use.
//!
//! The gradient of a slice is zero outside the slice. If slices tile a tensor (such as queries, keys and values of one
//! product), adding these mostly-zero tensors would read every element once per slice. They are concatenated instead.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::{
    Error, Result, Tensor,
    graph::node::Node,
    op::{Op, Pad, Slice, formula::Formula},
};

/// Sums at least one tensor. All have the same shape and dtype.
pub(super) fn total(contributions: SmallVec<[Tensor; 2]>) -> Result<Tensor> {
    if let [only] = contributions.as_slice() {
        return Ok(only.clone());
    }
    let mut sum: Option<Formula> = None;
    let mut add = |term: Formula| {
        sum = Some(match sum.take() {
            Some(sum) => sum + term,
            None => term,
        });
    };
    let mut slices = Vec::new();
    for contribution in &contributions {
        match Slices::of(contribution) {
            Some(slice) => slices.push(slice),
            None => add(Formula::of(contribution)),
        }
    }
    // Slices come last whether or not they can be joined, so every element is summed in the same order.
    slices.sort_by(|a, b| a.padding.cmp(&b.padding));
    let mut joined: Vec<Slices> = Vec::new();
    for slice in slices {
        match joined.last_mut().and_then(|last| Some((last.axis_before(&slice)?, last))) {
            Some((axis, last)) => last.append(slice, axis),
            None => joined.push(slice),
        }
    }
    joined.iter().for_each(|slices| add(slices.formula()));
    sum.map_or_else(|| Err(Error::internal("gradients", "there are no gradients to add")), Formula::tensor)
}

/// Adjacent slices of a tensor that is zero elsewhere.
struct Slices {
    parts: Vec<Tensor>,
    /// The axis along which the parts are adjacent, if there are several.
    axis: Option<usize>,
    /// The surrounding zeros.
    padding: SmallVec<[(usize, usize); 4]>,
    /// A slice that was evaluated together with its zeros and cannot be joined.
    padded: Option<Tensor>,
}

impl Slices {
    /// Returns the slice inside this tensor, if the tensor is a zero-padded slice.
    fn of(tensor: &Tensor) -> Option<Slices> {
        match tensor.node().op() {
            Op::Pad(Pad { padding, value }) if value.as_f64() == 0.0 => {
                let sources = tensor.node().sources();
                Some(Slices {
                    parts: sources.iter().cloned().map(Tensor::from_node).collect(),
                    axis: None,
                    padding: padding.clone(),
                    padded: sources.is_empty().then(|| tensor.clone()),
                })
            }
            _ => None,
        }
    }

    /// Returns the axis along which `next` directly follows these slices, if their extents agree along all other axes.
    fn axis_before(&self, next: &Slices) -> Option<usize> {
        if self.padded.is_some() || next.padded.is_some() {
            return None;
        }
        let mut differing = (0..self.padding.len()).filter(|&a| self.padding[a] != next.padding[a]);
        let (axis, None) = (differing.next()?, differing.next()) else { return None };
        let (before, _) = self.padding[axis];
        let length: usize = self.parts.iter().map(|part| part.shape()[axis]).sum();
        let follows = before + length == next.padding[axis].0 && self.axis.is_none_or(|own| own == axis);
        follows.then_some(axis)
    }

    fn append(&mut self, next: Slices, axis: usize) {
        self.parts.extend(next.parts);
        self.axis = Some(axis);
        self.padding[axis].1 = next.padding[axis].1;
    }

    fn formula(&self) -> Formula {
        if let Some(padded) = &self.padded {
            return Formula::of(padded);
        }
        let parts: Vec<Formula> = self.parts.iter().map(Formula::of).collect();
        let whole = match self.axis {
            Some(axis) => self.one_slice(axis).unwrap_or_else(|| Formula::cat(&parts, axis)),
            None => Formula::cat(&parts, 0),
        };
        whole.pad(&self.padding, 0.0)
    }

    /// Returns the parts as one slice, if they are adjacent in one flat buffer.
    fn one_slice(&self, axis: usize) -> Option<Formula> {
        let mut shape: Vec<usize> = self.parts.first()?.shape().to_vec();
        let (buffer, first) = place(&self.parts[0])?;
        let mut end = first;
        for part in &self.parts {
            let (source, start) = place(part)?;
            if source.number != buffer.number || start != end || shape[..axis].iter().any(|&d| d != 1) {
                return None;
            }
            end += part.len();
        }
        shape[axis] = self.parts.iter().map(|part| part.shape()[axis]).sum();
        Some(Formula::of(&Tensor::from_node(buffer)).narrow(0, first, end - first).reshape(&shape))
    }
}

/// Finds a reshaped slice of a flat tensor: the flat tensor, and the position of the slice's first element in it.
fn place(tensor: &Tensor) -> Option<(Arc<Node>, usize)> {
    let mut node = tensor.node().clone();
    loop {
        let sources = node.sources();
        let [source] = sources.as_slice() else { return None };
        match node.op() {
            Op::Reshape => node = source.clone(),
            Op::Slice(Slice { start, step }) if step.as_slice() == [1] => {
                return Some((source.clone(), start[0]));
            }
            _ => return None,
        }
    }
}
