//! Tests the bounds stated in the table of [`crate::vector`].

use phynexus::DType;
use phynexus::op::{Binary, Unary, gamma, special};

use super::references::{erf, terms, ulps32, ulps32_beside, ulps64_beside};
use crate::vector::{Chain, InstructionSet, binary_for, chain_for, unary_for};

type Reference = fn(f64) -> f64;
type Single = (Unary, Reference, f64);

/// Function, `f64` reference, bound in units in the last place of `f32`.
const SINGLE: [Single; 25] = [
    (Unary::Recip, |x| 1.0 / x, 0.5),
    (Unary::Sqrt, f64::sqrt, 0.5),
    (Unary::Exp, f64::exp, 1.5),
    (Unary::Exp2, f64::exp2, 1.5),
    (Unary::Expm1, f64::exp_m1, 0.51),
    (Unary::Log, f64::ln, 1.5),
    (Unary::Log2, f64::log2, 2.0),
    (Unary::Log1p, f64::ln_1p, 0.51),
    (Unary::Sin, special::sin, 1.5),
    (Unary::Cos, special::cos, 1.5),
    (Unary::Tan, f64::tan, 1.0),
    (Unary::Asin, f64::asin, 0.6),
    (Unary::Acos, f64::acos, 0.6),
    (Unary::Atan, f64::atan, 0.6),
    (Unary::Sinh, f64::sinh, 0.51),
    (Unary::Cosh, f64::cosh, 0.51),
    (Unary::Tanh, f64::tanh, 2.0),
    (Unary::Asinh, f64::asinh, 0.51),
    (Unary::Acosh, f64::acosh, 0.51),
    (Unary::Atanh, f64::atanh, 0.51),
    (Unary::Erf, erf, 2.0),
    (Unary::Lgamma, gamma::lgamma, 1.0),
    (Unary::Digamma, gamma::digamma, 1.0),
    (Unary::Floor, f64::floor, 0.0),
    (Unary::Round, f64::round_ties_even, 0.0),
];

/// All exponents and signs, special values, and a dense sample of the range in which most functions vary.
fn sweep32() -> Vec<f32> {
    let mut values: Vec<f32> = (0..=u32::MAX).step_by(65521).map(f32::from_bits).collect();
    values.extend((0..60_000).map(|i| (i as f32 - 30_000.0) * 7.3e-4));
    values.extend((0..60_000).map(|i| (i as f32 - 30_000.0) * 3.77e-5));
    values.extend((0..20_000).map(|i| (i as f32 - 10_000.0) * 0.0151));
    // Near multiples of pi / 2, and beyond the limit of the vector reduction.
    values.extend((1..2000).map(|i| i as f32 * std::f32::consts::FRAC_PI_2));
    values.extend((1..200).map(|i| i as f32 * 1e4 * std::f32::consts::FRAC_PI_2));
    values.extend([0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN]);
    values.extend([
        f32::MIN_POSITIVE,
        1e-45,
        -1e-45,
        88.72283,
        88.722_84,
        -103.97207,
        -103.972_08,
        -104.5,
        127.999_99,
    ]);
    values
}

fn run32(kernel: crate::vector::UnaryKernel, x: &[f32]) -> Vec<f32> {
    let mut y = vec![0f32; x.len()];
    // SAFETY: both slices have the length given.
    unsafe { kernel(x.as_ptr().cast(), y.as_mut_ptr().cast(), x.len()) };
    y
}

fn run64(kernel: crate::vector::UnaryKernel, x: &[f64]) -> Vec<f64> {
    let mut y = vec![0f64; x.len()];
    // SAFETY: both slices have the length given.
    unsafe { kernel(x.as_ptr().cast(), y.as_mut_ptr().cast(), x.len()) };
    y
}

/// The element with the greatest error, if it exceeds the bound.
fn worse_than<T: Copy + std::fmt::LowerExp>(
    bound: f64,
    set: InstructionSet,
    op: Unary,
    x: &[T],
    y: &[T],
    error: impl Fn(usize) -> f64,
) -> Option<String> {
    let (worst, error) = (0..x.len()).map(|i| (i, error(i))).max_by(|a, b| a.1.total_cmp(&b.1))?;
    // NaN is the greatest in this order, and exceeds every bound.
    let within = error <= bound;
    (!within).then(|| format!("{} {}: {error} at {:e} -> {:e}", set.name(), op.name(), x[worst], y[worst]))
}

