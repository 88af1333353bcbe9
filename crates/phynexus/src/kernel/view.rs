//! Views as index transformations: maps an element of a view's result to its place in the input.

use std::fmt;

use smallvec::SmallVec;

use super::index::{Atom, Index, Ranges, Term};
use crate::{
    Error, Result,
    op::{Op, Pad, Permute, Slice},
    shape::element_count,
};

/// A list of coordinates, one per axis.
pub type Coordinates = SmallVec<[Index; 4]>;

/// Where a padded tensor has elements: all conditions must hold. Without conditions, it holds everywhere.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Mask(Vec<Condition>);

/// `low <= index < high`. In a [`Mask`], the index has no constant term, its factors have no common divisor, the first
/// is positive, and the interval is within the index's bounds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Condition {
    /// The index that is compared.
    pub index: Index,
    /// The least value that satisfies the condition.
    pub low: i64,
    /// The end of the interval, exclusive.
    pub high: i64,
}

impl Mask {
    /// The mask of one condition.
    pub fn within(index: &Index, low: i64, high: i64, ranges: &Ranges) -> Mask {
        let offset = index.offset();
        let (mut index, mut low, mut high) = (index.shift(-offset), low - offset, high - offset);
        if index.terms().first().is_some_and(|t| t.factor < 0) {
            (index, low, high) = (index.scale(-1), 1 - high, 1 - low);
        }
        let common = index.common_factor();
        if common > 1 {
            let ceiling = |bound: i64| -(-bound).div_euclid(common);
            (index, low, high) = (index.quotient(common, ranges), ceiling(low), ceiling(high));
        }
        let (least, greatest) = index.bounds(ranges);
        let (low, high) = (low.max(least), high.min(greatest + 1));
        if low == least && high == greatest + 1 {
            return Mask::default();
        }
        // All unsatisfiable conditions have the same form.
        let never = Condition { index: Index::default(), low: 0, high: 0 };
        let condition = if low >= high { never } else { Condition { index, low, high } };
        Mask(vec![condition])
    }

    /// The intersection of two masks.
    pub fn and(&self, other: &Mask) -> Mask {
        let mut conditions = self.0.clone();
        for condition in &other.0 {
            match conditions.iter_mut().find(|c| c.index == condition.index) {
                Some(same) => {
                    same.low = same.low.max(condition.low);
                    same.high = same.high.min(condition.high);
                }
                None => conditions.push(condition.clone()),
            }
        }
        if conditions.iter().any(|c| c.low >= c.high) {
            return Mask(vec![Condition { index: Index::default(), low: 0, high: 0 }]);
        }
        conditions.sort_unstable();
        Mask(conditions)
    }

    /// The conditions.
    pub fn conditions(&self) -> &[Condition] {
        &self.0
    }

    /// True if it holds everywhere.
    pub fn is_always(&self) -> bool {
        self.0.is_empty()
    }

    /// True if it is known to hold nowhere.
    pub fn is_never(&self) -> bool {
        self.0.iter().any(|c| c.low >= c.high)
    }

    /// Whether it holds at a point.
    pub fn evaluate(&self, point: &[usize]) -> bool {
        self.0.iter().all(|c| (c.low..c.high).contains(&c.index.evaluate(point)))
    }

    /// The complement, if it is a single interval too.
    pub fn negation(&self, ranges: &Ranges) -> Option<Mask> {
        let [Condition { index, low, high }] = self.0.as_slice() else { return None };
        let (least, greatest) = index.bounds(ranges);
        if *low == least {
            Some(Mask::within(index, *high, greatest + 1, ranges))
        } else if *high == greatest + 1 {
            Some(Mask::within(index, least, *low, ranges))
        } else {
            None
        }
    }

    /// Bounds of an index where the mask holds. A condition on a sum narrows each of its atoms, and the multiple of
    /// that sum that the index contains.
    pub fn bounds_of(&self, index: &Index, ranges: &Ranges) -> (i64, i64) {
        let narrowed = |index: &Index| {
            index.terms().iter().fold((index.offset(), index.offset()), |(low, high), term| {
                let bounds = term.atom.bounds(ranges);
                let (least, greatest) =
                    self.0.iter().fold(bounds, |bounds, c| c.narrow(&term.atom, bounds, ranges));
                let ends = (least * term.factor, greatest * term.factor);
                (low + ends.0.min(ends.1), high + ends.0.max(ends.1))
            })
        };
        let mut known: Vec<(Index, i64, i64)> = Vec::new();
        for c in &self.0 {
            known.extend((c.index.terms().len() > 1).then(|| (c.index.clone(), c.low, c.high - 1)));
            known.extend(index.terms().iter().filter_map(|term| quotient_of(c, &term.atom)));
            known.extend(c.index.as_atom().and_then(|atom| dividend(atom, c.low, c.high - 1, ranges)));
            for fact in finer(&(c.index.clone(), c.low, c.high - 1), ranges) {
                known.extend(std::iter::successors(Some(fact), |fact| finer(fact, ranges).next()).take(3));
            }
        }
        // Conditions may overlap in the index, so the order matters: try each as the first.
        (0..known.len()).fold(narrowed(index), |(least, greatest), first| {
            let (mut rest, mut low, mut high) = (index.clone(), 0, 0);
            for (part, part_low, part_high) in known[first..].iter().chain(&known[..first]) {
                let times = rest.times_contained(part);
                if times != 0 {
                    let ends = (times * part_low, times * part_high);
                    rest = rest.sub(&part.scale(times));
                    (low, high) = (low + ends.0.min(ends.1), high + ends.0.max(ends.1));
                }
            }
            let summed = narrowed(&rest);
            (least.max(low + summed.0), greatest.min(high + summed.1))
        })
    }

