//! Functions of elements, conversions, constants, random numbers and quantization.

use super::{
    Size,
    fact::Known,
    site::{Rows, Site, one, tensor},
};
use crate::{Element, Error, Result};

pub(super) const ROWS: Rows = &[
    ("Abs", same),
    ("Acos", same),
    ("Acosh", same),
    ("Add", binary),
    ("And", comparison),
    ("Asin", same),
    ("Asinh", same),
    ("Atan", same),
    ("Atanh", same),
    ("Bernoulli", converted),
    ("BitCast", converted),
    ("BitShift", binary),
    ("BitwiseAnd", binary),
    ("BitwiseNot", same),
    ("BitwiseOr", binary),
    ("BitwiseXor", binary),
    ("Cast", converted),
    ("CastLike", |site| one(site.element(1), shape(site))),
    ("Ceil", same),
    ("Celu", same),
    ("Clip", same),
    ("Constant", constant),
    ("ConstantOfShape", constant_of_shape),
    ("Cos", same),
    ("Cosh", same),
    ("DequantizeLinear", |site| one(site.element_attribute("output_dtype").or(site.element(1)), shape(site))),
    ("Div", binary),
    ("Dropout", dropout),
    ("DynamicQuantizeLinear", |site| {
        let number = |element| tensor(Some(element), Some(Vec::new()));
        Ok(vec![tensor(Some(Element::Uint8), shape(site)), number(Element::Float), number(Element::Uint8)])
    }),
    ("Elu", same),
    ("Equal", comparison),
    ("Erf", same),
    ("Exp", same),
    ("EyeLike", converted),
    ("Floor", same),
    ("Gelu", same),
    ("Greater", comparison),
    ("GreaterOrEqual", comparison),
    ("HardSigmoid", same),
    ("HardSwish", same),
    ("Identity", |site| Ok(vec![site.known(0).clone()])),
    ("IsInf", truth),
    ("IsNaN", truth),
    ("LeakyRelu", same),
    ("Less", comparison),
    ("LessOrEqual", comparison),
    ("Log", same),
    ("Max", all),
    ("Mean", all),
    ("Min", all),
    ("Mish", same),
    ("Mod", binary),
    ("Mul", binary),
    ("Multinomial", multinomial),
    ("Neg", same),
    ("Not", truth),
    ("Or", comparison),
    ("PRelu", same),
    ("Pow", binary),
    ("QuantizeLinear", |site| {
        let declared = site.element_attribute("output_dtype");
        let usual = if site.has(2) { site.element(2) } else { declared.or(Some(Element::Uint8)) };
        one(usual, shape(site))
    }),
    ("RandomNormal", random),
    ("RandomNormalLike", converted),
    ("RandomUniform", random),
    ("RandomUniformLike", converted),
    ("Range", range),
    ("Reciprocal", same),
    ("Relu", same),
    ("Round", same),
    ("Selu", same),
    ("Shrink", same),
    ("Sigmoid", same),
    ("Sign", same),
    ("Sin", same),
    ("Sinh", same),
    ("Softplus", same),
    ("Softsign", same),
    ("Sqrt", same),
    ("Sub", binary),
    ("Sum", all),
    ("SwiGLU", |site| {
        if let (Some(a), Some(b)) = (site.shape(0), site.shape(1)) {
            equal(site, a, b)?;
        }
        same(site)
    }),
    ("Swish", same),
    ("Tan", same),
    ("Tanh", same),
    ("ThresholdedRelu", same),
    ("Where", |site| one(site.element(1), site.broadcast_inputs(0..3)?)),
    ("Xor", comparison),
];

/// The shape of the first input.
pub(super) fn shape(site: &Site<'_>) -> Option<Vec<Size>> {
    site.shape(0).map(<[Size]>::to_vec)
}

/// That two shapes can be the same.
pub(super) fn equal(site: &Site<'_>, a: &[Size], b: &[Size]) -> Result<()> {
    if a.len() != b.len() {
        return Err(Error::invalid(format!(
            "shapes of {} and of {} dimensions must be equal",
            a.len(),
            b.len()
        )));
    }
    a.iter().zip(b).try_for_each(|(a, b)| site.same(a, b, "extents").map(drop))
}

/// The type of the first input.
pub(super) fn same(site: &Site<'_>) -> Result<Vec<Known>> {
    one(site.element(0), shape(site))
}

/// The shape of the first input, booleans.
fn truth(site: &Site<'_>) -> Result<Vec<Known>> {
    one(Some(Element::Bool), shape(site))
}

