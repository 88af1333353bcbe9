//! Index expressions, masks and addresses.

use super::{Dialect, LANES, Printer};
use crate::{
    DType, Result,
    kernel::{
        index::{Atom, Index},
        loops::{ArrayId, AxisKind, MemoryAccess},
        view::Mask,
    },
};

impl<D> Printer<'_, D>
where
    Self: Dialect,
{
    /// The name of an axis.
    pub(super) fn axis_name(&self, axis: u8) -> String {
        match self.kernel.axes.get(usize::from(axis)).map(|a| a.kind) {
            Some(AxisKind::Grid(d)) => format!("group_{}", LANES[usize::from(d)]),
            Some(AxisKind::Block(d)) => format!("invocation_{}", LANES[usize::from(d)]),
            // WGSL has types of these names.
            _ if matches!(axis, 32 | 64) => format!("axis{axis}"),
            _ => format!("i{axis}"),
        }
    }

    /// An index as an expression of sums.
    pub(super) fn index(&mut self, index: &Index) -> String {
        let (low, high) = index.bounds(&self.ranges);
        self.too_wide |= low < i32::MIN.into() || high > i32::MAX.into();
        let mut text = String::new();
        let mut rest = None;
        if let Some((axis, kept)) = &self.kept {
            let (fixed, varying) = index.split(usize::from(*axis));
            if let Some(number) = kept.iter().position(|kept| *kept == fixed) {
                text = format!("kept{axis}_{number}");
                rest = Some(varying);
            }
        }
        let index = rest.as_ref().unwrap_or(index);
        let continued = usize::from(rest.is_some());
        for (i, term) in index.terms().iter().enumerate() {
            text.push_str(match (i + continued, term.factor < 0) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            });
            let factor = term.factor.unsigned_abs();
            let atom = self.atom(&term.atom);
            text.push_str(&match (&term.atom, factor) {
                (_, 1) => atom,
                (Atom::Range(_), _) => format!("{atom} * {}", self.size(factor as i64)),
                _ => format!("({atom}) * {}", self.size(factor as i64)),
            });
        }
        match index.offset() {
            c if text.is_empty() => self.offset(c),
            0 => text,
            c => format!("{text} {} {}", if c < 0 { "-" } else { "+" }, self.offset(c.unsigned_abs() as i64)),
        }
    }

    /// An index without marks: numbers in the index of a group's array, register or fragment belong to the kernel's
    /// structure, and compilers keep registers only where they know them.
    pub(super) fn structural_index(&mut self, index: &Index) -> String {
        let marks = std::mem::take(&mut self.marks);
        let text = self.index(index);
        self.marks = marks;
        text
    }

    /// A range, quotient or remainder.
    fn atom(&mut self, atom: &Atom) -> String {
        let (x, k, remainder) = match atom {
            Atom::Range(axis) => return self.axis_name(*axis),
            Atom::Quotient(x, k) => (x, *k, false),
            Atom::Remainder(x, k) => (x, *k, true),
        };
        let text = self.index(x);
        let negative = x.bounds(&self.ranges).0 < 0;
        let name = matches!(x.as_atom(), Some(Atom::Range(_)));
        let text = if name { text } else { format!("({text})") };
        self.divide(remainder, negative, &text, k)
    }

    /// The conditions of a mask; nothing if it always holds.
    pub(super) fn mask(&mut self, mask: &Mask) -> String {
        self.conditions(mask).join(" && ")
    }

    /// The conditions of a mask, each by itself.
    pub(super) fn conditions(&mut self, mask: &Mask) -> Vec<String> {
        if mask.is_never() {
            return vec!["false".to_owned()];
        }
        let mut conditions = Vec::new();
        for c in mask.conditions() {
            let (least, greatest) = c.index.bounds(&self.ranges);
            let index = self.index(&c.index);
            if c.low > least {
                conditions.push(format!("{index} >= {}", self.size(c.low)));
            }
            if c.high <= greatest {
                conditions.push(format!("{index} < {}", self.size(c.high)));
            }
        }
        conditions
    }

    /// The name of an array.
    pub(super) fn array(&self, array: ArrayId) -> String {
        match array {
            ArrayId::Buffer(i) => self.buffer(i),
            ArrayId::Shared(i) => format!("shared{i}"),
            ArrayId::Register(i) => format!("register{i}"),
            ArrayId::Fragment(i) => match self.kernel.array(array) {
                Some((DType::F32, _)) => format!("((float *)fragment{i})"),
                _ => format!("((unsigned short *)fragment{i})"),
            },
        }
    }

    /// The position of an access's first element.
    pub(super) fn address(&mut self, access: &MemoryAccess) -> Result<String> {
        let index = match access.array {
            ArrayId::Buffer(_) => self.index(&access.index),
            _ => self.structural_index(&access.index),
        };
        let mut text = Self::start(access.array) + &index;
        if let Some(row) = &access.row {
            self.too_wide |= access.index.bounds(&self.ranges).1.saturating_add(row.last()) > i32::MAX.into();
            let (dtype, number) = (self.bound(row.value)?.of.dtype, self.lane_of(row.value, 0)?);
            text +=
                &format!(" + {} * {}", self.clamped(dtype, &number, row.count), self.size(row.stride as i64));
        }
        Ok(text)
    }

    /// An access's first element.
    pub(super) fn element(&mut self, access: &MemoryAccess) -> Result<String> {
        let array = self.array(access.array);
        let variable = matches!(access.array, ArrayId::Register(_))
            && self.kernel.array(access.array).is_some_and(|(_, length)| length == 1);
        if variable { Ok(array) } else { Ok(format!("{array}[{}]", self.address(access)?)) }
    }
}