    /// Replaces range `i` by `replacements[i]`; see [`Index::substitute`].
    pub fn substitute(&self, replacements: &[Index], ranges: &Ranges) -> Mask {
        self.0.iter().fold(Mask::default(), |mask, c| {
            let index = c.index.substitute(replacements, ranges);
            mask.and(&Mask::within(&index, c.low, c.high, ranges))
        })
    }
}

impl Condition {
    /// Narrows bounds of an atom of the index: the rest of the index is at least and at most what its atoms allow.
    fn narrow(&self, atom: &Atom, (least, greatest): (i64, i64), ranges: &Ranges) -> (i64, i64) {
        let Some(term) = self.index.terms().iter().find(|t| t.atom == *atom) else {
            return (least, greatest);
        };
        let (low, high) = self.index.sub(&Index::from(atom.clone()).scale(term.factor)).bounds(ranges);
        // `low <= factor * atom < high`, for either sign of the factor.
        let (low, high) = (self.low.saturating_sub(high), self.high.saturating_sub(1).saturating_sub(low));
        let (low, high) = if term.factor > 0 { (low, high) } else { (-high, -low) };
        let factor = term.factor.abs();
        let (low, high) = (-(-low).div_euclid(factor), high.div_euclid(factor));
        (least.max(low), greatest.min(high).max(least.max(low)))
    }
}

impl fmt::Display for Mask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, c) in self.0.iter().enumerate() {
            let and = if i > 0 { " and " } else { "" };
            write!(f, "{and}{} <= {} < {}", c.low, c.index, c.high)?;
        }
        Ok(())
    }
}

/// Derives bounds of `x` from bounds of `x % m`; the quotient has its own bounds.
fn dividend(atom: &Atom, low: i64, high: i64, ranges: &Ranges) -> Option<(Index, i64, i64)> {
    let Atom::Remainder(x, m) = atom else { return None };
    let (least, greatest) = x.bounds(ranges);
    let block = |bound: i64, rest: i64| (bound.div_euclid(*m) * m).checked_add(rest);
    Some(((**x).clone(), block(least, low)?.max(least), block(greatest, high)?.min(greatest)))
}

/// Derives bounds of an index that contains `x` from those of an index that contains the quotient `x / m`, for each of
/// its quotients: because `m * (x / m) + x % m == x`, `m` times the latter differs from the former by `0 <= x % m < m`
/// (times its factor). Likewise, a remainder `(y + x / m) % n` becomes `(m * y + x) % (m * n)`.
fn finer<'a>(
    (index, low, high): &'a (Index, i64, i64),
    ranges: &'a Ranges,
) -> impl Iterator<Item = (Index, i64, i64)> + 'a {
    let numerator = |sum: &Index, quotient: &Term| match &quotient.atom {
        Atom::Quotient(x, m) if quotient.factor == 1 => {
            Some((sum.sub(&quotient.atom.clone().into()).scale(*m).add(x), *m))
        }
        _ => None,
    };
    index.terms().iter().filter(|t| t.factor > 0).filter_map(move |term| {
        let (inner, m) = match &term.atom {
            Atom::Quotient(x, m) => ((**x).clone(), *m),
            Atom::Remainder(y, n) => {
                let (inner, m) = y.terms().iter().find_map(|q| numerator(y, q))?;
                (inner.remainder(m.checked_mul(*n)?, ranges), m)
            }
            Atom::Range(_) => return None,
        };
        let rest = index.sub(&Index::from(term.atom.clone()).scale(term.factor)).scale(m);
        let slack = term.factor.checked_mul(m - 1)?;
        let high = high.checked_mul(m)?.checked_add(slack)?;
        Some((rest.add(&inner.scale(term.factor)), low.checked_mul(m)?, high))
    })
}

