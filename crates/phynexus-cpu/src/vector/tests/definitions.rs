//! Kernels against mpmath. Some `f64` kernels call the standard library or the oracle's definitions, so references by
//! the same functions would prove nothing.

use std::collections::BTreeMap;

use phynexus::DType;
use phynexus::op::{Binary, Unary};

use super::references::{terms, ulps32_beside, ulps64_beside};
use crate::vector::{InstructionSet, binary_for, unary_for};

/// From `crates/phynexus/tests/golden/make_definitions.py`.
const GOLDEN: &str = include_str!("../../../../phynexus/tests/golden/definitions.txt");

/// The bound in units in the last place of `f64`, from the table in the documentation of [`crate::vector`]. The
/// standard library's functions, and definitions that use them, are within 2.
fn bound(name: &str) -> f64 {
    match name {
        "neg" | "abs" | "sign" | "reciprocal" | "sqrt" => 0.0,
        "floor" | "ceil" | "trunc" | "round" | "remainder" => 0.0,
        "rsqrt" => 1.5,
        "log2" | "expm1" | "log1p" => 3.0,
        "tanh" => 4.0,
        "erf" => 10.0,
        "lgamma" => 6.0,
        "digamma" => 6.0,
        _ => 2.0,
    }
}

/// The same for `f32`. `accuracy.rs` checks smaller bounds for functions with independent references.
fn single_bound(name: &str) -> f64 {
    match name {
        "rsqrt" => 0.501,
        _ if bound(name) == 0.0 => 0.5,
        _ => 2.0,
    }
}

/// This number is so close to a multiple of pi / 2 that the standard library's cosine and tangent lose digits on Linux.
const HARDEST: f64 = 5.319_372_648_326_541e255;

/// Operands and the correctly rounded result.
type Point = (Vec<f64>, f64);

fn functions() -> BTreeMap<&'static str, Vec<Point>> {
    let number = |digits: &str| f64::from_bits(u64::from_str_radix(&format!("{digits:0<16}"), 16).unwrap());
    let mut functions: BTreeMap<&str, Vec<Point>> = BTreeMap::new();
    let mut name = "";
    for line in GOLDEN.lines() {
        if line.contains(' ') {
            let mut numbers: Vec<f64> = line.split(' ').map(number).collect();
            let result = numbers.pop().unwrap();
            if numbers[0].abs() != HARDEST {
                functions.entry(name).or_default().push((numbers, result));
            }
        } else {
            name = line;
        }
    }
    functions
}

/// Runs the function with this name on the points' operands, converted to `T`.
fn run<T: Copy + Default>(
    set: InstructionSet,
    name: &str,
    dtype: DType,
    points: &[Point],
    round: fn(f64) -> T,
) -> Vec<T> {
    let operand = |i: usize| points.iter().map(|(operands, _)| round(operands[i])).collect::<Vec<T>>();
    let mut y = vec![T::default(); points.len()];
    let (a, out) = (operand(0), y.as_mut_ptr().cast());
    if let Some(op) = Unary::ALL.into_iter().find(|op| op.name() == name) {
        let kernel = unary_for(set, op, dtype).unwrap();
        // SAFETY: slices of equal length, of the dtype's elements.
        unsafe { kernel(a.as_ptr().cast(), out, a.len()) };
    } else {
        let op = Binary::ALL.into_iter().find(|op| op.name() == name).unwrap();
        let (kernels, b) = (binary_for(set, op, dtype).unwrap(), operand(1));
        // SAFETY: slices of equal length, of the dtype's elements.
        unsafe { (kernels.vector_vector)(a.as_ptr().cast(), b.as_ptr().cast(), out, a.len()) };
    }
    y
}

#[test]
fn functions_are_within_their_bounds_of_the_exact_numbers() {
    let mut failures = Vec::new();
    for set in InstructionSet::available() {
        for (name, points) in functions() {
            // Their results are `bool`.
            if matches!(name, "isnan" | "isinf") {
                continue;
            }
            let mut check = |operands: &[f64], found: f64, expected: f64, units: f64, bound: f64| {
                // For these functions the sign of zero is not defined.
                let is_open = matches!(name, "sign" | "sinc");
                let is_zero = found == 0.0 && expected == 0.0 && !is_open;
                let other_zero = is_zero && found.is_sign_negative() != expected.is_sign_negative();
                // A NaN error exceeds every bound.
                let within = units <= bound;
                if !within || other_zero {
                    let set = set.name();
                    failures
                        .push(format!("{set} {name} {operands:?} -> {found:e}, not {expected:e}: {units}"));
                }
            };
            let wide = run(set, name, DType::F64, &points, |x| x);
            for ((operands, expected), found) in points.iter().zip(wide) {
                // The expected number itself is rounded, by up to half a unit.
                let rounding = if bound(name) > 0.0 { 0.5 } else { 0.0 };
                let units = ulps64_beside(terms(name, operands[0]), found, *expected);
                check(operands, found, *expected, units, bound(name) + rounding);
            }
            let is_single = |x: &f64| x.is_nan() || f64::from(*x as f32) == *x;
            let points: Vec<Point> =
                points.into_iter().filter(|(operands, _)| operands.iter().all(is_single)).collect();
            let narrow = run(set, name, DType::F32, &points, |x| x as f32);
            for ((operands, expected), found) in points.iter().zip(narrow) {
                let units = ulps32_beside(terms(name, operands[0]), found, *expected);
                check(operands, found.into(), *expected, units, single_bound(name));
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}
