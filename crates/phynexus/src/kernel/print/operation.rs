//! Elementwise operations as C expressions. Operands are names, so they may be repeated; what needs statements becomes
//! a function of its own, written once before the kernel.

use super::language::{Language, fill, spelled};
use crate::{
    DType, Scalar,
    dtype::Kind,
    op::{Binary, BinaryClass, Unary},
};

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
        if dtype.kind() == Kind::Signed {
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

/// The functions a source needs, in the order of their use.
pub(super) struct Functions {
    pub(super) language: &'static Language,
    written: Vec<(String, String)>,
}

impl Functions {
    pub(super) fn new(language: &'static Language) -> Functions {
        Functions { language, written: Vec::new() }
    }

    pub(super) fn source(&self) -> String {
        self.written.iter().map(|(_, definition)| format!("{definition}\n")).collect()
    }

    /// Adds `result name(parameters) { body }` unless it is there, and gives back its name.
    fn function(&mut self, name: String, result: &str, parameters: &str, body: &str) -> String {
        if !self.written.iter().any(|(n, _)| *n == name) {
            let definition = format!("{} {result} {name}({parameters}) {{ {body} }}", self.language.function);
            self.written.push((name.clone(), definition));
        }
        name
    }

    fn value_type(&self, dtype: DType) -> &'static str {
        self.language.value_type(dtype)
    }

    /// The unsigned type that a type's arithmetic wraps in.
    fn wrapping(&self, dtype: DType) -> &'static str {
        self.value_type(if dtype.size() == 8 { DType::U64 } else { DType::U32 })
    }

    /// A number, exact.
    pub(super) fn constant(&self, dtype: DType, scalar: Scalar) -> String {
        let language = self.language;
        match dtype.kind() {
            Kind::Bool => scalar.as_bool().to_string(),
            Kind::Unsigned if dtype.size() == 8 => format!("{}u{}", scalar.as_u64(), language.long_suffix),
            Kind::Unsigned => format!("{}u", scalar.as_u64()),
            Kind::Signed => {
                let suffix = if dtype.size() == 8 { language.long_suffix } else { "" };
                match scalar.as_i64() {
                    // The least number has no literal: its magnitude is out of range.
                    i if i == i64::MIN || i == i64::from(i32::MIN) => format!("({}{suffix} - 1)", i + 1),
                    i if i < 0 => format!("({i}{suffix})"),
                    i => format!("{i}{suffix}"),
                }
            }
            Kind::Float => {
                let x = scalar.as_f64();
                let wide = dtype == DType::F64;
                let (infinity, nan) = language.special[usize::from(wide)];
                match x {
                    x if x.is_nan() => nan.to_owned(),
                    x if x.is_infinite() && x < 0.0 => format!("(-{infinity})"),
                    x if x.is_infinite() => infinity.to_owned(),
                    x => {
                        let digits = if wide { format!("{x:?}") } else { format!("{:?}f", x as f32) };
                        if x.is_sign_negative() { format!("({digits})") } else { digits }
                    }
                }
            }
        }
    }

    /// A number computed with, from an element in memory.
    pub(super) fn decode(&mut self, dtype: DType, element: &str) -> String {
        match dtype {
            DType::Bool => format!("({element} != 0)"),
            DType::F16 | DType::BF16 => {
                let (name, body) = self.half(dtype, 0, "to_float");
                let bits = self.language.memory_type(dtype);
                format!("{}({element})", self.function(name, "float", &format!("{bits} bits"), body))
            }
            _ => element.to_owned(),
        }
    }

    /// An element in memory, from a number computed with.
    pub(super) fn encode(&mut self, dtype: DType, value: &str) -> String {
        match dtype {
            DType::F16 | DType::BF16 => {
                let (name, body) = self.half(dtype, 1, "from_float");
                let bits = self.language.memory_type(dtype);
                format!("{}({value})", self.function(name, bits, "float value", body))
            }
            _ => value.to_owned(),
        }
    }

    fn half(&self, dtype: DType, direction: usize, suffix: &str) -> (String, &'static str) {
        let first = if dtype == DType::F16 { 0 } else { 2 };
        (format!("{dtype}_{suffix}"), self.language.half[first + direction])
    }

    /// A function of one number.
    pub(super) fn unary(&mut self, op: Unary, dtype: DType, a: &str) -> String {
        use Unary::*;
        let t = self.value_type(dtype);
        match (op, dtype.kind()) {
            (Not, Kind::Bool) => return format!("!{a}"),
            (_, Kind::Bool | Kind::Float) => {}
            (Neg, _) => return format!("({t})(0u - ({}){a})", self.wrapping(dtype)),
            (Not, _) => return format!("({t})~{a}"),
            (Sign, _) => return format!("({t})(({a} > 0) - ({a} < 0))"),
            (Abs, Kind::Signed) => {
                return format!("({a} < 0 ? ({t})(0u - ({}){a}) : {a})", self.wrapping(dtype));
            }
            _ => return a.to_owned(),
        }
        let row = op.row();
        match row.c {
            None => format!("{}({a})", self.math(row.name, dtype)),
            Some(spelling) => self.spell(spelling, dtype, a, ""),
        }
    }

    /// A spelling of the tables of functions.
    fn spell(&self, spelling: &'static str, dtype: DType, a: &str, b: &str) -> String {
        spelled(spelling, |word| match word {
            "a" => a.to_owned(),
            "b" => b.to_owned(),
            word => match word.parse() {
                Ok(number) => self.constant(dtype, Scalar::Float(number)),
                Err(_) => self.math(word, dtype),
            },
        })
    }

    pub(super) fn math(&self, name: &str, dtype: DType) -> String {
        format!("{name}{}", if dtype == DType::F64 { "" } else { self.language.math_suffix })
    }

    /// A function of two numbers of one type.
    pub(super) fn binary(&mut self, op: Binary, dtype: DType, a: &str, b: &str) -> String {
        use Binary::*;
        let t = self.value_type(dtype);
        let signed = dtype.kind() == Kind::Signed;
        match op {
            Max | Min if dtype.compute() == DType::F32 && self.language.extremes.is_some() => {
                let body = self.language.extremes.map_or("", |bodies| bodies[usize::from(op == Min)]);
                let name = self.function(format!("{}_float32", op.name()), t, "float a, float b", body);
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
                let name =
                    self.function(format!("{}_{dtype}", op.name()), t, &format!("{t} a, {t} b"), &body);
                format!("{name}({a}, {b})")
            }
            _ => self.plain(op, dtype, a, b),
        }
    }

    /// A function of two numbers as the table of functions has it.
    fn plain(&self, op: Binary, dtype: DType, a: &str, b: &str) -> String {
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

    fn division_or_power(&self, op: Binary, dtype: DType) -> String {
        let (t, wrapping) = (self.value_type(dtype), self.wrapping(dtype));
        let template = match (op, dtype.kind()) {
            (Binary::Remainder, Kind::Float) => {
                "{t} r = {fmod}(a, b); if (r == 0) return b < 0 ? -({t})0 : ({t})0; \
                 return (r < 0) != (b < 0) ? r + b : r;"
            }
            // A division of what the remainder leaves: an integer up to rounding. Zeros and infinities have no use for it.
            (_, Kind::Float) => {
                "if (a == 0 || b == 0 || {fabs}(a) == {infinity} || {fabs}(b) == {infinity}) return a / b; \
                 {t} r = {fmod}(a, b); \
                 return {rint}((a - r) / b) - (r != 0 && (r < 0) != (b < 0));"
            }
            (Binary::Remainder, Kind::Signed) => {
                "if (b == 0 || b == -1) return 0; {t} r = a % b; return r != 0 && (r < 0) != (b < 0) ? r + b : r;"
            }
            (Binary::Remainder, _) => "return b == 0 ? 0 : a % b;",
            (Binary::Pow, kind) => {
                let negative = "if (b < 0) return a == 1 ? 1 : a == -1 ? (b & 1 ? -1 : 1) : 0; ";
                let power = "{w} power = 1, base = a; \
                             for ({w} n = b; n != 0; n >>= 1) { if (n & 1) power *= base; base *= base; } \
                             return ({t})power;";
                let body = if kind == Kind::Signed { format!("{negative}{power}") } else { power.to_owned() };
                return fill(&body, &[("t", t), ("w", wrapping)]);
            }
            (_, Kind::Signed) => {
                "if (b == 0) return 0; if (b == -1) return ({t})(0u - ({w})a); \
                 return a / b - (a % b != 0 && (a < 0) != (b < 0));"
            }
            _ => "return b == 0 ? 0 : a / b;",
        };
        let [fmod, rint, fabs] = ["fmod", "rint", "fabs"].map(|name| self.math(name, dtype));
        let infinity = match dtype.is_float() {
            true => self.constant(dtype, Scalar::Float(f64::INFINITY)),
            false => String::new(),
        };
        let names = [("t", t), ("w", wrapping), ("fmod", &fmod), ("rint", &rint), ("fabs", &fabs)];
        fill(&fill(template, &names), &[("infinity", &infinity)])
    }

    /// Conversion.
    pub(super) fn cast(&mut self, from: DType, to: DType, a: &str) -> String {
        let t = self.value_type(to);
        match (from.kind(), to.kind()) {
            _ if to == to.compute() && from.compute() == to => a.to_owned(),
            (_, Kind::Bool) => format!("({a} != 0)"),
            (_, Kind::Float) if to != to.compute() => {
                let bits = self.round(from, to, a);
                self.decode(to, &bits)
            }
            (Kind::Float, Kind::Signed | Kind::Unsigned) => {
                // Saturated, NaN to 0.
                let limits = Limits::of(to);
                let (least, greatest) = (self.constant(to, limits.least), self.constant(to, limits.greatest));
                let bound = |x| self.constant(from.compute(), Scalar::Float(x));
                let (low, high) = (bound(limits.low), bound(limits.high));
                let body =
                    format!("return x != x ? 0 : x >= {high} ? {greatest} : x < {low} ? {least} : ({t})x;");
                let parameter = format!("{} x", self.value_type(from));
                let name = self.function(format!("{}_to_{to}", from.compute()), t, &parameter, &body);
                format!("{name}({a})")
            }
            _ => format!("({t}){a}"),
        }
    }

    /// The bits of a number as a 16-bit float.
    pub(super) fn round(&mut self, from: DType, to: DType, a: &str) -> String {
        let single = self.cast(from, DType::F32, a);
        self.encode(to, &single)
    }

    /// The same bits as another type.
    pub(super) fn bitcast(&mut self, from: DType, to: DType, a: &str) -> String {
        let (f, t) = (self.language.memory_type(from), self.language.memory_type(to));
        let element = self.encode(from, a);
        if f == t {
            return self.decode(to, &element);
        }
        let body = format!("union {{ {f} from; {t} to; }} bits; bits.from = from; return bits.to;");
        let name = self.function(format!("{from}_bits_as_{to}"), t, &format!("{f} from"), &body);
        self.decode(to, &format!("{name}({element})"))
    }

    /// Floor division and remainder of a possibly negative index.
    pub(super) fn floor_index(&mut self, remainder: bool, wide: bool, a: &str, k: i64) -> String {
        let dtype = if wide { DType::I64 } else { DType::I32 };
        let op = if remainder { Binary::Remainder } else { Binary::FloorDiv };
        self.binary(op, dtype, a, &k.to_string())
    }
}
