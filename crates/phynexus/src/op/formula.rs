//! Formulas over terms whose shapes and dtypes are known to fit, as used by gradient rules and composite bodies. `x *
//! 2.0 + y.exp()` records the same nodes as the checked methods of `Tensor`, without their checks. The first error is
//! stored and returned at the end.

use std::ops::{Add, Div, Mul, Neg, Sub};

use smallvec::SmallVec;

use super::{
    Axes, Binary, Cat, Collective, Combine, Constant, Gather, IndexRange, Iota, Op, Pad, Permute, Reduce,
    Scan, Scatter, ScatterMode, Slice, Unary,
    composite::precision::{self, MatmulPrecision},
    term::Term,
};
use crate::{DType, Error, Result, Scalar, dtype::float8::FLOAT8_HINT, shape::Dims};

/// A term under construction, or the first error. Operands of binary operations must have the same rank and dtype; axes
/// of size 1 are broadcast.
#[derive(Clone)]
pub(crate) struct Formula(Result<Term>);

impl From<&Term> for Formula {
    fn from(term: &Term) -> Formula {
        Formula(Ok(term.clone()))
    }
}
impl From<Result<Term>> for Formula {
    fn from(term: Result<Term>) -> Formula {
        Formula(term)
    }
}

impl Formula {
    /// Starts a formula from this value.
    pub(crate) fn of(value: impl Into<Formula>) -> Formula {
        value.into()
    }

    /// The term, or the first error.
    pub(crate) fn term(self) -> Result<Term> {
        self.0
    }

    /// A tensor of this shape filled with `value`, on this formula's device.
    pub(crate) fn constant(&self, dtype: DType, shape: &[usize], value: Scalar) -> Formula {
        self.then(|t| t.record_beside(Op::Constant(Constant(value.cast(dtype))), dtype, shape.into(), &[]))
    }

    /// A tensor of this shape with the index along `axis`, on this formula's device.
    pub(crate) fn iota(&self, dtype: DType, shape: &[usize], axis: usize) -> Formula {
        self.then(|t| t.record_beside(Op::Iota(Iota { axis }), dtype, shape.into(), &[]))
    }

    /// A constant of this formula's shape, dtype and device.
    pub(crate) fn like(&self, value: impl Into<Scalar>) -> Formula {
        self.then(|t| Formula::of(t).constant(t.dtype(), t.shape(), value.into()).0)
    }

    /// A tensor of this formula's shape with the index along `axis`.
    pub(crate) fn iota_like(&self, dtype: DType, axis: usize) -> Formula {
        self.then(|t| Formula::of(t).iota(dtype, t.shape(), axis).0)
    }

    /// Converts to the compute dtype: `float32` for 16-bit floats. 8-bit floats are an error.
    pub(crate) fn wide(term: &Term) -> Formula {
        if term.dtype().float8().is_some() {
            return Formula(Err(Error::dtype("compute", &[term.dtype()], FLOAT8_HINT)));
        }
        Formula::of(term).cast(term.dtype().compute())
    }

    /// Applies a fallible step.
    pub(crate) fn then(&self, step: impl FnOnce(&Term) -> Result<Term>) -> Formula {
        Formula(match &self.0 {
            Ok(tensor) => step(tensor),
            Err(error) => Err(error.clone()),
        })
    }

    fn node(&self, op: Op, shape: impl FnOnce(&Term) -> Dims) -> Formula {
        self.then(|t| Term::record(op, t.dtype(), shape(t), &[t]))
    }

    /// Applies an elementwise function of one argument.
    pub(crate) fn unary(&self, function: Unary) -> Formula {
        self.then(|t| Term::record(Op::Unary(function), function.result(t.dtype()), t.shape().into(), &[t]))
    }

