//! Sizes that vary, and how a file computes those that follow from them.

use super::{
    graph::{Extent, count},
    writer::{Value, Writer, integer},
};
use crate::{Error, Result, proto::DimensionKind};
use phynexus::DType;

/// The sizes that vary.
#[derive(Debug, Default)]
pub(super) struct Symbols {
    /// The names, and the sizes in both networks.
    named: Vec<(String, Extent)>,
    /// For each size that was seen to vary, the first value and axis that had it.
    seen: Vec<(Extent, Value, usize)>,
}

/// How a size follows from the named ones.
enum Relation {
    /// `factor` times the product of these.
    Product(Vec<usize>, i64),
    /// `factor` times one of them, plus a number.
    Affine(usize, i64, i64),
    /// One of them, divided.
    Quotient(usize, i64),
}

/// Whether the size varies.
pub(super) fn varies(extent: Extent) -> bool {
    extent[0] != extent[1]
}

impl Symbols {
    /// Adds a size of an input axis.
    pub(super) fn add(&mut self, name: &str, extent: Extent) -> Result<()> {
        let bad = |what: &str| Error::invalid(format!("the size {name:?} {what}"));
        if !varies(extent) || extent.contains(&0) || extent.contains(&1) {
            return Err(bad("must differ between the two networks, and be at least 2 in both"));
        }
        // What follows from one of them could else follow from the other.
        let is_alike = |sizes: &Extent| {
            sizes[1] - sizes[0] == extent[1] - extent[0] || sizes[0] * extent[1] == sizes[1] * extent[0]
        };
        match self.named.iter().find(|(known, sizes)| known == name || is_alike(sizes)) {
            Some((known, sizes)) if known == name && *sizes == extent => Ok(()),
            Some((known, _)) if known == name => Err(bad("has one value here and another there")),
            Some((known, _)) => Err(bad(&format!(
                "differs between the two networks by as much or by the same factor as {known:?}: choose other sizes"
            ))),
            None => {
                self.named.push((name.to_owned(), extent));
                Ok(())
            }
        }
    }

    /// Whether this is one of the named sizes.
    pub(super) fn is_named(&self, extent: Extent) -> bool {
        self.named.iter().any(|(_, sizes)| *sizes == extent)
    }

    /// Remembers where varying sizes can be read.
    pub(super) fn see(&mut self, value: &Value) {
        for (axis, &extent) in value.shape.iter().enumerate() {
            if varies(extent) && !self.seen.iter().any(|(known, ..)| *known == extent) {
                self.seen.push((extent, value.clone(), axis));
            }
        }
    }

    fn relation(&self, extent: Extent) -> Option<Relation> {
        let factor = |product: Extent| {
            let whole = (0..2).all(|n| product[n] != 0 && extent[n] % product[n] == 0);
            (whole && extent[0] / product[0] == extent[1] / product[1]).then(|| extent[0] / product[0])
        };
        let count_of = self.named.len().min(6);
        let sets = (1u32..1 << count_of)
            .map(|set| (0..count_of).filter(|at| set >> at & 1 == 1).collect::<Vec<usize>>());
        let mut sets: Vec<Vec<usize>> = sets.collect();
        sets.sort_by_key(Vec::len);
        // A size itself, or a product of sizes, rather than a multiple of another.
        for exact in [true, false] {
            for set in &sets {
                let sizes: Vec<Extent> = set.iter().map(|&at| self.named[at].1).collect();
                let found = factor(count(&sizes)).filter(|&factor| factor != 0 && (factor == 1 || !exact));
                if let Some(factor) = found {
                    return Some(Relation::Product(set.clone(), factor));
                }
            }
        }
        let quotient = |&at: &usize| {
            let sizes = self.named[at].1;
            (0..2).all(|n| extent[n] > 0 && sizes[n] % extent[n] == 0)
                && sizes[0] / extent[0] == sizes[1] / extent[1]
        };
        if let Some(at) = (0..self.named.len()).find(quotient) {
            return Some(Relation::Quotient(at, self.named[at].1[0] / extent[0]));
        }
        let affine = |at: usize| {
            let sizes = self.named[at].1;
            let (rise, run) = (extent[1] - extent[0], sizes[1] - sizes[0]);
            (rise % run == 0).then(|| Relation::Affine(at, rise / run, extent[0] - rise / run * sizes[0]))
        };
        let mut all: Vec<Relation> = (0..self.named.len()).filter_map(affine).collect();
        all.sort_by_key(|relation| match relation {
            Relation::Affine(_, factor, offset) => (factor.abs(), offset.abs()),
            _ => (0, 0),
        });
        all.into_iter().next()
    }