/// The shape of two operands. Before opset 7, an attribute said whether and where the second one is broadcast.
fn operands(site: &Site<'_>) -> Result<Option<Vec<Size>>> {
    if site.opset() < 7 && site.int("axis").is_some() {
        return Ok(shape(site));
    }
    site.broadcast_inputs(0..2)
}

fn binary(site: &Site<'_>) -> Result<Vec<Known>> {
    one(site.element(0), operands(site)?)
}

fn comparison(site: &Site<'_>) -> Result<Vec<Known>> {
    one(Some(Element::Bool), operands(site)?)
}

/// All inputs, broadcast.
fn all(site: &Site<'_>) -> Result<Vec<Known>> {
    one(site.element(0), site.broadcast_inputs(0..site.count())?)
}

/// The shape of the first input, and the element type of an attribute, `to` or `dtype`, or that of the input.
fn converted(site: &Site<'_>) -> Result<Vec<Known>> {
    let name = if matches!(site.node.operator.as_str(), "Cast" | "BitCast") { "to" } else { "dtype" };
    one(site.element_attribute(name).or(site.element(0)), shape(site))
}

/// Those of a graph are stored tensors. Only within the value of an attribute is one left.
fn constant(site: &Site<'_>) -> Result<Vec<Known>> {
    Ok(vec![site.tensor_attribute("value").map(Known::of_value).unwrap_or_default()])
}

/// The shape that an input's elements are.
pub(super) fn given_shape(site: &Site<'_>, input: usize) -> Result<Option<Vec<Size>>> {
    if let Some(numbers) = site.numbers(input) {
        return match numbers.iter().find(|size| size.as_number().is_some_and(|number| number < 0)) {
            Some(size) => Err(Error::invalid(format!("a shape must not be negative, one extent is {size}"))),
            None => Ok(Some(numbers)),
        };
    }
    let rank = match site.shape(input) {
        Some([rank]) => rank.as_extent().filter(|&rank| rank <= phynexus::shape::MAX_RANK),
        _ => None,
    };
    Ok(rank.map(|rank| site.unknown(rank)))
}

fn constant_of_shape(site: &Site<'_>) -> Result<Vec<Known>> {
    let element = site.tensor_attribute("value").map_or(Some(Element::Float), |value| value.element());
    one(element, given_shape(site, 0)?)
}

fn dropout(site: &Site<'_>) -> Result<Vec<Known>> {
    let mask = if site.opset() < 10 { site.element(0) } else { Some(Element::Bool) };
    Ok(vec![tensor(site.element(0), shape(site)), tensor(mask, shape(site))])
}

fn multinomial(site: &Site<'_>) -> Result<Vec<Known>> {
    let batch = site.of_rank(0, 2)?.and_then(<[Size]>::first).cloned();
    let samples = Size::number(site.int_or("sample_size", 1));
    one(
        Some(site.element_attribute("dtype").unwrap_or(Element::Int32)),
        Some(vec![site.or_fresh(batch), samples]),
    )
}

fn random(site: &Site<'_>) -> Result<Vec<Known>> {
    let shape = site.ints("shape").map(|all| all.iter().map(|&size| Size::number(size)).collect());
    one(Some(site.element_attribute("dtype").unwrap_or(Element::Float)), shape)
}

fn range(site: &Site<'_>) -> Result<Vec<Known>> {
    let count = match (site.number(0), site.number(1), site.number(2)) {
        (Some(start), Some(limit), Some(delta)) => match delta.as_number() {
            Some(0) => return Err(Error::invalid("delta must not be 0")),
            Some(1..) => limit.minus(&start).and_then(|distance| distance.over_up(&delta)),
            Some(_) => {
                let turned = Size::number(0).minus(&delta).zip(start.minus(&limit));
                turned.and_then(|(delta, distance)| distance.over_up(&delta))
            }
            None => None,
        },
        _ => floats(site),
    };
    let count = count.and_then(|count| count.at_least_zero(site.inference.assumes));
    one(site.element(0), Some(vec![site.or_fresh(count)]))
}

/// The length of a range of known floats.
fn floats(site: &Site<'_>) -> Option<Size> {
    let number = |input: usize| site.fact(input)?.floats()?.first().copied();
    let count = ((number(1)? - number(0)?) / number(2)?).ceil();
    (count.is_finite() && count < 1e15).then(|| Size::number(count.max(0.0) as i64))
}
