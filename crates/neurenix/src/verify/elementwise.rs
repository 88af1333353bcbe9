//! Functions of one and of two elements, on every dtype that they support.

use phynexus::{
    DType, Scalar,
    op::{Binary, Constant, ELEMENTWISE, Op, Unary},
    oracle::generate::{Case, CaseLeaf, Choice, Distribution, random_array},
};

use super::Entry;

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

/// Adds the operation under test for a shape and operands, and returns its node.
type Build<'a> = dyn Fn(&mut Case, &[usize], &[u32]) -> u32 + 'a;

/// Adds a case for every shape and variant. `build` appends nodes to the leaves and returns the output.
fn cases(operation: &str, dtype: DType, leaves: &[DType], build: &Build<'_>, entries: &mut Vec<Entry>) {
    let mut choice = Choice::new(17);
    for shape in ELEMENTWISE {
        for (values, scattered) in VARIANTS {
            if scattered && shape.len() < 2 && values != Distribution::Tame {
                continue;
            }
            let mut case = Case::new(format!("shape {shape:?}, {values:?} values, scattered {scattered}"));
            let ids: Vec<u32> = leaves
                .iter()
                .map(|&dtype| leaf(&mut case, &mut choice, values, dtype, shape, scattered))
                .collect();
            let output = build(&mut case, shape, &ids);
            case.ir.outputs.push(output);
            entries.push(Entry::new(operation, dtype.name(), case));
        }
    }
}

/// The function with a constant as left or right operand, which takes other paths in rewrites and kernels.
fn with_constants(op: Binary, dtype: DType, entries: &mut Vec<Entry>) {
    let mut choice = Choice::new(23);
    let constants = if dtype.is_float() {
        vec![0.0, -0.0, 1.0, -1.0, 2.0, 0.5, 3.3].into_iter().map(Scalar::Float).collect()
    } else {
        vec![Scalar::Int(0), Scalar::Int(1), Scalar::Int(-1), Scalar::Int(2), Scalar::Int(3)]
    };
    for constant in constants {
        for left in [false, true] {
            let side = if left { "left" } else { "right" };
            let mut case = Case::new(format!("constant {constant} on the {side}"));
            let x = leaf(&mut case, &mut choice, Distribution::Special, dtype, &[67], false);
            let c =
                case.ir.push(Op::Constant(Constant(constant.cast(dtype))), dtype, [67].as_slice().into(), []);
            let inputs = if left { [c, x] } else { [x, c] };
            let y = case.ir.push(Op::Binary(op), op.result(dtype), [67].as_slice().into(), inputs);
            case.ir.outputs.push(y);
            entries.push(Entry::new(op.name(), dtype.name(), case));
        }
    }
}

/// All elementwise cases.
pub(super) fn entries() -> Vec<Entry> {
    let mut entries = Vec::new();
    for dtype in DType::ALL {
        for op in Unary::ALL.into_iter().filter(|op| op.accepts(dtype)) {
            let build = |case: &mut Case, shape: &[usize], ids: &[u32]| {
                case.ir.push(Op::Unary(op), op.result(dtype), shape.into(), ids.iter().copied())
            };
            cases(op.name(), dtype, &[dtype], &build, &mut entries);
        }
        for op in Binary::ALL.into_iter().filter(|op| op.accepts(dtype)) {
            let build = |case: &mut Case, shape: &[usize], ids: &[u32]| {
                case.ir.push(Op::Binary(op), op.result(dtype), shape.into(), ids.iter().copied())
            };
            cases(op.name(), dtype, &[dtype, dtype], &build, &mut entries);
            with_constants(op, dtype, &mut entries);
        }
    }
    entries
}
