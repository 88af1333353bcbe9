//! Conversions as WGSL expressions.

use super::{
    super::operation::Limits,
    operation::{Functions, value_type},
};
use crate::{DType, Result, Scalar, dtype::Kind, op::Binary};

impl Functions {
    /// The bits of a 16-bit float.
    pub(super) fn encode(&mut self, dtype: DType, value: &str) -> String {
        let name = if dtype == DType::F16 { "float16_bits" } else { "bfloat16_bits" };
        format!("{}({value})", self.library(name))
    }

    /// The value of a 16-bit float.
    pub(super) fn decode(&mut self, dtype: DType, bits: &str) -> String {
        let name = if dtype == DType::F16 { "float16_value" } else { "bfloat16_value" };
        format!("{}({bits})", self.library(name))
    }

    /// Conversion of numbers; that to a 16-bit float rounds.
    pub(super) fn cast(&mut self, from: DType, to: DType, a: &str) -> Result<String> {
        let (f, t) = (value_type(from), value_type(to));
        Ok(match (from.kind(), to.kind()) {
            _ if to == to.compute() && from.compute() == to => a.to_owned(),
            (Kind::Bool, _) if to == DType::Bool => a.to_owned(),
            (Kind::Float, Kind::Bool) => {
                let zero = self.whole(from, 0);
                format!("!({})", self.compare(Binary::Eq, from, a, &zero))
            }
            (_, Kind::Bool) => format!("({a} != {})", self.whole(from, 0)),
            (Kind::Bool, _) if to != to.compute() => format!("select(0.0f, 1.0f, {a})"),
            (Kind::Bool, _) => format!("select({}, {}, {a})", self.whole(to, 0), self.whole(to, 1)),
            (_, Kind::Float) if to != to.compute() => {
                let bits = self.round(from, to, a)?;
                self.decode(to, &bits)
            }
            (Kind::Float, Kind::Float) if f != t && !self.sees_subnormals(DType::F32) => {
                format!("{}({a})", self.library(if t == "f64" { "widened" } else { "narrowed" }))
            }
            (Kind::Float, Kind::Float) => format!("{t}({a})"),
            (Kind::Float, _) => self.float_to_integer(from, to, a),
            (_, Kind::Float) => format!("{t}({a})"),
            // Between integers: first the width, which extends the sign, then the type.
            _ => {
                let widened = match (from.kind(), from.size() == 8, to.size() == 8) {
                    (Kind::Signed, false, true) => format!("i64({a})"),
                    (_, false, true) => format!("u64({a})"),
                    (Kind::Signed, true, false) => format!("i32({a})"),
                    (_, true, false) => format!("u32({a})"),
                    _ => a.to_owned(),
                };
                let same_sign = f.starts_with('i') == t.starts_with('i');
                let typed = if same_sign { widened } else { format!("bitcast<{t}>({widened})") };
                self.wrap(to, typed)
            }
        })
    }

    fn float_to_integer(&mut self, from: DType, to: DType, a: &str) -> String {
        // Saturated, NaN to 0.
        let (f, t, held) = (value_type(from), value_type(to), from.compute());
        let limits = Limits::of(to);
        let name = self.function(format!("{f}_to_{to}"), |functions| {
            let nan = functions.is_nan(held, "x");
            let (low, high) = (
                functions.constant(held, Scalar::Float(limits.low)),
                functions.constant(held, Scalar::Float(limits.high)),
            );
            let (least, greatest) =
                (functions.constant(to, limits.least), functions.constant(to, limits.greatest));
            format!(
                "fn {f}_to_{to}(x: {f}) -> {t} {{
    if ({nan}) {{ return {zero}; }}
    if (x >= {high}) {{ return {greatest}; }}
    if (x < {low}) {{ return {least}; }}
    return {t}(x);
}}",
                zero = functions.whole(to, 0)
            )
        });
        format!("{name}({a})")
    }

    /// The bits of a number as a 16-bit float.
    pub(super) fn round(&mut self, from: DType, to: DType, a: &str) -> Result<String> {
        let single = self.cast(from, DType::F32, a)?;
        Ok(self.encode(to, &single))
    }

    /// The same bits as another type. `bits` are those of a 16-bit float, if they are known.
    pub(super) fn bitcast(&mut self, from: DType, to: DType, a: &str, bits: Option<&str>) -> String {
        let (f, t) = (value_type(from), value_type(to));
        if from.size() >= 4 {
            return if f == t { a.to_owned() } else { format!("bitcast<{t}>({a})") };
        }
        let mask = if from.size() == 1 { "0xffu" } else { "0xffffu" };
        let raw = match (from.kind(), bits) {
            (_, Some(bits)) => bits.to_owned(),
            (Kind::Float, None) => self.encode(from, a),
            (Kind::Signed, _) => format!("(bitcast<u32>({a}) & {mask})"),
            _ => a.to_owned(),
        };
        match to.kind() {
            Kind::Float => self.decode(to, &raw),
            Kind::Signed => self.wrap(to, format!("bitcast<i32>({raw})")),
            _ => raw,
        }
    }
}