/// Derives bounds of a quotient from a condition. For `atom` = `y / m` and `times * c.index == m * a + y`, the
/// canonical division is `a + y / m`; returns that sum with its minimum and maximum.
fn quotient_of(c: &Condition, atom: &Atom) -> Option<(Index, i64, i64)> {
    let Atom::Quotient(y, m) = atom else { return None };
    let times = c.index.terms().iter().find_map(|t| {
        let same = y.terms().iter().find(|u| u.atom == t.atom)?;
        (same.factor % t.factor == 0 && same.factor / t.factor > 0).then_some(same.factor / t.factor)
    });
    // The division does not reduce the innermost range, so its factors have the true ratio.
    let innermost = c.index.terms().iter().min_by_key(|t| t.factor.abs())?;
    let proportion = y.terms().iter().find(|u| u.atom == innermost.atom).map(|u| u.factor / innermost.factor);
    [proportion, times].into_iter().flatten().filter(|&times| times > 0).find_map(|times| {
        let rest = c.index.scale(times).sub(&y.shift(-y.offset()));
        let exact = rest.terms().iter().all(|t| t.factor % m == 0) && rest.offset() % m == 0;
        let low = (times * c.low + y.offset()).div_euclid(*m);
        let high = (times * (c.high - 1) + y.offset()).div_euclid(*m);
        exact.then(|| (rest.exact_quotient(*m).add(&Index::from(atom.clone())), low, high))
    })
}

/// The input coordinates that the view `op` reads for the output coordinates `coordinates`, and where it reads. Outside
/// the mask (only for `Pad`), the result is the padding value and the coordinates are meaningless.
///
/// # Errors
/// [`Error::Internal`] if `op` is not a view, or if the shapes do not fit.
pub fn through(
    op: &Op,
    input_shape: &[usize],
    output_shape: &[usize],
    coordinates: &[Index],
    ranges: &Ranges,
) -> Result<(Coordinates, Option<Mask>)> {
    let mismatch =
        || Error::internal("kernel::view", format!("{} from {input_shape:?} to {output_shape:?}", op.name()));
    let same_rank = input_shape.len() == output_shape.len();
    if coordinates.len() != output_shape.len() {
        return Err(mismatch());
    }
    let plain = |coordinates| Ok((coordinates, None));
    match op {
        Op::Reshape if element_count(input_shape) == element_count(output_shape) => {
            plain(through_reshape(input_shape, output_shape, coordinates, ranges))
        }
        Op::Permute(Permute(permutation)) if same_rank && permutation.len() == input_shape.len() => {
            let mut input = Coordinates::from_elem(Index::default(), input_shape.len());
            for (coordinate, &axis) in coordinates.iter().zip(permutation) {
                *input.get_mut(usize::from(axis)).ok_or_else(mismatch)? = coordinate.clone();
            }
            plain(input)
        }
        Op::Expand if same_rank => {
            let one = |(coordinate, &extent): (&Index, &usize)| {
                if extent == 1 { Index::default() } else { coordinate.clone() }
            };
            plain(coordinates.iter().zip(input_shape).map(one).collect())
        }
        Op::Slice(Slice { start, step })
            if same_rank && start.len() == step.len() && step.len() == input_shape.len() =>
        {
            let stepped = coordinates.iter().zip(start.iter().zip(step));
            plain(stepped.map(|(c, (&start, &step))| c.scale(step as i64).shift(start as i64)).collect())
        }
        Op::Pad(Pad { padding, .. }) if same_rank && padding.len() == input_shape.len() => {
            let mut mask = Mask::default();
            let mut input = Coordinates::new();
            for ((coordinate, &extent), &(before, _)) in coordinates.iter().zip(input_shape).zip(padding) {
                let inner = coordinate.shift(-(before as i64));
                mask = mask.and(&Mask::within(&inner, 0, extent as i64, ranges));
                input.push(inner);
            }
            Ok((input, Some(mask).filter(|m| !m.is_always())))
        }
        _ => Err(mismatch()),
    }
}

/// Flattens and unflattens each group of neighbouring axes with the same number of elements separately. Coordinates
/// that need no division stay affine.
fn through_reshape(input: &[usize], output: &[usize], coordinates: &[Index], ranges: &Ranges) -> Coordinates {
    let mut result = Coordinates::from_elem(Index::default(), input.len());
    if input.contains(&0) {
        return result;
    }
    let (mut from, mut to) = (0, 0);
    while from < input.len() || to < output.len() {
        let (first_in, first_out) = (from, to);
        let (mut size_in, mut size_out) = (1, 1);
        loop {
            // Take an axis from the side with fewer elements so far. Both sides must take one before they can match.
            if from < input.len() && (size_in < size_out || from == first_in) {
                size_in *= input[from];
                from += 1;
            } else if to < output.len() && (size_out < size_in || to == first_out) {
                size_out *= output[to];
                to += 1;
            } else {
                break;
            }
        }
        let flat = flatten(&output[first_out..to], &coordinates[first_out..to]);
        unflatten(&input[first_in..from], &flat, ranges, &mut result[first_in..from]);
    }
    result
}

