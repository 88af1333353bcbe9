//! Integer index expressions over ranges, simplified as they are built.
//!
//! An [`Index`] is a sum `constant + factor * atom + ...`, sorted, without zero factors or repeated atoms. An atom is a
//! range, or the quotient or remainder of another index by a constant that could not be simplified. Division rounds
//! towards negative infinity, so `x == k * (x / k) + x % k` with `0 <= x % k < k` holds for negative `x` too. All rules
//! below follow from that identity and from bounds.
//!
//! Values and factors must fit `i64`: callers index buffers, whose element counts do.

use std::fmt;

use smallvec::{SmallVec, smallvec};

/// The extents of a kernel's ranges: range `i` runs over `0..extent`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Ranges(pub SmallVec<[usize; 6]>);

impl Ranges {
    /// One range per dimension of `shape`.
    pub fn of(shape: &[usize]) -> Ranges {
        Ranges(shape.into())
    }

    /// The number of ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True if there are no ranges: a zero-dimensional space with a single point.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each range as an index: the coordinates of a tensor whose shape is the extents.
    pub fn coordinates(&self) -> SmallVec<[Index; 4]> {
        (0..self.len()).map(|range| Index::range(range, self)).collect()
    }

    /// The greatest value of a range; 0 for an empty range, which has no values.
    fn last(&self, range: u8) -> i64 {
        self.0.get(usize::from(range)).map_or(0, |&extent| extent.saturating_sub(1) as i64)
    }
}

/// A sum of constants and scaled atoms in normal form. Equal `Index` values denote the same function. The converse
/// holds for affine expressions, and in most cases for others.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Index {
    constant: i64,
    terms: SmallVec<[Term; 2]>,
}

/// One summand: `factor * atom`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Term {
    /// The sort key of the terms.
    pub atom: Atom,
    /// Never 0.
    pub factor: i64,
}

/// An atom of a sum.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Atom {
    /// The value of a range.
    Range(u8),
    /// Floor of the index divided by a constant of at least 2.
    Quotient(Box<Index>, i64),
    /// Remainder of the floor division: 0 to the divisor - 1.
    Remainder(Box<Index>, i64),
}

impl From<i64> for Index {
    fn from(constant: i64) -> Index {
        Index::constant(constant)
    }
}

impl From<Atom> for Index {
    fn from(atom: Atom) -> Index {
        Index::atom(atom)
    }
}

impl Index {
    /// A constant index.
    pub fn constant(constant: i64) -> Index {
        Index { constant, terms: SmallVec::new() }
    }

    /// The value of range `range`; 0 if that is its only value.
    pub fn range(range: usize, ranges: &Ranges) -> Index {
        let range = range as u8;
        if ranges.last(range) == 0 { Index::default() } else { Index::atom(Atom::Range(range)) }
    }

    /// Divides by a common divisor of all factors.
    pub(super) fn exact_quotient(&self, divisor: i64) -> Index {
        let divided = |t: &Term| Term { atom: t.atom.clone(), factor: t.factor / divisor };
        Index { constant: self.constant / divisor, terms: self.terms.iter().map(divided).collect() }
    }

    fn atom(atom: Atom) -> Index {
        Index { constant: 0, terms: smallvec![Term { atom, factor: 1 }] }
    }

    /// The constant term.
    pub fn offset(&self) -> i64 {
        self.constant
    }

    /// The other terms.
    pub fn terms(&self) -> &[Term] {
        &self.terms
    }

    /// The summands that do not depend on a range, and the rest, with the constant.
    pub fn split(&self, range: usize) -> (Index, Index) {
        let varies = |term: &Term| {
            Index { constant: 0, terms: [term.clone()].into_iter().collect() }.depends_on(range)
        };
        let (varying, fixed) = self.terms.iter().cloned().partition(varies);
        (Index { constant: 0, terms: fixed }, Index { constant: self.constant, terms: varying })
    }

    /// The value, if it is constant.
    pub fn as_constant(&self) -> Option<i64> {
        self.terms.is_empty().then_some(self.constant)
    }

    /// The atom, if the index is a single atom.
    pub fn as_atom(&self) -> Option<&Atom> {
        match (self.constant, self.terms.as_slice()) {
            (0, [Term { atom, factor: 1 }]) => Some(atom),
            _ => None,
        }
    }

    /// The sum of two indices.
    pub fn add(&self, other: &Index) -> Index {
        Index::sum(self.constant + other.constant, self.terms.iter().chain(&other.terms).cloned().collect())
    }

    /// The difference of two indices.
    pub fn sub(&self, other: &Index) -> Index {
        self.add(&other.scale(-1))
    }

