//! The oracle's definitions of functions against mpmath. An independent source is needed, because devices are tested
//! against the oracle, and the CPU computes some functions by the oracle's definitions.

use std::collections::BTreeMap;

use half::{bf16, f16};
use phynexus::{
    DType, Element,
    op::{Binary, Op, Unary, gamma, ir::Ir},
    oracle::{Number, OracleArray, compare, evaluate},
};

/// From `tests/golden/make_definitions.py`.
const GOLDEN: &str = include_str!("../golden/definitions.txt");

/// Functions whose results are always correctly rounded. `floor_divide` is missing, because the floor of a quotient
/// beyond 2^53 may not be representable.
const EXACT: [&str; 12] = [
    "neg",
    "abs",
    "sign",
    "reciprocal",
    "sqrt",
    "floor",
    "ceil",
    "trunc",
    "round",
    "isnan",
    "isinf",
    "remainder",
];
/// The greatest error of the other definitions in units in the last place. The oracle adds it to the error bound of
/// `float64` devices.
const UNITS: u64 = 2;
/// This number is within 2^-61 of a multiple of pi / 2. Linux's C library loses digits there: its cosine is 8 units
/// off, its tangent 14.
const HARDEST: f64 = 5.319_372_648_326_541e255;

/// Operands and the correctly rounded result.
type Point<T> = (Vec<T>, f64);

fn functions() -> BTreeMap<&'static str, Vec<Point<f64>>> {
    let number = |digits: &str| f64::from_bits(u64::from_str_radix(&format!("{digits:0<16}"), 16).unwrap());
    let mut functions: BTreeMap<&str, Vec<Point<f64>>> = BTreeMap::new();
    let mut name = "";
    for line in GOLDEN.lines() {
        if line.contains(' ') {
            let mut numbers: Vec<f64> = line.split(' ').map(number).collect();
            let result = numbers.pop().unwrap();
            functions.entry(name).or_default().push((numbers, result));
        } else {
            name = line;
        }
    }
    functions
}

/// The operations that the file must contain. Add a missing one to the script.
fn operations() -> Vec<(Op, &'static str)> {
    let unary = Unary::ALL.into_iter().filter(|op| op.accepts(DType::F64));
    // Arithmetic and comparisons are those of IEEE 754 and need no test here.
    use Binary::*;
    let is_plain = |op: Binary| op.is_comparison() || matches!(op, Add | Sub | Mul | Div | Max | Min);
    let binary = Binary::ALL.into_iter().filter(|&op| op.accepts(DType::F64) && !is_plain(op));
    unary.map(|op| (Op::Unary(op), op.name())).chain(binary.map(|op| (Op::Binary(op), op.name()))).collect()
}

/// Functions that are differences below 0: there, errors are relative to the terms.
fn terms(name: &str, operands: &[f64]) -> f64 {
    match name {
        "lgamma" => gamma::lgamma_terms(operands[0]),
        "digamma" => gamma::digamma_terms(operands[0]),
        _ => 0.0,
    }
}

fn is_hardest(name: &str, operands: &[f64]) -> bool {
    ["cos", "tan"].contains(&name) && operands[0].abs() == HARDEST
}

/// The oracle's results of an operation at these points.
fn oracle<T: Element>(op: &Op, result: DType, points: &[Point<T>]) -> OracleArray {
    let (mut ir, shape) = (Ir::default(), [points.len()]);
    let leaves: Vec<OracleArray> = (0..points[0].0.len())
        .map(|i| {
            let values: Vec<T> = points.iter().map(|(operands, _)| operands[i]).collect();
            OracleArray::from_bytes(&bytes(&values), T::DTYPE, &shape).unwrap()
        })
        .collect();
    let inputs: Vec<u32> =
        leaves.iter().map(|leaf| ir.push(Op::Buffer, T::DTYPE, leaf.shape.clone(), [])).collect();
    let output = ir.push(op.clone(), result, leaves[0].shape.clone(), inputs);
    ir.outputs.push(output);
    evaluate(&ir, &leaves).unwrap().remove(0)
}