fn flatten(shape: &[usize], coordinates: &[Index]) -> Index {
    coordinates
        .iter()
        .zip(shape)
        .fold(Index::default(), |flat, (c, &extent)| flat.scale(extent as i64).add(c))
}

/// Writes the coordinates of element `flat`. `flat` is in range wherever it is used, so the first coordinate needs no
/// remainder.
pub(super) fn unflatten(shape: &[usize], flat: &Index, ranges: &Ranges, coordinates: &mut [Index]) {
    let mut stride = 1;
    let first = shape.iter().position(|&extent| extent > 1).unwrap_or(0);
    for axis in (0..shape.len()).rev() {
        let extent = shape[axis] as i64;
        if extent > 1 {
            let quotient = flat.quotient(stride, ranges);
            coordinates[axis] = if axis == first { quotient } else { quotient.remainder(extent, ranges) };
        }
        stride *= extent;
    }
}

/// The position in a buffer of the element at these coordinates: `offset` plus each coordinate times its stride.
pub fn flat(coordinates: &[Index], strides: &[isize], offset: usize) -> Index {
    coordinates
        .iter()
        .zip(strides)
        .fold(Index::constant(offset as i64), |sum, (c, &stride)| sum.add(&c.scale(stride as i64)))
}

/// Ranges split into several, so that their quotients and remainders become affine.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Split {
    /// The new ranges: the parts of range 0, outermost first, then those of range 1, and so on.
    pub ranges: Ranges,
    /// The number of parts of each old range.
    pub parts: SmallVec<[u8; 6]>,
    /// Each old range in terms of the new ones, for [`Split::index`].
    pub replacements: Coordinates,
}

impl Split {
    /// Rewrites an index over the old ranges in terms of the new ones.
    pub fn index(&self, index: &Index) -> Index {
        index.substitute(&self.replacements, &self.ranges)
    }

    /// Rewrites a mask over the old ranges in terms of the new ones.
    pub fn mask(&self, mask: &Mask) -> Mask {
        mask.substitute(&self.replacements, &self.ranges)
    }
}

/// The split that makes quotients and remainders of single ranges in `indices` affine. A range stays whole if its
/// divisors do not divide each other and its extent. `None` if no range is split.
pub fn splits<'a>(indices: impl IntoIterator<Item = &'a Index>, ranges: &Ranges) -> Option<Split> {
    let mut divisors = vec![SmallVec::<[usize; 4]>::new(); ranges.len()];
    for index in indices {
        collect_divisors(index, &mut divisors);
    }
    let mut split =
        Split { ranges: Ranges::default(), parts: SmallVec::new(), replacements: SmallVec::new() };
    let mut origin = Vec::new();
    for (range, (&extent, mut strides)) in ranges.0.iter().zip(divisors).enumerate() {
        // Strides of the parts, innermost first. Each must divide the next, and the last one the extent.
        strides.extend([1, extent]);
        strides.sort_unstable();
        strides.dedup();
        if extent <= 1 || strides.windows(2).any(|pair| pair[1] % pair[0] != 0) {
            strides = SmallVec::from_slice(&[1, extent]);
        }
        for pair in strides.windows(2).rev() {
            split.ranges.0.push(pair[1] / pair[0]);
            origin.push((range, pair[0]));
        }
        split.parts.push(strides.len() as u8 - 1);
    }
    if split.ranges.len() == ranges.len() {
        return None;
    }
    split.replacements = Coordinates::from_elem(Index::default(), ranges.len());
    for (part, (range, stride)) in origin.into_iter().enumerate() {
        let summand = Index::range(part, &split.ranges).scale(stride as i64);
        split.replacements[range] = split.replacements[range].add(&summand);
    }
    Some(split)
}

/// Collects the divisors of single ranges: `k` of `r / k` and `r % k`, and `ab` of `(r / a) % b`.
fn collect_divisors(index: &Index, divisors: &mut [SmallVec<[usize; 4]>]) {
    for term in index.terms() {
        let (Atom::Quotient(inner, divisor) | Atom::Remainder(inner, divisor)) = &term.atom else { continue };
        let divided = match inner.as_atom() {
            Some(Atom::Range(range)) => Some((*range, *divisor)),
            Some(Atom::Quotient(x, first)) => match x.as_atom() {
                Some(Atom::Range(range)) => Some((*range, first * divisor)),
                _ => None,
            },
            _ => None,
        };
        if let Some((range, divisor)) = divided
            && let Some(divisors) = divisors.get_mut(usize::from(range))
        {
            divisors.push(divisor as usize);
        }
        collect_divisors(inner, divisors);
    }
}

#[cfg(test)]
mod tests;
