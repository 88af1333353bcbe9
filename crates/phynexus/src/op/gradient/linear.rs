//! Derivatives of products, convolutions and pooling. A convolution and its gradients are one bilinear form, solved for
//! each of its three operands, so they are closed under differentiation. So are sum pooling and its adjoint.

use super::{reduction::scatter_along, rule::Call};
use crate::{
    op::{ConvKind, Geometry, Op, PoolKind, composite::tf32, formula::Formula, term::Term},
    shape::{Dims, element_count},
};

/// The gradient of a factor of a matrix product. It may round its factors to TF32 if the product may.
pub(in crate::op) fn dot(call: &Call, position: usize, may_round: bool) -> Formula {
    // The product may be wider than its factors (16-bit factors, a float32 product).
    let dtype = call.output.dtype();
    let own = call.inputs[position].dtype();
    let other = call.input(1 - position).cast(dtype).transpose();
    let (left, right) = if position == 0 { (call.gradient(), other) } else { (other, call.gradient()) };
    let product = left.product(&right, may_round);
    product.cast(own)
}

/// The gradient of an operand of a convolution or of one of its gradients. It may round its factors to TF32 if they
/// may.
pub(in crate::op) fn conv(
    kind: ConvKind,
    geometry: &Geometry,
    call: &Call,
    position: usize,
    may_round: bool,
) -> Formula {
    let target = &call.inputs[position];
    let record = |kind: ConvKind, a: &Term, b: &Term| {
        let op = Op::Conv(kind, geometry.clone());
        Formula::from(tf32::record(may_round, op, target.dtype(), target.shape().into(), [a, b]))
    };
    let (first, second, g) = (&call.inputs[0], &call.inputs[1], call.gradient);
    use ConvKind::*;
    match (kind, position) {
        (Forward, 0) => record(InputGradient, g, second),
        (Forward, _) => record(FilterGradient, first, g),
        (InputGradient, 0) => record(Forward, g, second),
        (InputGradient, _) => record(FilterGradient, g, first),
        (FilterGradient, 0) => record(InputGradient, second, g),
        (FilterGradient, _) => record(Forward, first, g),
    }
}

/// The gradient of a pooling operand.
pub(super) fn pool(kind: PoolKind, geometry: &Geometry, call: &Call) -> Formula {
    let (x, g) = (&call.inputs[0], call.gradient);
    let record = |kind: PoolKind, dtype, shape: &[usize], operand: &Term| {
        Formula::from(Term::record(Op::Pool(kind, geometry.clone()), dtype, shape.into(), &[operand]))
    };
    match kind {
        PoolKind::Sum => record(PoolKind::Spread, x.dtype(), x.shape(), g),
        PoolKind::Spread => record(PoolKind::Sum, x.dtype(), x.shape(), g),
        PoolKind::Max | PoolKind::ArgMax => {
            let positions = record(PoolKind::ArgMax, crate::DType::I64, call.output.shape(), x);
            let plane =
                |t: &Term| Dims::from_slice(&[t.shape()[0], t.shape()[1], element_count(&t.shape()[2..])]);
            let (from, to) = (plane(g), plane(x));
            scatter_along(&call.gradient().reshape(&from), &positions.reshape(&from), 2, &to)
                .reshape(x.shape())
        }
    }
}
