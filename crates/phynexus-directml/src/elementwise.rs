//! Functions of single elements, and constants, as operators.

use phynexus::{
    DType, Scalar,
    op::{Binary, Combine, Unary},
};

use crate::{
    graph::{Graph, Seen, Tensor, Value, data_type},
    operator::{self, Row},
};

/// A function of one value. Those of which Direct3D allows errors of many units in the last place, such as exponentials,
/// are left to kernels.
pub(crate) fn unary(graph: &mut Graph, function: Unary, a: Seen) -> Option<Seen> {
    /// `DML_ROUNDING_MODE_HALVES_TO_NEAREST_EVEN` and `_TOWARD_ZERO`, `DML_IS_INFINITY_MODE_EITHER`.
    const TO_EVEN: u32 = 0;
    const TOWARDS_ZERO: u32 = 1;
    const EITHER: u32 = 0;
    let dtype = a.tensor.dtype;
    let (row, values, result) = match function {
        Unary::Neg if dtype.is_float() => {
            // Not 0 - x, which is 0 where x is.
            let factor = constant(graph, Scalar::Float(-1.0), dtype)?;
            return binary(graph, Binary::Mul, a, factor);
        }
        Unary::Neg => {
            let zero = constant(graph, Scalar::Int(0), dtype)?;
            return binary(graph, Binary::Sub, zero, a);
        }
        Unary::Rsqrt => {
            let root = unary(graph, Unary::Sqrt, a)?;
            return unary(graph, Unary::Recip, root);
        }
        // DirectML's of -128 is 127.
        Unary::Abs if dtype == DType::I8 => return None,
        Unary::Abs => (&operator::ABS, vec![], dtype),
        // DirectML's of NaN is 0.
        Unary::Sign if dtype.is_float() => {
            let sign = graph.apply(&operator::SIGN, [a.clone()], a.tensor.like(dtype), Vec::new());
            let nan = unary(graph, Unary::IsNan, a.clone())?;
            return select(graph, nan, a, sign);
        }
        Unary::Sign => (&operator::SIGN, vec![], dtype),
        Unary::Sqrt => (&operator::SQRT, vec![], dtype),
        Unary::Recip => (&operator::RECIPROCAL, vec![], dtype),
        Unary::Floor => (&operator::FLOOR, vec![], dtype),
        Unary::Ceil => (&operator::CEIL, vec![], dtype),
        Unary::Round => (&operator::ROUND, vec![Value::Number(TO_EVEN)], dtype),
        Unary::Trunc => (&operator::ROUND, vec![Value::Number(TOWARDS_ZERO)], dtype),
        Unary::Not if dtype == DType::Bool => (&operator::LOGICAL_NOT, vec![], dtype),
        Unary::Not => (&operator::BIT_NOT, vec![], dtype),
        Unary::IsNan => (&operator::IS_NAN, vec![], DType::Bool),
        Unary::IsInf => (&operator::IS_INFINITY, vec![Value::Number(EITHER)], DType::Bool),
        _ => return None,
    };
    let output = a.tensor.like(result);
    Some(graph.apply(row, [a], output, values))
}

/// A function of two values, of which each is seen as often as the other needs.
pub(crate) fn binary(graph: &mut Graph, function: Binary, a: Seen, b: Seen) -> Option<Seen> {
    let dtype = a.tensor.dtype;
    let is_bool = dtype == DType::Bool;
    // DirectML orders signed 64-bit numbers by their lower halves.
    if dtype == DType::I64 && matches!(function, Binary::Lt | Binary::Le | Binary::Max | Binary::Min) {
        return None;
    }
    let row = match function {
        Binary::Add => &operator::ADD,
        Binary::Sub => &operator::SUBTRACT,
        Binary::Mul => &operator::MULTIPLY,
        Binary::Div if dtype.is_float() => &operator::DIVIDE,
        // DirectML's return the other operand for NaN, and clamp numbers to 32 bits.
        Binary::Max | Binary::Min if dtype.is_float() || dtype.size() == 8 => {
            let (less, than) = if function == Binary::Max { (&b, &a) } else { (&a, &b) };
            let mut first = binary(graph, Binary::Lt, less.clone(), than.clone())?;
            if dtype.is_float() {
                let nan = unary(graph, Unary::IsNan, a.clone())?;
                first = binary(graph, Binary::Or, first, nan)?;
            }
            return select(graph, first, a, b);
        }
        Binary::Max => &operator::MAX,
        Binary::Min => &operator::MIN,
        Binary::And if is_bool => &operator::LOGICAL_AND,
        Binary::Or if is_bool => &operator::LOGICAL_OR,
        Binary::Xor if is_bool => &operator::LOGICAL_XOR,
        Binary::And => &operator::BIT_AND,
        Binary::Or => &operator::BIT_OR,
        Binary::Xor => &operator::BIT_XOR,
        Binary::Lt => &operator::LESS,
        Binary::Le => &operator::LESS_OR_EQUAL,
        Binary::Eq => &operator::EQUAL,
        Binary::Ne => {
            let equal = binary(graph, Binary::Eq, a, b)?;
            return unary(graph, Unary::Not, equal);
        }
        _ => return None,
    };
    let result = match function {
        Binary::Lt | Binary::Le | Binary::Eq => DType::Bool,
        _ => dtype,
    };
    Some(together(graph, row, [a, b], result))
}

