//! Functions of `f64`. Those listed with a bound in the table of [`crate::vector`] are used for `f64` itself. The
//! others serve as the inner precision of `f32` functions and are accurate to about 1e-10.

use super::{Arithmetic, polynomial64};

/// Adding and subtracting this constant rounds to the nearest integer (below 2^51); the sum's low bits are that
/// integer.
const ROUND: f64 = 6755399441055744.0;
/// ln 2 in two parts; the first has 32 bits, so its product with an exponent is exact.
const LN_2: [f64; 2] = [0.6931471803691238, 1.9082149292705877e-10];
/// pi / 2 in four parts of 33 bits (the last has 53): products with integers below 2^20 are exact.
const HALF_PI: [f64; 4] =
    [1.5707963267341256, 6.077100506303966e-11, 2.0222662487111665e-21, 8.478427660348229e-32];
/// Larger arguments of `sin` and `cos` use the scalar functions, which reduce with as many bits of pi as needed.
pub(crate) const TRIGONOMETRIC_LIMIT: f64 = 1.0e6;

/// `y * 2^n` for the integer `n` in the low bits of `shifted`, with `y` near 1. In two steps, so that the result may be
/// subnormal or infinite.
#[inline(always)]
fn scale(y: f64, shifted: f64) -> f64 {
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i64;
    let half = n >> 1;
    y * power_of_two(half) * power_of_two(n - half)
}

/// `2^n` for -1022 <= n <= 1023.
#[inline(always)]
fn power_of_two(n: i64) -> f64 {
    f64::from_bits(((n + 1023) as u64) << 52)
}

#[inline(always)]
pub(super) fn clamp(x: f64, low: f64, high: f64) -> f64 {
    let x = if x > high { high } else { x };
    if x < low { low } else { x }
}

