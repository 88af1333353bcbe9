//! The functions of two elements: one row each. Everything that takes one line per function, here or in another crate, is
//! generated from its row.

use crate::{
    DType,
    op::{formula::Formula, gradient::rule::Reads},
};

/// Calls a macro with the rows of the table: `macro! { rows }`. A row is
///
/// ```text
/// /// What it computes, in words for users of every language: of `self` and `other`.
/// Variant method method_with_a_number "name" class(meaning in f64, meaning for integers) { other fields }
/// ```
///
/// The meaning for integers takes their width in bits too, and need not wrap its result. Comparisons give 1 or 0.
///
/// The class says which dtypes the op accepts, and what methods do with others:
///
/// - `floats`: floats, with no meaning for integers: integers and `bool` are converted to `float32`;
/// - `numbers`: all but `bool`;
/// - `choices`: all; the result is one of the operands;
/// - `bits`: integers and `bool`;
/// - `shifts`: integers;
/// - `comparisons`: all, giving `bool`.
///
/// The other fields are those of `BinaryRow`; those that are left out have its defaults.
#[macro_export]
#[doc(hidden)]
macro_rules! binary_functions {
    ($consumer:ident) => {
        $consumer! {
            /// ``self + other``; ``or`` of bools. Integers wrap.
            Add add add_scalar "add" numbers(|x: f64, y: f64| x + y, |x: i128, y: i128, _| x.wrapping_add(y)) {
                commutative: true,
                gradient: [|g, _, _, _| g.clone(), |g, _, _, _| g.clone()],
                operator: Some("+"),
            }
            /// ``self - other``. Integers wrap.
            Sub sub sub_scalar "sub" numbers(|x: f64, y: f64| x - y, |x: i128, y: i128, _| x.wrapping_sub(y)) {
                gradient: [|g, _, _, _| g.clone(), |g, _, _, _| -g],
                operator: Some("-"),
            }
            /// ``self * other``; ``and`` of bools. Integers wrap.
            Mul mul mul_scalar "mul" numbers(|x: f64, y: f64| x * y, |x: i128, y: i128, _| x.wrapping_mul(y)) {
                commutative: true,
                gradient: [|g, _, b, _| g * b, |g, a, _, _| g * a],
                reads: Reads::CROSSWISE,
                operator: Some("*"),
            }
            /// True division: integers and ``bool`` give ``float32``.
            Div div div_scalar "div" floats(|x: f64, y: f64| x / y) {
                gradient: [|g, _, b, _| g / b, |g, _, b, y| -(g * y / b)],
                reads: Reads::EVERYTHING,
                operator: Some("/"),
            }
            /// The quotient rounded towards negative infinity, as Python's ``//``. An integer divided by zero gives 0. With an
            /// infinity, and of a zero, it is the quotient itself: ``inf // 2`` is ``inf``, ``1 // -inf`` is ``-0``.
            FloorDiv floor_divide floor_divide_scalar "floor_divide" numbers(
                $crate::op::special::floor_divide,
                |x: i128, y: i128, _| $crate::op::integer::floor_divide(x, y)
            ) {
                slow: true,
                smooth: false,
            }
            /// The remainder with the divisor's sign, that of a zero too, as Python's ``%``. An integer remainder by zero gives 0.
            /// Over an infinity of the other sign it is that infinity.
            Remainder remainder remainder_scalar "remainder" numbers(
                $crate::op::special::remainder,
                |x: i128, y: i128, _| $crate::op::integer::remainder(x, y)
            ) {
                gradient: [|g, _, _, _| g.clone(), |g, a, b, _| -(g * a.floor_div(b))],
                reads: Reads::OPERANDS,
                slow: true,
                smooth: false,
            }
            /// ``self`` to the power ``other``, as C's ``pow``. Integers wrap; a negative exponent truncates the quotient: 1 or -1
            /// for such bases, else 0.
            Pow pow pow_scalar "pow" numbers($crate::op::special::pow, |x: i128, y: i128, _| $crate::op::integer::power(x, y)) {
                ulps: 16.0,
                gradient: [base_gradient, exponent_gradient],
                reads: Reads::EVERYTHING,
                slow: true,
                // A power that is known to be 2 is a product.
                c: Some("({b} == 2 ? {a} * {a} : {pow}({a}, {b}))"),
                wgsl: Some("select({pow_}({a}, {b}), {a} * {a}, {b} == 2.0)"),
            }
            /// The greater of each pair; NaN if either is NaN.
            Max maximum maximum_scalar "maximum" choices(
                |x: f64, y: f64| if x > y || x.is_nan() { x } else { y },
                |x: i128, y: i128, _| x.max(y)
            ) {
                commutative: true,
                gradient: [|g, a, b, _| share(g, a, b, a.lt(b)), |g, a, b, _| share(g, a, b, b.lt(a))],
                reads: Reads::OPERANDS,
                c: Some("({a} > {b} ? {a} : {b})"),
                smooth: false,
            }
            /// The lesser of each pair; NaN if either is NaN.
            Min minimum minimum_scalar "minimum" choices(
                |x: f64, y: f64| if x < y || x.is_nan() { x } else { y },
                |x: i128, y: i128, _| x.min(y)
            ) {
                commutative: true,
                gradient: [|g, a, b, _| share(g, a, b, b.lt(a)), |g, a, b, _| share(g, a, b, a.lt(b))],
                reads: Reads::OPERANDS,
                c: Some("({a} < {b} ? {a} : {b})"),
                smooth: false,
            }
            /// The angle in radians of the point (other, self), from -pi to pi. Integers give ``float32``.
            Atan2 atan2 atan2_scalar "atan2" floats(f64::atan2) {
                ulps: 6.0,
                gradient: [|g, a, b, _| angle_gradient(g, a, b, b.clone()), |g, a, b, _| angle_gradient(g, a, b, -a)],
                reads: Reads::OPERANDS,
                slow: true,
            }
            /// The bits set in both; integers and ``bool``.
            And and and_scalar "and" bits(|_, _| f64::NAN, |x: i128, y: i128, _| x & y) {
                commutative: true,
                operator: Some("&"),
            }
            /// The bits set in either; integers and ``bool``.
            Or or or_scalar "or" bits(|_, _| f64::NAN, |x: i128, y: i128, _| x | y) {
                commutative: true,
                operator: Some("|"),
            }
            /// The bits set in one only; integers and ``bool``.
            Xor xor xor_scalar "xor" bits(|_, _| f64::NAN, |x: i128, y: i128, _| x ^ y) {
                commutative: true,
                operator: Some("^"),
            }
            /// ``self << other`` of integers; shifts by the width or more give 0.
            Shl shift_left shift_left_scalar "shift_left" shifts(|_, _| f64::NAN, $crate::op::integer::shift_left) {}
            /// ``self >> other`` of integers, arithmetic for signed types; shifts by the width or more give 0 or -1.
            Shr shift_right shift_right_scalar "shift_right" shifts(|_, _| f64::NAN, $crate::op::integer::shift_right) {}
            /// ``self < other`` as ``bool``; false if either is NaN.
            Lt lt lt_scalar "less" comparisons(
                |x: f64, y: f64| f64::from(x < y),
                |x: i128, y: i128, _| i128::from(x < y)
            ) {
                operator: Some("<"),
            }
            /// ``self <= other`` as ``bool``; false if either is NaN.
            Le le le_scalar "less_equal" comparisons(
                |x: f64, y: f64| f64::from(x <= y),
                |x: i128, y: i128, _| i128::from(x <= y)
            ) {
                operator: Some("<="),
            }
            /// ``self == other`` as ``bool``; false if either is NaN.
            Eq eq eq_scalar "equal" comparisons(
                |x: f64, y: f64| f64::from(x == y),
                |x: i128, y: i128, _| i128::from(x == y)
            ) {
                commutative: true,
                operator: Some("=="),
            }
            /// ``self != other`` as ``bool``; true if either is NaN.
            Ne ne ne_scalar "not_equal" comparisons(
                |x: f64, y: f64| f64::from(x != y),
                |x: i128, y: i128, _| i128::from(x != y)
            ) {
                commutative: true,
                operator: Some("!="),
            }
        }
    };
}

