//! Derivatives of reductions and scans.

use super::{is_enabled, rule::Call};
use crate::{
    DType, Error, Scalar,
    op::{Axes, Combine, IndexRange, ScatterMode, formula::Formula},
    shape::{Dims, element_count},
};

/// The adjoint of `Expand`: sums over the axes that were expanded from 1.
pub(super) fn sum_to(g: &Formula, shape: &[usize]) -> Formula {
    g.then(|t| {
        let stretched = (0..shape.len()).filter(|&axis| shape[axis] == 1 && t.shape()[axis] != 1);
        let axes = Axes::of(stretched);
        if axes == Axes::default() { Ok(t.clone()) } else { Formula::of(t).sum(axes).term() }
    })
}

/// The gradient of the operand of a reduction.
pub(super) fn reduce(combine: Combine, axes: Axes, call: &Call) -> Formula {
    let x = call.input(0);
    let shape = call.inputs[0].shape();
    let (g, y) = (call.gradient().expand(shape), call.output());
    match combine {
        Combine::Sum => g,
        Combine::Max | Combine::Min => {
            // Equal elements share the gradient. If all axes are reduced, NaNs count as equal; otherwise a NaN has no
            // equals, and the gradients become NaN.
            let equal = x.eq(&y.expand(shape));
            let whole = (0..shape.len()).all(|axis| axes.contains(axis));
            let chosen = if whole { equal.or(&x.is_nan()) } else { equal };
            let chosen = chosen.cast(call.gradient.dtype());
            let share = call.gradient() / chosen.sum(axes);
            chosen * share
        }
        Combine::Prod if is_enabled() => g * others_along(&x, axes, shape),
        Combine::Prod => {
            // Without zeros, the product of the others is y / x. With one zero, only the zero's own is nonzero; with
            // more, none is.
            let zero = x.eq(&x.like(0.0));
            let zeros = zero.cast(DType::I64).sum(axes);
            let nonzero = zero.choose(&x.like(1.0), &x);
            let product = nonzero.reduce(Combine::Prod, axes);
            let none = zeros.eq(&zeros.like(0i64)).expand(shape);
            let alone = zeros.eq(&zeros.like(1i64)).expand(shape).and(&zero);
            let others = (product / nonzero).only_where(&none.or(&alone));
            g * others
        }
    }
}

/// For every element, the product of the other elements along `axes`. It and its derivatives are exact even with zeros.
/// It needs n elements for each of the n factors, so it is used only if the gradient is differentiated again.
fn others_along(x: &Formula, axes: Axes, shape: &[usize]) -> Formula {
    let rank = shape.len();
    let (kept, reduced): (Vec<usize>, Vec<usize>) = (0..rank).partition(|&axis| !axes.contains(axis));
    let order: Vec<usize> = kept.iter().chain(&reduced).copied().collect();
    let rows = element_count(&kept.iter().map(|&axis| shape[axis]).collect::<Dims>());
    let n = element_count(&reduced.iter().map(|&axis| shape[axis]).collect::<Dims>());
    let flat = x.permute(&order).reshape(&[rows, 1, n]);
    let others = without_diagonal(&flat.expand(&[rows, n, n])).reduce(Combine::Prod, Axes::of([2]));
    let moved: Dims = order.iter().map(|&axis| shape[axis]).collect();
    let mut back = vec![0; rank];
    order.iter().enumerate().for_each(|(place, &axis)| back[axis] = place);
    others.reshape(&moved).permute(&back)
}

/// `[.., n, n]` matrices with ones on the diagonal.
fn without_diagonal(matrices: &Formula) -> Formula {
    matrices.then(|t| {
        let (row, column) = (t.rank() - 2, t.rank() - 1);
        let m = Formula::of(t);
        m.iota_like(DType::I64, row).eq(&m.iota_like(DType::I64, column)).choose(&m.like(1.0), &m).term()
    })
}