    /// Adds a constant.
    pub fn shift(&self, constant: i64) -> Index {
        Index { constant: self.constant + constant, terms: self.terms.clone() }
    }

    /// Multiplies by a constant.
    pub fn scale(&self, factor: i64) -> Index {
        if factor == 0 {
            return Index::default();
        }
        let scaled = |t: &Term| Term { atom: t.atom.clone(), factor: t.factor * factor };
        Index { constant: self.constant * factor, terms: self.terms.iter().map(scaled).collect() }
    }

    /// Sorts terms, merges equal atoms, and joins quotients with their remainders.
    fn sum(constant: i64, mut terms: SmallVec<[Term; 2]>) -> Index {
        terms.sort_unstable_by(|a, b| a.atom.cmp(&b.atom));
        terms.dedup_by(|later, first| {
            let same = later.atom == first.atom;
            if same {
                first.factor += later.factor;
            }
            same
        });
        terms.retain(|t| t.factor != 0);
        let sum = Index { constant, terms };
        sum.join().unwrap_or(sum)
    }

    /// Applies one of two identities, if possible: `m * (x / m) + x % m == x`; and, because `0 <= x % m < m`, `m * (z %
    /// n) + x % m == (m * z + x % m) % (m * n)`, where `m * z + x % m` joins in turn.
    fn join(&self) -> Option<Index> {
        let remainders = self.terms.iter().enumerate().filter_map(|(at, t)| match &t.atom {
            Atom::Remainder(x, m) => Some((at, t, x, *m)),
            _ => None,
        });
        for (at, low, x, m) in remainders {
            let quotient = x.nested_quotient(m);
            for (other, high) in self.terms.iter().enumerate() {
                if high.factor != low.factor.wrapping_mul(m) {
                    continue;
                }
                let joined = match &high.atom {
                    atom if *atom == quotient => (**x).clone(),
                    Atom::Remainder(z, n) => {
                        let both = z.scale(m).add(&Index::atom(low.atom.clone()));
                        if both.terms.iter().any(|t| t.atom == low.atom) {
                            continue;
                        }
                        Index::atom(Atom::Remainder(both.into(), m * n))
                    }
                    _ => continue,
                };
                let rest = self.terms.iter().enumerate().filter(|(i, _)| *i != at && *i != other);
                let rest = Index { constant: self.constant, terms: rest.map(|(_, t)| t.clone()).collect() };
                return Some(rest.add(&joined.scale(low.factor)));
            }
        }
        None
    }

    /// The atom for `self / divisor` when bounds do not simplify it: `(y / a) / b` is `y / ab`.
    fn nested_quotient(&self, divisor: i64) -> Atom {
        match self.as_atom() {
            Some(Atom::Quotient(inner, first)) => Atom::Quotient(inner.clone(), first * divisor),
            _ => Atom::Quotient(Box::new(self.clone()), divisor),
        }
    }

    /// The greatest common divisor of the factors; 0 for a constant.
    pub fn common_factor(&self) -> i64 {
        self.terms.iter().fold(0, |common, t| gcd(common, t.factor))
    }

    /// The number of times that the terms of `part` are contained in this index; 0 if one of them is missing.
    pub(super) fn times_contained(&self, part: &Index) -> i64 {
        let factor = |atom: &Atom| self.terms.iter().find(|t| t.atom == *atom).map_or(0, |t| t.factor);
        let times = part.terms.first().map_or(0, |first| factor(&first.atom) / first.factor);
        let contained = part.terms.iter().all(|t| factor(&t.atom) == times * t.factor);
        if contained { times } else { 0 }
    }

    /// The minimum and maximum over the ranges. They are sound bounds, and exact for affine expressions.
    pub fn bounds(&self, ranges: &Ranges) -> (i64, i64) {
        self.terms.iter().fold((self.constant, self.constant), |(low, high), term| {
            let (least, greatest) = term.atom.bounds(ranges);
            let ends = (least.saturating_mul(term.factor), greatest.saturating_mul(term.factor));
            let ends = if term.factor < 0 { (ends.1, ends.0) } else { ends };
            (low.saturating_add(ends.0), high.saturating_add(ends.1))
        })
    }

    /// The value at a point.
    pub fn evaluate(&self, point: &[usize]) -> i64 {
        self.terms.iter().fold(self.constant, |sum, term| {
            let value = match &term.atom {
                Atom::Range(range) => point.get(usize::from(*range)).map_or(0, |&v| v as i64),
                Atom::Quotient(x, k) => x.evaluate(point).div_euclid(*k),
                Atom::Remainder(x, k) => x.evaluate(point).rem_euclid(*k),
            };
            sum + term.factor * value
        })
    }