    /// Applies an elementwise function of two arguments.
    pub(crate) fn binary(&self, function: Binary, other: &Formula) -> Formula {
        let (a, b) = match (&self.0, &other.0) {
            (Ok(a), Ok(b)) => (a, b),
            (Err(error), _) | (_, Err(error)) => return Formula(Err(error.clone())),
        };
        let record = || {
            let shape = stretched(a, b)?;
            let (a, b) = (expanded(a, &shape)?, expanded(b, &shape)?);
            Term::record(Op::Binary(function), function.result(a.dtype()), shape, &[&a, &b])
        };
        Formula(record())
    }

    /// Selects elements of `then` where `self` (`bool`) is true, of `otherwise` elsewhere.
    pub(crate) fn choose(&self, then: &Formula, otherwise: &Formula) -> Formula {
        let record = || {
            let (condition, then, otherwise) = (self.0.clone()?, then.0.clone()?, otherwise.0.clone()?);
            let shape = stretched(&then, &otherwise)?;
            let condition = expanded(&condition, &shape)?;
            let (then, otherwise) = (expanded(&then, &shape)?, expanded(&otherwise, &shape)?);
            Term::record(Op::Where, then.dtype(), shape, &[&condition, &then, &otherwise])
        };
        Formula(record())
    }

    /// `self` where `condition` holds, 0 elsewhere.
    pub(crate) fn only_where(&self, condition: &Formula) -> Formula {
        condition.choose(self, &self.like(0.0))
    }

    /// Converts to another dtype.
    pub(crate) fn cast(&self, dtype: DType) -> Formula {
        self.then(|t| {
            if t.dtype() == dtype {
                return Ok(t.clone());
            }
            Term::record(Op::Cast, dtype, t.shape().into(), &[t])
        })
    }

    /// Reduces axes to size 1.
    pub(crate) fn reduce(&self, combine: Combine, axes: Axes) -> Formula {
        let shrink = |t: &Term| {
            t.shape().iter().enumerate().map(|(axis, &d)| if axes.contains(axis) { 1 } else { d }).collect()
        };
        self.node(Op::Reduce(Reduce { combine, axes }), shrink)
    }

    /// Sums over axes, which become size 1.
    pub(crate) fn sum(&self, axes: Axes) -> Formula {
        self.reduce(Combine::Sum, axes)
    }

    /// The cumulative combination along an axis.
    pub(crate) fn scan(&self, combine: Combine, axis: usize, reverse: bool) -> Formula {
        self.node(Op::Scan(Scan { combine, axis, reverse }), |t| t.shape().into())
    }

    /// A collective with a result of this shape.
    pub(crate) fn collective(&self, collective: Collective, shape: &[usize]) -> Formula {
        self.node(Op::Collective(collective), |_| shape.into())
    }

    /// Changes the shape; elements keep their row-major order.
    pub(crate) fn reshape(&self, shape: &[usize]) -> Formula {
        self.then(|t| {
            if t.shape() == shape {
                return Ok(t.clone());
            }
            Term::record(Op::Reshape, t.dtype(), shape.into(), &[t])
        })
    }

    /// Axis i of the result is axis `permutation[i]`.
    pub(crate) fn permute(&self, permutation: &[usize]) -> Formula {
        let order = permutation.iter().map(|&axis| axis as u8).collect();
        self.node(Op::Permute(Permute(order)), |t| permutation.iter().map(|&axis| t.shape()[axis]).collect())
    }

    /// Swaps the last two axes.
    pub(crate) fn transpose(&self) -> Formula {
        self.then(|t| {
            let mut order: SmallVec<[usize; 8]> = (0..t.rank()).collect();
            let last =
                order.len().checked_sub(2).ok_or_else(|| Error::internal("transpose", "rank below 2"))?;
            order.swap(last, last + 1);
            Formula::of(t).permute(&order).0
        })
    }

    /// Broadcasts axes of size 1 to `shape` (of the same rank).
    pub(crate) fn expand(&self, shape: &[usize]) -> Formula {
        self.then(|t| expanded(t, shape))
    }

