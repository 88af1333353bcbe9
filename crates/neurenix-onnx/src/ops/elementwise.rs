//! Functions of elements.

mod activation;
mod arithmetic;
pub(super) mod cast;
pub(super) mod constant;
pub(super) mod logic;

use phynexus::Tensor;

use super::Rows;
use crate::{
    Error, Result, Value,
    graph::{Call, one},
};

pub(super) const ROWS: Rows = &[
    ("Abs", |call| unary(call, Tensor::abs)),
    ("Acos", |call| unary(call, Tensor::acos)),
    ("Acosh", |call| unary(call, Tensor::acosh)),
    ("Add", |call| binary(call, Tensor::add)),
    ("And", |call| binary(call, Tensor::logical_and)),
    ("Asin", |call| unary(call, Tensor::asin)),
    ("Asinh", |call| unary(call, Tensor::asinh)),
    ("Atan", |call| unary(call, Tensor::atan)),
    ("Atanh", |call| unary(call, Tensor::atanh)),
    ("BitCast", cast::bit_cast),
    ("BitShift", arithmetic::bit_shift),
    ("BitwiseAnd", |call| binary(call, Tensor::and)),
    ("BitwiseNot", |call| unary(call, Tensor::bitwise_not)),
    ("BitwiseOr", |call| binary(call, Tensor::or)),
    ("BitwiseXor", |call| binary(call, Tensor::xor)),
    ("Cast", cast::cast),
    ("CastLike", cast::cast_like),
    ("Ceil", |call| unary(call, Tensor::ceil)),
    ("Celu", activation::celu),
    ("Clip", arithmetic::clip),
    ("Constant", constant::constant),
    ("ConstantOfShape", constant::constant_of_shape),
    ("Cos", |call| unary(call, Tensor::cos)),
    ("Cosh", |call| unary(call, Tensor::cosh)),
    ("Div", |call| binary(call, arithmetic::quotient)),
    ("Elu", activation::elu),
    ("Equal", logic::equal),
    ("Erf", arithmetic::erf),
    ("Exp", |call| unary(call, Tensor::exp)),
    ("EyeLike", constant::eye_like),
    ("Floor", |call| unary(call, Tensor::floor)),
    ("Gelu", activation::gelu),
    ("Greater", |call| binary(call, Tensor::gt)),
    ("GreaterOrEqual", |call| binary(call, Tensor::ge)),
    ("HardSigmoid", activation::hard_sigmoid),
    ("HardSwish", |call| unary(call, Tensor::hardswish)),
    ("Identity", |call| Ok(vec![call.value(0)?.clone()])),
    ("IsInf", logic::is_inf),
    ("IsNaN", logic::is_nan),
    ("LeakyRelu", activation::leaky_relu),
    ("Less", |call| binary(call, Tensor::lt)),
    ("LessOrEqual", |call| binary(call, Tensor::le)),
    ("Log", |call| unary(call, Tensor::log)),
    ("Max", |call| arithmetic::folded(call, Tensor::maximum)),
    ("Mean", arithmetic::mean),
    ("Min", |call| arithmetic::folded(call, Tensor::minimum)),
    ("Mish", activation::mish),
    ("Mod", arithmetic::modulo),
    ("Mul", |call| binary(call, Tensor::mul)),
    ("Neg", |call| unary(call, Tensor::neg)),
    ("Not", |call| unary(call, Tensor::logical_not)),
    ("Or", |call| binary(call, Tensor::logical_or)),
    ("PRelu", activation::prelu),
    ("Pow", arithmetic::power),
    ("Range", constant::range),
    ("Reciprocal", |call| unary(call, Tensor::reciprocal)),
    ("Relu", |call| unary(call, Tensor::relu)),
    ("Round", |call| unary(call, Tensor::round)),
    ("Selu", activation::selu),
    ("Shrink", activation::shrink),
    ("Sigmoid", |call| unary(call, Tensor::sigmoid)),
    ("Sign", |call| unary(call, Tensor::sign)),
    ("Sin", |call| unary(call, Tensor::sin)),
    ("Sinh", |call| unary(call, Tensor::sinh)),
    ("Softplus", activation::softplus),
    ("Softsign", |call| unary(call, Tensor::softsign)),
    ("Sqrt", |call| unary(call, Tensor::sqrt)),
    ("Sub", |call| binary(call, Tensor::sub)),
    ("Sum", |call| arithmetic::folded(call, Tensor::add)),
    ("SwiGLU", activation::swiglu),
    ("Swish", activation::swish),
    ("Tan", |call| unary(call, Tensor::tan)),
    ("Tanh", |call| unary(call, Tensor::tanh)),
    ("ThresholdedRelu", activation::thresholded_relu),
    ("Where", logic::where_),
    ("Xor", |call| binary(call, Tensor::logical_xor)),
];

fn unary(call: &Call<'_>, function: impl Fn(&Tensor) -> phynexus::Result<Tensor>) -> Result<Vec<Value>> {
    one(function(&call.tensor(0)?)?)
}

fn binary(
    call: &Call<'_>,
    function: impl Fn(&Tensor, &Tensor) -> phynexus::Result<Tensor>,
) -> Result<Vec<Value>> {
    let (a, b) = operands(call)?;
    one(function(&a, &b)?)
}

/// Both operands. Before opset 7, an attribute said at which axis of the first one those of the second begin.
fn operands(call: &Call<'_>) -> Result<(Tensor, Tensor)> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    let axis = call.int("axis")?.filter(|_| call.opset() < 7 && b.rank() < a.rank());
    let Some(axis) = axis else { return Ok((a, b)) };
    let behind = a.rank().checked_sub(call.axis(axis, a.rank())? + b.rank());
    let behind =
        behind.ok_or_else(|| Error::invalid("the second operand has axes beyond the first one's"))?;
    let shape = [b.shape(), &vec![1; behind]].concat();
    let b = b.reshape(&shape)?;
    Ok((a, b))
}
