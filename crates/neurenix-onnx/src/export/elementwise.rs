//! Functions of elements.

use std::f64::consts::{FRAC_PI_2, LN_2, PI};

use phynexus::{
    DType, Scalar,
    op::{Binary, Unary},
};

use super::{
    emit::{Emitter, carrier, wide},
    gamma::{digamma, lgamma},
    graph::Node,
    writer::{Value, Writer, integer, text},
};
use crate::{Error, Result};

/// The greatest exponent for which an integer power becomes products.
const GREATEST_EXPONENT: i64 = 64;

impl Emitter<'_> {
    pub(super) fn unary(&mut self, node: &Node, function: Unary) -> Result<Value> {
        let x = self.compact(node.inputs[0])?;
        let exact = matches!(
            function,
            Unary::Neg | Unary::Abs | Unary::Sign | Unary::Floor | Unary::Ceil | Unary::Trunc | Unary::Round
        );
        let exact = exact || matches!(function, Unary::Sqrt | Unary::Recip | Unary::IsNan | Unary::IsInf);
        let dtype = match function {
            Unary::Not => x.dtype,
            // Some implementations compare only the lower halves of int64.
            Unary::Sign if x.dtype == DType::U32 => x.dtype,
            _ if exact => carrier(x.dtype),
            _ => wide(x.dtype),
        };
        let writer = &mut self.writer;
        let x = writer.cast(&x, dtype);
        let y = match function {
            Unary::Neg if dtype == DType::U64 => {
                let zero = writer.scalar(dtype, 0i64);
                writer.each("Sub", &[&zero, &x])
            }
            Unary::Sign if dtype.is_float() => {
                let (unordered, sign) = (writer.each("IsNaN", &[&x]), writer.each("Sign", &[&x]));
                writer.each("Where", &[&unordered, &x, &sign])
            }
            Unary::Rsqrt => {
                let root = writer.each("Sqrt", &[&x]);
                writer.each("Reciprocal", &[&root])
            }
            Unary::Exp2 => {
                let two = writer.scalar(dtype, 2.0);
                writer.each("Pow", &[&two, &x])
            }
            Unary::Expm1 => expm1(writer, &x),
            Unary::Log2 => {
                let (log, base) = (writer.each("Log", &[&x]), writer.scalar(dtype, LN_2));
                writer.each("Div", &[&log, &base])
            }
            Unary::Log1p => log1p(writer, &x),
            Unary::Sinc => sinc(writer, &x),
            Unary::Lgamma => lgamma(writer, &x),
            Unary::Digamma => digamma(writer, &x),
            Unary::Trunc => {
                let (sign, magnitude) = (writer.each("Sign", &[&x]), writer.each("Abs", &[&x]));
                let floor = writer.each("Floor", &[&magnitude]);
                writer.each("Mul", &[&sign, &floor])
            }
            Unary::Not if dtype != DType::Bool => writer.each("BitwiseNot", &[&x]),
            Unary::Neg => writer.each("Neg", &[&x]),
            Unary::Abs => writer.each("Abs", &[&x]),
            Unary::Sign => writer.each("Sign", &[&x]),
            Unary::Recip => writer.each("Reciprocal", &[&x]),
            Unary::Sqrt => writer.each("Sqrt", &[&x]),
            Unary::Exp => writer.each("Exp", &[&x]),
            Unary::Log => writer.each("Log", &[&x]),
            Unary::Sin => writer.each("Sin", &[&x]),
            Unary::Cos => writer.each("Cos", &[&x]),
            Unary::Tan => writer.each("Tan", &[&x]),
            Unary::Asin => writer.each("Asin", &[&x]),
            Unary::Acos => writer.each("Acos", &[&x]),
            Unary::Atan => writer.each("Atan", &[&x]),
            Unary::Sinh => writer.each("Sinh", &[&x]),
            Unary::Cosh => writer.each("Cosh", &[&x]),
            Unary::Tanh => writer.each("Tanh", &[&x]),
            Unary::Asinh => writer.each("Asinh", &[&x]),
            Unary::Acosh => writer.each("Acosh", &[&x]),
            Unary::Atanh => writer.each("Atanh", &[&x]),
            Unary::Erf => writer.each("Erf", &[&x]),
            Unary::Floor => writer.each("Floor", &[&x]),
            Unary::Ceil => writer.each("Ceil", &[&x]),
            Unary::Round => writer.each("Round", &[&x]),
            Unary::Not => writer.each("Not", &[&x]),
            Unary::IsNan => writer.each("IsNaN", &[&x]),
            Unary::IsInf => writer.each("IsInf", &[&x]),
        };
        Ok(writer.cast(&y, node.dtype))
    }

    pub(super) fn choose(&mut self, node: &Node) -> Result<Value> {
        let &[condition, a, b] = &node.inputs[..] else {
            return Err(Error::invalid("a choice has three operands"));
        };
        let (condition, a, b) = (self.compact(condition)?, self.compact(a)?, self.compact(b)?);
        if node.dtype == DType::Bool {
            // Not all implementations choose between bools.
            let other = self.writer.each("Not", &[&condition]);
            let (first, second) =
                (self.writer.each("And", &[&condition, &a]), self.writer.each("And", &[&other, &b]));
            return Ok(self.writer.each("Or", &[&first, &second]));
        }
        let chosen = either(&mut self.writer, &condition, &a, &b);
        Ok(self.writer.cast(&chosen, node.dtype))
    }

    pub(super) fn binary(&mut self, node: &Node, function: Binary) -> Result<Value> {
        let &[first, second] = &node.inputs[..] else {
            return Err(Error::invalid(format!("{} has two operands", function.name())));
        };
        let (a, b) = (self.compact(first)?, self.compact(second)?);
        let (given, is_bool) = (a.dtype, a.dtype == DType::Bool);
        let dtype = match function {
            Binary::And | Binary::Or | Binary::Xor | Binary::Eq | Binary::Ne if is_bool => given,
            Binary::Max | Binary::Min if is_bool || given == DType::U32 => given,
            Binary::And | Binary::Or | Binary::Xor | Binary::Shl | Binary::Shr => given,
            Binary::FloorDiv | Binary::Remainder | Binary::Pow | Binary::Atan2 => wide(given),
            _ => carrier(given),
        };
        let numbers = [first, second].map(|id| self.graph.number(id));
        let exponent = numbers[1].filter(|[a, b]| a == b).map(|[exponent, _]| exponent);
        let nonzero = numbers[1].is_some_and(|numbers| numbers.iter().all(|number| number.as_bool()));
        let writer = &mut self.writer;
        let (a, b) = (writer.cast(&a, dtype), writer.cast(&b, dtype));
        let pair = [&a, &b];
        let y = match function {
            Binary::Add => writer.each("Add", &pair),
            Binary::Sub => writer.each("Sub", &pair),
            Binary::Mul => writer.each("Mul", &pair),
            Binary::Div => writer.each("Div", &pair),
            Binary::FloorDiv if dtype.is_float() => floor_divide(writer, &a, &b),
            Binary::FloorDiv => guarded(writer, &b, nonzero, |writer, b| integer_quotient(writer, &a, b)),
            Binary::Remainder if dtype.is_float() => remainder(writer, &a, &b),
            Binary::Remainder => guarded(writer, &b, nonzero, |writer, b| writer.each("Mod", &[&a, b])),
            Binary::Pow => match exponent.map(Scalar::as_f64) {
                Some(2.0) => writer.each("Mul", &[&a, &a]),
                Some(power) if !dtype.is_float() && (0.0..=GREATEST_EXPONENT as f64).contains(&power) => {
                    integer_power(writer, &a, power as i64)
                }
                _ if !dtype.is_float() => {
                    return Err(Error::unsupported("powers of integers, but for small constant exponents"));
                }
                _ => writer.each("Pow", &pair),
            },
            Binary::Max if is_bool => writer.each("Or", &pair),
            Binary::Min if is_bool => writer.each("And", &pair),
            Binary::Max => writer.each("Max", &pair),
            Binary::Min => writer.each("Min", &pair),
            Binary::Atan2 => angle(writer, &a, &b),
            Binary::And if is_bool => writer.each("And", &pair),
            Binary::Or if is_bool => writer.each("Or", &pair),
            Binary::Xor if is_bool => writer.each("Xor", &pair),
            Binary::And => writer.each("BitwiseAnd", &pair),
            Binary::Or => writer.each("BitwiseOr", &pair),
            Binary::Xor => writer.each("BitwiseXor", &pair),
            Binary::Shl | Binary::Shr => shift(writer, &a, &b, function == Binary::Shl),
            Binary::Lt => writer.each("Less", &pair),
            Binary::Le => writer.each("LessOrEqual", &pair),
            Binary::Eq => writer.each("Equal", &pair),
            Binary::Ne => {
                let equal = writer.each("Equal", &pair);
                writer.each("Not", &[&equal])
            }
        };
        Ok(writer.cast(&y, node.dtype))
    }
}

