//! Interprets fused kernels, one element at a time, in the specified order.

use crate::dtype::read_scalars;
use crate::{
    DType, Error, Result, Scalar,
    dtype::scalar_bytes,
    kernel::fused::{FusedOp, Fusion, Instruction},
    op::reference::{
        Accumulator, Interval, Number, OracleArray, elementwise, every_coordinate, from_scalar, wrap,
    },
    shape::Dims,
};

/// A kernel's access to memory.
pub(super) trait Bytes {
    /// Bytes of parameter `parameter`, from `start` counted from its first element (negative where strides are).
    fn read(&self, parameter: usize, start: i64, bytes: &mut [u8]) -> Result<()>;
    /// Overwrites bytes, addressed as for `read`.
    fn write(&self, parameter: usize, start: i64, bytes: &[u8]) -> Result<()>;
}

/// The single value that a device computing like the oracle holds.
pub(super) fn computed(number: Number) -> Number {
    match number {
        Number::Float(x) => Number::float(x.value),
        Number::Integer(_) => number,
        Number::Undetermined => Number::Undetermined,
    }
}

/// A number as a scalar of `dtype`; undetermined numbers are 0 (NaN for a float).
pub(super) fn to_scalar(number: Number, dtype: DType) -> Scalar {
    match number {
        Number::Integer(x) if dtype.kind() == crate::DTypeKind::Signed => Scalar::Int(x as i64),
        Number::Integer(x) => Scalar::UInt(x as u64),
        Number::Float(x) => Scalar::Float(x.rounded(dtype).value),
        Number::Undetermined if dtype.is_float() => Scalar::Float(f64::NAN),
        Number::Undetermined => Scalar::UInt(0),
    }
}

/// Every point of a space in row-major order, appended to `prefix`.
fn points(prefix: &[usize], extents: &[usize]) -> Vec<Vec<usize>> {
    every_coordinate(extents).map(|at| [prefix, &at].concat()).collect()
}

/// Runs a kernel.
///
/// # Errors
/// If an index exceeds its buffer or an instruction uses a value before it is computed, either of which is a bug in the
/// code that created the kernel.
pub(super) fn run(kernel: &Fusion, memory: &dyn Bytes) -> Result<()> {
    for row in points(&[], &kernel.rows) {
        // A per-column value is a list with one entry per column.
        let columns = points(&row, &kernel.columns);
        let mut values: Vec<Vec<Number>> = Vec::with_capacity(kernel.instructions.len());
        for instruction in &kernel.instructions {
            let value = match &instruction.operation {
                FusedOp::Reduce(combine, x) => {
                    let mut accumulator = Accumulator::new(*combine, instruction.dtype);
                    let operand = operand(&values, *x)?;
                    (0..columns.len()).for_each(|c| accumulator.push(at(operand, c)));
                    vec![computed(accumulator.result())]
                }
                _ if instruction.per_column => (0..columns.len())
                    .map(|c| step(kernel, instruction, &values, c, &columns[c], memory))
                    .collect::<Result<_>>()?,
                _ => vec![step(kernel, instruction, &values, 0, &row, memory)?],
            };
            values.push(value);
        }
        for store in &kernel.stores {
            let value = operand(&values, store.value)?;
            let per_column = kernel.instructions[store.value as usize].per_column;
            let dtype = kernel.parameters[usize::from(store.parameter)].dtype;
            let places = if per_column { columns.as_slice() } else { std::slice::from_ref(&row) };
            for (number, point) in value.iter().zip(places) {
                let bytes = scalar_bytes(to_scalar(*number, dtype), dtype);
                let start = store.index.evaluate(point) * dtype.size() as i64;
                memory.write(store.parameter.into(), start, &bytes)?;
            }
        }
    }
    Ok(())
}

fn operand(values: &[Vec<Number>], value: u32) -> Result<&[Number]> {
    let missing = || Error::internal("kernel", format!("instruction {value} is used before it is computed"));
    values.get(value as usize).map(Vec::as_slice).ok_or_else(missing)
}

/// Per-row values are the same in every column.
fn at(value: &[Number], column: usize) -> Number {
    value.get(column).or(value.first()).copied().unwrap_or(Number::Undetermined)
}

fn step(
    kernel: &Fusion,
    instruction: &Instruction,
    values: &[Vec<Number>],
    column: usize,
    point: &[usize],
    memory: &dyn Bytes,
) -> Result<Number> {
    let value = |v: u32| operand(values, v).map(|x| at(x, column));
    let dtype_of = |v: u32| kernel.instructions[v as usize].dtype;
    let dtype = instruction.dtype;
    let number = match &instruction.operation {
        FusedOp::Load { parameter, index, mask, fill } => {
            if mask.as_ref().is_some_and(|m| !m.evaluate(point)) {
                return Ok(from_scalar(fill.cast(dtype)));
            }
            let mut bytes = [0; 8];
            let bytes = &mut bytes[..dtype.size()];
            memory.read(usize::from(*parameter), index.evaluate(point) * dtype.size() as i64, bytes)?;
            read_scalars(bytes, dtype).first().map_or(Number::Undetermined, |s| from_scalar(*s))
        }
        FusedOp::Constant(scalar) => from_scalar(scalar.cast(dtype)),
        FusedOp::Coordinate(index) if dtype.is_float() => {
            Number::Float(Interval::point(index.evaluate(point) as f64).rounded(dtype.compute()))
        }
        FusedOp::Coordinate(index) => Number::Integer(wrap(index.evaluate(point).into(), dtype)),
        FusedOp::Unary(op, x) => elementwise::unary(*op, value(*x)?, dtype_of(*x)),
        FusedOp::Binary(op, x, y) => elementwise::binary(*op, value(*x)?, value(*y)?, dtype_of(*x)),
        FusedOp::Select(c, x, y) => elementwise::select(value(*c)?, value(*x)?, value(*y)?),
        FusedOp::Cast(x) if dtype_of(*x) == dtype => value(*x)?,
        FusedOp::Cast(x) => elementwise::cast(value(*x)?, dtype),
        FusedOp::Call(composite, x) => {
            let operand = OracleArray { dtype: dtype_of(*x), shape: Dims::new(), elements: vec![value(*x)?] };
            composite.evaluate(&[&operand])?.pop().unwrap_or(Number::Undetermined)
        }
        FusedOp::Bitcast(x) => elementwise::bitcast(value(*x)?, dtype_of(*x), dtype),
        FusedOp::Reduce(..) => {
            return Err(Error::internal("kernel", "a reduction is not an elementwise step"));
        }
    };
    Ok(computed(number))
}