    /// `count` elements along `axis` from `start`.
    pub(crate) fn narrow(&self, axis: usize, start: usize, count: usize) -> Formula {
        self.then(|t| {
            if start == 0 && count == t.shape()[axis] {
                return Ok(t.clone());
            }
            let mut shape: Dims = t.shape().into();
            shape[axis] = count;
            let mut from = Dims::from_elem(0, t.rank());
            from[axis] = start;
            let op = Op::Slice(Slice { start: from, step: SmallVec::from_elem(1, t.rank()) });
            Term::record(op, t.dtype(), shape, &[t])
        })
    }

    /// Selects one index along `axis`, and removes the axis.
    pub(crate) fn select(&self, axis: usize, index: usize) -> Formula {
        self.narrow(axis, index, 1).then(|t| {
            let mut shape: Dims = t.shape().into();
            shape.remove(axis);
            Formula::of(t).reshape(&shape).0
        })
    }

    /// Reverses the elements along `axis`.
    pub(crate) fn flip(&self, axis: usize) -> Formula {
        self.then(|t| {
            let mut start = Dims::from_elem(0, t.rank());
            start[axis] = t.shape()[axis].saturating_sub(1);
            let mut step = SmallVec::from_elem(1, t.rank());
            step[axis] = -1;
            Term::record(Op::Slice(Slice { start, step }), t.dtype(), t.shape().into(), &[t])
        })
    }

    /// Pads with this value: one `(before, after)` pair per axis.
    pub(crate) fn pad(&self, padding: &[(usize, usize)], value: impl Into<Scalar>) -> Formula {
        self.then(|t| {
            if padding.iter().all(|&p| p == (0, 0)) {
                return Ok(t.clone());
            }
            let shape = t.shape().iter().zip(padding).map(|(d, p)| d + p.0 + p.1).collect();
            let op = Op::Pad(Pad { padding: padding.into(), value: value.into().cast(t.dtype()) });
            Term::record(op, t.dtype(), shape, &[t])
        })
    }

    /// Pads one axis before and after.
    pub(crate) fn pad_axis(
        &self,
        axis: usize,
        before: usize,
        after: usize,
        value: impl Into<Scalar>,
    ) -> Formula {
        self.then(|t| {
            let mut padding: SmallVec<[(usize, usize); 4]> = SmallVec::from_elem((0, 0), t.rank());
            padding[axis] = (before, after);
            Formula::of(t).pad(&padding, value).0
        })
    }

    /// Concatenates tensors along `axis`.
    pub(crate) fn cat(parts: &[Formula], axis: usize) -> Formula {
        let record = || {
            let parts: Vec<Term> = parts.iter().map(|p| p.0.clone()).collect::<Result<_>>()?;
            let [first, rest @ ..] = parts.as_slice() else {
                return Err(Error::internal("cat", "expected at least one part"));
            };
            if rest.is_empty() {
                return Ok(first.clone());
            }
            let mut shape: Dims = first.shape().into();
            shape[axis] = parts.iter().map(|p| p.shape()[axis]).sum();
            Term::record(Op::Cat(Cat { axis }), first.dtype(), shape, &parts.iter().collect::<Vec<_>>())
        };
        Formula(record())
    }

    /// The matrix product over the last two axes; the leading axes must be equal.
    pub(crate) fn dot(&self, other: &Formula) -> Formula {
        self.product(other, MatmulPrecision::Highest)
    }

    /// As [`Formula::dot`], with a result of this dtype: that of the factors, or the one in which theirs are summed.
    pub(crate) fn dot_as(&self, other: &Formula, dtype: DType) -> Formula {
        self.product_as(other, MatmulPrecision::Highest, dtype)
    }

    /// As [`Formula::dot`], in this precision.
    pub(crate) fn product(&self, other: &Formula, precision: MatmulPrecision) -> Formula {
        match &self.0 {
            Ok(term) => self.product_as(other, precision, term.dtype()),
            Err(_) => self.clone(),
        }
    }