/// `2 exp(x / 2) sinh(x / 2)`, which is accurate near 0.
fn expm1(writer: &mut Writer, x: &Value) -> Value {
    // From here on downwards the result is -1.
    let (least, half, two) =
        (writer.scalar(x.dtype, -100.0), writer.scalar(x.dtype, 0.5), writer.scalar(x.dtype, 2.0));
    let bounded = writer.each("Max", &[x, &least]);
    let halved = writer.each("Mul", &[&bounded, &half]);
    let (exp, sinh) = (writer.each("Exp", &[&halved]), writer.each("Sinh", &[&halved]));
    let product = writer.each("Mul", &[&exp, &sinh]);
    writer.each("Mul", &[&product, &two])
}

/// `2 atanh(x / (2 + x))` near 0, where `log(1 + x)` is not accurate.
fn log1p(writer: &mut Writer, x: &Value) -> Value {
    let number = |writer: &mut Writer, value: f64| writer.scalar(x.dtype, value);
    let (zero, half, one, two) =
        (number(writer, 0.0), number(writer, 0.5), number(writer, 1.0), number(writer, 2.0));
    let magnitude = writer.each("Abs", &[x]);
    let near = writer.each("Less", &[&magnitude, &half]);
    let small = writer.each("Where", &[&near, x, &zero]);
    let divisor = writer.each("Add", &[&small, &two]);
    let ratio = writer.each("Div", &[&small, &divisor]);
    let artanh = writer.each("Atanh", &[&ratio]);
    let close = writer.each("Mul", &[&artanh, &two]);
    let sum = writer.each("Add", &[x, &one]);
    let far = writer.each("Log", &[&sum]);
    writer.each("Where", &[&near, &close, &far])
}

