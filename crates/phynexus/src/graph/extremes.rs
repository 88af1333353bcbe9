//! Known bounds of integers. An index known to be in range needs no check on the device, which would make the host
//! wait.

use std::sync::{Arc, Mutex, PoisonError};

use smallvec::SmallVec;

use super::{Tensor, node::Node};
use crate::{
    DType, Scalar,
    op::{ArgReduce, Binary, Combine, Constant, Iota, Op, Pad, Pool, PoolKind, Reduce, Scan},
    shape::element_count,
};

/// Known bounds of a tensor's integers.
#[derive(Clone)]
pub(crate) struct Extremes {
    least: i64,
    greatest: i64,
    /// True if both bounds are attained by elements.
    exact: bool,
    /// Arguments of the function being captured on which the bounds depend. They may not hold for other arguments.
    arguments: SmallVec<[Arc<Reliance>; 1]>,
}

/// The range that the elements of a captured function's argument must lie in, if the recording relies on one.
#[derive(Default)]
pub(crate) struct Reliance(Mutex<Option<(i64, i64)>>);

impl Reliance {
    pub(crate) fn needed(&self) -> Option<(i64, i64)> {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, (least, greatest): (i64, i64)) {
        let mut needed = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *needed = Some(needed.map_or((least, greatest), |(low, high)| (low.max(least), high.min(greatest))));
    }
}

impl Extremes {
    fn between(least: i64, greatest: i64) -> Extremes {
        Extremes { least, greatest, exact: false, arguments: SmallVec::new() }
    }

    /// Returns the extremes of little-endian elements; `None` for empty data and for dtypes other than integers up to
    /// 64 signed bits.
    pub(crate) fn of_bytes(bytes: &[u8], dtype: DType) -> Option<Extremes> {
        macro_rules! of {
            ($t:ty) => {{
                let elements = bytes.as_chunks().0.iter().map(|c| <$t>::from_le_bytes(*c));
                let ends =
                    elements.fold((<$t>::MAX, <$t>::MIN), |(least, most), x| (least.min(x), most.max(x)));
                (i64::from(ends.0), i64::from(ends.1))
            }};
        }
        let (least, greatest) = match dtype {
            _ if bytes.is_empty() => return None,
            DType::I8 => of!(i8),
            DType::I16 => of!(i16),
            DType::I32 => of!(i32),
            DType::I64 => of!(i64),
            DType::U8 => of!(u8),
            DType::U16 => of!(u16),
            DType::U32 => of!(u32),
            _ => return None,
        };
        Some(Extremes { exact: true, ..Extremes::between(least, greatest) })
    }

    /// For a result that has only some of the elements.
    pub(crate) fn into_bounds(self) -> Extremes {
        Extremes { exact: false, ..self }
    }

    /// Returns the bounds of both together.
    pub(crate) fn with(mut self, other: &Extremes) -> Extremes {
        for argument in &other.arguments {
            if !self.arguments.iter().any(|known| Arc::ptr_eq(known, argument)) {
                self.arguments.push(argument.clone());
            }
        }
        let (least, greatest) = (self.least.min(other.least), self.greatest.max(other.greatest));
        Extremes { least, greatest, exact: self.exact && other.exact, ..self }
    }

    /// Derives the bounds of an operation's result.
    pub(crate) fn of_result(
        op: &Op,
        dtype: DType,
        shape: &[usize],
        operands: &[Arc<Node>],
    ) -> Option<Extremes> {
        if !dtype.is_integer() || shape.contains(&0) {
            return None;
        }
        let of = |i: usize| operands.get(i)?.known();
        let bounds = |i: usize| of(i).map(Extremes::into_bounds);
        let first = || Some(&*operands.first()?.signature.shape);
        let below = |count: usize| Some(Extremes::between(0, i64::try_from(count).ok()? - 1));
        let known = match op {
            Op::Reshape | Op::Permute(_) | Op::Expand | Op::Contiguous | Op::Copy | Op::Cast => of(0)?,
            Op::Slice(_) | Op::Gather(_) => bounds(0)?,
            Op::Reduce(Reduce { combine: Combine::Max | Combine::Min, .. })
            | Op::Scan(Scan { combine: Combine::Max | Combine::Min, .. }) => bounds(0)?,
            Op::Cat(_) => {
                let parts = operands.iter().filter(|part| !part.signature.shape.contains(&0));
                let parts = parts.map(|part| part.known());
                parts.reduce(|a, b| Some(a?.with(&b?)))??
            }
            Op::Where => bounds(1)?.with(&bounds(2)?),
            Op::Pad(Pad { value, .. }) => bounds(0)?.with(&of_scalar(*value)?),
            Op::Iota(Iota { axis }) => below(shape[*axis])?,
            Op::ArgReduce(ArgReduce { axis, .. }) => below(first()?[*axis])?,
            Op::ArgSort(_) => below(*shape.last()?)?,
            Op::SearchSorted(_) => below(element_count(first()?) + 1)?,
            Op::Pool(Pool(PoolKind::ArgMax, _)) => below(element_count(&first()?[2..]))?,
            Op::Binary(function) => of_arithmetic(*function, of(0), of(1))?,
            _ => return None,
        };
        // A cast wraps values that do not fit.
        let fits = |end: i64| match Scalar::Int(end).cast(dtype) {
            Scalar::Int(cast) => cast == end,
            Scalar::UInt(cast) => end >= 0 && cast == end as u64,
            _ => false,
        };
        (fits(known.least) && fits(known.greatest)).then_some(known)
    }
}

