//! Functions of one and of two elements, on every dtype that they support.

use phynexus::{
    DType, Scalar,
    op::{Binary, Constant, ELEMENTWISE, Op, Unary},
    oracle::generate::{Case, CaseLeaf, Choice, Distribution, random_array},
};

use super::Entry;

/// A generator that depends on the case's name only, so that adding a case leaves the layouts of others as they are.
pub(super) fn choice(name: &str) -> Choice {
    Choice::new(name.bytes().fold(5u64, |seed, b| seed.wrapping_mul(31).wrapping_add(b.into())))
}

/// Adds a leaf of random values, in row-major or scattered layout.
pub(super) fn leaf(
    case: &mut Case,
    choice: &mut Choice,
    values: Distribution,
    dtype: DType,
    shape: &[usize],
    scattered: bool,
) -> u32 {
    let array = random_array(choice, values, dtype, shape);
    case.leaf(if scattered { CaseLeaf::scattered(array, choice) } else { CaseLeaf::contiguous(array) })
}

/// The values and layouts to try for each shape.
const VARIANTS: [(Distribution, bool); 3] =
    [(Distribution::Special, false), (Distribution::Tame, true), (Distribution::Positive, false)];

/// Adds a case for every shape and variant of an operation with this many operands of `dtype`.
fn cases(op: &Op, operands: usize, [dtype, result]: [DType; 2], entries: &mut Vec<Entry>) {
    for shape in ELEMENTWISE {
        for (values, scattered) in VARIANTS {
            if scattered && shape.len() < 2 && values != Distribution::Tame {
                continue;
            }
            let name = format!("shape {shape:?}, {values:?} values, scattered {scattered}");
            let op = op.clone();
            entries.push(Entry::new(op.name(), dtype.name(), move || {
                let mut choice = choice(&name);
                let mut case = Case::new(name.clone());
                let mut operand = |_| leaf(&mut case, &mut choice, values, dtype, shape, scattered);
                let inputs: Vec<u32> = (0..operands).map(&mut operand).collect();
                let output = case.ir.push(op.clone(), result, shape.into(), inputs);
                case.ir.outputs.push(output);
                case
            }));
        }
    }
}

/// The function with a constant as left or right operand, which takes other paths in rewrites and kernels.
fn with_constants(op: Binary, dtype: DType, entries: &mut Vec<Entry>) {
    let constants = if dtype.is_float() {
        vec![0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.3].into_iter().map(Scalar::Float).collect()
    } else {
        vec![Scalar::Int(0), Scalar::Int(1), Scalar::Int(-1), Scalar::Int(2), Scalar::Int(3)]
    };
    for constant in constants {
        for left in [false, true] {
            let side = if left { "left" } else { "right" };
            let name = format!("constant {constant} on the {side}");
            entries.push(Entry::new(op.name(), dtype.name(), move || {
                let mut case = Case::new(name.clone());
                let x = leaf(&mut case, &mut choice(&name), Distribution::Special, dtype, &[67], false);
                let constant = Op::Constant(Constant(constant.cast(dtype)));
                let c = case.ir.push(constant, dtype, [67].as_slice().into(), []);
                let inputs = if left { [c, x] } else { [x, c] };
                let y = case.ir.push(Op::Binary(op), op.result(dtype), [67].as_slice().into(), inputs);
                case.ir.outputs.push(y);
                case
            }));
        }
    }
}

/// All elementwise cases.
pub(super) fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for dtype in DType::COMPUTED {
        for op in Unary::ALL.into_iter().filter(|op| op.accepts(dtype)) {
            cases(&Op::Unary(op), 1, [dtype, op.result(dtype)], &mut entries);
        }
        for op in Binary::ALL.into_iter().filter(|op| op.accepts(dtype)) {
            cases(&Op::Binary(op), 2, [dtype, op.result(dtype)], &mut entries);
            with_constants(op, dtype, &mut entries);
        }
    }
    entries
}