/// With the distance to the nearest whole number, so that large operands are accurate.
fn sinc(writer: &mut Writer, x: &Value) -> Value {
    let number = |writer: &mut Writer, value: f64| writer.scalar(x.dtype, value);
    let (zero, one, two, pi) =
        (number(writer, 0.0), number(writer, 1.0), number(writer, 2.0), number(writer, PI));
    let nearest = writer.each("Round", &[x]);
    let rest = writer.each("Sub", &[x, &nearest]);
    let angle = writer.each("Mul", &[&rest, &pi]);
    let sine = writer.each("Sin", &[&angle]);
    let parity = fmod(writer, &nearest, &two);
    let odd = writer.each("Abs", &[&parity]);
    let twice = writer.each("Mul", &[&odd, &two]);
    let sign = writer.each("Sub", &[&one, &twice]);
    let sine = writer.each("Mul", &[&sign, &sine]);
    let is_zero = writer.each("Equal", &[x, &zero]);
    let divisor = writer.each("Where", &[&is_zero, &one, x]);
    let divisor = writer.each("Mul", &[&divisor, &pi]);
    let quotient = writer.each("Div", &[&sine, &divisor]);
    writer.each("Where", &[&is_zero, &one, &quotient])
}

/// C's `fmod`.
fn fmod(writer: &mut Writer, a: &Value, b: &Value) -> Value {
    writer.each_with("Mod", &[a, b], vec![integer("fmod", 1)])
}

/// Whether the numbers have different signs. Zeros are positive.
fn differ_in_sign(writer: &mut Writer, a: &Value, b: &Value) -> Value {
    let zero = writer.scalar(a.dtype, 0i64);
    let (first, second) = (writer.each("Less", &[a, &zero]), writer.each("Less", &[b, &zero]));
    writer.each("Xor", &[&first, &second])
}

