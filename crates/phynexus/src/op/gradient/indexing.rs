//! Derivatives of operations that move or select elements.

use super::rule::{Call, InputGradients};
use crate::{
    DType, Result,
    op::{Combine, IndexRange, ScatterMode, formula::Formula},
    shape::Dims,
};

/// Applies the inverse of a permutation.
pub(super) fn inverse_permute(g: &Formula, order: &[u8]) -> Formula {
    let mut inverse = vec![0; order.len()];
    order.iter().enumerate().for_each(|(place, &axis)| inverse[axis as usize] = place);
    g.permute(&inverse)
}

/// The adjoint of padding: removes the padding.
pub(super) fn unpad(g: &Formula, padding: &[(usize, usize)], shape: &[usize]) -> Formula {
    let narrow = |g: Formula, axis: usize| g.narrow(axis, padding[axis].0, shape[axis]);
    (0..shape.len()).fold(g.clone(), narrow)
}

/// The adjoint of a slice: writes the elements to their positions, among zeros.
pub(super) fn unslice(g: &Formula, start: &[usize], step: &[isize], shape: &[usize]) -> Formula {
    g.then(|t| {
        if t.is_empty() {
            return g.constant(t.dtype(), shape, 0.0.into()).term();
        }
        let mut g = Formula::of(t);
        let mut padding = Vec::with_capacity(shape.len());
        for (axis, &count) in t.shape().iter().enumerate() {
            let stride = step[axis].unsigned_abs();
            let span = (count - 1) * stride + 1;
            let mut first = start[axis];
            if step[axis] < 0 && count > 1 {
                g = g.flip(axis);
                first -= (count - 1) * stride;
            }
            if stride > 1 && count > 1 {
                g = spread(&g, axis, stride, span);
            }
            padding.push((first, shape[axis] - first - span));
        }
        g.pad(&padding, 0.0).term()
    })
}

/// Inserts zeros between the elements along `axis`, so that they are `stride` apart.
fn spread(g: &Formula, axis: usize, stride: usize, span: usize) -> Formula {
    g.then(|t| {
        let mut split: Dims = t.shape().into();
        split.insert(axis + 1, 1);
        let mut merged: Dims = t.shape().into();
        merged[axis] *= stride;
        let apart = Formula::of(t).reshape(&split).pad_axis(axis + 1, 0, stride - 1, 0.0);
        apart.reshape(&merged).narrow(axis, 0, span).term()
    })
}

/// Each input gets its slice of the gradient.
pub(super) fn cat(call: &Call, axis: usize) -> Result<InputGradients> {
    let mut start = 0;
    let mut starts = Vec::with_capacity(call.inputs.len());
    for part in call.inputs {
        starts.push(start);
        start += part.shape()[axis];
    }
    call.each(|i| call.gradient().narrow(axis, starts[i], call.inputs[i].shape()[axis]))
}

/// Rows that were read several times accumulate their gradients.
pub(super) fn gather(range: IndexRange, call: &Call) -> Formula {
    call.input(0).like(0.0).scatter((SUM, range), &call.input(1), &call.gradient())
}

const SUM: ScatterMode = ScatterMode::Combine(Combine::Sum);

/// The gradient of a scatter's target (position 0) or of its updates (position 2).
///
/// Equal elements share the gradient of a maximum or minimum. The gradient of a product is exact only to first order
/// where a row has zeros among its factors.
pub(super) fn scatter(mode: ScatterMode, range: IndexRange, call: &Call, position: usize) -> Formula {
    let (x, index, updates) = (call.input(0), call.input(1), call.input(2));
    let (g, y) = (call.gradient(), call.output());
    let to_target = position == 0;
    match mode {
        ScatterMode::Combine(Combine::Sum) => {
            if to_target {
                g
            } else {
                g.gather(&index, range)
            }
        }
        ScatterMode::Set if to_target => g.scatter((mode, range), &index, &updates.like(0.0)),
        ScatterMode::Set => {
            // Only the last update of a row affects the result.
            let numbers = updates.narrow(1, 0, 1).iota_like(DType::I64, 0);
            let last = x.narrow(1, 0, 1).iota_like(DType::I64, 0).scatter(
                (ScatterMode::Set, range),
                &index,
                &numbers,
            );
            let reached = last.gather(&index, range).eq(&numbers);
            updates.then(|u| g.gather(&index, range).only_where(&reached.expand(u.shape())).term())
        }
        ScatterMode::Combine(Combine::Max | Combine::Min) => {
            let dtype = call.gradient.dtype();
            let target_holds = x.eq(&y).cast(dtype);
            let update_holds = updates.eq(&y.gather(&index, range)).cast(dtype);
            let holders = target_holds.scatter((SUM, range), &index, &update_holds);
            let share = g / holders;
            if to_target { target_holds * share } else { update_holds * share.gather(&index, range) }
        }
        ScatterMode::Combine(Combine::Prod) => {
            let is_zero = |f: &Formula| f.eq(&f.like(0.0));
            let nonzero = |f: &Formula| is_zero(f).choose(&f.like(1.0), f);
            let zeros = is_zero(&x).cast(DType::I64).scatter(
                (SUM, range),
                &index,
                &is_zero(&updates).cast(DType::I64),
            );
            let product = nonzero(&x).scatter((mode, range), &index, &nonzero(&updates));
            let of = |factor: &Formula, zeros: &Formula, product: &Formula, g: &Formula| {
                let none = zeros.eq(&zeros.like(0i64));
                let alone = zeros.eq(&zeros.like(1i64)).and(&is_zero(factor));
                g * (product / nonzero(factor)).only_where(&none.or(&alone))
            };
            if to_target {
                of(&x, &zeros, &product, &g)
            } else {
                of(
                    &updates,
                    &zeros.gather(&index, range),
                    &product.gather(&index, range),
                    &g.gather(&index, range),
                )
            }
        }
    }
}
