//! Conversions as WGSL expressions.

use super::operation::{Functions, value_type};
use crate::{DType, Result, Scalar, dtype::Kind, graph::op::Binary};

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
        let signed = to.kind() == Kind::Signed;
        if from != DType::F64 && to.size() < 8 {
            // Saturated to 64 bits, NaN to 0, then wrapped: without 64-bit integers.
            let name = if signed { "low_bits_of_signed" } else { "low_bits_of_unsigned" };
            let low = format!("{}({a})", self.library(name));
            return self.wrap(to, if signed { format!("bitcast<i32>({low})") } else { low });
        }
        let f = value_type(from);
        let limit = |f: &mut Functions, power| f.constant(from.compute(), Scalar::Float(2f64.powi(power)));
        let (low, high) = (limit(self, 63), limit(self, 64));
        let nan = self.is_nan(from.compute(), "x");
        let (least, most) = (
            self.constant(DType::I64, Scalar::Int(i64::MIN)),
            self.constant(DType::I64, Scalar::Int(i64::MAX)),
        );
        let all = self.constant(DType::U64, Scalar::UInt(u64::MAX));
        let zero = self.whole(from.compute(), 0);
        let to_signed = self.function(format!("{f}_to_i64"), |_| {
            format!(
                "fn {f}_to_i64(x: {f}) -> i64 {{
    if ({nan}) {{ return 0li; }}
    if (x >= {low}) {{ return {most}; }}
    if (x < -{low}) {{ return {least}; }}
    return i64(x);
}}"
            )
        });
        if signed {
            let wide = format!("{to_signed}({a})");
            return if to == DType::I64 { wide } else { self.wrap(to, format!("i32({wide})")) };
        }
        let nan = self.is_nan(from.compute(), "x");
        let to_unsigned = self.function(format!("{f}_to_u64"), |_| {
            format!(
                "fn {f}_to_u64(x: {f}) -> u64 {{
    if (x < {zero} || {nan}) {{ return bitcast<u64>({f}_to_i64(x)); }}
    if (x >= {high}) {{ return {all}; }}
    return u64(x);
}}"
            )
        });
        let wide = format!("{to_unsigned}({a})");
        if to == DType::U64 { wide } else { self.wrap(to, format!("u32({wide})")) }
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
