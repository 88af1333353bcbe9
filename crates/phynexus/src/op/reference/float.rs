//! Elementwise functions of floats, on intervals.
//!
//! Arithmetic and square roots are correctly rounded (IEEE 754); for the other functions a device may be off by as
//! many units in the last place of its compute type as the OpenCL 3.0 full profile allows (table "ULP values for
//! single precision built-in math functions"), and no function leaves its mathematical range.

use std::f64::consts::{FRAC_PI_2, PI};

use super::number::{Interval, Number, ulp};
use crate::{
    DType,
    op::{Binary, BinaryClass, Unary, special},
};

/// A unary operation on an operand of `dtype`.
pub(crate) fn unary(op: Unary, x: Interval, dtype: DType) -> Number {
    let f = op.row().meaning;
    match op {
        Unary::IsNan => return Number::bool(x.is_nan()),
        Unary::IsInf if x.is_point() => return Number::bool(x.value.is_infinite()),
        Unary::IsInf if x.magnitude() < f64::INFINITY => return Number::bool(false),
        Unary::IsInf | Unary::Not => return Number::Undetermined,
        _ if x.is_nan() => return Number::NAN,
        _ => {}
    }
    if x.is_point() && x.low == 0.0 && op.row().keeps_zero {
        return Number::Float(x);
    }
    match op {
        Unary::Neg => return Number::Float(Interval { value: -x.value, low: -x.high, high: -x.low }),
        Unary::Sign if x.is_point() && x.low == 0.0 => {
            return Number::Float(OPEN_ZERO);
        }
        Unary::Sign | Unary::Floor | Unary::Ceil | Unary::Trunc | Unary::Round => {
            let (a, b) = (f(x.low), f(x.high));
            let crosses_zero = op == Unary::Sign && !x.is_point() && x.contains_zero();
            let step = Interval::hull(a, [b]);
            return if a == b && !crosses_zero { Number::Float(step) } else { Number::Undetermined };
        }
        _ => {}
    }
    let bounds = match op {
        Unary::Abs if x.contains_zero() => [0.0, x.magnitude()],
        Unary::Cosh if x.contains_zero() => [1.0, x.magnitude().cosh()],
        Unary::Recip if x.contains_zero() && !x.is_point() => return Number::Undetermined,
        Unary::Sin | Unary::Cos => match wave(op, x) {
            Some(bounds) => bounds,
            None => return Number::Undetermined,
        },
        Unary::Tan
            if !x.is_point() && ((x.low + FRAC_PI_2) / PI).floor() != ((x.high + FRAC_PI_2) / PI).floor() =>
        {
            return Number::Undetermined;
        }
        _ if !op.row().monotone && !x.is_point() => return Number::Undetermined,
        _ => [f(x.low), f(x.high)],
    };
    let value = f(x.value);
    let terms = if x.is_point() { (op.row().terms)(x.value) } else { 0.0 };
    finish(value, bounds, x.is_point(), (op.row().ulps, terms), dtype, op.row().range)
}

/// Bounds of a sine or cosine; `None` where a bound is infinite, so that NaN is possible but not certain.
fn wave(op: Unary, x: Interval) -> Option<[f64; 2]> {
    let f = op.row().meaning;
    let (a, b) = (f(x.low), f(x.high));
    if x.is_point() {
        return Some([a, b]);
    }
    if !x.low.is_finite() || !x.high.is_finite() {
        return None;
    }
    // Extrema lie at `first + n pi`: maxima for even n, minima for odd.
    let first = if op == Unary::Sin { FRAC_PI_2 } else { 0.0 };
    let (from, to) = (((x.low - first) / PI).ceil(), ((x.high - first) / PI).floor());
    let has_even = to - from >= 1.0 || (from == to && from.rem_euclid(2.0) == 0.0);
    let has_odd = to - from >= 1.0 || (from == to && from.rem_euclid(2.0) == 1.0);
    Some([if has_odd { -1.0 } else { a.min(b) }, if has_even { 1.0 } else { a.max(b) }])
}