/// The gradient of the operand of a scan.
pub(super) fn scan(combine: Combine, axis: usize, reverse: bool, call: &Call) -> Formula {
    let (g, x) = (call.gradient(), call.input(0));
    match combine {
        Combine::Sum => g.scan(Combine::Sum, axis, !reverse),
        Combine::Prod if is_enabled() => running_product_exact(axis, reverse, call),
        Combine::Prod => {
            // dL/dx_i = sum over k >= i of g_k y_k / x_i. This is safe before the first zero. At the first zero, the
            // sum is computed with 1 in its place. After it, every product contains a zero.
            let zero = x.eq(&x.like(0.0));
            let zeros = zero.cast(DType::I64).scan(Combine::Sum, axis, reverse);
            let before = zeros.eq(&zeros.like(0i64));
            let first = zero.and(&zeros.eq(&zeros.like(1i64)));
            let nonzero = zero.choose(&x.like(1.0), &x);
            let without_first = first.choose(&x.like(1.0), &x).scan(Combine::Prod, axis, reverse);
            let from_here = |products: Formula| (&g * products).scan(Combine::Sum, axis, !reverse);
            let smooth = from_here(call.output()) / nonzero;
            first.choose(&from_here(without_first), &smooth.only_where(&before))
        }
        Combine::Max | Combine::Min => running_extreme(axis, reverse, call),
    }
}

/// The gradient of a cumulative product, from the `n` by `n` table of products without one factor. It and its
/// derivatives are exact even with zeros.
fn running_product_exact(axis: usize, reverse: bool, call: &Call) -> Formula {
    let shape = call.inputs[0].shape();
    let (rank, n) = (shape.len(), shape[axis]);
    let mut order: Vec<usize> = (0..rank).filter(|&other| other != axis).collect();
    order.push(axis);
    let rows = element_count(shape).checked_div(n).unwrap_or(0);
    let table = [rows, n, n];
    let last = |f: Formula| f.permute(&order).reshape(&[rows, 1, n]).expand(&table);
    // Entry [i, k]: the product of elements up to k without element i.
    let products = without_diagonal(&last(call.input(0))).scan(Combine::Prod, 2, reverse);
    let (i, k) = (products.iota_like(DType::I64, 1), products.iota_like(DType::I64, 2));
    let counts = if reverse { k.le(&i) } else { i.le(&k) };
    let sum = (last(call.gradient()) * products).only_where(&counts).sum(Axes::of([2]));
    let moved: Dims = order.iter().map(|&axis| shape[axis]).collect();
    let mut back = vec![0; rank];
    order.iter().enumerate().for_each(|(place, &axis)| back[axis] = place);
    sum.reshape(&moved).permute(&back)
}

/// The gradient of a cumulative extreme goes to the element that provides it, the last of equal ones.
fn running_extreme(axis: usize, reverse: bool, call: &Call) -> Formula {
    let x = call.input(0);
    let holds = x.eq(&call.output()).or(&x.is_nan());
    let position = x.iota_like(DType::I64, axis);
    let (start, latest) = match reverse {
        false => (Scalar::Int(0), Combine::Max),
        true => (Scalar::Int(call.inputs[0].shape()[axis] as i64 - 1), Combine::Min),
    };
    let holder = holds.choose(&position, &position.like(start)).scan(latest, axis, reverse);
    scatter_along(&call.gradient(), &holder, axis, call.inputs[0].shape())
}

/// Zeros of `shape` with `values` added at `positions` along `axis`, which must be in range. The other coordinates are
/// kept.
pub(super) fn scatter_along(values: &Formula, positions: &Formula, axis: usize, shape: &[usize]) -> Formula {
    let flat = flat_positions(positions, axis, shape);
    values.then(|v| {
        let zeros = values.constant(v.dtype(), &[element_count(shape), 1], Scalar::Float(0.0));
        let mode = (ScatterMode::Combine(Combine::Sum), IndexRange::Known);
        zeros.scatter(mode, &flat, &Formula::of(v).reshape(&[v.len(), 1])).reshape(shape).term()
    })
}

/// Converts positions along `axis` of a tensor of `shape` to flat positions, as a vector.
fn flat_positions(positions: &Formula, axis: usize, shape: &[usize]) -> Formula {
    positions.then(|p| {
        if p.rank() != shape.len() {
            return Err(Error::internal("scatter_along", "positions and target have different ranks"));
        }
        let index = Formula::of(p);
        let mut flat = index.like(0i64);
        let mut stride = 1usize;
        for other in (0..shape.len()).rev() {
            let coordinate = if other == axis { index.clone() } else { index.iota_like(DType::I64, other) };
            let step = coordinate.like(stride as i64);
            flat = flat + coordinate * step;
            stride *= shape[other];
        }
        flat.reshape(&[p.len()]).term()
    })
}