    /// Floor division by `divisor`. Divisors below 1 count as 1: they come from empty dimensions, which have no
    /// coordinates.
    pub fn quotient(&self, divisor: i64, ranges: &Ranges) -> Index {
        if divisor <= 1 {
            return self.clone();
        }
        let (whole, rest, exact) = self.divide(divisor, ranges);
        if exact {
            return whole;
        }
        if let Some((factor, multiple, _)) = rest.extract_factor(divisor, ranges) {
            return whole.add(&multiple.quotient(divisor / factor, ranges));
        }
        if let Some(Atom::Remainder(x, modulus)) = rest.as_atom()
            && modulus % divisor == 0
        {
            return whole.add(&x.quotient(divisor, ranges).remainder(modulus / divisor, ranges));
        }
        if let Some(pulled) = rest.pull_quotient(divisor, ranges) {
            return whole.add(&pulled);
        }
        whole.add(&Index::atom(Atom::Quotient(Box::new(rest), divisor)))
    }

    /// The remainder of floor division by `divisor`: 0 to `divisor - 1`. Divisors below 1 count as 1.
    pub fn remainder(&self, divisor: i64, ranges: &Ranges) -> Index {
        if divisor <= 1 {
            return Index::default();
        }
        let (_, rest, exact) = self.divide(divisor, ranges);
        if exact {
            return rest;
        }
        if let Some((factor, multiple, small)) = rest.extract_factor(divisor, ranges) {
            return multiple.remainder(divisor / factor, ranges).scale(factor).add(&small);
        }
        // An inner remainder by a multiple of the divisor has no effect modulo the divisor.
        let redundant = |t: &&Term| matches!(t.atom, Atom::Remainder(_, m) if (t.factor * m) % divisor == 0);
        if let Some(term) = rest.terms.iter().find(redundant)
            && let Atom::Remainder(x, _) = &term.atom
        {
            let without = rest.sub(&Index::atom(term.atom.clone()).scale(term.factor));
            return without.add(&x.scale(term.factor)).remainder(divisor, ranges);
        }
        Index::atom(Atom::Remainder(Box::new(rest), divisor))
    }

    /// `(whole, rest, exact)` with `self == divisor * whole + rest`; `exact` if `0 <= rest < divisor` everywhere. The
    /// rest keeps the sign of each factor. If that is not exact, it uses the factors nearest to zero.
    fn divide(&self, divisor: i64, ranges: &Ranges) -> (Index, Index, bool) {
        let attempt = |round: fn(i64, i64) -> i64| {
            let mut whole = Index::constant(self.constant.div_euclid(divisor));
            let mut rest = Index::constant(self.constant.rem_euclid(divisor));
            for Term { atom, factor } in &self.terms {
                let part = round(*factor, divisor);
                let left = factor - part * divisor;
                whole.terms.extend((part != 0).then(|| Term { atom: atom.clone(), factor: part }));
                rest.terms.extend((left != 0).then(|| Term { atom: atom.clone(), factor: left }));
            }
            let (low, high) = rest.bounds(ranges);
            let block = low.div_euclid(divisor);
            let exact = block == high.div_euclid(divisor);
            if exact {
                whole.constant += block;
                rest.constant -= block * divisor;
            }
            (whole, rest, exact)
        };
        let truncated = attempt(|factor, divisor| factor / divisor);
        if truncated.2 {
            return truncated;
        }
        let nearest = attempt(|factor, divisor| (2 * factor + divisor).div_euclid(2 * divisor));
        if nearest.2 { nearest } else { truncated }
    }

    /// `(g, multiple, small)` with `self == g * multiple + small`, `g > 1` a divisor of `divisor` and
    /// `0 <= small < g`: then `self / divisor == multiple / (divisor / g)`.
    fn extract_factor(&self, divisor: i64, ranges: &Ranges) -> Option<(i64, Index, Index)> {
        let mut factors: SmallVec<[i64; 8]> = self.terms.iter().map(|t| gcd(t.factor, divisor)).collect();
        factors.sort_unstable_by(|a, b| b.cmp(a));
        let mut common = divisor;
        for i in 0..factors.len() {
            common = gcd(common, factors[i]);
            factors.push(common);
        }
        factors.sort_unstable_by(|a, b| b.cmp(a));
        factors.dedup();
        factors.into_iter().filter(|&g| g > 1).find_map(|g| {
            let mut multiple = Index::constant(self.constant.div_euclid(g));
            let mut small = Index::constant(self.constant.rem_euclid(g));
            for Term { atom, factor } in &self.terms {
                let (side, factor) =
                    if factor % g == 0 { (&mut multiple, factor / g) } else { (&mut small, *factor) };
                side.terms.push(Term { atom: atom.clone(), factor });
            }
            let (low, high) = small.bounds(ranges);
            let block = low.div_euclid(g);
            (block == high.div_euclid(g)).then(|| (g, multiple.shift(block), small.shift(-block * g)))
        })
    }