/// Orders the bounds, adds the function's error, which is relative to the result or to its terms, and rounds as a device
/// computing in `dtype` does.
fn finish(
    value: f64,
    bounds: [f64; 2],
    exact_operands: bool,
    (ulps, terms): (f64, f64),
    dtype: DType,
    (least, greatest): (f64, f64),
) -> Number {
    match (value.is_nan(), bounds[0].is_nan(), bounds[1].is_nan()) {
        (true, true, true) => return Number::NAN,
        (false, false, false) => {}
        _ => return Number::Undetermined,
    }
    let mut interval = Interval::hull(value, bounds);
    if !exact_operands {
        interval.low = interval.low.next_down();
        interval.high = interval.high.next_up();
    }
    if ulps > 0.0 {
        // The oracle's own functions may be off by a unit of `f64` too.
        let own = if dtype == DType::F64 { 2.0 } else { 0.0 };
        interval = interval.widened_beside(ulps + own, terms, dtype.compute());
    }
    interval.low = interval.low.clamp(least, greatest);
    interval.high = interval.high.clamp(least, greatest);
    Number::Float(interval.settled(dtype))
}

/// Zero of either sign.
const OPEN_ZERO: Interval = Interval { value: 0.0, low: -0.0, high: 0.0 };
const UNBOUNDED: (f64, f64) = (f64::NEG_INFINITY, f64::INFINITY);

/// The function at the four corners of two intervals.
fn corners(a: Interval, b: Interval, ulps: f64, dtype: DType, f: impl Fn(f64, f64) -> f64) -> Number {
    let values = [f(a.low, b.low), f(a.low, b.high), f(a.high, b.low), f(a.high, b.high)];
    let value = f(a.value, b.value);
    let nans = values.iter().filter(|v| v.is_nan()).count();
    if nans > 0 {
        return if nans == 4 && value.is_nan() { Number::NAN } else { Number::Undetermined };
    }
    let hull = Interval::hull(values[0], values);
    finish(value, [hull.low, hull.high], a.is_point() && b.is_point(), (ulps, 0.0), dtype, UNBOUNDED)
}

/// A product before any rounding to `dtype`: what enters a sum of products.
pub(crate) fn product(a: Interval, b: Interval) -> Number {
    let could_be_nan =
        |x: Interval, y: Interval| !x.is_point() && x.contains_zero() && y.magnitude().is_infinite();
    if a.is_nan() || b.is_nan() {
        Number::NAN
    } else if could_be_nan(a, b) || could_be_nan(b, a) {
        Number::Undetermined
    } else {
        corners(a, b, 0.0, DType::F64, |x, y| x * y)
    }
}

/// A `float32` that a device may have rounded to the nearest of TF32, whose significands have 11 bits.
pub(crate) fn round_to_tf32(number: &mut Number) {
    const ROUNDING: f64 = 1.0 / (1 << 11) as f64;
    /// Half the distance of subnormal numbers.
    const LEAST: f64 = f32::MIN_POSITIVE as f64 * ROUNDING;
    if let Number::Float(x) = number
        && !x.is_nan()
        && x.magnitude().is_finite()
    {
        let widest = (x.magnitude() * ROUNDING).max(if x.magnitude() > 0.0 { LEAST } else { 0.0 });
        // The greatest numbers round to infinity.
        let limited = |bound: f64| match bound.abs() > f64::from(f32::MAX) {
            true => f64::INFINITY.copysign(bound),
            false => bound,
        };
        (x.low, x.high) = (limited(x.low - widest), limited(x.high + widest));
    }
}