fn bytes<T: Element>(values: &[T]) -> Vec<u8> {
    let mut bytes = Vec::new();
    T::write_bytes(values, &mut bytes);
    bytes
}

/// The distance in units in the last place; 0 if both are equal or NaN.
fn distance(a: f64, b: f64) -> u64 {
    let place = |x: f64| {
        let magnitude = (x.to_bits() & !(1 << 63)) as i64;
        if x.is_sign_negative() { -magnitude } else { magnitude }
    };
    match (a.is_nan(), b.is_nan()) {
        (true, true) => 0,
        (false, false) => place(a).abs_diff(place(b)),
        _ => u64::MAX,
    }
}

#[test]
fn definitions_are_as_accurate_as_the_oracle_takes_them_to_be() {
    let functions = functions();
    let mut wrong = Vec::new();
    for (op, name) in operations() {
        let points = functions.get(name).unwrap_or_else(|| panic!("{name} is not in make_definitions.py"));
        let result = if matches!(name, "isnan" | "isinf") { DType::Bool } else { DType::F64 };
        let mut worst = (0, String::new());
        for ((operands, expected), number) in points.iter().zip(&oracle(&op, result, points).elements) {
            let found = match number {
                Number::Integer(x) => *x as f64,
                Number::Float(x) => x.value,
                Number::Undetermined => panic!("{name} {operands:?} is undetermined"),
            };
            let terms = terms(name, operands);
            let units = match terms > expected.abs() && !found.is_nan() {
                true => ((found - expected).abs() / (terms * f64::EPSILON)).ceil() as u64,
                false => distance(found, *expected),
            };
            let allowed = match () {
                () if EXACT.contains(&name) => 0,
                () if is_hardest(name, operands) => 16,
                () => UNITS,
            };
            // The sign of sinc's zeros is not defined.
            let wrong_zero = found == 0.0
                && *expected == 0.0
                && found.is_sign_negative() != expected.is_sign_negative()
                && name != "sinc";
            if units > allowed || wrong_zero {
                wrong.push(format!("{name} {operands:?} is {expected:?}, not {found:?}: {units} units off"));
            }
            if units > worst.0 && !is_hardest(name, operands) {
                worst = (units, format!(" at {operands:?}"));
            }
        }
        println!("{name}: {} points, at most {} units off{}", points.len(), worst.0, worst.1);
    }
    assert!(wrong.is_empty(), "{} points\n{}", wrong.len(), wrong.join("\n"));
}

/// Checks that the oracle accepts the results of a device that rounds correctly, at the points whose operands `T`
/// represents exactly.
fn judge<T: Element + Into<f64>>(round: fn(f64) -> T) {
    let functions = functions();
    let is_exact = |x: &f64| x.is_nan() || round(*x).into() == *x;
    for (op, name) in operations() {
        let points: Vec<Point<T>> = functions[name]
            .iter()
            .filter(|(operands, _)| operands.iter().all(is_exact) && !is_hardest(name, operands))
            .map(|(operands, result)| (operands.iter().map(|x| round(*x)).collect(), *result))
            .collect();
        let (result, answers) = if matches!(name, "isnan" | "isinf") {
            (DType::Bool, points.iter().map(|(_, result)| u8::from(*result != 0.0)).collect())
        } else {
            (T::DTYPE, bytes(&points.iter().map(|(_, result)| round(*result)).collect::<Vec<T>>()))
        };
        let comparison = compare(&oracle(&op, result, &points), &answers, result);
        let first = comparison.first.as_ref().map(|mismatch| &points[mismatch.index[0]].0);
        assert!(comparison.passed() && comparison.skipped == 0, "{name} {first:?}: {comparison}");
        assert!(points.len() > 10, "{name}: {} points in {}", points.len(), T::DTYPE);
    }
}

#[test]
fn correctly_rounded_results_are_admissible() {
    judge(|x| x);
    judge(|x| x as f32);
    // Through `f32`, as devices compute 16-bit floats.
    judge(|x| f16::from_f32(x as f32));
    judge(|x| bf16::from_f32(x as f32));
}