/// The remainder with the divisor's sign, that of a zero too.
fn remainder(writer: &mut Writer, a: &Value, b: &Value) -> Value {
    let rest = fmod(writer, a, b);
    let (zero, minus_zero) = (writer.scalar(a.dtype, 0.0), writer.scalar(a.dtype, -0.0));
    let negative = writer.each("Less", &[b, &zero]);
    let signed_zero = writer.each("Where", &[&negative, &minus_zero, &zero]);
    let differs = differ_in_sign(writer, &rest, b);
    let moved = writer.each("Add", &[&rest, b]);
    let nonzero = writer.each("Where", &[&differs, &moved, &rest]);
    let is_zero = writer.each("Equal", &[&rest, &zero]);
    writer.each("Where", &[&is_zero, &signed_zero, &nonzero])
}

/// The quotient less the remainder's share of it is a whole number, but for rounding; of a zero and with an infinity,
/// the quotient itself.
fn floor_divide(writer: &mut Writer, a: &Value, b: &Value) -> Value {
    let quotient = writer.each("Div", &[a, b]);
    let rest = fmod(writer, a, b);
    let whole = writer.each("Sub", &[a, &rest]);
    let whole = writer.each("Div", &[&whole, b]);
    let nearest = writer.each("Round", &[&whole]);
    let (zero, one) = (writer.scalar(a.dtype, 0.0), writer.scalar(a.dtype, 1.0));
    let less = writer.each("Sub", &[&nearest, &one]);
    let differs = differ_in_sign(writer, &rest, b);
    let is_whole = writer.each("Equal", &[&rest, &zero]);
    let is_part = writer.each("Not", &[&is_whole]);
    let below = writer.each("And", &[&is_part, &differs]);
    let floor = writer.each("Where", &[&below, &less, &nearest]);
    let special =
        [writer.each("Equal", &[a, &zero]), writer.each("IsInf", &[b]), writer.each("IsInf", &[&quotient])];
    let mut any = writer.each("IsNaN", &[&quotient]);
    for case in &special {
        any = writer.each("Or", &[&any, case]);
    }
    writer.each("Where", &[&any, &quotient, &floor])
}

/// A division of integers that gives 0 where the divisor is 0.
fn guarded(
    writer: &mut Writer,
    b: &Value,
    nonzero: bool,
    divide: impl FnOnce(&mut Writer, &Value) -> Value,
) -> Value {
    if nonzero {
        return divide(writer, b);
    }
    let (zero, one) = (writer.scalar(b.dtype, 0i64), writer.scalar(b.dtype, 1i64));
    let is_zero = writer.each("Equal", &[b, &zero]);
    let divisor = either(writer, &is_zero, &one, b);
    let result = divide(writer, &divisor);
    either(writer, &is_zero, &zero, &result)
}

/// ONNX truncates quotients; this is the floor.
fn integer_quotient(writer: &mut Writer, a: &Value, b: &Value) -> Value {
    let quotient = writer.each("Div", &[a, b]);
    if a.dtype == DType::U64 {
        return quotient;
    }
    let product = writer.each("Mul", &[&quotient, b]);
    let rest = writer.each("Sub", &[a, &product]);
    let zero = writer.scalar(a.dtype, 0i64);
    let is_whole = writer.each("Equal", &[&rest, &zero]);
    let is_part = writer.each("Not", &[&is_whole]);
    let differs = differ_in_sign(writer, &rest, b);
    let below = writer.each("And", &[&is_part, &differs]);
    let below = writer.cast(&below, a.dtype);
    writer.each("Sub", &[&quotient, &below])
}

fn integer_power(writer: &mut Writer, base: &Value, mut exponent: i64) -> Value {
    let (mut square, mut result) = (base.clone(), None);
    while exponent > 0 {
        if exponent & 1 == 1 {
            result = Some(match result {
                Some(product) => writer.each("Mul", &[&product, &square]),
                None => square.clone(),
            });
        }
        exponent >>= 1;
        if exponent > 0 {
            square = writer.each("Mul", &[&square, &square]);
        }
    }
    result.unwrap_or_else(|| {
        let zero = writer.scalar(base.dtype, 0i64);
        let (zeros, one) = (writer.each("Mul", &[base, &zero]), writer.scalar(base.dtype, 1i64));
        writer.each("Add", &[&zeros, &one])
    })
}

