//! Reductions, cumulative operators, sorting.

use phynexus::{DType, DTypeKind, Scalar, Tensor};

use super::{Rows, counted};
use crate::{
    Error, Result, Value,
    graph::{Call, one},
};

pub(super) const ROWS: Rows = &[
    ("ArgMax", |call| arg_extreme(call, Tensor::argmax)),
    ("ArgMin", |call| arg_extreme(call, Tensor::argmin)),
    ("CumProd", |call| cumulate(call, 1, Tensor::cumprod)),
    ("CumSum", |call| cumulate(call, 0, Tensor::cumsum)),
    ("Hardmax", |call| along_axis(call, hardmax)),
    ("LogSoftmax", |call| along_axis(call, |x| Ok(x.log_softmax(-1)?))),
    ("ReduceL1", |call| reduce(call, wide, |x, axes, keep| Ok(x.abs()?.sum(axes, keep)?))),
    ("ReduceL2", |call| reduce(call, floating, |x, axes, keep| Ok(x.norm(2.0, axes, keep)?))),
    ("ReduceLogSum", |call| reduce(call, floating, |x, axes, keep| Ok(x.sum(axes, keep)?.log()?))),
    ("ReduceLogSumExp", |call| reduce(call, floating, |x, axes, keep| Ok(x.logsumexp(axes, keep)?))),
    ("ReduceMax", |call| {
        reduce(call, |own| own, |x, axes, keep| extreme(x, axes, keep, Tensor::max, lowest(x.dtype())))
    }),
    ("ReduceMean", |call| reduce(call, floating, |x, axes, keep| Ok(x.mean(axes, keep)?))),
    ("ReduceMin", |call| {
        reduce(call, |own| own, |x, axes, keep| extreme(x, axes, keep, Tensor::min, greatest(x.dtype())))
    }),
    ("ReduceProd", |call| reduce(call, wide, |x, axes, keep| Ok(x.prod(axes, keep)?))),
    ("ReduceSum", |call| reduce(call, wide, |x, axes, keep| Ok(x.sum(axes, keep)?))),
    ("ReduceSumSquare", |call| reduce(call, wide, |x, axes, keep| Ok(x.square()?.sum(axes, keep)?))),
    ("Softmax", |call| along_axis(call, |x| Ok(x.softmax(-1)?))),
    ("TopK", top_k),
];

/// The least value of a dtype: the maximum of nothing.
pub(super) fn lowest(dtype: DType) -> Scalar {
    match dtype.kind() {
        DTypeKind::Bool => Scalar::Bool(false),
        DTypeKind::Unsigned => Scalar::UInt(0),
        DTypeKind::Signed => Scalar::Int(i64::MIN >> (64 - 8 * dtype.size())),
        DTypeKind::Float => Scalar::Float(f64::NEG_INFINITY),
    }
}

/// The greatest value of a dtype: the minimum of nothing.
pub(super) fn greatest(dtype: DType) -> Scalar {
    match dtype.kind() {
        DTypeKind::Bool => Scalar::Bool(true),
        DTypeKind::Unsigned => Scalar::UInt(u64::MAX >> (64 - 8 * dtype.size())),
        DTypeKind::Signed => Scalar::Int(i64::MAX >> (64 - 8 * dtype.size())),
        DTypeKind::Float => Scalar::Float(f64::INFINITY),
    }
}

/// The dtype of sums: 64 bits for integers, `float32` for 16-bit floats.
fn wide(dtype: DType) -> DType {
    dtype.accumulator().compute()
}

/// The dtype of functions of real numbers; a mean of integers is rounded only once.
fn floating(dtype: DType) -> DType {
    if dtype.is_float() { dtype.compute() } else { DType::F64 }
}

/// A reduction over axes that are named by the second input, or by an attribute in old files. It is computed in
/// `working`, a function of the input's dtype. `apply` is given at least one axis, or a scalar.
fn reduce(
    call: &Call<'_>,
    working: fn(DType) -> DType,
    apply: fn(&Tensor, &[i64], bool) -> Result<Tensor>,
) -> Result<Vec<Value>> {
    let data = call.tensor(0)?;
    let mut axes = match call.optional_integers(1)? {
        Some(axes) => axes,
        None => call.ints("axes")?.unwrap_or_default(),
    };
    let x = data.to_dtype(working(data.dtype()))?;
    let result = if axes.is_empty() && call.int_or("noop_with_empty_axes", 0)? != 0 {
        apply(&x.unsqueeze(-1)?, &[-1], false)?
    } else {
        if axes.is_empty() {
            axes = (0..data.rank() as i64).collect();
        }
        apply(&x, &axes, call.int_or("keepdims", 1)? != 0)?
    };
    one(result.to_dtype(data.dtype())?)
}

