//! The semantics of a fused kernel, one element at a time, in `f64` and 64-bit integers. Floats are rounded to the
//! kernel's precision after each step, so that exact operations give exact results.

use phynexus::{
    DType, DTypeKind, Scalar,
    kernel::fused::{FusedOp, Fusion},
    op::{Binary, Combine, Unary},
};

use super::Data;

/// Runs a kernel on the data of its parameters.
pub(super) fn interpret(kernel: &Fusion, data: &[Data]) -> Vec<Vec<Scalar>> {
    let kernel = &kernel.expanded().unwrap();
    let inputs: Vec<Vec<Scalar>> = data.iter().map(Data::all).collect();
    let mut outputs = inputs.clone();
    let columns = kernel.column_count();
    for row in 0..kernel.row_count() {
        let mut values: Vec<Vec<Scalar>> = Vec::new();
        for instruction in &kernel.instructions {
            let count = if instruction.per_column { columns } else { 1 };
            let values_of = |column: usize| {
                let operand = |v: u32| {
                    let list = &values[v as usize];
                    if kernel.instructions[v as usize].per_column { list[column] } else { list[0] }
                };
                let of = |v: u32| kernel.instructions[v as usize].dtype;
                let point = point(kernel, row, column);
                let result = match &instruction.operation {
                    FusedOp::Load { parameter, index, mask, fill } => {
                        if mask.as_ref().is_none_or(|m| m.evaluate(&point)) {
                            inputs[usize::from(*parameter)][index.evaluate(&point) as usize]
                        } else {
                            fill.cast(kernel.parameters[usize::from(*parameter)].dtype)
                        }
                    }
                    FusedOp::Constant(scalar) => scalar.cast(instruction.dtype),
                    FusedOp::Coordinate(index) => Scalar::Int(index.evaluate(&point)).cast(instruction.dtype),
                    FusedOp::Unary(op, a) => unary(*op, operand(*a), of(*a)),
                    FusedOp::Binary(op, a, b) => binary(*op, operand(*a), operand(*b), of(*a)),
                    FusedOp::Select(c, a, b) => {
                        if operand(*c).as_bool() {
                            operand(*a)
                        } else {
                            operand(*b)
                        }
                    }
                    FusedOp::Call(..) => unreachable!("expanded"),
                    FusedOp::Cast(a) => operand(*a).cast(instruction.dtype),
                    FusedOp::Bitcast(a) => bitcast(operand(*a), of(*a), instruction.dtype),
                    FusedOp::Reduce(combine, a) => {
                        let all = (0..columns).map(|c| {
                            let list = &values[*a as usize];
                            if kernel.instructions[*a as usize].per_column { list[c] } else { list[0] }
                        });
                        reduce(*combine, all, instruction.dtype)
                    }
                };
                result.cast(instruction.dtype.compute())
            };
            let list = (0..count).map(values_of).collect();
            values.push(list);
        }
        for store in &kernel.stores {
            let per_column = kernel.instructions[store.value as usize].per_column;
            for (column, value) in values[store.value as usize].iter().enumerate() {
                if per_column || column == 0 {
                    let parameter = usize::from(store.parameter);
                    let at = store.index.evaluate(&point(kernel, row, column)) as usize;
                    outputs[parameter][at] = value.cast(kernel.parameters[parameter].dtype);
                }
            }
        }
    }
    outputs
}

/// The coordinates of a row and a column.
pub(super) fn point(kernel: &Fusion, mut row: usize, mut column: usize) -> Vec<usize> {
    let mut point = Vec::new();
    for (list, position) in [(&kernel.columns, &mut column), (&kernel.rows, &mut row)] {
        for &extent in list.iter().rev() {
            point.push(*position % extent.max(1));
            *position /= extent.max(1);
        }
    }
    point.reverse();
    point
}

fn reduce(combine: Combine, all: impl Iterator<Item = Scalar>, dtype: DType) -> Scalar {
    if dtype.is_float() && combine == Combine::Sum {
        return Scalar::Float(all.map(Scalar::as_f64).sum());
    }
    all.fold(combine.identity(dtype), |a, b| binary(combine.binary(), a, b, dtype).cast(dtype.compute()))
}

fn unary(op: Unary, a: Scalar, dtype: DType) -> Scalar {
    if dtype.is_float() {
        let x = a.as_f64();
        return Scalar::Float(match op {
            Unary::Neg => -x,
            Unary::Abs => x.abs(),
            Unary::Exp => x.exp(),
            Unary::Log => x.ln(),
            Unary::Tanh => x.tanh(),
            Unary::Sqrt => x.sqrt(),
            Unary::Rsqrt => 1.0 / x.sqrt(),
            Unary::Recip => 1.0 / x,
            Unary::Floor => x.floor(),
            Unary::IsNan => return Scalar::Bool(x.is_nan()),
            _ => panic!("{op:?} is not in the tests"),
        });
    }
    match (op, dtype) {
        (Unary::Not, DType::Bool) => Scalar::Bool(!a.as_bool()),
        (Unary::Not, _) => Scalar::Int(!a.as_i64()).cast(dtype),
        (Unary::Neg, _) => Scalar::Int(a.as_i64().wrapping_neg()).cast(dtype),
        (Unary::Abs, _) if dtype.kind() == DTypeKind::Unsigned => a,
        (Unary::Abs, _) => Scalar::Int(a.as_i64().wrapping_abs()).cast(dtype),
        _ => panic!("{op:?} is not in the tests"),
    }
}

fn binary(op: Binary, a: Scalar, b: Scalar, dtype: DType) -> Scalar {
    if dtype.is_float() {
        let (x, y) = (a.as_f64(), b.as_f64());
        let nan = x.is_nan() || y.is_nan();
        return match op {
            Binary::Add => Scalar::Float(x + y),
            Binary::Sub => Scalar::Float(x - y),
            Binary::Mul => Scalar::Float(x * y),
            Binary::Div => Scalar::Float(x / y),
            Binary::Max => Scalar::Float(if nan { f64::NAN } else { x.max(y) }),
            Binary::Min => Scalar::Float(if nan { f64::NAN } else { x.min(y) }),
            Binary::Lt => Scalar::Bool(x < y),
            Binary::Eq => Scalar::Bool(x == y),
            _ => panic!("{op:?} is not in the tests"),
        };
    }
    if dtype == DType::Bool {
        let (x, y) = (a.as_bool(), b.as_bool());
        return Scalar::Bool(match op {
            Binary::And | Binary::Min => x & y,
            Binary::Or | Binary::Max => x | y,
            Binary::Xor => x ^ y,
            Binary::Lt => !x & y,
            Binary::Eq => x == y,
            _ => panic!("{op:?} is not in the tests"),
        });
    }
    // The tests' unsigned values are small, so they compare like signed ones.
    let (x, y) = (a.as_i64(), b.as_i64());
    let number = match op {
        Binary::Add => x.wrapping_add(y),
        Binary::Sub => x.wrapping_sub(y),
        Binary::Mul => x.wrapping_mul(y),
        Binary::Max => x.max(y),
        Binary::Min => x.min(y),
        Binary::And => x & y,
        Binary::Or => x | y,
        Binary::Xor => x ^ y,
        Binary::Lt => return Scalar::Bool(x < y),
        Binary::Eq => return Scalar::Bool(x == y),
        _ => panic!("{op:?} is not in the tests"),
    };
    Scalar::Int(number).cast(dtype)
}

fn bitcast(value: Scalar, from: DType, to: DType) -> Scalar {
    super::read_scalars(&super::scalar_bytes(value, from), to)[0]
}
