//! Conversions as WGSL expressions.

use super::{super::number::Limits, Dialect, Printer, Wgsl, operation::value_type};
use crate::{DType, Float8, Scalar, dtype::DTypeKind, op::Binary};

impl Printer<'_, Wgsl> {
    /// Conversion of numbers.
    pub(super) fn cast(&mut self, from: DType, to: DType, a: &str) -> String {
        let (f, t) = (value_type(from), value_type(to));
        match (from.kind(), to.kind()) {
            _ if from.compute() == to => a.to_owned(),
            (DTypeKind::Float, DTypeKind::Bool) => {
                let zero = self.whole(from, 0);
                format!("!({})", self.compare(Binary::Eq, from, a, &zero))
            }
            (_, DTypeKind::Bool) => format!("({a} != {})", self.whole(from, 0)),
            (DTypeKind::Bool, _) => format!("select({}, {}, {a})", self.whole(to, 0), self.whole(to, 1)),
            (DTypeKind::Float, DTypeKind::Float) if f != t && !self.sees_subnormals(DType::F32) => {
                format!("{}({a})", self.library(if t == "f64" { "widened" } else { "narrowed" }))
            }
            (DTypeKind::Float, DTypeKind::Float) => format!("{t}({a})"),
            (DTypeKind::Float, _) => self.float_to_integer(from, to, a),
            (_, DTypeKind::Float) => format!("{t}({a})"),
            // Between integers: first the width, which extends the sign, then the type.
            _ => {
                let widened = match (from.kind(), from.size() == 8, to.size() == 8) {
                    (DTypeKind::Signed, false, true) => self.extended(a),
                    (_, false, true) => format!("u64({a})"),
                    (DTypeKind::Signed, true, false) => format!("i32({a})"),
                    (_, true, false) => format!("u32({a})"),
                    _ => a.to_owned(),
                };
                let same_sign = f.starts_with('i') == t.starts_with('i');
                let typed = if same_sign { widened } else { format!("bitcast<{t}>({widened})") };
                self.wrap(to, typed)
            }
        }
    }

    /// A 32-bit integer with its sign extended to 64 bits, from its two words: Mesa 22.3 takes comparisons of `i64(x)` with a
    /// positive constant for true.
    fn extended(&mut self, a: &str) -> String {
        let name = self.function("extended".to_owned(), |_| {
            "fn extended(x: i32) -> i64 {
    return (i64(x >> 31u) << 32u) | i64(bitcast<u32>(x));
}"
            .to_owned()
        });
        format!("{name}({a})")
    }

    fn float_to_integer(&mut self, from: DType, to: DType, a: &str) -> String {
        // Saturated, NaN to 0.
        let (f, t, held) = (value_type(from), value_type(to), from.compute());
        let limits = Limits::of(to);
        let name = self.function(format!("{f}_to_{to}"), |p| {
            let nan = p.is_nan(held, "x");
            let (low, high) =
                (p.literal(held, Scalar::Float(limits.low)), p.literal(held, Scalar::Float(limits.high)));
            let (least, greatest) = (p.literal(to, limits.least), p.literal(to, limits.greatest));
            format!(
                "fn {f}_to_{to}(x: {f}) -> {t} {{
    if ({nan}) {{ return {zero}; }}
    if (x >= {high}) {{ return {greatest}; }}
    if (x < {low}) {{ return {least}; }}
    return {t}(x);
}}",
                zero = p.whole(to, 0)
            )
        });
        format!("{name}({a})")
    }

    /// The number of these bits of an 8-bit float.
    pub(super) fn float8_value(&mut self, dtype: DType, format: Float8, bits: &str) -> String {
        let name = self.function(format!("{dtype}_value"), |p| {
            let (infinity, nan) = (p.library("infinity"), p.special(DType::F32, true));
            let infinite = match format.overflow == format.nan {
                true => String::new(),
                false => format!("    if (a == {}u) {{ value = {infinity}(); }}\n", format.overflow),
            };
            format!(
                "fn {dtype}_value(bits: u32) -> f32 {{
    let a = bits & 0x7fu;
    var value = select(bitcast<f32>((a + {}u) << {}u), f32(a) * {}, a < {}u);
    if (a > {}u) {{ value = {nan}; }}
{infinite}    return bitcast<f32>(bitcast<u32>(value) | ((bits & 0x80u) << 24u));
}}",
                format.bias(),
                format.shift(),
                p.literal(DType::F32, f64::from(format.quantum()).into()),
                1 << format.stored,
                format.greatest
            )
        });
        format!("{name}({bits})")
    }

    /// The bits of an 8-bit float; see [`Float8::from_f32`].
    pub(super) fn float8_bits(&mut self, dtype: DType, format: Float8, number: &str) -> String {
        let name = self.function(format!("{dtype}_bits"), |p| {
            let (shift, aligned) = (format.shift(), format.aligned_bits());
            format!(
                "fn {dtype}_bits(value: f32) -> u32 {{
    let bits = bitcast<u32>(value);
    let a = bits & 0x7fffffffu;
    var rounded = ((a + {}u + ((a >> {shift}u) & 1u)) >> {shift}u) - {}u;
    if (a < {}u) {{ rounded = bitcast<u32>(bitcast<f32>(a) + {}) - {aligned}u; }}
    if (rounded > {}u) {{ rounded = {}u; }}
    if (a > 0x7f800000u) {{ rounded = {}u; }}
    return rounded | ((bits >> 24u) & 0x80u);
}}",
                (1u32 << (shift - 1)) - 1,
                format.bias(),
                format.least_bits(),
                p.literal(DType::F32, f64::from(f32::from_bits(aligned)).into()),
                format.greatest,
                format.overflow,
                format.nan
            )
        });
        format!("{name}({number})")
    }

    /// The same bits as another type. `bits` are those of a 16-bit float, if they are known.
    pub(super) fn bitcast(&mut self, from: DType, to: DType, a: &str, bits: Option<String>) -> String {
        let (f, t) = (value_type(from), value_type(to));
        if from.size() >= 4 {
            return if f == t { a.to_owned() } else { format!("bitcast<{t}>({a})") };
        }
        let mask = if from.size() == 1 { "0xffu" } else { "0xffffu" };
        let raw = match (from.kind(), bits) {
            (_, Some(bits)) => bits,
            (DTypeKind::Float, None) => self.encode(from, a),
            (DTypeKind::Signed, _) => format!("(bitcast<u32>({a}) & {mask})"),
            _ => a.to_owned(),
        };
        match to.kind() {
            DTypeKind::Float => self.decode(to, &raw),
            DTypeKind::Signed => self.wrap(to, format!("bitcast<i32>({raw})")),
            _ => raw,
        }
    }
}