    fn product_as(&self, other: &Formula, precision: MatmulPrecision, dtype: DType) -> Formula {
        let record = || {
            let (a, b) = (self.0.clone()?, other.0.clone()?);
            let mut shape: Dims = a.shape().into();
            shape[a.rank() - 1] = b.shape()[b.rank() - 1];
            precision::record(precision, Op::Dot, dtype, shape, [&a, &b])
        };
        Formula(record())
    }

    /// Selects rows of `self [N, D]` at `index [M]`.
    pub(crate) fn gather(&self, index: &Formula, range: IndexRange) -> Formula {
        let record = || {
            let (x, index) = (self.0.clone()?, index.0.clone()?);
            let shape = Dims::from_slice(&[index.shape()[0], x.shape()[1]]);
            Term::record(Op::Gather(Gather(range)), x.dtype(), shape, &[&x, &index])
        };
        Formula(record())
    }

    /// Updates rows of `self [N, D]` at `index [M]` by `updates [M, D]`.
    pub(crate) fn scatter(
        &self,
        (mode, range): (ScatterMode, IndexRange),
        index: &Formula,
        updates: &Formula,
    ) -> Formula {
        let record = || {
            let (x, index, updates) = (self.0.clone()?, index.0.clone()?, updates.0.clone()?);
            Term::record(
                Op::Scatter(Scatter(mode, range)),
                x.dtype(),
                x.shape().into(),
                &[&x, &index, &updates],
            )
        };
        Formula(record())
    }

    /// The same values without a gradient.
    pub(crate) fn detach(&self) -> Formula {
        self.then(Term::detach)
    }

    /// The number of elements along these axes, as a float.
    pub(crate) fn count(&self, axes: Axes) -> f64 {
        match &self.0 {
            Ok(t) => t
                .shape()
                .iter()
                .enumerate()
                .filter(|(axis, _)| axes.contains(*axis))
                .map(|(_, &d)| d as f64)
                .product(),
            Err(_) => 1.0,
        }
    }

    /// The logistic function `1 / (1 + exp(-x))` of floats. It is computed as `e / (1 + e)` or `1 / (1 + e)` with `e =
    /// exp(-|x|)`, so neither it nor its derivatives overflow. The absolute value is a selection by sign, because the
    /// derivative of `abs` at 0 is 0.
    pub(crate) fn sigmoid(&self) -> Formula {
        let negative = self.lt(&self.like(0.0));
        let e = negative.choose(self, &-self).exp();
        negative.choose(&e, &e.like(1.0)) / (e + 1.0)
    }

    /// The mean over axes, which become size 1.
    pub(crate) fn mean(&self, axes: Axes) -> Formula {
        self.sum(axes) / self.count(axes)
    }

    /// The mean and the (biased) variance over axes, which become size 1.
    ///
    /// If batches are summed, in one pass over the elements, after one over a sixteenth of them: the mean `s` of the first
    /// sixteenth of the batch is subtracted, and the variance is the mean of squares less the square of the mean. If a
    /// share `f` of the elements has mean `s`, the variance is at least `f (mean - s)^2`, so the subtraction enlarges
    /// the relative error of a sum at most `1 + 1 / f`, 17 times. Within a row, which kernels keep in registers,
    /// deviations from the mean are squared.
    pub(crate) fn moments(&self, axes: Axes) -> (Formula, Formula) {
        let square = |x: &Formula| (x * x).mean(axes);
        if !axes.contains(0) {
            let mean = self.mean(axes);
            let variance = square(&(self - &mean));
            return (mean, variance);
        }
        let first = self.then(|t| Formula::of(t).narrow(0, 0, t.shape()[0].div_ceil(16)).0);
        // The shift cancels in the derivative.
        let shift = first.mean(axes).detach();
        let x = self - &shift;
        let mean = x.mean(axes);
        let variance = square(&x) - &mean * &mean;
        (shift + mean, variance.max(&variance.like(0.0)))
    }
}

