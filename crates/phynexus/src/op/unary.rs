//! The functions of one element: one row each. Everything that is said of such a function once, here or in another crate,
//! is made from its row.

use std::f64::consts::{FRAC_2_SQRT_PI, LN_2, PI};

use crate::{
    DType,
    op::{formula::Formula, gamma, gradient::rule::Reads},
};

/// Calls a macro with the rows of the table: `macro! { rows }`. A row is
///
/// ```text
/// /// What it computes, in words for users of every language.
/// Variant method "name" class(meaning in f64) { other fields }
/// ```
///
/// The class says which dtypes the op has, and what methods do with others:
///
/// - `floats`: floats; integers and `bool` are converted to `float32`;
/// - `roundings`: floats; integers and `bool` are whole already;
/// - `numbers`: all but `bool`;
/// - `bits`: integers and `bool`;
/// - `tests`: floats, giving `bool`; false for others.
///
/// The other fields are those of `UnaryRow`; those that are left out have its defaults.
#[macro_export]
#[doc(hidden)]
macro_rules! unary_functions {
    ($consumer:ident) => {
        $consumer! {
            /// ``-x``. Unsigned integers wrap.
            Neg neg "neg" numbers(|x: f64| -x) {
                gradient: |g, _, _| -g,
                c: Some("-{a}"),
            }
            /// The absolute value. The least signed integer stays as it is.
            Abs abs "abs" numbers(f64::abs) {
                range: (0.0, f64::INFINITY),
                gradient: |g, x, _| g * x.sign(),
                reads: Reads::OPERANDS,
                c: Some("{fabs}({a})"),
            }
            /// -1, 0 or 1 in the tensor's dtype; NaN stays NaN.
            Sign sign "sign" numbers(|x: f64| if x == 0.0 { 0.0 } else { 1f64.copysign(x) }) {
                c: Some("({a} > 0 ? {1} : {a} < 0 ? -{1} : {a})"),
            }
            /// ``1 / x``; infinite where x is 0.
            Recip reciprocal "reciprocal" floats(|x: f64| 1.0 / x) {
                gradient: |g, _, y| -(g * y * y),
                reads: Reads::RESULT,
                c: Some("{1} / {a}"),
                domain: (0.3, 2.0),
            }
            /// The square root; NaN below 0.
            Sqrt sqrt "sqrt" floats(f64::sqrt) {
                range: (0.0, f64::INFINITY),
                keeps_zero: true,
                gradient: |g, _, y| g * 0.5 / y,
                reads: Reads::RESULT,
                domain: (0.3, 2.0),
            }
            /// ``1 / sqrt(x)``; infinite where x is 0, NaN below.
            Rsqrt rsqrt "rsqrt" floats(|x: f64| 1.0 / x.sqrt()) {
                ulps: 2.0,
                gradient: |g, _, y| g * -0.5 * (y * y * y),
                reads: Reads::RESULT,
                domain: (0.3, 2.0),
            }
            /// e to the power x.
            Exp exp "exp" floats(f64::exp) {
                ulps: 3.0,
                range: (0.0, f64::INFINITY),
                gradient: |g, _, y| g * y,
                reads: Reads::RESULT,
            }
            /// 2 to the power x.
            Exp2 exp2 "exp2" floats(f64::exp2) {
                ulps: 3.0,
                range: (0.0, f64::INFINITY),
                gradient: |g, _, y| g * y * LN_2,
                reads: Reads::RESULT,
            }
            /// ``exp(x) - 1``, accurate near 0.
            Expm1 expm1 "expm1" floats(f64::exp_m1) {
                ulps: 3.0,
                range: (-1.0, f64::INFINITY),
                keeps_zero: true,
                gradient: |g, _, y| g * (y + 1.0),
                reads: Reads::RESULT,
            }
            /// The natural logarithm; -infinity where x is 0, NaN below.
            Log log "log" floats(f64::ln) {
                ulps: 3.0,
                gradient: |g, x, _| g / x,
                reads: Reads::OPERANDS,
                domain: (0.3, 2.0),
            }
            /// The logarithm to base 2.
            Log2 log2 "log2" floats(f64::log2) {
                ulps: 3.0,
                gradient: |g, x, _| g / (x * LN_2),
                reads: Reads::OPERANDS,
                domain: (0.3, 2.0),
            }
            /// ``log(1 + x)``, accurate near 0.
            Log1p log1p "log1p" floats(f64::ln_1p) {
                ulps: 2.0,
                keeps_zero: true,
                gradient: |g, x, _| g / (x + 1.0),
                reads: Reads::OPERANDS,
                domain: (-0.7, 1.9),
            }
            /// The sine of radians.
            Sin sin "sin" floats($crate::op::special::sin) {
                ulps: 4.0,
                range: (-1.0, 1.0),
                keeps_zero: true,
                gradient: |g, x, _| g * x.cos(),
                reads: Reads::OPERANDS,
            }
            /// The cosine of radians.
            Cos cos "cos" floats($crate::op::special::cos) {
                ulps: 4.0,
                range: (-1.0, 1.0),
                gradient: |g, x, _| -(g * x.sin()),
                reads: Reads::OPERANDS,
            }
            /// The tangent of radians.
            Tan tan "tan" floats(f64::tan) {
                ulps: 5.0,
                keeps_zero: true,
                gradient: |g, _, y| g * (y * y + 1.0),
                reads: Reads::RESULT,
            }
            /// The arc sine in radians; NaN outside -1 to 1.
            Asin asin "asin" floats(f64::asin) {
                ulps: 4.0,
                keeps_zero: true,
                gradient: |g, x, _| g * (1.0 - x * x).rsqrt(),
                reads: Reads::OPERANDS,
                domain: (-0.8, 0.8),
            }
            /// The arc cosine in radians; NaN outside -1 to 1.
            Acos acos "acos" floats(f64::acos) {
                ulps: 4.0,
                range: (0.0, f64::INFINITY),
                gradient: |g, x, _| -(g * (1.0 - x * x).rsqrt()),
                reads: Reads::OPERANDS,
                domain: (-0.8, 0.8),
            }
            /// The arc tangent in radians.
            Atan atan "atan" floats(f64::atan) {
                ulps: 5.0,
                keeps_zero: true,
                gradient: |g, x, _| g / (x * x + 1.0),
                reads: Reads::OPERANDS,
            }
            /// The hyperbolic sine.
            Sinh sinh "sinh" floats(f64::sinh) {
                ulps: 4.0,
                keeps_zero: true,
                gradient: |g, x, _| g * x.cosh(),
                reads: Reads::OPERANDS,
            }
            /// The hyperbolic cosine.
            Cosh cosh "cosh" floats(f64::cosh) {
                ulps: 4.0,
                range: (1.0, f64::INFINITY),
                gradient: |g, x, _| g * x.sinh(),
                reads: Reads::OPERANDS,
            }
            /// The hyperbolic tangent.
            Tanh tanh "tanh" floats(f64::tanh) {
                ulps: 5.0,
                range: (-1.0, 1.0),
                keeps_zero: true,
                gradient: |g, _, y| g * (1.0 - y * y),
                reads: Reads::RESULT,
            }
            /// The inverse hyperbolic sine.
            Asinh asinh "asinh" floats($crate::op::special::asinh) {
                ulps: 4.0,
                keeps_zero: true,
                gradient: |g, x, _| g * (x * x + 1.0).rsqrt(),
                reads: Reads::OPERANDS,
            }
            /// The inverse hyperbolic cosine; NaN below 1.
            Acosh acosh "acosh" floats($crate::op::special::acosh) {
                ulps: 4.0,
                range: (0.0, f64::INFINITY),
                gradient: |g, x, _| g * (x * x - 1.0).rsqrt(),
                reads: Reads::OPERANDS,
                domain: (1.2, 3.0),
            }
            /// The inverse hyperbolic tangent; infinite at -1 and 1, NaN outside.
            Atanh atanh "atanh" floats(|x: f64| x.abs().atanh().copysign(x)) {
                ulps: 5.0,
                keeps_zero: true,
                gradient: |g, x, _| g / (1.0 - x * x),
                reads: Reads::OPERANDS,
                domain: (-0.8, 0.8),
            }
            /// The error function, ``2 / sqrt(pi)`` times the integral of ``exp(-t^2)`` from 0 to x.
            Erf erf "erf" floats($crate::op::special::erf) {
                ulps: 16.0,
                range: (-1.0, 1.0),
                keeps_zero: true,
                gradient: |g, x, _| g * (-(x * x)).exp() * FRAC_2_SQRT_PI,
                reads: Reads::OPERANDS,
            }
            /// ``sin(pi x) / (pi x)``; 1 where x is 0.
            Sinc sinc "sinc" floats($crate::op::special::sinc) {
                ulps: 10.0,
                range: (-0.25, 1.0),
                monotone: false,
                gradient: sinc_gradient,
                reads: Reads::EVERYTHING,
                c: Some(
                    "({fabs}({a}) < {1e-30} ? {1} : ({fmod}({rint}({a}), {2}) == 0 ? {1} : -{1}) * \
                     {sin}({3.141592653589793} * ({a} - {rint}({a}))) / ({3.141592653589793} * {a}))",
                ),
                wgsl: Some(
                    "select(select(-1.0, 1.0, fract(round({a}) * 0.5) == 0.0) * {sin_}(3.1415927 * ({a} - round({a}))) \
                     / (3.1415927 * {a}), 1.0, abs({a}) < 1e-30)",
                ),
                domain: (0.2, 1.9),
            }
            /// The logarithm of the absolute value of the gamma function; infinite at 0, -1, -2 and so on.
            Lgamma lgamma "lgamma" floats($crate::op::gamma::lgamma) {
                ulps: 16.0,
                terms: gamma::lgamma_terms,
                monotone: false,
                gradient: |g, x, _| g * x.digamma(),
                reads: Reads::OPERANDS,
                domain: (0.3, 2.4),
            }
            /// The derivative of ``lgamma``: minus infinity at 0, NaN at -1, -2 and so on.
            Digamma digamma "digamma" floats($crate::op::gamma::digamma) {
                ulps: 20.0,
                terms: gamma::digamma_terms,
                monotone: false,
                gradient: |g, x, _| g * gamma::trigamma(x),
                reads: Reads::OPERANDS,
                domain: (0.3, 2.4),
            }
            /// The greatest whole number not above x.
            Floor floor "floor" roundings(f64::floor) {}
            /// The least whole number not below x.
            Ceil ceil "ceil" roundings(f64::ceil) {}
            /// x without its fraction.
            Trunc trunc "trunc" roundings(f64::trunc) {}
            /// The nearest whole number, halves to even.
            Round round "round" roundings(f64::round_ties_even) {
                c: Some("{rint}({a})"),
            }
            /// Every bit inverted; ``bool`` is negated.
            Not bitwise_not "not" bits(|_| f64::NAN) {}
            /// True (``bool``) where the element is NaN; false everywhere for integers and ``bool``.
            IsNan isnan "isnan" tests(|_| f64::NAN) {
                c: Some("({a} != {a})"),
            }
            /// True (``bool``) where the element is infinite; false everywhere for integers and ``bool``.
            IsInf isinf "isinf" tests(|_| f64::NAN) {
                c: Some("({fabs}({a}) == {inf})"),
            }
        }
    };
}