    /// `(rest + y / m) / divisor` is `(m * rest + y) / (m * divisor)`, if there is exactly one such quotient.
    fn pull_quotient(&self, divisor: i64, ranges: &Ranges) -> Option<Index> {
        let mut quotients = self.terms.iter().filter(|t| matches!(t.atom, Atom::Quotient(..)));
        let (Some(Term { atom, factor: 1 }), None) = (quotients.next(), quotients.next()) else {
            return None;
        };
        let Atom::Quotient(y, m) = atom else { return None };
        let rest = self.sub(&Index::atom(atom.clone()));
        Some(rest.scale(*m).add(y).quotient(divisor.checked_mul(*m)?, ranges))
    }

    /// Replaces range `i` by `replacements[i]`, which are over `ranges`.
    pub fn substitute(&self, replacements: &[Index], ranges: &Ranges) -> Index {
        self.terms.iter().fold(Index::constant(self.constant), |sum, term| {
            let value = match &term.atom {
                Atom::Range(range) => replacements.get(usize::from(*range)).cloned().unwrap_or_default(),
                Atom::Quotient(x, k) => x.substitute(replacements, ranges).quotient(*k, ranges),
                Atom::Remainder(x, k) => x.substitute(replacements, ranges).remainder(*k, ranges),
            };
            sum.add(&value.scale(term.factor))
        })
    }

    /// Calls `visit` with every range that the value may depend on; some occur more than once.
    pub fn visit_ranges(&self, visit: &mut impl FnMut(usize)) {
        for term in &self.terms {
            match &term.atom {
                Atom::Range(range) => visit(usize::from(*range)),
                Atom::Quotient(x, _) | Atom::Remainder(x, _) => x.visit_ranges(visit),
            }
        }
    }

    /// True if the value may depend on the range.
    pub fn depends_on(&self, range: usize) -> bool {
        let mut found = false;
        self.visit_ranges(&mut |r| found |= r == range);
        found
    }

    /// The number of occurrences of ranges, as the cost of storing and evaluating the expression.
    pub fn size(&self) -> usize {
        let mut size = 0;
        self.visit_ranges(&mut |_| size += 1);
        size
    }

    /// `(offset, strides)`, with one stride for each of the first `count` ranges, if the index is affine in them.
    pub fn strides(&self, count: usize) -> Option<(i64, SmallVec<[i64; 6]>)> {
        let mut strides = SmallVec::from_elem(0, count);
        for term in &self.terms {
            let Atom::Range(range) = term.atom else { return None };
            *strides.get_mut(usize::from(range))? = term.factor;
        }
        Some((self.constant, strides))
    }
}

impl Atom {
    /// The minimum and maximum; see [`Index::bounds`].
    pub fn bounds(&self, ranges: &Ranges) -> (i64, i64) {
        match self {
            Atom::Range(range) => (0, ranges.last(*range)),
            Atom::Quotient(x, k) => {
                let (low, high) = x.bounds(ranges);
                (low.div_euclid(*k), high.div_euclid(*k))
            }
            Atom::Remainder(x, k) => {
                let (low, high) = x.bounds(ranges);
                let same_block = low.div_euclid(*k) == high.div_euclid(*k);
                if same_block { (low.rem_euclid(*k), high.rem_euclid(*k)) } else { (0, k - 1) }
            }
        }
    }
}

fn gcd(a: i64, b: i64) -> i64 {
    let (mut a, mut b) = (a.abs(), b.abs());
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// Displayed as `r0*4 + (r1 + 2)/3 - 1`: ranges are `r0`, `r1`, ...; `/` and `%` are floor division and its remainder.
impl fmt::Display for Index {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, Term { atom, factor }) in self.terms.iter().enumerate() {
            match (i, *factor < 0) {
                (0, false) => {}
                (0, true) => write!(f, "-")?,
                (_, false) => write!(f, " + ")?,
                (_, true) => write!(f, " - ")?,
            }
            match atom {
                Atom::Range(range) => write!(f, "r{range}")?,
                Atom::Quotient(x, k) => write!(f, "({x})/{k}")?,
                Atom::Remainder(x, k) => write!(f, "({x})%{k}")?,
            }
            if factor.unsigned_abs() != 1 {
                write!(f, "*{}", factor.unsigned_abs())?;
            }
        }
        match self.constant {
            0 if !self.terms.is_empty() => Ok(()),
            c if self.terms.is_empty() => write!(f, "{c}"),
            c if c < 0 => write!(f, " - {}", c.unsigned_abs()),
            c => write!(f, " + {c}"),
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