    /// The size in the file: a number, a name or an expression of names.
    pub(super) fn describe(&self, extent: Extent) -> Option<DimensionKind> {
        if !varies(extent) {
            return Some(DimensionKind::Value(extent[0]));
        }
        let name = |at: &usize| self.named[*at].0.clone();
        let product = |set: &[usize]| set.iter().map(name).collect::<Vec<_>>().join("*");
        let text = match self.relation(extent)? {
            Relation::Product(set, 1) => product(&set),
            Relation::Product(set, factor) => format!("{factor}*{}", product(&set)),
            Relation::Affine(at, 1, offset) => {
                format!("{} {} {}", name(&at), if offset < 0 { '-' } else { '+' }, offset.abs())
            }
            // Two sizes do not tell a quotient from one that is rounded, nor sums of several sizes apart.
            Relation::Quotient(..) | Relation::Affine(..) => return None,
        };
        Some(DimensionKind::Parameter(text))
    }
}

impl Writer {
    /// A size of a value, as a vector of one `int64`.
    fn size_of(&mut self, value: &Value, axis: usize) -> Value {
        let attributes = vec![integer("start", axis as i64), integer("end", axis as i64 + 1)];
        self.node("Shape", &[value], attributes, DType::I64, vec![[1, 1]])
    }

    fn named_size(&mut self, at: usize) -> Option<Value> {
        let extent = self.symbols.named.get(at)?.1;
        let (_, value, axis) = self.symbols.seen.iter().find(|(known, ..)| *known == extent)?.clone();
        Some(self.size_of(&value, axis))
    }

    /// A size as a vector of one `int64`. Those that vary are read from values `near` by, or computed from others.
    pub(super) fn size(&mut self, extent: Extent, near: &[&Value]) -> Result<Value> {
        if !varies(extent) {
            return Ok(self.vector(&[extent[0]]));
        }
        if !self.symbols.is_named(extent) {
            for value in near {
                if let Some(axis) = value.shape.iter().position(|size| *size == extent) {
                    return Ok(self.size_of(value, axis));
                }
            }
        }
        let found = self.symbols.relation(extent);
        let seen = self.symbols.seen.iter().find(|(known, ..)| *known == extent).cloned();
        if let Some((_, value, axis)) = &seen
            && !matches!(found, Some(Relation::Product(..)))
        {
            return Ok(self.size_of(value, *axis));
        }
        self.related(found).ok_or_else(|| {
            Error::invalid(format!(
                "a size of the network is {} in one case and {} in the other, and how it follows from the sizes of the \
                 inputs is not clear",
                extent[0], extent[1]
            ))
        })
    }

    fn related(&mut self, relation: Option<Relation>) -> Option<Value> {
        let scaled = |writer: &mut Writer, value: Value, factor: i64| {
            if factor == 1 {
                return value;
            }
            let factor = writer.vector(&[factor]);
            writer.each("Mul", &[&value, &factor])
        };
        match relation? {
            Relation::Product(set, factor) => {
                let mut sizes = set.into_iter();
                let mut product = self.named_size(sizes.next()?)?;
                for at in sizes {
                    let other = self.named_size(at)?;
                    product = self.each("Mul", &[&product, &other]);
                }
                Some(scaled(self, product, factor))
            }
            Relation::Quotient(at, divisor) => {
                let (size, divisor) = (self.named_size(at)?, self.vector(&[divisor]));
                Some(self.each("Div", &[&size, &divisor]))
            }
            Relation::Affine(at, factor, offset) => {
                let size = self.named_size(at)?;
                let product = scaled(self, size, factor);
                let offset = self.vector(&[offset]);
                Some(self.each("Add", &[&product, &offset]))
            }
        }
    }

    /// A shape as a vector of `int64`.
    pub(super) fn shape(&mut self, shape: &[Extent], near: &[&Value]) -> Result<Value> {
        if !shape.iter().any(|&extent| varies(extent)) {
            let sizes: Vec<i64> = shape.iter().map(|extent| extent[0]).collect();
            return Ok(self.vector(&sizes));
        }
        let mut parts = Vec::new();
        for group in shape.chunk_by(|&a, &b| !varies(a) && !varies(b)) {
            parts.push(match group {
                &[extent] if varies(extent) => self.size(extent, near)?,
                fixed => {
                    let sizes: Vec<i64> = fixed.iter().map(|extent| extent[0]).collect();
                    self.vector(&sizes)
                }
            });
        }
        if let [only] = &parts[..] {
            return Ok(only.clone());
        }
        let parts: Vec<&Value> = parts.iter().collect();
        Ok(self.node("Concat", &parts, vec![integer("axis", 0)], DType::I64, vec![[shape.len() as i64; 2]]))
    }
}