/// `x = n ln 2 + r`, |r| <= ln 2 / 2: (n with [`ROUND`] added, n, r, exp(r) - 1).
#[inline(always)]
fn exp_reduced<A: Arithmetic>(x: f64) -> (f64, f64, f64) {
    let shifted = A::fma64(x, std::f64::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = A::fma64(n, -LN_2[1], A::fma64(n, -LN_2[0], x));
    let q = if A::SHORT {
        // Minimax of (exp(r) - 1 - r) / r^2, error 2^-37 of exp(r) - 1.
        polynomial64::<A, 7>(
            r,
            [
                0.500_000_000_010_573_6,
                0.166_666_667_543_944_15,
                0.041_666_665_950_719_57,
                0.008_333_288_966_013_682,
                0.001_388_898_547_317_730_2,
                0.000_199_049_725_780_655_96,
                0.000_024_796_372_786_380_874,
            ],
        )
    } else {
        // The Taylor series of the same function.
        polynomial64::<A, 12>(
            r,
            [
                0.5,
                0.16666666666666666,
                0.041666666666666664,
                0.008333333333333333,
                0.001388888888888889,
                0.0001984126984126984,
                2.48015873015873e-05,
                2.7557319223985893e-06,
                2.755731922398589e-07,
                2.505210838544172e-08,
                2.08767569878681e-09,
                1.6059043836821613e-10,
            ],
        )
    };
    (shifted, n, A::fma64(q, r * r, r))
}

#[inline(always)]
pub(crate) fn exp<A: Arithmetic>(x: f64) -> f64 {
    let (shifted, _, e) = exp_reduced::<A>(clamp(x, -746.0, 710.0));
    scale(1.0 + e, shifted)
}

#[inline(always)]
pub(crate) fn expm1<A: Arithmetic>(x: f64) -> f64 {
    let (shifted, _, e) = exp_reduced::<A>(clamp(x, -50.0, 710.0));
    let n = shifted.to_bits().wrapping_sub(ROUND.to_bits()) as i64;
    // Half of 2^n, because 2^1024 is out of range.
    let s = power_of_two(n - 1);
    let y = (A::fma64(s, e, s - 0.5)) * 2.0;
    // Preserves the sign of zero and the last place of subnormal numbers.
    if x.abs() < f64::EPSILON / 4.0 { x } else { y }
}

/// `x = 2^k m`, sqrt(1/2) <= m < sqrt(2): (k, m - 1). Meaningful for positive finite x.
#[inline(always)]
fn split_exponent(x: f64) -> (f64, f64) {
    const SQRT_HALF: u64 = 0x3fe6_a09e_667f_3bcd;
    let subnormal = x < f64::MIN_POSITIVE;
    let x = if subnormal { x * 18014398509481984.0 } else { x };
    let bits = x.to_bits().wrapping_sub(SQRT_HALF);
    // The exponent as a float, through the low bits of a float with a known exponent: avoids converting 64-bit
    // integers.
    let k = f64::from_bits(ROUND.to_bits().wrapping_add(((bits as i64) >> 52) as u64)) - ROUND;
    let k = if subnormal { k - 54.0 } else { k };
    let m = f64::from_bits((bits & 0x000f_ffff_ffff_ffff).wrapping_add(SQRT_HALF));
    (k, m - 1.0)
}

/// For f = m - 1: (f^2 / 2, t) with log(m) = f - (f^2 / 2 - t). Here t = s (f^2 / 2 + R), s = f / (2 + f), where
/// R = (log(m) - 2 s) / s is a minimax polynomial in s^2 (relative error 2^-59 of log m).
#[inline(always)]
fn log_parts<A: Arithmetic>(f: f64) -> (f64, f64) {
    let half_square = 0.5 * f * f;
    if A::SHORT {
        // No division: minimax of (log(1 + f) - f + f^2 / 2) / f^3, error 2^-38 of log(1 + f).
        let p = polynomial64::<A, 12>(
            f,
            [
                0.333_333_333_992_604_57,
                -0.250_000_011_269_626_2,
                0.199_999_892_501_283_32,
                -0.166_665_323_373_370_38,
                0.142_861_794_677_718_76,
                -0.125_057_175_984_635_62,
                0.111_054_685_466_090_76,
                -0.098_893_293_909_730_82,
                0.090_401_630_258_374_92,
                -0.092_872_144_506_389_5,
                0.091_161_389_757_585_08,
                -0.048_226_271_997_053_65,
            ],
        );
        return (half_square, p * f * (f * f));
    }
    let s = f / (2.0 + f);
    let z = s * s;
    let r = z * polynomial64::<A, 7>(
        z,
        [
            0.666_666_666_666_673_5,
            0.399_999_999_994_074_9,
            0.285_714_287_441_413_1,
            0.222_221_983_785_142_66,
            0.181_835_751_624_181_9,
            0.153_137_558_615_288_47,
            0.147_990_648_955_976_88,
        ],
    );
    (half_square, s * (half_square + r))
}

/// The values of logarithms for arguments that are not positive and finite.
#[inline(always)]
fn log_limits(x: f64, y: f64) -> f64 {
    let y = if x < f64::INFINITY { y } else { x };
    let y = if x == 0.0 { f64::NEG_INFINITY } else { y };
    if x < 0.0 { f64::NAN } else { y }
}

#[inline(always)]
pub(crate) fn log<A: Arithmetic>(x: f64) -> f64 {
    let (k, f) = split_exponent(x);
    let (half_square, t) = log_parts::<A>(f);
    let y = A::fma64(k, LN_2[0], f - (half_square - A::fma64(k, LN_2[1], t)));
    log_limits(x, y)
}

#[inline(always)]
pub(crate) fn log2<A: Arithmetic>(x: f64) -> f64 {
    let (k, f) = split_exponent(x);
    let (half_square, t) = log_parts::<A>(f);
    let y = A::fma64(f - (half_square - t), std::f64::consts::LOG2_E, k);
    log_limits(x, y)
}

#[inline(always)]
pub(crate) fn log1p<A: Arithmetic>(x: f64) -> f64 {
    let u = 1.0 + x;
    // The rounding error of u, exactly.
    let error = if x.abs() < 1.0 { x - (u - 1.0) } else { 1.0 - (u - x) };
    let y = log::<A>(u);
    let short = if x.abs() < 1.0 { error } else { 0.0 };
    let correction = if A::SHORT { short } else { error / u };
    let y = if u > 0.0 && u < f64::INFINITY { y + correction } else { y };
    if x == 0.0 { x } else { y }
}

/// A Taylor series of seven terms; four suffice for short results.
#[inline(always)]
fn series<A: Arithmetic>(z: f64, c: [f64; 7]) -> f64 {
    if A::SHORT { polynomial64::<A, 4>(z, [c[0], c[1], c[2], c[3]]) } else { polynomial64::<A, 7>(z, c) }
}

/// (sine and cosine of the reduced argument, the quadrant number in the low bits) for |x| <= [`TRIGONOMETRIC_LIMIT`].
#[inline(always)]
pub(crate) fn sin_cos<A: Arithmetic>(x: f64) -> (f64, f64, u64) {
    let shifted = A::fma64(x, std::f64::consts::FRAC_2_PI, ROUND);
    let n = shifted - ROUND;
    // Subtract n pi / 2 part by part, keeping the rounding error of each step.
    let r1 = x - n * HALF_PI[0];
    let (w2, w3) = (n * HALF_PI[1], n * HALF_PI[2]);
    let r2 = r1 - w2;
    let e2 = (r1 - r2) - w2;
    let r3 = r2 - w3;
    let e3 = (r2 - r3) - w3;
    let low = (e2 + e3) - n * HALF_PI[3];
    let r = r3 + low;
    let tail = (r3 - r) + low;
    let z = r * r;
    // Taylor series; the first omitted term is below 2^-59 of the sum.
    let s = series::<A>(
        z,
        [
            0.008333333333333333,
            -0.0001984126984126984,
            2.7557319223985893e-06,
            -2.505210838544172e-08,
            1.6059043836821613e-10,
            -7.647163731819816e-13,
            2.8114572543455206e-15,
        ],
    );
    let v = z * r;
    let sine = r - ((z * (0.5 * tail - v * s) - tail) + v * (1.0 / 6.0));
    let c = z
        * z
        * series::<A>(
            z,
            [
                0.041666666666666664,
                -0.001388888888888889,
                2.48015873015873e-05,
                -2.755731922398589e-07,
                2.08767569878681e-09,
                -1.1470745597729725e-11,
                4.779477332387385e-14,
            ],
        );
    let half = 0.5 * z;
    let w = 1.0 - half;
    let cosine = w + (((1.0 - w) - half) + (c - r * tail));
    (sine, cosine, shifted.to_bits())
}

#[inline(always)]
pub(crate) fn sin<A: Arithmetic>(x: f64) -> f64 {
    let (sine, cosine, quadrant) = sin_cos::<A>(x);
    let y = if quadrant & 1 == 0 { sine } else { cosine };
    let y = f64::from_bits(y.to_bits() ^ (quadrant & 2) << 62);
    if x == 0.0 { x } else { y }
}

#[inline(always)]
pub(crate) fn cos<A: Arithmetic>(x: f64) -> f64 {
    let (sine, cosine, quadrant) = sin_cos::<A>(x);
    let y = if quadrant & 1 == 0 { cosine } else { sine };
    f64::from_bits(y.to_bits() ^ (quadrant.wrapping_add(1) & 2) << 62)
}

#[inline(always)]
pub(crate) fn tan<A: Arithmetic>(x: f64) -> f64 {
    let (sine, cosine, quadrant) = sin_cos::<A>(x);
    let (numerator, denominator) = if quadrant & 1 == 0 { (sine, cosine) } else { (cosine, -sine) };
    if x == 0.0 { x } else { numerator / denominator }
}

#[inline(always)]
pub(crate) fn tanh<A: Arithmetic>(x: f64) -> f64 {
    let t = expm1::<A>(2.0 * clamp(x.abs(), 0.0, 22.0));
    (t / (t + 2.0)).copysign(x)
}

#[inline(always)]
pub(crate) fn sinh<A: Arithmetic>(x: f64) -> f64 {
    // The hyperbolic sine of an f32 beyond 90 is infinite; infinity / infinity would be NaN.
    let t = expm1::<A>(clamp(x.abs(), 0.0, 200.0));
    (0.5 * (t + t / (t + 1.0))).copysign(x)
}

#[inline(always)]
pub(crate) fn cosh<A: Arithmetic>(x: f64) -> f64 {
    let e = exp::<A>(x.abs());
    0.5 * (e + 1.0 / e)
}

#[inline(always)]
pub(crate) fn asinh<A: Arithmetic>(x: f64) -> f64 {
    let (a, square) = (x.abs(), x * x);
    let y = log1p::<A>(a + square / (1.0 + (square + 1.0).sqrt())).copysign(x);
    if a == f64::INFINITY { x } else { y }
}

#[inline(always)]
pub(crate) fn acosh<A: Arithmetic>(x: f64) -> f64 {
    let t = x - 1.0;
    let y = log1p::<A>(t + (t * (t + 2.0)).sqrt());
    if x < 1.0 { f64::NAN } else { y }
}

#[inline(always)]
pub(crate) fn atanh<A: Arithmetic>(x: f64) -> f64 {
    let a = x.abs();
    (0.5 * log1p::<A>(2.0 * a / (1.0 - a))).copysign(x)
}

/// The arctangent of `a / b` for a, b >= 0, in the first quadrant; 0 / 0 and infinity / infinity are NaN.
#[inline(always)]
fn atan_ratio<A: Arithmetic>(a: f64, b: f64) -> f64 {
    let steep = a > b;
    let t = if steep { b / a } else { a / b };
    let z = t * t;
    // Minimax of atan(t) / t on 0 <= t <= 1, relative error 2^-31.
    let p = polynomial64::<A, 11>(
        z,
        [
            0.999_999_999_628_241_4,
            -0.333_333_239_353_027_67,
            0.199_996_046_365_579,
            -0.142_791_596_351_842_77,
            0.110_545_012_964_515_16,
            -0.087_987_727_523_210_17,
            0.067_161_101_179_561_35,
            -0.044_357_544_758_603_05,
            0.022_274_406_467_364_9,
            -0.007_199_411_986_978_437,
            0.001_091_117_057_826_897_7,
        ],
    );
    let y = t * p;
    if steep { std::f64::consts::FRAC_PI_2 - y } else { y }
}

#[inline(always)]
pub(crate) fn atan<A: Arithmetic>(x: f64) -> f64 {
    atan_ratio::<A>(x.abs(), 1.0).copysign(x)
}

#[inline(always)]
pub(crate) fn asin<A: Arithmetic>(x: f64) -> f64 {
    let a = x.abs();
    atan_ratio::<A>(a, ((1.0 - a) * (1.0 + a)).sqrt()).copysign(x)
}

#[inline(always)]
pub(crate) fn acos<A: Arithmetic>(x: f64) -> f64 {
    2.0 * atan_ratio::<A>((1.0 - x).sqrt(), (1.0 + x).sqrt())
}

#[inline(always)]
pub(crate) fn atan2<A: Arithmetic>(y: f64, x: f64) -> f64 {
    let (a, b) = (y.abs(), x.abs());
    // Equal arguments are on the diagonal, except 0 / 0, which is on the axis.
    let (a, b) = if a == b { (if a == 0.0 { 0.0 } else { 1.0 }, 1.0) } else { (a, b) };
    let angle = atan_ratio::<A>(a, b);
    let angle = if x.is_sign_negative() { std::f64::consts::PI - angle } else { angle };
    let angle = angle.copysign(y);
    if x.is_nan() || y.is_nan() { f64::NAN } else { angle }
}

/// IEEE 754 `pow`.
#[inline(always)]
pub(crate) fn pow<A: Arithmetic>(x: f64, y: f64) -> f64 {
    let a = x.abs();
    let magnitude = exp::<A>(y * log::<A>(a));
    let integer = y.trunc() == y;
    let odd = integer && (0.5 * y).trunc() != 0.5 * y;
    let negative = if odd { -magnitude } else { magnitude };
    let beyond = if integer || a == 0.0 || a == f64::INFINITY { negative } else { f64::NAN };
    let r = if x.is_sign_negative() { beyond } else { magnitude };
    let unit = x == 1.0 || y == 0.0 || (x == -1.0 && y.abs() == f64::INFINITY);
    let r = if x.is_nan() || y.is_nan() { f64::NAN } else { r };
    if unit { 1.0 } else { r }
}

#[inline(always)]
pub(crate) fn erf<A: Arithmetic>(x: f64) -> f64 {
    let a = clamp(x.abs(), 0.0, 6.0);
    let z = a * a;
    // erf(x) / x - 1 on |x| <= 1, relative error 2^-57 of erf.
    let p = polynomial64::<A, 12>(
        z,
        [
            0.128_379_167_095_512_56,
            -0.376_126_389_031_835_2,
            0.112_837_916_709_441_85,
            -0.026_866_170_643_111_534,
            0.005_223_977_606_118_908,
            -0.000_854_832_592_933_144_3,
            0.000_120_552_935_773_292_47,
            -0.000_014_924_712_309_166_207,
            1.644_713_164_963_787_3e-6,
            -1.620_631_429_966_463e-7,
            1.371_098_253_574_255_6e-8,
            -7.779_472_169_868_153e-10,
        ],
    );
    let near = A::fma64(a, p, a);
    // erfc(x) exp(x^2) (1 + 2 x) on 1 <= x <= 6 as a polynomial in (x - 3) / (x + 3), error 2^-55 of erf.
    let q = (a - 3.0) / (a + 3.0);
    let g = polynomial64::<A, 11>(
        q,
        [
            1.253_008_058_270_892_2,
            -0.135_621_106_086_778_8,
            -0.047_562_294_567_022_6,
            0.129_645_137_264_927_07,
            -0.119_274_024_810_896_56,
            0.068_304_837_085_232_06,
            -0.023_788_004_675_660_7,
            0.002_466_131_178_607_932_6,
            0.001_735_127_404_917_967_8,
            -0.001_026_092_207_847_533_6,
            -0.000_350_251_287_864_481_27,
        ],
    );
    let far = 1.0 - exp::<A>(-z) * g / (1.0 + 2.0 * a);
    (if a < 1.0 { near } else { far }).copysign(x)
}