#[test]
fn single_precision_stays_within_its_bounds() {
    let x = sweep32();
    let mut failures = Vec::new();
    for (op, reference, bound) in SINGLE {
        let expected: Vec<f64> = x.iter().map(|&x| reference(x.into())).collect();
        for set in InstructionSet::available() {
            let y = run32(unary_for(set, op, DType::F32).unwrap(), &x);
            let error = |i: usize| {
                let sign = y[i] == 0.0
                    && expected[i] == 0.0
                    && y[i].is_sign_negative() != expected[i].is_sign_negative();
                let terms = terms(op.name(), x[i].into());
                if sign { f64::INFINITY } else { ulps32_beside(terms, y[i], expected[i]) }
            };
            failures.extend(worse_than(bound, set, op, &x, &y, error));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

/// Function, reference, bound in units in the last place of `f64`, including the reference's own error of up to one. The
/// other kernels equal their references; `definitions.rs` has independent numbers.
const DOUBLE: [(Unary, Reference, f64); 11] = [
    (Unary::Exp, f64::exp, 2.0),
    (Unary::Expm1, f64::exp_m1, 3.0),
    (Unary::Log, f64::ln, 2.0),
    (Unary::Log2, f64::log2, 3.0),
    (Unary::Log1p, f64::ln_1p, 3.0),
    (Unary::Sin, special::sin, 2.0),
    (Unary::Cos, special::cos, 2.0),
    (Unary::Tanh, f64::tanh, 4.0),
    (Unary::Erf, erf, 10.0),
    (Unary::Lgamma, gamma::lgamma, 6.0),
    (Unary::Digamma, gamma::digamma, 6.0),
];

#[test]
fn double_precision_stays_within_its_bounds() {
    let mut x: Vec<f64> =
        (0..=u64::MAX).step_by(0x3_ffff_ffff_ffb7).take(150_000).map(f64::from_bits).collect();
    x.extend((0..60_000).map(|i| f64::from(i - 30_000) * 7.3e-4));
    x.extend((0..60_000).map(|i| f64::from(i - 30_000) * 3.77e-5));
    x.extend((0..40_000).map(|i| f64::from(i - 20_000) * 0.0373));
    x.extend((0..20_000).map(|i| f64::from(i - 10_000) * 99.7));
    x.extend((1..20_000).map(|i| f64::from(i) * std::f64::consts::FRAC_PI_2));
    x.extend([0.0, -0.0, 1.0, -1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, f64::MAX, f64::MIN]);
    x.extend([f64::MIN_POSITIVE, 5e-324, -5e-324, 709.782_712, 709.783, -745.13, -745.14, -708.4]);
    let mut failures = Vec::new();
    for (op, reference, bound) in DOUBLE {
        let expected: Vec<f64> = x.iter().map(|&x| reference(x)).collect();
        for set in InstructionSet::available() {
            let y = run64(unary_for(set, op, DType::F64).unwrap(), &x);
            let error = |i: usize| {
                let sign = y[i] == 0.0 && y[i].is_sign_negative() != expected[i].is_sign_negative();
                let terms = terms(op.name(), x[i]);
                if sign { f64::INFINITY } else { ulps64_beside(terms, y[i], expected[i]) }
            };
            failures.extend(worse_than(bound, set, op, &x, &y, error));
        }
    }
    assert!(failures.is_empty(), "{failures:#?}");
}

#[test]
fn pow_and_atan2_follow_ieee_754() {
    let special = [
        0.0f32,
        -0.0,
        1.0,
        -1.0,
        2.0,
        -2.0,
        3.0,
        -3.0,
        0.5,
        -0.5,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
    ];
    let mut pairs: Vec<(f32, f32)> = special.iter().flat_map(|&a| special.map(|b| (a, b))).collect();
    pairs.extend((0..40_000).map(|i| (f32::from_bits(i * 53_687), (i % 997) as f32 * 0.0813 - 40.0)));
    pairs.extend((0..40_000).map(|i| ((i as f32 - 20_000.0) * 0.01, (i % 613) as f32 - 300.0)));
    let (a, b): (Vec<f32>, Vec<f32>) = pairs.iter().copied().unzip();
    for set in InstructionSet::available() {
        for (op, reference) in
            [(Binary::Pow, special::pow as fn(f64, f64) -> f64), (Binary::Atan2, f64::atan2)]
        {
            let mut y = vec![0f32; a.len()];
            let kernel = binary_for(set, op, DType::F32).unwrap().vector_vector;
            // SAFETY: slices of equal length.
            unsafe { kernel(a.as_ptr().cast(), b.as_ptr().cast(), y.as_mut_ptr().cast(), a.len()) };
            for i in 0..a.len() {
                let expected = reference(a[i].into(), b[i].into());
                let error = ulps32(y[i], expected);
                assert!(error <= 0.6, "{} {op:?} {:e} {:e} -> {:e}: {error}", set.name(), a[i], b[i], y[i]);
                let zero = y[i] == 0.0 && expected == 0.0;
                assert!(
                    !zero || y[i].is_sign_negative() == expected.is_sign_negative(),
                    "{op:?} {} {}",
                    a[i],
                    b[i]
                );
            }
        }
    }
}

#[test]
fn chains_are_accurate() {
    let x: Vec<f32> = (0..40_000).map(|i| (i as f32 - 20_000.0) * 9.1e-4).collect();
    let gelu = |x: f64| 0.5 * x * (1.0 + erf(x * std::f64::consts::FRAC_1_SQRT_2));
    let gelu_tanh =
        |x: f64| 0.5 * x * (1.0 + ((x + 0.044715 * x * x * x) * (2.0 / std::f64::consts::PI).sqrt()).tanh());
    let references: [(Chain, &dyn Fn(f64) -> f64); 3] =
        [(Chain::Silu, &|x| x / (1.0 + (-x).exp())), (Chain::Gelu, &gelu), (Chain::GeluTanh, &gelu_tanh)];
    for set in InstructionSet::available() {
        for (chain, reference) in references {
            let y = run32(chain_for(set, chain, DType::F32).unwrap(), &x);
            let wide: Vec<f64> = x.iter().map(|&x| x.into()).collect();
            let z = run64(chain_for(set, chain, DType::F64).unwrap(), &wide);
            for i in 0..x.len() {
                let expected = reference(wide[i]);
                // 1 + erf and 1 + tanh cancel for negative x: the error is relative to x.
                let scale = expected.abs().max(wide[i].abs()).max(1e-30);
                assert!((f64::from(y[i]) - expected).abs() <= 4e-7 * scale, "{chain:?} {} -> {}", x[i], y[i]);
                assert!((z[i] - expected).abs() <= 4e-15 * scale, "{chain:?} {} -> {}", x[i], z[i]);
            }
        }
    }
}

#[test]
fn results_depend_neither_on_place_nor_on_the_vector_set() {
    let x: Vec<f32> = sweep32().into_iter().step_by(37).collect();
    for op in
        Unary::ALL.into_iter().filter(|op| op.accepts(DType::F32) && op.result(DType::F32) == DType::F32)
    {
        let mut bits: Option<Vec<u32>> = None;
        for set in InstructionSet::available().into_iter().filter(|set| *set != InstructionSet::Plain) {
            let kernel = unary_for(set, op, DType::F32).unwrap();
            let whole: Vec<u32> = run32(kernel, &x).into_iter().map(f32::to_bits).collect();
            let shifted: Vec<u32> = run32(kernel, &x[5..]).into_iter().map(f32::to_bits).collect();
            let equal = |a: &[u32], b: &[u32]| {
                a.iter()
                    .zip(b)
                    .all(|(a, b)| a == b || f32::from_bits(*a).is_nan() && f32::from_bits(*b).is_nan())
            };
            // Arguments beyond the vector reduction may share a block with others, which then use the scalar functions.
            if !matches!(op, Unary::Sin | Unary::Cos | Unary::Tan) {
                assert!(equal(&whole[5..], &shifted), "{op:?}");
            }
            if let Some(bits) = &bits {
                assert!(equal(bits, &whole), "{op:?}");
            }
            bits = Some(whole);
        }
    }
}