/// A binary operation on operands of `dtype`.
pub(crate) fn binary(op: Binary, a: Interval, b: Interval, dtype: DType) -> Number {
    if op.is_comparison() {
        return compare(op, a, b);
    }
    if op == Binary::Pow
        && let Some(one) = power_is_one(a, b)
    {
        return one;
    }
    if op == Binary::Pow && (a.is_nan() && b.contains_zero() || b.is_nan() && a.low <= 1.0 && a.high >= 1.0) {
        return Number::Undetermined;
    }
    if a.is_nan() || b.is_nan() {
        return Number::NAN;
    }
    let row = op.row();
    match op {
        Binary::Mul => match product(a, b) {
            Number::Float(p) => Number::Float(p.settled(dtype)),
            other => other,
        },
        Binary::Div if b.contains_zero() && !b.is_point() => Number::Undetermined,
        Binary::Div if b.contains_zero() && !a.is_point() && a.contains_zero() => Number::Undetermined,
        // Zeros of both signs admissible below: either infinity.
        Binary::Div if b.contains_zero() && b.low.to_bits() != b.high.to_bits() => Number::Undetermined,
        Binary::FloorDiv => floor_divide(a, b, dtype),
        Binary::Remainder => remainder(a, b, dtype),
        Binary::Pow => power(a, b, dtype),
        Binary::Max => extreme(a, b, f64::max),
        Binary::Min => extreme(a, b, f64::min),
        Binary::Atan2 if meets_cut(a, b) => Number::Undetermined,
        _ if matches!(row.class, BinaryClass::bits | BinaryClass::shifts) => Number::Undetermined,
        _ if !(row.monotone || a.is_point() && b.is_point()) => Number::Undetermined,
        _ => corners(a, b, row.ulps, dtype, row.meaning),
    }
}

/// The greater or the lesser; which zero is left open.
fn extreme(a: Interval, b: Interval, pick: fn(f64, f64) -> f64) -> Number {
    let mut interval =
        Interval { value: pick(a.value, b.value), low: pick(a.low, b.low), high: pick(a.high, b.high) };
    let has_zero = |sign: f64| {
        let inside = |x: Interval| x.low < 0.0 && x.high > 0.0;
        let bounds = [a.low, a.high, b.low, b.high];
        inside(a) || inside(b) || bounds.iter().any(|z| z.to_bits() == sign.to_bits())
    };
    if interval.low == 0.0 && has_zero(-0.0) {
        interval.low = -0.0;
    }
    if interval.high == 0.0 && has_zero(0.0) {
        interval.high = 0.0;
    }
    Number::Float(interval)
}

fn compare(op: Binary, a: Interval, b: Interval) -> Number {
    if a.is_nan() || b.is_nan() {
        return Number::bool(op == Binary::Ne);
    }
    let (below, above) = (a.high < b.low, a.low > b.high);
    let same = a.is_point() && b.is_point() && a.low == b.low;
    let answer = match op {
        Binary::Lt if below => true,
        Binary::Lt if a.low >= b.high => false,
        Binary::Le if a.high <= b.low => true,
        Binary::Le if above => false,
        Binary::Eq | Binary::Ne if below || above => op == Binary::Ne,
        Binary::Eq | Binary::Ne if same => op == Binary::Eq,
        _ => return Number::Undetermined,
    };
    Number::bool(answer)
}

/// 1 to any power and anything to the power 0 are 1, NaN included (C99's `pow`, as NumPy and PyTorch have it).
fn power_is_one(a: Interval, b: Interval) -> Option<Number> {
    let is = |x: Interval, v: f64| x.low == v && x.high == v;
    (is(a, 1.0) || is(b, 0.0)).then_some(Number::float(1.0))
}

fn power(a: Interval, b: Interval, dtype: DType) -> Number {
    let (ulps, meaning) = (Binary::Pow.row().ulps, Binary::Pow.row().meaning);
    if a.is_point() && b.is_point() {
        if a.contains_zero() && a.low.to_bits() != a.high.to_bits() {
            return Number::Undetermined;
        }
        return corners(a, b, ulps, dtype, meaning);
    }
    if a.low > 0.0 {
        return corners(a, b, ulps, dtype, meaning);
    }
    // A fixed integer exponent: monotone on either side of zero.
    if !b.is_point() || b.value.fract() != 0.0 || (a.contains_zero() && b.value < 0.0) {
        return Number::Undetermined;
    }
    let f = |x: f64| meaning(x, b.value);
    let (p, q) = (f(a.low), f(a.high));
    let even = b.value.rem_euclid(2.0) == 0.0;
    let bounds = if even && a.contains_zero() { [0.0, p.max(q)] } else { [p, q] };
    finish(f(a.value), bounds, false, (ulps, 0.0), dtype, UNBOUNDED)
}