fn of_scalar(value: Scalar) -> Option<Extremes> {
    let value = match value {
        Scalar::Bool(value) => value.into(),
        Scalar::Int(value) => value,
        Scalar::UInt(value) => i64::try_from(value).ok()?,
        Scalar::Float(_) => return None,
    };
    Some(Extremes { exact: true, ..Extremes::between(value, value) })
}

/// Derives the bounds of integer arithmetic, but not for captured arguments. A recording would then rely on the bounds
/// of the operands themselves.
fn of_arithmetic(function: Binary, a: Option<Extremes>, b: Option<Extremes>) -> Option<Extremes> {
    let fixed = |known: &Extremes| known.arguments.is_empty();
    let b = b.filter(fixed)?;
    if function == Binary::Remainder {
        return (b.least > 0).then(|| Extremes::between(0, b.greatest - 1));
    }
    let a = a.filter(fixed)?;
    let each = |f: fn(i64, i64) -> Option<i64>| {
        let pairs =
            [(a.least, b.least), (a.least, b.greatest), (a.greatest, b.least), (a.greatest, b.greatest)];
        let results: Vec<i64> = pairs.into_iter().map(|(a, b)| f(a, b)).collect::<Option<_>>()?;
        Some(Extremes::between(*results.iter().min()?, *results.iter().max()?))
    };
    // Each function is monotonic in either operand, so its extremes are at the ends.
    match function {
        Binary::Add => each(i64::checked_add),
        Binary::Sub => each(i64::checked_sub),
        Binary::Mul => each(i64::checked_mul),
        Binary::Max => each(|a, b| Some(a.max(b))),
        Binary::Min => each(|a, b| Some(a.min(b))),
        _ => None,
    }
}

impl Node {
    /// Returns the known bounds of its integers or booleans.
    fn known(&self) -> Option<Extremes> {
        match self.op() {
            Op::Constant(Constant(value)) => of_scalar(*value),
            _ if self.signature.dtype == DType::Bool => Some(Extremes::between(0, 1)),
            _ => self.body().extremes.as_deref().cloned(),
        }
    }
}

impl Tensor {
    pub(crate) fn note(&self, known: Option<Extremes>) {
        if let Some(known) = known {
            self.node().body().extremes = Some(Box::new(known));
        }
    }

    /// Returns the least and the greatest element, if they are known. They are known for integers that came from the
    /// host.
    pub fn extremes(&self) -> Option<(i64, i64)> {
        self.node().known().filter(|known| known.exact).map(|known| (known.least, known.greatest))
    }

    /// Returns whether every element is known to lie in this range, inclusive. If a function is being captured, its
    /// recording relies on this from now on.
    pub(crate) fn is_known_within(&self, least: i64, greatest: i64) -> bool {
        let known = self.node().known().filter(|known| least <= known.least && known.greatest <= greatest);
        known.iter().flat_map(|known| &known.arguments).for_each(|argument| argument.add((least, greatest)));
        known.is_some()
    }

    /// Notes that every element lies within the bounds known for another tensor.
    pub(crate) fn note_bounds_of(&self, other: &Tensor) {
        self.note(other.node().known().map(Extremes::into_bounds));
    }

    /// Copies the bounds known for another tensor with the same elements, for an argument of a function being captured.
    pub(crate) fn note_argument(&self, other: &Tensor, reliance: Arc<Reliance>) {
        self.note(
            other
                .node()
                .known()
                .map(|known| Extremes { arguments: SmallVec::from_elem(reliance, 1), ..known }),
        );
    }
}
