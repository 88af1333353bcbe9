//! Functions of `f32`. The frequent ones are computed in `f32`. The others are computed in `f64`, where cancellation
//! does no harm, and rounded once.

use super::{Arithmetic, Short, double, gamma, polynomial32};

/// Adding and subtracting this constant rounds to the nearest integer (below 2^22); the sum's low bits are that
/// integer.
const ROUND: f32 = 12582912.0;
/// ln 2 in two parts; the first has 9 bits, so its product with an exponent is exact.
const LN_2: [f32; 2] = [0.693_359_4, -2.121_944_4e-4];

#[inline(always)]
fn clamp(x: f32, low: f32, high: f32) -> f32 {
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

/// `2^n` for -126 <= n <= 127.
#[inline(always)]
fn power_of_two(n: i32) -> f32 {
    f32::from_bits(((n + 127) as u32) << 23)
}

/// The integer in the low bits of a sum with [`ROUND`].
#[inline(always)]
fn rounded(shifted: f32) -> i32 {
    shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i32
}

/// `y 2^n`, in two steps, so that the result may be subnormal or infinite.
#[inline(always)]
fn scale(y: f32, n: i32) -> f32 {
    let half = n >> 1;
    y * power_of_two(half) * power_of_two(n - half)
}

/// `x = n ln 2 + r`, |r| <= ln 2 / 2: (n + round, exp(r) - 1), where `round` is [`ROUND`] plus an even number. For |x|
/// below 2^21.
#[inline(always)]
fn exp_shifted<A: Arithmetic>(x: f32, round: f32) -> (f32, f32) {
    let shifted = A::fma32(x, std::f32::consts::LOG2_E, round);
    let n = shifted - round;
    let r = A::fma32(n, -LN_2[1], A::fma32(n, -LN_2[0], x));
    // Minimax of (exp(r) - 1 - r) / r^2, error 2^-28 of exp(r).
    let q =
        polynomial32::<A, 5>(r, [0.499_999_94, 0.166_665_2, 0.041_668_393, 0.008_368_781, 0.001_381_446_4]);
    (shifted, A::fma32(q, r * r, r))
}

/// `x = n ln 2 + r`, |r| <= ln 2 / 2: (n, exp(r) - 1). For |x| below 2^21.
#[inline(always)]
fn exp_reduced<A: Arithmetic>(x: f32) -> (i32, f32) {
    let (shifted, e) = exp_shifted::<A>(x, ROUND);
    (rounded(shifted), e)
}

#[inline(always)]
pub(crate) fn exp<A: Arithmetic>(x: f32) -> f32 {
    let (n, e) = exp_reduced::<A>(clamp(x, -104.0, 89.0));
    scale(1.0 + e, n)
}

/// Above this argument, [`exp_below`] is not valid.
const EXP_LIMIT: f32 = 71.0;

/// Bit-identical to [`exp`] for arguments that are not [`exp_beyond`], at two thirds of its cost. The result's exponent
/// is set 24 too high, which keeps it normal; the product with 2^-24 rounds if the result is subnormal.
#[inline(always)]
pub(crate) fn exp_below<A: Arithmetic>(x: f32) -> f32 {
    const RAISED: f32 = ROUND + 24.0;
    let x = if x < -104.0 { -104.0 } else { x };
    let (shifted, e) = exp_shifted::<A>(x, RAISED);
    let raised = (1.0 + e).to_bits().wrapping_add(shifted.to_bits() << 23);
    f32::from_bits(raised) * (1.0 / 16_777_216.0)
}

/// True for arguments that require [`exp`], including NaN.
#[inline(always)]
pub(crate) fn exp_beyond(x: f32) -> bool {
    x.is_nan() || x > EXP_LIMIT
}

/// The exponential for arguments whose result is neither subnormal nor infinite.
#[inline(always)]
fn exp_normal<A: Arithmetic>(x: f32) -> f32 {
    let (n, e) = exp_reduced::<A>(x);
    let s = power_of_two(n);
    A::fma32(s, e, s)
}

#[inline(always)]
pub(crate) fn exp2<A: Arithmetic>(x: f32) -> f32 {
    let x = clamp(x, -151.0, 128.0);
    let shifted = x + ROUND;
    let r = x - (shifted - ROUND);
    // Minimax of (2^r - 1) / r on |r| <= 1/2, error 2^-29 of 2^r.
    let q = polynomial32::<A, 6>(
        r,
        [
            std::f32::consts::LN_2,
            0.240_226_48,
            0.055_503_324,
            0.009_618_437,
            0.001_339_887_4,
            0.000_153_533_66,
        ],
    );
    scale(A::fma32(q, r, 1.0), rounded(shifted))
}

/// `x = 2^k m`, sqrt(1/2) <= m < sqrt(2): (k, m - 1). Meaningful for positive finite x.
#[inline(always)]
fn split_exponent(x: f32) -> (f32, f32) {
    const SQRT_HALF: u32 = 0x3f35_04f3;
    let subnormal = x < f32::MIN_POSITIVE;
    let x = if subnormal { x * 8388608.0 } else { x };
    let bits = x.to_bits().wrapping_sub(SQRT_HALF);
    let k = (bits as i32 >> 23) as f32;
    let k = if subnormal { k - 23.0 } else { k };
    (k, f32::from_bits((bits & 0x007f_ffff).wrapping_add(SQRT_HALF)) - 1.0)
}

/// log(1 + f) - f + f^2 / 2 for sqrt(1/2) - 1 <= f < sqrt(2) - 1.
#[inline(always)]
fn log_tail<A: Arithmetic>(f: f32) -> f32 {
    // Minimax of (log(1 + f) - f + f^2 / 2) / f^3, error 2^-30 of log(1 + f).
    let p = polynomial32::<A, 9>(
        f,
        [
            0.333_333_13,
            -0.250_000_1,
            0.200_021_34,
            -0.166_680_07,
            0.142_192_26,
            -0.124_051_42,
            0.118_903_22,
            -0.116_796_16,
            0.067_465_56,
        ],
    );
    p * f * (f * f)
}

/// The values of logarithms for arguments that are not positive and finite.
#[inline(always)]
fn log_limits(x: f32, y: f32) -> f32 {
    let y = if x < f32::INFINITY { y } else { x };
    let y = if x == 0.0 { f32::NEG_INFINITY } else { y };
    if x < 0.0 { f32::NAN } else { y }
}

#[inline(always)]
pub(crate) fn log<A: Arithmetic>(x: f32) -> f32 {
    let (k, f) = split_exponent(x);
    let tail = A::fma32(k, LN_2[1], log_tail::<A>(f));
    let y = A::fma32(k, LN_2[0], f + A::fma32(-0.5 * f, f, tail));
    log_limits(x, y)
}

#[inline(always)]
pub(crate) fn log2<A: Arithmetic>(x: f32) -> f32 {
    /// log2(e) - 1.
    const EXCESS: f32 = 0.442_695_04;
    let (k, f) = split_exponent(x);
    let low = A::fma32(-0.5 * f, f, log_tail::<A>(f));
    // (f + low) (1 + excess), with the largest term, f, added second to last.
    let y = A::fma32(f, EXCESS, A::fma32(low, EXCESS, low)) + f;
    log_limits(x, k + y)
}

#[inline(always)]
pub(crate) fn tanh<A: Arithmetic>(x: f32) -> f32 {
    let a = clamp(x.abs(), 0.0, 10.0);
    let z = a * a;
    // Minimax of (tanh(x) / x - 1) / x^2 on x^2 <= 0.4, error 2^-27 of tanh(x).
    let p = polynomial32::<A, 5>(
        z,
        [-0.333_332_75, 0.133_312_75, -0.053_725_127, 0.020_589_827, -0.005_648_317_3],
    );
    let near = A::fma32(p * z, a, a);
    let far = 1.0 - 2.0 / (exp_normal::<A>(a + a) + 1.0);
    (if z < 0.4 { near } else { far }).copysign(x)
}

#[inline(always)]
pub(crate) fn erf<A: Arithmetic>(x: f32) -> f32 {
    let a = clamp(x.abs(), 0.0, 4.0);
    let z = a * a;
    // Minimax of erf(a) / a - 1 on a <= 0.93, error 2^-26.
    let p = polynomial32::<A, 6>(
        z,
        [0.128_379_15, -0.376_124_8, 0.112_816_826, -0.026_761_722, 0.004_985_943_4, -0.000_595_375_3],
    );
    let near = A::fma32(p, a, a);
    // Minimax of log(erfc(a)) / a on 0.92 <= a <= 4, error 2^-30 of erf(a).
    let q = polynomial32::<A, 7>(
        a,
        [
            -1.128_648_5,
            -0.635_151_3,
            -0.106_236_89,
            0.023_762_072,
            -0.003_642_463,
            0.000_322_804_82,
            -1.123_14e-5,
        ],
    );
    let far = 1.0 - exp_normal::<A>(a * q);
    (if a < 0.921875 { near } else { far }).copysign(x)
}

/// Larger arguments of `sin`, `cos` and `tan` use the scalar functions.
pub(crate) const TRIGONOMETRIC_LIMIT: f32 = double::TRIGONOMETRIC_LIMIT as f32;

/// (reduced argument, quadrant number in the low bits). Reduced in `f64`, where two parts of pi / 2 suffice.
#[inline(always)]
fn quadrant<A: Arithmetic>(x: f32) -> (f32, u32) {
    const ROUND: f64 = 6755399441055744.0;
    /// pi / 2 in two parts; the first has 33 bits.
    const HALF_PI: [f64; 2] = [1.5707963267341256, 6.077100506506192e-11];
    let x = f64::from(x);
    let shifted = A::fma64(x, std::f64::consts::FRAC_2_PI, ROUND);
    let n = shifted - ROUND;
    let r = A::fma64(n, -HALF_PI[1], A::fma64(n, -HALF_PI[0], x));
    (r as f32, shifted.to_bits() as u32)
}

/// The sine (for an even quadrant) or cosine of the reduced argument, negated in quadrants 2 and 3.
#[inline(always)]
fn sine_or_cosine<A: Arithmetic>(r: f32, quadrant: u32) -> f32 {
    let z = r * r;
    let s = polynomial32::<A, 3>(z, [-0.166_666_55, 0.008_332_158, -0.000_195_149_4]);
    let sine = A::fma32(s * z, r, r);
    let c = polynomial32::<A, 3>(z, [0.041_666_646, -0.001_388_731_3, 2.443_276_6e-5]);
    let cosine = A::fma32(c * z, z, A::fma32(z, -0.5, 1.0));
    let y = if quadrant & 1 == 0 { sine } else { cosine };
    f32::from_bits(y.to_bits() ^ (quadrant & 2) << 30)
}

#[inline(always)]
pub(crate) fn sin<A: Arithmetic>(x: f32) -> f32 {
    let (r, quadrant) = quadrant::<A>(x);
    let y = sine_or_cosine::<A>(r, quadrant);
    if x == 0.0 { x } else { y }
}

#[inline(always)]
pub(crate) fn cos<A: Arithmetic>(x: f32) -> f32 {
    let (r, quadrant) = quadrant::<A>(x);
    sine_or_cosine::<A>(r, quadrant.wrapping_add(1))
}

macro_rules! through_f64 {
    ($($module:ident::$name:ident),*) => {
        $(
            #[inline(always)]
            pub(crate) fn $name<A: Arithmetic>(x: f32) -> f32 {
                $module::$name::<Short<A>>(f64::from(x)) as f32
            }
        )*
    };
}

through_f64!(
    double::expm1,
    double::log1p,
    double::tan,
    double::asin,
    double::acos,
    double::atan,
    double::sinh,
    double::cosh,
    double::asinh,
    double::acosh,
    double::atanh,
    gamma::lgamma,
    gamma::digamma
);

#[inline(always)]
pub(crate) fn pow<A: Arithmetic>(x: f32, y: f32) -> f32 {
    let power = double::pow::<Short<A>>(x.into(), y.into()) as f32;
    if y == 2.0 { x * x } else { power }
}

#[inline(always)]
pub(crate) fn atan2<A: Arithmetic>(y: f32, x: f32) -> f32 {
    double::atan2::<Short<A>>(y.into(), x.into()) as f32
}