/// The quotient rounded down. A device may round the quotient first, so where the rounded quotient reaches the next
/// integer both are right. With an infinity, or with a zero as the dividend, it is the quotient itself, the zero's sign
/// included: the special cases of the Python array API standard, of which Python and NumPy differ.
fn floor_divide(a: Interval, b: Interval, dtype: DType) -> Number {
    let exact = a.is_point() && b.is_point();
    let (rounded, wide) = match [dtype.compute(), DType::F64].map(|t| binary(Binary::Div, a, b, t)) {
        [Number::Float(q), _] if q.is_nan() => return Number::NAN,
        [Number::Float(rounded), Number::Float(wide)] => (rounded, wide),
        _ => return Number::Undetermined,
    };
    if a.magnitude().is_infinite() && !a.is_point() && !b.contains_zero() {
        return Number::Undetermined;
    }
    let special = |x: Interval| x.is_point() && x.value.is_infinite();
    if special(a) || special(b) || (a.low == 0.0 && a.high == 0.0) {
        return binary(Binary::Div, a, b, dtype);
    }
    let mut bounds = [rounded.low.floor(), rounded.high.floor()];
    if exact && rounded.value.is_finite() {
        bounds[0] = bounds[0].min(special::exact_floor(a.value, b.value, rounded.value));
    }
    let mut whole = Interval::hull(bounds[0], bounds);
    if !exact {
        // One answer only if it is the same before and after the quotient is rounded, and nothing underflowed to zero.
        let same = whole.is_point() && wide.low.floor() == whole.low && wide.high.floor() == whole.low;
        let vanished = b.magnitude().is_infinite() || wide.low == 0.0 || wide.high == 0.0;
        if !same || vanished {
            return Number::Undetermined;
        }
    }
    if ulp(whole.value, dtype.compute()) >= 1.0 {
        // An integer between two floats.
        whole = whole.widened(1.0, dtype.compute());
    }
    let whole = whole.settled(dtype);
    Number::Float(if whole.low == 0.0 && whole.high == 0.0 { OPEN_ZERO } else { whole })
}

fn remainder(a: Interval, b: Interval, dtype: DType) -> Number {
    if a.is_point() && b.is_point() {
        let value = (Binary::Remainder.row().meaning)(a.value, b.value);
        if value == 0.0 {
            return Number::float(value);
        }
        return finish(value, [value; 2], true, (0.0, 0.0), dtype, UNBOUNDED);
    }
    if b.contains_zero() || !a.magnitude().is_finite() || !b.magnitude().is_finite() {
        return Number::Undetermined;
    }
    let quotients = [a.low / b.low, a.low / b.high, a.high / b.low, a.high / b.high].map(f64::floor);
    if quotients.iter().any(|q| *q != quotients[0]) {
        return Number::Undetermined;
    }
    // The same multiple is taken off everywhere, so the rest is linear in both operands.
    corners(a, b, 1.0, dtype, |x, y| (-quotients[0]).mul_add(y, x))
}

/// Whether an angle of points (x, y) is not monotone along every edge of their rectangle: if it contains the origin, or
/// meets the cut along the negative x axis.
fn meets_cut(y: Interval, x: Interval) -> bool {
    let one_zero = |i: Interval| i.low.to_bits() == i.high.to_bits();
    let touches_cut = y.contains_zero() && x.low.is_sign_negative();
    touches_cut && !(one_zero(y) && one_zero(x)) && !(one_zero(y) && x.high < 0.0)
        || !y.is_point() && y.contains_zero() && x.contains_zero()
}