/// Which dtypes a function accepts. See [`binary_functions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types)]
pub(crate) enum BinaryClass {
    floats,
    numbers,
    choices,
    bits,
    shifts,
    comparisons,
}

/// The gradient of one operand: of the result's gradient, both operands and the result.
type Gradient = fn(&Formula, &Formula, &Formula, &Formula) -> Formula;

/// What the table says of a function.
pub(crate) struct BinaryRow {
    pub(crate) name: &'static str,
    pub(crate) class: BinaryClass,
    /// The function in `f64`; 1 or 0 for comparisons, NaN for functions of integers only.
    pub(crate) meaning: fn(f64, f64) -> f64,
    /// The function of integers of a width in bits, before it wraps; `None` for functions of floats only.
    pub(crate) integer: Option<fn(i128, i128, u32) -> i128>,
    /// Greatest error in units in the last place of the compute type; 0 for correctly rounded functions.
    pub(crate) ulps: f64,
    /// Whether it rises everywhere, or falls, along each operand. The oracle has code for those that do so in parts.
    pub(crate) monotone: bool,
    /// Whether the operands may be exchanged.
    pub(crate) commutative: bool,
    /// The gradient of each operand. 0 where there is none, or where it is that of a step.
    pub(crate) gradient: [Gradient; 2],
    /// What the gradients read besides the result's gradient.
    pub(crate) reads: Reads,
    /// Whether it takes several times as long as an addition.
    pub(crate) slow: bool,
    /// The operator, if both C and WGSL have one. The printers add what wraps integers.
    pub(crate) operator: Option<&'static str>,
    /// The function in C without an operator: `{a}` and `{b}` are the operands, `{1}` a number in their type (`{inf}` too),
    /// and another word in braces a function of C's library. `None` for the library's function of the same name, and for what
    /// the printer does itself.
    pub(crate) c: Option<&'static str>,
    /// The function of `float32`s in WGSL without an operator, with functions of the printer's own library in braces. `None`
    /// for that library's function of the same name followed by `_`, and for what the printer does itself.
    pub(crate) wgsl: Option<&'static str>,
    /// The name of that function.
    pub(crate) library: &'static str,
    /// A range of each operand in which the function has a gradient.
    pub(crate) domain: [(f64, f64); 2],
    /// Whether it has a gradient where the operands are equal too: neither a step nor a kink.
    pub(crate) smooth: bool,
}