/// Which dtypes a function has. See [`unary_functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub(crate) enum Class {
    floats,
    roundings,
    numbers,
    bits,
    tests,
}

/// What the table says of a function.
pub(crate) struct UnaryRow {
    pub(crate) name: &'static str,
    pub(crate) class: Class,
    /// The function in `f64`; NaN for what is not a function of floats to floats.
    pub(crate) meaning: fn(f64) -> f64,
    /// Greatest error in units in the last place of the compute type; 0 for correctly rounded functions.
    pub(crate) ulps: f64,
    /// What `ulps` are relative to, if it is more than the result: the terms of a difference, for an operand.
    pub(crate) terms: fn(f64) -> f64,
    /// Where the function's results lie.
    pub(crate) range: (f64, f64),
    /// Whether f(-0) is -0 and f(+0) is +0.
    pub(crate) keeps_zero: bool,
    /// Whether it rises everywhere, or falls; the oracle knows the others that it bounds on intervals by name.
    pub(crate) monotone: bool,
    /// The gradient of the operand: of the result's gradient, the operand and the result. 0 where there is none, or where it
    /// is that of a step.
    pub(crate) gradient: fn(&Formula, &Formula, &Formula) -> Formula,
    /// What `gradient` reads besides the result's gradient.
    pub(crate) reads: Reads,
    /// The function of a float in C: `{a}` is the operand, `{1}` a number in its type (`{inf}` too), and another word in
    /// braces a function of C's library. `None` for the library's function of the same name.
    pub(crate) c: Option<&'static str>,
    /// The function of a `float32` in WGSL, with functions of the printer's own library in braces. `None` if the
    /// printer writes it itself, or for that library's function of the same name followed by `_`.
    pub(crate) wgsl: Option<&'static str>,
    /// The name of that function.
    pub(crate) library: &'static str,
    /// A range in which the function has a gradient.
    pub(crate) domain: (f64, f64),
}

