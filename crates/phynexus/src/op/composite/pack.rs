//! Several results in one flat buffer.

use crate::{
    Error, Result, Scalar,
    op::{Binary, Cat, Constant, Op, Pad, formula::Formula, term::Term},
    shape::{Dims, checked_element_count, element_count},
};

/// The number of elements of these parts together.
pub(super) fn packed_len(op: &'static str, parts: &[Dims]) -> Result<usize> {
    let total = parts.iter().try_fold(0usize, |sum, part| sum.checked_add(checked_element_count(part)?));
    total.ok_or_else(|| {
        let shapes: Vec<&[usize]> = parts.iter().map(|part| part.as_slice()).collect();
        Error::shape(op, &shapes, "the result would exceed the address space")
    })
}

/// The parts one after another.
pub(super) fn pack(parts: &[Formula]) -> Formula {
    let flat: Vec<Formula> =
        parts.iter().map(|p| p.then(|t| Formula::of(t).reshape(&[t.len()]).term())).collect();
    Formula::cat(&flat, 0)
}

/// Reads parts of a packed buffer in order.
pub(crate) struct Unpack<'a> {
    packed: &'a Term,
    at: usize,
}

impl<'a> Unpack<'a> {
    pub(crate) fn new(packed: &'a Term) -> Unpack<'a> {
        Unpack { packed, at: 0 }
    }

    /// The next part, of this shape.
    pub(crate) fn next(&mut self, shape: &[usize]) -> Formula {
        let count = element_count(shape);
        let part = Formula::of(self.packed).narrow(0, self.at, count).reshape(shape);
        self.at += count;
        part
    }

    /// The next part of a gradient, of this shape; `None` if it is known to be zero. A packed gradient is a sum of padded
    /// parts, or has them side by side: the part is read from before that where possible, and nothing is copied.
    pub(super) fn next_gradient(&mut self, shape: &[usize]) -> Result<Option<Formula>> {
        let count = element_count(shape);
        let part = part(self.packed, self.at, count, SEARCH_DEPTH)?;
        self.at += count;
        Ok(part.map(|part| part.reshape(shape)))
    }
}

/// How many nested sums are looked through.
const SEARCH_DEPTH: usize = 16;

fn part(packed: &Term, start: usize, count: usize, depth: usize) -> Result<Option<Formula>> {
    let zero = |scalar: Scalar| scalar.as_f64() == 0.0;
    let Some((op, sources)) = packed.definition() else {
        return Ok(Some(Formula::of(packed).narrow(0, start, count)));
    };
    match (op, sources.as_slice()) {
        (Op::Constant(Constant(value)), _) if zero(*value) => return Ok(None),
        (Op::Binary(Binary::Add), [a, b]) if depth > 0 => {
            let one = part(a, start, count, depth - 1)?;
            let other = part(b, start, count, depth - 1)?;
            return Ok(match (one, other) {
                (Some(one), Some(other)) => Some(one + other),
                (one, other) => one.or(other),
            });
        }
        (Op::Pad(Pad { padding, value }), [inner]) if zero(*value) && depth > 0 => {
            let (first, end) = (padding[0].0, padding[0].0 + inner.len());
            if end <= start || start + count <= first {
                return Ok(None);
            }
            if first <= start && start + count <= end {
                return part(inner, start - first, count, depth - 1);
            }
            if start <= first && end <= start + count {
                let padded = Formula::of(inner).pad_axis(0, first - start, start + count - end, 0.0);
                return Ok(Some(padded));
            }
        }
        (Op::Cat(Cat { axis: 0 }), parts) if depth > 0 => {
            let mut first = 0;
            for source in parts {
                let end = first + source.len();
                if first <= start && start + count <= end {
                    return part(source, start - first, count, depth - 1);
                }
                first = end;
            }
        }
        _ => {}
    }
    Ok(Some(Formula::of(packed).narrow(0, start, count)))
}
