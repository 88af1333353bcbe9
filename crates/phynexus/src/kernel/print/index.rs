//! Index expressions and masks, alike in all languages but for divisions.

use super::super::{
    index::{Atom, Index, Ranges},
    view::Mask,
};

/// A printer's part in it.
pub(super) trait Indices {
    /// The extents of the axes.
    fn ranges(&self) -> &Ranges;
    /// The name of an axis.
    fn axis(&self, axis: u8) -> String;
    /// Floor division by a constant of at least 2, or its remainder, to be a summand. The dividend is a name or stands in
    /// parentheses; `negative` tells if it may be below 0.
    fn divide(&mut self, remainder: bool, negative: bool, dividend: &str, by: i64) -> String;
    /// Is told that an index does not fit 32 bits.
    fn too_wide(&mut self);

    /// An index as an expression of sums.
    fn index(&mut self, index: &Index) -> String {
        let (low, high) = index.bounds(self.ranges());
        if low < i32::MIN.into() || high > i32::MAX.into() {
            self.too_wide();
        }
        let mut text = String::new();
        for (i, term) in index.terms().iter().enumerate() {
            text.push_str(match (i, term.factor < 0) {
                (0, false) => "",
                (0, true) => "-",
                (_, false) => " + ",
                (_, true) => " - ",
            });
            let factor = term.factor.unsigned_abs();
            let atom = self.atom(&term.atom);
            text.push_str(&match (&term.atom, factor) {
                (_, 1) => atom,
                (Atom::Range(_), _) => format!("{atom} * {factor}"),
                _ => format!("({atom}) * {factor}"),
            });
        }
        match index.offset() {
            c if text.is_empty() => c.to_string(),
            0 => text,
            c => format!("{text} {} {}", if c < 0 { "-" } else { "+" }, c.unsigned_abs()),
        }
    }

    /// A range, quotient or remainder.
    fn atom(&mut self, atom: &Atom) -> String {
        let (x, k, remainder) = match atom {
            Atom::Range(axis) => return self.axis(*axis),
            Atom::Quotient(x, k) => (x, *k, false),
            Atom::Remainder(x, k) => (x, *k, true),
        };
        let text = self.index(x);
        let negative = x.bounds(self.ranges()).0 < 0;
        let name = matches!(x.as_atom(), Some(Atom::Range(_)));
        let text = if name { text } else { format!("({text})") };
        self.divide(remainder, negative, &text, k)
    }

    /// The conditions of a mask; nothing if it always holds.
    fn mask(&mut self, mask: &Mask) -> String {
        let mut conditions = Vec::new();
        for c in mask.conditions() {
            let (least, greatest) = c.index.bounds(self.ranges());
            let index = self.index(&c.index);
            if c.low > least {
                conditions.push(format!("{index} >= {}", c.low));
            }
            if c.high <= greatest {
                conditions.push(format!("{index} < {}", c.high));
            }
        }
        if mask.is_never() { "false".to_owned() } else { conditions.join(" && ") }
    }
}