const DEFAULT: UnaryRow = UnaryRow {
    name: "",
    class: Class::floats,
    meaning: |x| x,
    ulps: 0.0,
    terms: |_| 0.0,
    range: (f64::NEG_INFINITY, f64::INFINITY),
    keeps_zero: false,
    monotone: true,
    gradient: |g, _, _| g.like(0.0),
    reads: Reads::NOTHING,
    c: None,
    wgsl: None,
    library: "",
    domain: (-1.7, 1.9),
};

macro_rules! table {
    ($($(#[doc = $doc:literal])+ $variant:ident $method:ident $name:literal $class:ident($meaning:expr) {
        $($field:ident: $value:expr),* $(,)?
    })+) => {
        /// Elementwise functions of one operand.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Unary { $($(#[doc = $doc])+ $variant,)+ }

        impl Unary {
            /// All of them.
            pub const ALL: [Unary; [$($name),+].len()] = [$(Unary::$variant),+];
        }

        static ROWS: [UnaryRow; [$($name),+].len()] = [
            $(UnaryRow {
                name: $name,
                class: Class::$class,
                meaning: $meaning,
                library: concat!($name, "_"),
                $($field: $value,)*
                ..DEFAULT
            }),+
        ];
    };
}
unary_functions!(table);

/// (cos(pi x) - sinc(x)) / x, and near 0, where that difference has few digits, the first terms of the series.
fn sinc_gradient(g: &Formula, x: &Formula, y: &Formula) -> Formula {
    /// Up to this square of x, what the series leaves out is less than the rounding of `f64`.
    const NEAR: f64 = 0.0009;
    let square = x * x;
    let near = square.le(&square.like(NEAR));
    let squared = PI * PI;
    let terms = [-squared / 3.0, squared.powi(2) / 30.0, -squared.powi(3) / 840.0, squared.powi(4) / 45360.0];
    let series = terms[..3].iter().rev().fold(x.like(terms[3]), |sum, &term| sum * &square + term) * x;
    // Where the series is taken, the quotient must be finite too: its own gradient is added with a factor of 0.
    let divisor = near.choose(&x.like(1.0), x);
    g * near.choose(&series, &(((x * PI).cos() - y) / divisor))
}

impl Unary {
    /// The function's row of the table.
    pub(crate) fn row(self) -> &'static UnaryRow {
        &ROWS[self as usize]
    }

    /// The name in messages and listings.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// True if operands of this dtype are accepted by the op itself (`Tensor` methods convert first where NumPy would).
    pub fn accepts(self, dtype: DType) -> bool {
        match self.row().class {
            Class::numbers => dtype != DType::Bool,
            Class::bits => !dtype.is_float(),
            Class::floats | Class::roundings | Class::tests => dtype.is_float(),
        }
    }

    /// A range of the operand in which the function has a gradient, for tests against finite differences.
    pub fn domain(self) -> (f64, f64) {
        self.row().domain
    }

    /// True if the result of a 16-bit float is one, without rounding.
    pub fn is_exact(self) -> bool {
        self.row().class != Class::floats
    }

    /// The result's dtype.
    pub fn result(self, operand: DType) -> DType {
        if self.row().class == Class::tests { DType::Bool } else { operand }
    }
}
