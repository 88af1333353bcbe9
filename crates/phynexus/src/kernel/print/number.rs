//! Literals and templates, alike in all languages.

use super::{Dialect, Printer};
use crate::{DType, Scalar, dtype::DTypeKind};

/// An integer type's least and greatest number, and between which floats its numbers are: from `low` on, below `high`.
pub(super) struct Limits {
    pub(super) least: Scalar,
    pub(super) greatest: Scalar,
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Limits {
    pub(super) fn of(dtype: DType) -> Limits {
        let unused = 64 - 8 * dtype.size() as u32;
        if dtype.kind() == DTypeKind::Signed {
            let (least, greatest) = (i64::MIN >> unused, i64::MAX >> unused);
            let low = least as f64;
            Limits { least: least.into(), greatest: greatest.into(), low, high: -low }
        } else {
            let greatest = u64::MAX >> unused;
            let high = 2f64.powi(64 - unused as i32);
            Limits { least: 0u64.into(), greatest: greatest.into(), low: 0.0, high }
        }
    }
}

/// A template with `{name}` replaced by each value.
pub(super) fn fill(template: &str, arguments: &[(&str, &str)]) -> String {
    arguments
        .iter()
        .fold(template.to_owned(), |text, (name, value)| text.replace(&format!("{{{name}}}"), value))
}

/// A spelling of the table of functions: each word in braces is replaced.
pub(super) fn spelled(spelling: &'static str, mut replace: impl FnMut(&'static str) -> String) -> String {
    let mut text = String::new();
    for (at, piece) in spelling.split(['{', '}']).enumerate() {
        // Words in braces are every other piece.
        if at % 2 == 0 { text.push_str(piece) } else { text.push_str(&replace(piece)) }
    }
    text
}

impl<D> Printer<'_, D>
where
    Self: Dialect,
{
    /// A number, exact.
    pub(super) fn literal(&mut self, dtype: DType, scalar: Scalar) -> String {
        let suffix = self.suffix(dtype);
        let parentheses = |negative: bool, text: String| if negative { format!("({text})") } else { text };
        match dtype.kind() {
            DTypeKind::Bool => scalar.as_bool().to_string(),
            DTypeKind::Unsigned => format!("{}{suffix}", scalar.as_u64()),
            DTypeKind::Signed => {
                let i = scalar.as_i64();
                // The least number has no literal: its magnitude is out of range.
                let text = match i == i64::MIN || i == i64::from(i32::MIN) {
                    true => format!("{}{suffix} - {}", i + 1, self.whole(dtype, 1)),
                    false => format!("{i}{suffix}"),
                };
                parentheses(i < 0, text)
            }
            DTypeKind::Float => {
                let x = scalar.as_f64();
                match x {
                    x if x.is_nan() => self.special(dtype, true),
                    x if x.is_infinite() => {
                        let infinity = self.special(dtype, false);
                        if x < 0.0 { format!("(-{infinity})") } else { infinity }
                    }
                    x => {
                        let digits =
                            if dtype == DType::F64 { format!("{x:?}") } else { format!("{:?}", x as f32) };
                        parentheses(x.is_sign_negative(), digits + suffix)
                    }
                }
            }
        }
    }
}