const DEFAULT: BinaryRow = BinaryRow {
    name: "",
    class: BinaryClass::floats,
    meaning: |x, _| x,
    integer: None,
    ulps: 0.0,
    monotone: true,
    commutative: false,
    gradient: [|g, _, _, _| g.like(0.0), |g, _, _, _| g.like(0.0)],
    reads: Reads::NOTHING,
    slow: false,
    operator: None,
    c: None,
    wgsl: None,
    library: "",
    domain: [(0.35, 2.6), (0.5, 1.7)],
    smooth: true,
};

macro_rules! optional {
    () => {
        None
    };
    ($value:expr) => {
        Some($value)
    };
}

macro_rules! table {
    ($($(#[doc = $doc:literal])+ $variant:ident $method:ident $scalar:ident $name:literal
        $class:ident($meaning:expr $(, $integer:expr)?) { $($field:ident: $value:expr),* $(,)? })+) => {
        /// Elementwise functions of two operands of one dtype. Comparisons give `bool`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Binary { $($(#[doc = $doc])+ $variant,)+ }

        impl Binary {
            /// All of them.
            pub const ALL: [Binary; [$($name),+].len()] = [$(Binary::$variant),+];
        }

        static ROWS: [BinaryRow; [$($name),+].len()] = [
            $(BinaryRow {
                name: $name,
                class: BinaryClass::$class,
                meaning: $meaning,
                integer: optional!($($integer)?),
                library: concat!($name, "_"),
                $($field: $value,)*
                ..DEFAULT
            }),+
        ];
    };
}
binary_functions!(table);

/// The part of `g` that goes to an operand of a maximum or minimum: nothing where it `loses`, half where both are equal,
/// and all elsewhere. NaN passes it to both.
fn share(g: &Formula, a: &Formula, b: &Formula, loses: Formula) -> Formula {
    let shared = a.eq(b).choose(&(g * 0.5), g);
    loses.choose(&g.like(0.0), &shared)
}

fn base_gradient(g: &Formula, a: &Formula, b: &Formula, _: &Formula) -> Formula {
    let derivative = b * a.pow(&(b - 1.0));
    b.eq(&b.like(0.0)).choose(&g.like(0.0), &(g * derivative))
}

fn exponent_gradient(g: &Formula, a: &Formula, b: &Formula, y: &Formula) -> Formula {
    // 0 to a power that is not negative is constant in the power.
    let flat = a.eq(&a.like(0.0)).and(&b.like(0.0).le(b));
    flat.choose(&g.like(0.0), &(g * y * a.log()))
}

/// That of an angle; `derivative` is its derivative times the square of the distance to the origin.
fn angle_gradient(g: &Formula, a: &Formula, b: &Formula, derivative: Formula) -> Formula {
    let square = a * a + b * b;
    // The origin has no derivative: 0, as in PyTorch.
    square.eq(&square.like(0.0)).choose(&g.like(0.0), &(g * derivative / &square))
}

impl Binary {
    /// The function's row of the table.
    pub(crate) fn row(self) -> &'static BinaryRow {
        &ROWS[self as usize]
    }

    /// The name in messages and listings.
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// True if operands of this dtype are accepted.
    pub fn accepts(self, dtype: DType) -> bool {
        match self.row().class {
            BinaryClass::floats => dtype.is_float(),
            BinaryClass::numbers => dtype != DType::Bool,
            BinaryClass::bits => !dtype.is_float(),
            BinaryClass::shifts => dtype.is_integer(),
            BinaryClass::choices | BinaryClass::comparisons => true,
        }
    }

    /// A range of each operand in which the function has a gradient, for tests against finite differences.
    pub fn domain(self) -> [(f64, f64); 2] {
        self.row().domain
    }

    /// True if the function has a gradient where its operands are equal, too.
    pub fn is_smooth(self) -> bool {
        self.row().smooth
    }

    /// True if the result is `bool` whatever the operands are.
    pub fn is_comparison(self) -> bool {
        self.row().class == BinaryClass::comparisons
    }

    /// True if the result of 16-bit floats is one, without rounding.
    pub fn is_exact(self) -> bool {
        !matches!(self.row().class, BinaryClass::floats | BinaryClass::numbers)
    }

    /// True if the operands may be exchanged.
    pub fn is_commutative(self) -> bool {
        self.row().commutative
    }

    /// The result's dtype.
    pub fn result(self, operand: DType) -> DType {
        if self.is_comparison() { DType::Bool } else { operand }
    }
}
