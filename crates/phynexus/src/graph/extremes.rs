//! Between what integers are known to lie. An index that is known to be in range needs no check on the device, for which
//! the host would have to wait.

use std::sync::{Arc, Mutex, PoisonError};

use smallvec::SmallVec;

use super::Tensor;
use crate::{
    DType, Scalar,
    op::{Binary, Combine, Op, PoolKind},
};

/// Between what integers are known to lie.
#[derive(Clone)]
pub(crate) struct Extremes {
    least: i64,
    greatest: i64,
    /// True if both are elements, and not only bounds.
    exact: bool,
    /// The arguments of a function that is being captured from which elements come: for other arguments it may not hold.
    arguments: SmallVec<[Arc<Reliance>; 1]>,
}

/// Between what the elements of a captured function's argument must lie for what was recorded, if it relies on that.
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

    /// The extremes of row-major elements; none of 64 unsigned bits.
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

    /// Of which only some elements remain.
    pub(crate) fn into_bounds(self) -> Extremes {
        Extremes { exact: false, ..self }
    }

    /// Those of both together.
    pub(crate) fn with(mut self, other: &Extremes) -> Extremes {
        for argument in &other.arguments {
            if !self.arguments.iter().any(|known| Arc::ptr_eq(known, argument)) {
                self.arguments.push(argument.clone());
            }
        }
        let (least, greatest) = (self.least.min(other.least), self.greatest.max(other.greatest));
        Extremes { least, greatest, exact: self.exact && other.exact, ..self }
    }

    /// What follows for the result of an operation.
    pub(crate) fn of_result(
        op: &Op,
        dtype: DType,
        shape: &[usize],
        operands: &[&Tensor],
    ) -> Option<Extremes> {
        if !dtype.is_integer() || shape.contains(&0) {
            return None;
        }
        let of = |i: usize| operands.get(i)?.known();
        let bounds = |i: usize| of(i).map(Extremes::into_bounds);
        let below = |count: usize| Some(Extremes::between(0, i64::try_from(count).ok()? - 1));
        let known = match op {
            Op::Reshape | Op::Permute(_) | Op::Expand | Op::Contiguous | Op::Copy | Op::Cast => of(0)?,
            Op::Slice { .. } | Op::Gather(_) => bounds(0)?,
            Op::Reduce { combine: Combine::Max | Combine::Min, .. }
            | Op::Scan { combine: Combine::Max | Combine::Min, .. } => bounds(0)?,
            Op::Cat { .. } => {
                let parts = operands.iter().filter(|part| !part.is_empty()).map(|part| part.known());
                parts.reduce(|a, b| Some(a?.with(&b?)))??
            }
            Op::Where => bounds(1)?.with(&bounds(2)?),
            Op::Pad { value, .. } => bounds(0)?.with(&of_scalar(*value)?),
            Op::Iota { axis } => below(shape[*axis])?,
            Op::ArgReduce { axis, .. } => below(operands.first()?.shape()[*axis])?,
            Op::ArgSort { .. } => below(*shape.last()?)?,
            Op::SearchSorted { .. } => below(operands.first()?.len() + 1)?,
            Op::Pool(PoolKind::ArgMax, _) => below(operands.first()?.shape()[2..].iter().product())?,
            Op::Binary(function) => of_arithmetic(*function, of(0), of(1))?,
            _ => return None,
        };
        // What does not fit wraps.
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

/// What follows for a function of integers that do not come from arguments, on whose own bounds a recording would rely then.
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
    // Monotonic in either operand, so that the extremes are among those of the ends.
    match function {
        Binary::Add => each(i64::checked_add),
        Binary::Sub => each(i64::checked_sub),
        Binary::Mul => each(i64::checked_mul),
        Binary::Max => each(|a, b| Some(a.max(b))),
        Binary::Min => each(|a, b| Some(a.min(b))),
        _ => None,
    }
}

impl Tensor {
    pub(crate) fn note(&self, known: Option<Extremes>) {
        if let Some(known) = known {
            self.node().body().extremes = Some(Box::new(known));
        }
    }

    /// Between what its integers or truth values are known to lie.
    fn known(&self) -> Option<Extremes> {
        match self.node().op() {
            Op::Constant(value) => of_scalar(*value),
            _ if self.dtype() == DType::Bool => Some(Extremes::between(0, 1)),
            _ => self.node().body().extremes.as_deref().cloned(),
        }
    }

    /// The least and the greatest element, if both are known: of integers that came from the host.
    pub fn extremes(&self) -> Option<(i64, i64)> {
        self.known().filter(|known| known.exact).map(|known| (known.least, known.greatest))
    }

    /// True if every element is known to lie between these, both included. While a function is captured, its recording relies on
    /// that from then on.
    pub(crate) fn is_known_within(&self, least: i64, greatest: i64) -> bool {
        let known = self.known().filter(|known| least <= known.least && known.greatest <= greatest);
        known.iter().flat_map(|known| &known.arguments).for_each(|argument| argument.add((least, greatest)));
        known.is_some()
    }

    /// Takes over what is known of another tensor with the same elements, as an argument of a function that is being captured.
    pub(crate) fn note_argument(&self, other: &Tensor, reliance: Arc<Reliance>) {
        self.note(
            other.known().map(|known| Extremes { arguments: SmallVec::from_elem(reliance, 1), ..known }),
        );
    }
}