/// The common shape of two terms of the same rank, by broadcasting.
fn stretched(a: &Term, b: &Term) -> Result<Dims> {
    if a.rank() != b.rank() || a.dtype() != b.dtype() {
        let found = format!("{} {:?} with {} {:?}", a.dtype(), a.shape(), b.dtype(), b.shape());
        return Err(Error::internal("formula", found));
    }
    Ok(a.shape().iter().zip(b.shape()).map(|(&x, &y)| if x == 1 { y } else { x }).collect())
}

fn expanded(t: &Term, shape: &[usize]) -> Result<Term> {
    if t.shape() == shape {
        return Ok(t.clone());
    }
    if t.rank() != shape.len() || t.shape().iter().zip(shape).any(|(&d, &s)| d != s && d != 1) {
        return Err(Error::internal("formula", format!("{:?} cannot be broadcast to {shape:?}", t.shape())));
    }
    Term::record(Op::Expand, t.dtype(), shape.into(), &[t])
}

macro_rules! functions {
    ($($name:ident $function:ident)*) => { impl Formula { $(
        pub(crate) fn $name(&self) -> Formula { self.unary(Unary::$function) }
    )* } };
}
functions! {
    sign Sign  rsqrt Rsqrt  exp Exp  log Log  log1p Log1p  sin Sin  cos Cos  sinh Sinh
    cosh Cosh  tanh Tanh  erf Erf  digamma Digamma  round Round  is_nan IsNan
}

macro_rules! comparisons {
    ($($name:ident $function:ident)*) => { impl Formula { $(
        pub(crate) fn $name(&self, other: &Formula) -> Formula { self.binary(Binary::$function, other) }
    )* } };
}
comparisons! { lt Lt  le Le  eq Eq  and And  or Or  max Max  min Min  pow Pow  floor_div FloorDiv }

macro_rules! operators {
    ($($operator:ident $method:ident $function:ident)*) => { $(
        impl $operator<Formula> for Formula {
            type Output = Formula;
            fn $method(self, other: Formula) -> Formula { self.binary(Binary::$function, &other) }
        }
        impl $operator<&Formula> for Formula {
            type Output = Formula;
            fn $method(self, other: &Formula) -> Formula { self.binary(Binary::$function, other) }
        }
        impl $operator<Formula> for &Formula {
            type Output = Formula;
            fn $method(self, other: Formula) -> Formula { self.binary(Binary::$function, &other) }
        }
        impl $operator<&Formula> for &Formula {
            type Output = Formula;
            fn $method(self, other: &Formula) -> Formula { self.binary(Binary::$function, other) }
        }
        impl $operator<f64> for Formula {
            type Output = Formula;
            fn $method(self, other: f64) -> Formula { self.binary(Binary::$function, &self.like(other)) }
        }
        impl $operator<f64> for &Formula {
            type Output = Formula;
            fn $method(self, other: f64) -> Formula { self.binary(Binary::$function, &self.like(other)) }
        }
        impl $operator<Formula> for f64 {
            type Output = Formula;
            fn $method(self, other: Formula) -> Formula { other.like(self).binary(Binary::$function, &other) }
        }
        impl $operator<&Formula> for f64 {
            type Output = Formula;
            fn $method(self, other: &Formula) -> Formula { other.like(self).binary(Binary::$function, other) }
        }
    )* };
}
operators! { Add add Add  Sub sub Sub  Mul mul Mul  Div div Div }

impl Neg for Formula {
    type Output = Formula;
    fn neg(self) -> Formula {
        self.unary(Unary::Neg)
    }
}
impl Neg for &Formula {
    type Output = Formula;
    fn neg(self) -> Formula {
        self.unary(Unary::Neg)
    }
}
