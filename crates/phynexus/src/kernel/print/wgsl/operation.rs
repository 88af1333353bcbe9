//! Elementwise operations as WGSL expressions. Operands are names or literals, so they may be repeated. An operation
//! that needs statements becomes a function.

use super::{
    super::number::{fill, spelled},
    Dialect, Printer, Wgsl,
    functions::find,
};
use crate::{
    DType, Error, Result,
    dtype::DTypeKind,
    op::{Binary, BinaryClass, Class, Op, Unary},
};

/// The type that numbers are computed in: 8- and 16-bit integers as 32-bit ones.
pub(super) fn value_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::U8 | DType::U16 | DType::U32 => "u32",
        DType::I8 | DType::I16 | DType::I32 => "i32",
        DType::U64 => "u64",
        DType::I64 => "i64",
        DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 | DType::F32 => "f32",
        DType::F64 => "f64",
    }
}

/// What literals of the type end with.
pub(super) fn suffix(dtype: DType) -> &'static str {
    match value_type(dtype) {
        "u32" => "u",
        "i32" => "i",
        "u64" => "lu",
        "i64" => "li",
        "f64" => "lf",
        _ => "f",
    }
}

impl Printer<'_, Wgsl> {
    /// True if the device's own operations on floats of the type see subnormal numbers.
    pub(super) fn sees_subnormals(&self, dtype: DType) -> bool {
        self.dialect.arithmetic.subnormals || dtype == DType::F64
    }

    /// Adds one that [`find`] knows, and what it calls, unless they are there; returns its name.
    pub(super) fn library(&mut self, name: &'static str) -> &'static str {
        let found = find(name, self.dialect.arithmetic);
        if let Some((_, calls, source)) = found.filter(|_| !self.has_function(name)) {
            self.functions.push((name.to_owned(), (*source).to_owned()));
            for call in *calls {
                self.library(call);
            }
        }
        name
    }

    /// Adds a function unless it is there, and returns its name.
    pub(super) fn function(&mut self, name: String, source: impl FnOnce(&mut Self) -> String) -> String {
        if !self.has_function(&name) {
            let source = source(self);
            self.functions.push((name.clone(), source));
        }
        name
    }

    /// The number that an integer of fewer bits wraps to.
    pub(super) fn wrap(&self, dtype: DType, value: String) -> String {
        match dtype {
            DType::U8 => format!("(({value}) & 0xffu)"),
            DType::U16 => format!("(({value}) & 0xffffu)"),
            DType::I8 => format!("((({value}) << 24u) >> 24u)"),
            DType::I16 => format!("((({value}) << 16u) >> 16u)"),
            _ => value,
        }
    }

    pub(super) fn is_nan(&mut self, dtype: DType, a: &str) -> String {
        let name = if dtype == DType::F64 { "is_nan_f64" } else { "is_nan" };
        format!("{}({a})", self.library(name))
    }

    /// A function of one number.
    ///
    /// # Errors
    /// For elementary functions of `float64`: WGSL has none.
    pub(super) fn unary(&mut self, op: Unary, dtype: DType, a: &str) -> Result<String> {
        use Unary::*;
        let wide = dtype == DType::F64;
        match (op, dtype.kind()) {
            (Not, DTypeKind::Bool) => return Ok(format!("!{a}")),
            (_, DTypeKind::Bool | DTypeKind::Float) => {}
            (Neg, DTypeKind::Unsigned) => {
                let zero = self.whole(dtype, 0);
                return Ok(self.wrap(dtype, format!("({zero} - {a})")));
            }
            (Neg, _) => return Ok(self.wrap(dtype, format!("(-{a})"))),
            (Not, _) => return Ok(self.wrap(dtype, format!("(~{a})"))),
            (Sign, DTypeKind::Unsigned) => {
                let (zero, one) = (self.whole(dtype, 0), self.whole(dtype, 1));
                return Ok(format!("select({zero}, {one}, {a} > {zero})"));
            }
            (Sign, _) => {
                let [zero, one, less] = [0, 1, -1].map(|i| self.whole(dtype, i));
                return Ok(format!("select(select({zero}, {less}, {a} < {zero}), {one}, {a} > {zero})"));
            }
            (Abs, DTypeKind::Signed) => {
                let zero = self.whole(dtype, 0);
                return Ok(self.wrap(dtype, format!("select({a}, -{a}, {a} < {zero})")));
            }
            _ => return Ok(a.to_owned()),
        }
        let one = self.whole(dtype, 1);
        let name = match op {
            Neg => return Ok(format!("-{a}")),
            IsNan => return Ok(self.is_nan(dtype, a)),
            IsInf => self.library(if wide { "is_infinite_f64" } else { "is_infinite" }),
            Sign => {
                let [zero, less] = [0, -1].map(|i| self.whole(dtype, i));
                let below = self.compare(Binary::Lt, dtype, a, &zero);
                let above = self.compare(Binary::Lt, dtype, &zero, a);
                return Ok(format!("select(select({a}, {less}, {below}), {one}, {above})"));
            }
            Recip => return Ok(self.quotient(dtype, &one, a)),
            Sqrt => return Ok(self.square_root(dtype, a)),
            Rsqrt => {
                let root = self.square_root(dtype, a);
                return Ok(self.quotient(dtype, &one, &root));
            }
            Abs if !self.sees_subnormals(dtype) => self.library("magnitude"),
            // Drivers lose the sign of a zero here (llvmpipe's truncation in `f64` on processors without AVX-512).
            Ceil | Trunc | Round => {
                let sign = self.library(if wide { "with_sign_f64" } else { "with_sign" });
                return Ok(format!("{sign}({}({a}), {a})", op.name()));
            }
            Abs | Floor => op.name(),
            _ if wide => return Err(missing(op.name())),
            Not => return Err(Error::internal("kernel::print", "not of a float")),
            other => match other.row().wgsl {
                None => self.library(other.row().library),
                Some(spelling) => return Ok(self.spell(spelling, a, "")),
            },
        };
        Ok(format!("{name}({a})"))
    }

    /// A spelling of the tables of functions.
    fn spell(&mut self, spelling: &'static str, a: &str, b: &str) -> String {
        spelled(spelling, |word| match word {
            "a" => a.to_owned(),
            "b" => b.to_owned(),
            function => self.library(function).to_owned(),
        })
    }

    /// A function of two numbers of one type.
    ///
    /// # Errors
    /// For powers and angles of `float64`: WGSL has none.
    pub(super) fn binary(&mut self, op: Binary, dtype: DType, a: &str, b: &str) -> Result<String> {
        use Binary::*;
        let kind = dtype.kind();
        let infix = |sign: &str| format!("{a} {sign} {b}");
        if kind == DTypeKind::Bool {
            return Ok(match op {
                Lt => format!("(!{a} && {b})"),
                Le => format!("(!{a} || {b})"),
                Eq => infix("=="),
                Ne | Xor => infix("!="),
                And | Min => format!("({a} && {b})"),
                Or | Max => format!("({a} || {b})"),
                _ => return Err(Error::internal("kernel::print", format!("{} of bool", op.name()))),
            });
        }
        Ok(match op {
            Lt | Le | Eq => self.compare(op, dtype, a, b),
            // Its translation may be false for NaN.
            Ne if kind == DTypeKind::Float => format!("!({})", self.compare(Eq, dtype, a, b)),
            Max | Min if kind == DTypeKind::Float => {
                let of = if dtype == DType::F64 { "_f64" } else { "" };
                self.library(if dtype == DType::F64 { "maximum_f64" } else { "maximum" });
                format!("{}{of}({a}, {b})", op.name())
            }
            Max => format!("select({b}, {a}, {a} > {b})"),
            Min => format!("select({b}, {a}, {a} < {b})"),
            Div => self.quotient(dtype, a, b),
            Shl | Shr => self.shift(op, dtype, a, b),
            _ if is_elementary(op) && dtype == DType::F64 => return Err(missing(op.name())),
            FloorDiv | Remainder | Pow if op != Pow || kind != DTypeKind::Float => {
                let name = format!("{}_{}", op.name(), value_type(dtype));
                let name = self.function(name, |f| f.division_or_power(op, dtype));
                self.wrap(dtype, format!("{name}({a}, {b})"))
            }
            _ => match (op.row().operator, op.row().wgsl) {
                (Some(sign), _) if op.row().class == BinaryClass::numbers => self.wrap(dtype, infix(sign)),
                (Some(sign), _) => infix(sign),
                (None, Some(spelling)) => self.spell(spelling, a, b),
                (None, None) => format!("{}({a}, {b})", self.library(op.row().library)),
            },
        })
    }

    /// A product and a sum; fused where that loses nothing.
    pub(super) fn multiply_add(&self, dtype: DType, a: &str, b: &str, c: &str) -> String {
        match self.sees_subnormals(dtype) {
            true => format!("fma({a}, {b}, {c})"),
            false => format!("{a} * {b} + {c}"),
        }
    }

    /// Less, at most, or equal.
    pub(super) fn compare(&mut self, op: Binary, dtype: DType, a: &str, b: &str) -> String {
        let (sign, name) = match op {
            Binary::Lt => ("<", "less"),
            Binary::Le => ("<=", "less_equal"),
            _ => ("==", "equal"),
        };
        if dtype.kind() != DTypeKind::Float || self.sees_subnormals(dtype) {
            return format!("{a} {sign} {b}");
        }
        self.library("less");
        format!("{name}({a}, {b})")
    }

    /// The quotient of two floats.
    fn quotient(&mut self, dtype: DType, a: &str, b: &str) -> String {
        match self.dialect.arithmetic.divisions || dtype == DType::F64 {
            true => format!("{a} / {b}"),
            false => format!("{}({a}, {b})", self.library("divide")),
        }
    }

    fn square_root(&mut self, dtype: DType, a: &str) -> String {
        let native = self.dialect.arithmetic.divisions || dtype == DType::F64;
        format!("{}({a})", if native { "sqrt" } else { self.library("square_root") })
    }

    fn shift(&mut self, op: Binary, dtype: DType, a: &str, b: &str) -> String {
        let (t, bits) = (value_type(dtype), dtype.size() * 8);
        let held = if dtype.size() == 8 { 64 } else { 32 };
        let beyond = match (op, dtype.kind()) {
            (Binary::Shr, DTypeKind::Signed) => {
                format!(
                    "select({}, {}, {a} < 0{})",
                    self.whole(dtype, 0),
                    self.whole(dtype, -1),
                    suffix(dtype)
                )
            }
            _ => self.whole(dtype, 0),
        };
        let unsigned = match t {
            "i32" => format!("bitcast<u32>({b})"),
            "i64" => format!("bitcast<u64>({b})"),
            _ => b.to_owned(),
        };
        let by = if held == 64 { format!("u32({unsigned} & 63lu)") } else { format!("({unsigned} & 31u)") };
        let sign = if op == Binary::Shl { "<<" } else { ">>" };
        let least = if held == 64 { format!("{bits}lu") } else { format!("{bits}u") };
        self.wrap(dtype, format!("select({a} {sign} {by}, {beyond}, {unsigned} >= {least})"))
    }

    /// The function of a division, remainder or power.
    fn division_or_power(&mut self, op: Binary, dtype: DType) -> String {
        let t = value_type(dtype);
        let body = match (op, dtype.kind()) {
            (op, DTypeKind::Float) => {
                self.float_remainder(dtype);
                let wide = dtype == DType::F64;
                let infinite = self.library(if wide { "is_infinite_f64" } else { "is_infinite" });
                let mut test = |op, a, b| self.compare(op, dtype, a, b);
                let none = ["a", "b", "r"].map(|number| test(Binary::Eq, number, "{0}"));
                let signs = [test(Binary::Lt, "r", "{0}"), test(Binary::Lt, "b", "{0}")];
                let differs = format!("!({}) && ({}) != ({})", none[2], signs[0], signs[1]);
                &if op == Binary::Remainder {
                    // A zero takes the divisor's sign by its bit.
                    let (u, sign) = if wide { ("u64", "63u") } else { ("u32", "31u") };
                    format!(
                        "let r = c_remainder_{{t}}(a, b);
    if ({}) {{ return bitcast<{{t}}>((bitcast<{u}>(b) >> {sign}) << {sign}); }}
    return select(r, r + b, {differs});",
                        none[2]
                    )
                } else {
                    // A division of what the remainder leaves: an integer up to rounding. Zeros and infinities have no
                    // use for it.
                    let (limit, all) = (self.quotient(dtype, "a", "b"), self.quotient(dtype, "(a - r)", "b"));
                    format!(
                        "if ({} || {} || {infinite}(a) || {infinite}(b)) {{ return {limit}; }}
    let r = c_remainder_{{t}}(a, b);
    return round({all}) - select({{0}}, {{1}}, {differs});",
                        none[0], none[1]
                    )
                }
            }
            (Binary::Remainder, DTypeKind::Signed) => {
                "if (b == {0} || b == {-1}) { return {0}; }
    let r = a % b;
    return select(r, r + b, r != {0} && (r < {0}) != (b < {0}));"
            }
            (Binary::Remainder, _) => {
                "if (b == {0}) { return {0}; }
    return a % b;"
            }
            (Binary::Pow, kind) => {
                let negative = match kind {
                    DTypeKind::Signed => {
                        "if (b < {0}) {
        if (a == {-1}) { return select({1}, {-1}, (b & {1}) == {1}); }
        return select({0}, {1}, a == {1});
    }
    "
                    }
                    _ => "",
                };
                let power = "var power = {1};
    var base = a;
    var n = b;
    while (n != {0}) {
        if ((n & {1}) == {1}) { power *= base; }
        base *= base;
        n = n >> 1u;
    }
    return power;";
                return self.defined(op, dtype, &format!("{negative}{power}"));
            }
            (_, DTypeKind::Signed) => {
                "if (b == {0}) { return {0}; }
    if (b == {-1}) { return -a; }
    let q = a / b;
    return q - select({0}, {1}, q * b != a && (a < {0}) != (b < {0}));"
            }
            _ => {
                "if (b == {0}) { return {0}; }
    return a / b;"
            }
        };
        let body = fill(body, &[("t", t)]);
        self.defined(op, dtype, &body)
    }

    fn defined(&self, op: Binary, dtype: DType, body: &str) -> String {
        let t = value_type(dtype);
        let numbers = [0, 1, -1].map(|i| match dtype.kind() {
            DTypeKind::Unsigned if i < 0 => String::new(),
            _ => self.whole(dtype, i),
        });
        let body = fill(body, &[("0", &numbers[0]), ("1", &numbers[1]), ("-1", &numbers[2])]);
        format!("fn {}_{t}(a: {t}, b: {t}) -> {t} {{\n    {body}\n}}", op.name())
    }

    /// C's `fmod`, exact: a long division of significands.
    fn float_remainder(&mut self, dtype: DType) -> String {
        let wide = dtype == DType::F64;
        self.library(if wide { "not_a_number_f64" } else { "not_a_number" });
        let (t, u, s, bits, nan) = match wide {
            true => ("f64", "u64", "lu", "52", "not_a_number_f64"),
            false => ("f32", "u32", "u", "23", "not_a_number"),
        };
        let (sign, infinity, implicit) = match wide {
            true => ("63", "0x7ff0000000000000lu", "0x10000000000000lu"),
            false => ("31", "0x7f800000u", "0x800000u"),
        };
        let source = "fn c_remainder_{t}(x: {t}, y: {t}) -> {t} {
    let sign = (bitcast<{u}>(x) >> {sign}u) << {sign}u;
    let a = bitcast<{u}>(x) ^ sign;
    let b = (bitcast<{u}>(y) << 1u) >> 1u;
    if (b == 0{s} || b > {infinity} || a >= {infinity}) { return {nan}(); }
    if (a < b) { return x; }
    // Significands with their first bit at the same place, and exponents.
    var ea = i32(a >> {bits}u);
    var eb = i32(b >> {bits}u);
    var ma = a & ({implicit} - 1{s});
    var mb = b & ({implicit} - 1{s});
    if (ea == 0) { ea = 1; } else { ma |= {implicit}; }
    if (eb == 0) { eb = 1; } else { mb |= {implicit}; }
    while (ma < {implicit}) {
        ma = ma << 1u;
        ea -= 1;
    }
    while (mb < {implicit}) {
        mb = mb << 1u;
        eb -= 1;
    }
    while (ea > eb) {
        if (ma >= mb) { ma -= mb; }
        ma = ma << 1u;
        ea -= 1;
    }
    if (ma >= mb) { ma -= mb; }
    if (ma == 0{s}) { return bitcast<{t}>(sign); }
    while (ma < {implicit} && ea > 1) {
        ma = ma << 1u;
        ea -= 1;
    }
    if (ea < 1) { ma = ma >> u32(1 - ea); }
    // Without the first bit it is subnormal.
    var bits = ma;
    if (ma >= {implicit}) { bits = (ma - {implicit}) | ({u}(ea) << {bits}u); }
    return bitcast<{t}>(bits | sign);
}";
        let source = fill(
            source,
            &[
                ("t", t),
                ("u", u),
                ("s", s),
                ("sign", sign),
                ("bits", bits),
                ("infinity", infinity),
                ("implicit", implicit),
                ("nan", nan),
            ],
        );
        self.function(format!("c_remainder_{t}"), |_| source)
    }
}

/// True for functions of the printer's own library, which has those of `float32` only.
fn is_elementary(op: Binary) -> bool {
    op == Binary::Pow || op.row().class == BinaryClass::floats && op.row().operator.is_none()
}

/// Why WGSL has no such elementwise operation on operands of these types, if it has none: elementary functions of
/// `float64`.
pub fn refuses(op: &Op, operands: &[DType]) -> Option<String> {
    let name = match op {
        Op::Unary(Unary::Recip | Unary::Sqrt | Unary::Rsqrt) => return None,
        Op::Unary(unary) if unary.row().class == Class::floats => unary.name(),
        Op::Binary(binary) if is_elementary(*binary) => binary.name(),
        _ => return None,
    };
    (operands.first() == Some(&DType::F64)).then(|| without(name))
}

fn without(name: &str) -> String {
    format!("WGSL has no {name} of float64")
}

fn missing(name: &str) -> Error {
    Error::Unsupported { device: "WGSL".to_owned(), message: without(name) }
}