/// Whether the number has a minus sign, zeros included.
fn has_minus(writer: &mut Writer, x: &Value) -> Value {
    let zero = writer.scalar(x.dtype, 0.0);
    let inverse = writer.each("Reciprocal", &[x]);
    let (own, of_inverse) = (writer.each("Less", &[x, &zero]), writer.each("Less", &[&inverse, &zero]));
    writer.each("Or", &[&own, &of_inverse])
}

/// The angle of the point (x, y).
fn angle(writer: &mut Writer, y: &Value, x: &Value) -> Value {
    let (zero, one, pi) =
        (writer.scalar(y.dtype, 0.0), writer.scalar(y.dtype, 1.0), writer.scalar(y.dtype, PI));
    let quarter = writer.scalar(y.dtype, FRAC_PI_2);
    let (height, width) = (writer.each("Abs", &[y]), writer.each("Abs", &[x]));
    let equal = writer.each("Equal", &[&height, &width]);
    let flat = writer.each("Equal", &[&height, &zero]);
    let ratio = writer.each("Div", &[&height, &width]);
    // Of two zeros 0, of two infinities 1.
    let of_equals = writer.each("Where", &[&flat, &zero, &one]);
    let ratio = writer.each("Where", &[&equal, &of_equals, &ratio]);
    let steep = writer.each("IsInf", &[&ratio]);
    let arc = writer.each("Atan", &[&ratio]);
    let arc = writer.each("Where", &[&steep, &quarter, &arc]);
    let supplement = writer.each("Sub", &[&pi, &arc]);
    let (left, below) = (has_minus(writer, x), has_minus(writer, y));
    let arc = writer.each("Where", &[&left, &supplement, &arc]);
    let negative = writer.each("Neg", &[&arc]);
    writer.each("Where", &[&below, &negative, &arc])
}

/// A choice, in a dtype that implementations have it for.
fn either(writer: &mut Writer, condition: &Value, a: &Value, b: &Value) -> Value {
    let dtype = if a.dtype == DType::U64 { DType::I64 } else { carrier(a.dtype) };
    let operands = [writer.cast(a, dtype), writer.cast(b, dtype)];
    let chosen = writer.each("Where", &[condition, &operands[0], &operands[1]]);
    writer.cast(&chosen, a.dtype)
}

/// Shifts of integers. ONNX has those of unsigned ones, by less than their width.
fn shift(writer: &mut Writer, a: &Value, b: &Value, left: bool) -> Value {
    let signed = matches!(a.dtype, DType::I8 | DType::I16 | DType::I32 | DType::I64);
    let bits = 8 * a.dtype.size() as i64;
    let unsigned = if bits == 64 { DType::U64 } else { DType::U32 };
    let below = (signed && !left).then(|| {
        let (wide, zero) = (writer.cast(a, carrier(a.dtype)), writer.scalar(carrier(a.dtype), 0i64));
        writer.each("Less", &[&wide, &zero])
    });
    // The ones that come in from the left are zeros of the inverted number.
    let flipped = |writer: &mut Writer, x: &Value| match &below {
        Some(below) => {
            let inverse = writer.each("BitwiseNot", &[x]);
            either(writer, below, &inverse, x)
        }
        None => x.clone(),
    };
    let x = flipped(writer, a);
    let (x, by) = (writer.cast(&x, unsigned), writer.cast(b, unsigned));
    let (width, zero) = (writer.scalar(unsigned, bits), writer.scalar(unsigned, 0i64));
    let inside = writer.each("Less", &[&by, &width]);
    let by = either(writer, &inside, &by, &zero);
    let direction = if left { "LEFT" } else { "RIGHT" };
    let moved = writer.each_with("BitShift", &[&x, &by], vec![text("direction", direction)]);
    let moved = either(writer, &inside, &moved, &zero);
    let moved = writer.cast(&moved, a.dtype);
    flipped(writer, &moved)
}