/// One value where a condition holds, another elsewhere.
pub(crate) fn select(graph: &mut Graph, condition: Seen, then: Seen, otherwise: Seen) -> Option<Seen> {
    let dtype = then.tensor.dtype;
    Some(together(graph, &operator::IF, [condition, then, otherwise], dtype))
}

/// An operator of values that are seen with the extents of the largest.
fn together<const N: usize>(graph: &mut Graph, row: &'static Row, values: [Seen; N], dtype: DType) -> Seen {
    let mut sizes = values[0].tensor.sizes.clone();
    for value in &values[1..] {
        sizes.iter_mut().zip(&value.tensor.sizes).for_each(|(size, other)| *size = (*size).max(*other));
    }
    let output = Tensor { dtype, sizes, strides: None };
    let values = values.map(|value| Seen { tensor: value.tensor.broadcast(&output.sizes), edge: value.edge });
    graph.apply(row, values, output, Vec::new())
}

/// A value in another type.
pub(crate) fn cast(graph: &mut Graph, a: Seen, to: DType) -> Option<Seen> {
    let from = a.tensor.dtype;
    if from == to {
        return Some(a);
    }
    if to == DType::Bool {
        let zero = constant(graph, Scalar::Int(0), from)?;
        return binary(graph, Binary::Ne, a, zero);
    }
    // DirectML's clamps integers, and 64-bit ones to 32 bits.
    let fits = if from.is_float() {
        to.is_float() || to.size() < 8
    } else {
        to == DType::F32 || !to.is_float() && holds(from, to)
    };
    if !fits {
        return None;
    }
    let output = a.tensor.like(to);
    Some(graph.apply(&operator::CAST, [a], output, Vec::new()))
}

/// Whether an integer type has all values of another.
fn holds(from: DType, to: DType) -> bool {
    let signed = |dtype| matches!(dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    match (signed(from), signed(to)) {
        (true, false) => false,
        (false, true) => from == DType::Bool || from.size() < to.size(),
        _ => from.size() <= to.size(),
    }
}

/// A constant, as one element.
pub(crate) fn constant(graph: &mut Graph, value: Scalar, dtype: DType) -> Option<Seen> {
    let filled = if dtype == DType::F16 { DType::F32 } else { dtype };
    let output = Tensor::new(filled, &[], None)?;
    let values = vec![Value::Number(data_type(filled)?), scalar(value.cast(dtype))];
    let constant = graph.apply(&operator::FILL, [], output, values);
    cast(graph, constant, dtype)
}

/// A field with a value of any type but a 16-bit float.
fn scalar(value: Scalar) -> Value {
    Value::Scalar(match value {
        Scalar::Float(number) => u64::from((number as f32).to_bits()),
        whole => whole.as_u64(),
    })
}

/// The numbers of a dimension of this shape, from `first` with this step.
pub(crate) fn sequence(
    graph: &mut Graph,
    dtype: DType,
    shape: &[usize],
    first: i64,
    step: i64,
) -> Option<Seen> {
    let output = Tensor::new(dtype, shape, None)?;
    let [first, step] = [first, step].map(|number| scalar(Scalar::Int(number)));
    let values = vec![Value::Number(data_type(dtype)?), first, step];
    Some(graph.apply(&operator::SEQUENCE, [], output, values))
}

/// The combination of all elements along these axes, which remain with one element.
pub(crate) fn reduce(graph: &mut Graph, combine: Combine, a: Seen, axes: &[u32]) -> Option<Seen> {
    /// Values of `DML_REDUCE_FUNCTION`.
    const MAX: u32 = 7;
    const MIN: u32 = 8;
    const SUM: u32 = 10;
    let dtype = a.tensor.dtype;
    let function = match combine {
        // What is fused decides whether DirectML or a kernel adds floats; they must not differ in the order.
        Combine::Sum | Combine::Prod if dtype.is_float() => return None,
        Combine::Sum => SUM,
        Combine::Prod => return None,
        Combine::Max => MAX,
        Combine::Min => MIN,
    };
    // DirectML reduces no narrower integers, and orders signed 64-bit ones by their lower halves.
    if !matches!(dtype, DType::F32 | DType::I32 | DType::U32) {
        return None;
    }
    let mut output = a.tensor.like(dtype);
    for &axis in axes {
        *output.sizes.get_mut(axis as usize)? = 1;
    }
    let apply = |graph: &mut Graph, function, a: Seen| {
        let values =
            vec![Value::Number(function), Value::Number(axes.len() as u32), Value::List(axes.to_vec())];
        graph.apply(&operator::REDUCE, [a], output.clone(), values)
    };
    let result = apply(graph, function, a.clone());
    if !matches!(combine, Combine::Max | Combine::Min) || !dtype.is_float() {
        return Some(result);
    }
    // DirectML's leaves NaN out.
    let nan = unary(graph, Unary::IsNan, a)?;
    let nan = cast(graph, nan, DType::F32)?;
    let count = apply(graph, SUM, nan);
    let zero = constant(graph, Scalar::Float(0.0), DType::F32)?;
    let clean = binary(graph, Binary::Eq, count, zero)?;
    let nan = constant(graph, Scalar::Float(f64::NAN), dtype)?;
    select(graph, clean, result, nan)
}