/// A maximum or minimum, which is `nothing` over no elements.
fn extreme(
    x: &Tensor,
    axes: &[i64],
    keep: bool,
    apply: fn(&Tensor, &[i64], bool) -> phynexus::Result<Tensor>,
    nothing: Scalar,
) -> Result<Tensor> {
    if x.is_empty() {
        // The sum checks the axes and has the shape.
        let shape = x.sum(axes, keep)?;
        return Ok(Tensor::full(shape.shape(), nothing, x.dtype(), x.device())?);
    }
    Ok(apply(x, axes, keep)?)
}

fn arg_extreme(
    call: &Call<'_>,
    apply: fn(&Tensor, Option<i64>, bool) -> phynexus::Result<Tensor>,
) -> Result<Vec<Value>> {
    let (data, axis) = (call.tensor(0)?, call.int_or("axis", 0)?);
    let keep = call.int_or("keepdims", 1)? != 0;
    if call.int_or("select_last_index", 0)? == 0 {
        return one(apply(&data, Some(axis), keep)?);
    }
    let size = data.shape().get(call.axis(axis, data.rank())?).copied().unwrap_or(0) as i64;
    one(apply(&data.flip(&[axis])?, Some(axis), keep)?.rsub_scalar(size - 1)?)
}

/// Applies a function of the last axis along the attribute `axis`. Before opset 13, all axes from `axis` on are one.
fn along_axis(call: &Call<'_>, apply: fn(&Tensor) -> Result<Tensor>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let is_old = call.opset() < 13;
    let axis = call.axis(call.int_or("axis", if is_old { 1 } else { -1 })?, x.rank())?;
    if x.is_empty() {
        return one(x);
    }
    if !is_old {
        return one(apply(&x.move_axis(axis as i64, -1)?)?.move_axis(-1, axis as i64)?);
    }
    let (rows, columns) = x.shape().split_at(axis);
    let matrix = x.reshape(&[rows.iter().product(), columns.iter().product()])?;
    one(apply(&matrix)?.reshape(x.shape())?)
}

/// 1 at the first of the greatest elements along the last axis, 0 elsewhere.
fn hardmax(x: &Tensor) -> Result<Tensor> {
    let places = counted(x.shape().last().copied().unwrap_or(1), x.device())?;
    Ok(x.argmax(Some(-1), true)?.eq(&places)?.to_dtype(x.dtype())?)
}

/// A cumulative operator, whose result for no elements is `neutral`.
fn cumulate(
    call: &Call<'_>,
    neutral: i64,
    apply: fn(&Tensor, i64) -> phynexus::Result<Tensor>,
) -> Result<Vec<Value>> {
    let data = call.tensor(0)?;
    let axis = match call.integers(1)?[..] {
        [axis] => call.axis(axis, data.rank())?,
        ref all => return Err(Error::invalid(format!("the axis must be one number, it has {}", all.len()))),
    };
    let size = data.shape().get(axis).copied().unwrap_or(0);
    if size == 0 {
        return one(data);
    }
    let is_reverse = call.int_or("reverse", 0)? != 0;
    let turned = |x: Tensor| if is_reverse { x.flip(&[axis as i64]) } else { Ok(x) };
    let mut x = turned(data.to_dtype(wide(data.dtype()))?)?;
    if call.int_or("exclusive", 0)? != 0 {
        let padding: Vec<(usize, usize)> = (0..x.rank()).map(|own| (usize::from(own == axis), 0)).collect();
        x = x.narrow(axis as i64, 0, size - 1)?.pad(&padding, neutral)?;
    }
    one(turned(apply(&x, axis as i64)?)?.to_dtype(data.dtype())?)
}

fn top_k(call: &Call<'_>) -> Result<Vec<Value>> {
    let count = match call.optional_integers(1)? {
        Some(counts) => counts.first().copied(),
        None => call.int("k")?,
    };
    let count = count.ok_or_else(|| Error::invalid("k is missing"))?;
    let count = usize::try_from(count)
        .map_err(|_| Error::invalid(format!("k must not be negative, it is {count}")))?;
    let is_largest = call.int_or("largest", 1)? != 0;
    let (values, places) = call.tensor(0)?.topk(count, call.int_or("axis", -1)?, is_largest)?;
    Ok(vec![values.into(), places.into()])
}
