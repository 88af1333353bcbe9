//! Elementwise operations as C expressions. Operands are names, so they may be repeated. An operation that needs
//! statements becomes a function, which is written once before the kernel.

use super::{
    super::number::{Limits, fill, spelled},
    CFamily, Dialect, Printer,
};
use crate::{
    DType, Scalar,
    dtype::DTypeKind,
    op::{Binary, BinaryClass, Unary},
};

impl Printer<'_, CFamily> {
    /// Adds `result name(parameters) { body }` unless it is there, and returns its name.
    pub(super) fn define(&mut self, name: String, result: &str, parameters: &str, body: &str) -> String {
        if !self.has_function(&name) {
            let qualifiers = self.language().function;
            let definition = format!("{qualifiers} {result} {name}({parameters}) {{ {body} }}");
            self.functions.push((name.clone(), definition));
        }
        name
    }

    fn value_type(&self, dtype: DType) -> &'static str {
        self.language().value_type(dtype)
    }

    /// The unsigned type that a type's arithmetic wraps in.
    fn wrapping(&self, dtype: DType) -> &'static str {
        self.value_type(if dtype.size() == 8 { DType::U64 } else { DType::U32 })
    }

    /// A call of the function from a 16-bit float's bits (0), or to them (1).
    pub(super) fn half(&mut self, dtype: DType, direction: usize, operand: &str) -> String {
        let first = if dtype == DType::F16 { 0 } else { 2 };
        let (bits, body) = (self.language().memory_type(dtype), self.language().half[first + direction]);
        let name = match direction {
            0 => self.define(format!("{dtype}_to_float"), "float", &format!("{bits} bits"), body),
            _ => self.define(format!("{dtype}_from_float"), bits, "float value", body),
        };
        format!("{name}({operand})")
    }

    /// A float of which no compiler knows that it is this one. NVIDIA's sees through a volatile variable, but cannot
    /// know a group's position on an axis that has only one.
    pub(super) fn opaque(&mut self, dtype: DType, number: &str) -> String {
        let bits = if dtype == DType::F64 { DType::U64 } else { DType::U32 };
        let Some(axis) = self.kernel.grid().iter().rposition(|&groups| groups == 1) else {
            return number.to_owned();
        };
        let (zero, known) = (self.language().group[axis], self.bitcast(dtype, bits, number));
        self.bitcast(bits, dtype, &format!("({known} | {zero})"))
    }

    /// A function of one number.
    pub(super) fn unary(&mut self, op: Unary, dtype: DType, a: &str) -> String {
        use Unary::*;
        let t = self.value_type(dtype);
        match (op, dtype.kind()) {
            (Not, DTypeKind::Bool) => return format!("!{a}"),
            (_, DTypeKind::Bool | DTypeKind::Float) => {}
            (Neg, _) => return format!("({t})(0u - ({}){a})", self.wrapping(dtype)),
            (Not, _) => return format!("({t})~{a}"),
            (Sign, _) => return format!("({t})(({a} > 0) - ({a} < 0))"),
            (Abs, DTypeKind::Signed) => {
                return format!("({a} < 0 ? ({t})(0u - ({}){a}) : {a})", self.wrapping(dtype));
            }
            _ => return a.to_owned(),
        }
        let row = op.row();
        match row.c {
            _ if op == Lgamma => self.lgamma(dtype, a),
            _ if op == Digamma => self.digamma(dtype, a),
            None => format!("{}({a})", self.math(row.name, dtype)),
            Some(spelling) => self.spell(spelling, dtype, a, ""),
        }
    }

    /// A spelling of the tables of functions.
    fn spell(&mut self, spelling: &'static str, dtype: DType, a: &str, b: &str) -> String {
        spelled(spelling, |word| match word {
            "a" => a.to_owned(),
            "b" => b.to_owned(),
            word => match word.parse() {
                Ok(number) => self.literal(dtype, Scalar::Float(number)),
                Err(_) => self.math(word, dtype),
            },
        })
    }

    pub(super) fn math(&self, name: &str, dtype: DType) -> String {
        format!("{name}{}", if dtype == DType::F64 { "" } else { self.language().math_suffix })
    }

    /// A function of two numbers of one type.
    pub(super) fn binary(&mut self, op: Binary, dtype: DType, a: &str, b: &str) -> String {
        use Binary::*;
        let t = self.value_type(dtype);
        let signed = dtype.kind() == DTypeKind::Signed;
        match op {
            Max | Min if dtype.is_float() => {
                let body = match self.language().extremes {
                    Some(bodies) if dtype.compute() == DType::F32 => {
                        bodies[usize::from(op == Min)].to_owned()
                    }
                    _ => self.extreme(op == Max, dtype.compute()),
                };
                let name = format!("{}_{}", op.name(), dtype.compute());
                let name = self.define(name, t, &format!("{t} a, {t} b"), &body);
                format!("{name}({a}, {b})")
            }
            Shl => format!(
                "(({w}){b} >= {} ? 0 : ({t})(({w}){a} << {b}))",
                dtype.size() * 8,
                w = self.wrapping(dtype)
            ),
            Shr => {
                let beyond = if signed { format!("({a} < 0 ? -1 : 0)") } else { "0".to_owned() };
                let w = self.wrapping(dtype);
                format!("({t})(({w}){b} >= {} ? {beyond} : {a} >> {b})", dtype.size() * 8)
            }
            Pow if dtype.is_float() => self.plain(op, dtype, a, b),
            FloorDiv | Remainder | Pow => {
                let body = self.division_or_power(op, dtype);
                let name = self.define(format!("{}_{dtype}", op.name()), t, &format!("{t} a, {t} b"), &body);
                format!("{name}({a}, {b})")
            }
            _ => self.plain(op, dtype, a, b),
        }
    }

    /// The body of the maximum or minimum of two floats: NaN if either is NaN. Members of a team that combine the same
    /// two numbers in either order must get the same one, so -0 is less than 0.
    fn extreme(&mut self, greatest: bool, dtype: DType) -> String {
        let bits = if dtype == DType::F64 { DType::I64 } else { DType::I32 };
        let (a, b) = (self.bitcast(dtype, bits, "a"), self.bitcast(dtype, bits, "b"));
        let (than, both) = if greatest { ('>', '&') } else { ('<', '|') };
        let name = if greatest { "both" } else { "either" };
        let t = self.value_type(bits);
        let equal = self.bitcast(bits, dtype, name);
        format!(
            "if (a != b) return a {than} b || a != a ? a : b; {t} {name} = {a} {both} {b}; return {equal};"
        )
    }

    /// A function of two numbers from the table of functions.
    fn plain(&mut self, op: Binary, dtype: DType, a: &str, b: &str) -> String {
        let (row, t) = (op.row(), self.value_type(dtype));
        match (row.operator, row.class) {
            (Some(sign), BinaryClass::numbers) if !dtype.is_float() => {
                let u = self.wrapping(dtype);
                format!("({t})(({u}){a} {sign} ({u}){b})")
            }
            (Some(sign), BinaryClass::bits) => format!("({t})({a} {sign} {b})"),
            (Some(sign), _) => format!("{a} {sign} {b}"),
            (None, _) => match row.c {
                None => format!("{}({a}, {b})", self.math(row.name, dtype)),
                Some(spelling) => self.spell(spelling, dtype, a, b),
            },
        }
    }

    fn division_or_power(&mut self, op: Binary, dtype: DType) -> String {
        let (t, wrapping) = (self.value_type(dtype), self.wrapping(dtype));
        let template = match (op, dtype.kind()) {
            (Binary::Remainder, DTypeKind::Float) => {
                "{t} r = {fmod}(a, b); if (r == 0) return b < 0 ? -({t})0 : ({t})0; \
                 return (r < 0) != (b < 0) ? r + b : r;"
            }
            // A division of what the remainder leaves: an integer up to rounding. Zeros and infinities have no use for
            // it.
            (_, DTypeKind::Float) => {
                "if (a == 0 || b == 0 || {fabs}(a) == {infinity} || {fabs}(b) == {infinity}) return a / b; \
                 {t} r = {fmod}(a, b); \
                 return {rint}((a - r) / b) - (r != 0 && (r < 0) != (b < 0));"
            }
            (Binary::Remainder, DTypeKind::Signed) => {
                "if (b == 0 || b == -1) return 0; {t} r = a % b; return r != 0 && (r < 0) != (b < 0) ? r + b : r;"
            }
            (Binary::Remainder, _) => "return b == 0 ? 0 : a % b;",
            (Binary::Pow, kind) => {
                let negative = "if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0; ";
                let power = "{w} power = 1, base = a; \
                             for ({w} n = b; n != 0; n >>= 1) { if (n & 1) power *= base; base *= base; } \
                             return ({t})power;";
                let body =
                    if kind == DTypeKind::Signed { format!("{negative}{power}") } else { power.to_owned() };
                return fill(&body, &[("t", t), ("w", wrapping)]);
            }
            (_, DTypeKind::Signed) => {
                "if (b == 0) return 0; if (b == -1) return ({t})(0u - ({w})a); \
                 return a / b - (a % b != 0 && (a < 0) != (b < 0));"
            }
            _ => "return b == 0 ? 0 : a / b;",
        };
        let [fmod, rint, fabs] = ["fmod", "rint", "fabs"].map(|name| self.math(name, dtype));
        let infinity = match dtype.is_float() {
            true => self.literal(dtype, Scalar::Float(f64::INFINITY)),
            false => String::new(),
        };
        let names = [("t", t), ("w", wrapping), ("fmod", &fmod), ("rint", &rint), ("fabs", &fabs)];
        fill(&fill(template, &names), &[("infinity", &infinity)])
    }

    /// Conversion.
    pub(super) fn cast(&mut self, from: DType, to: DType, a: &str) -> String {
        let t = self.value_type(to);
        match (from.kind(), to.kind()) {
            _ if from.compute() == to => a.to_owned(),
            (_, DTypeKind::Bool) => format!("({a} != 0)"),
            (DTypeKind::Float, DTypeKind::Signed | DTypeKind::Unsigned) => {
                // Saturated, NaN to 0.
                let limits = Limits::of(to);
                let (least, greatest) = (self.literal(to, limits.least), self.literal(to, limits.greatest));
                let mut bound = |x| self.literal(from.compute(), Scalar::Float(x));
                let (low, high) = (bound(limits.low), bound(limits.high));
                let body =
                    format!("return x != x ? 0 : x >= {high} ? {greatest} : x < {low} ? {least} : ({t})x;");
                let parameter = format!("{} x", self.value_type(from));
                let name = self.define(format!("{}_to_{to}", from.compute()), t, &parameter, &body);
                format!("{name}({a})")
            }
            _ => format!("({t}){a}"),
        }
    }

    /// The same bits as another type.
    pub(super) fn bitcast(&mut self, from: DType, to: DType, a: &str) -> String {
        let (f, t) = (self.language().memory_type(from), self.language().memory_type(to));
        let element = self.encode(from, a);
        if f == t {
            return self.decode(to, &element);
        }
        let body = format!("union {{ {f} from; {t} to; }} bits; bits.from = from; return bits.to;");
        let name = self.define(format!("{from}_bits_as_{to}"), t, &format!("{f} from"), &body);
        self.decode(to, &format!("{name}({element})"))
    }
}
