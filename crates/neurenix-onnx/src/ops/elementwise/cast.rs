//! Conversions between element types.

use phynexus::{DType, Device, Scalar, Tensor};

use crate::{
    Element, Error, Result, Text, Value,
    graph::{Call, one},
};

/// How a conversion treats numbers between and beyond those of an 8-bit float.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Conversion {
    /// Whether numbers that are too great become the greatest one, rather than infinity or NaN.
    pub(in crate::ops) saturates: bool,
    /// How numbers become powers of two.
    pub(in crate::ops) rounding: Rounding,
}

/// How a number between two powers of two becomes one of them.
#[derive(Clone, Copy, PartialEq)]
pub(in crate::ops) enum Rounding {
    Up,
    Down,
    Nearest,
}

impl Default for Conversion {
    fn default() -> Conversion {
        Conversion { saturates: true, rounding: Rounding::Up }
    }
}

impl Conversion {
    /// As the attributes of `Cast` and `CastLike` say.
    fn of(call: &Call<'_>) -> Result<Conversion> {
        let rounding = match call.string_or("round_mode", "up")? {
            "up" => Rounding::Up,
            "down" => Rounding::Down,
            "nearest" => Rounding::Nearest,
            other => {
                let message = format!("round_mode must be up, down or nearest, it is {other:?}");
                return Err(Error::invalid(message));
            }
        };
        Ok(Conversion { saturates: call.int_or("saturate", 1)? != 0, rounding })
    }
}

pub(super) fn cast(call: &Call<'_>) -> Result<Vec<Value>> {
    let to = call.element("to")?.ok_or_else(|| Error::invalid("the attribute \"to\" is missing"))?;
    Ok(vec![converted(call, call.value(0)?, to, Conversion::of(call)?)?])
}

pub(super) fn cast_like(call: &Call<'_>) -> Result<Vec<Value>> {
    let like = call.value(1)?;
    let to =
        like.element().ok_or_else(|| Error::invalid(format!("expected a tensor, got {}", like.kind())))?;
    Ok(vec![converted(call, call.value(0)?, to, Conversion::of(call)?)?])
}

fn converted(call: &Call<'_>, value: &Value, to: Element, conversion: Conversion) -> Result<Value> {
    match (value, to) {
        (Value::Text(_), Element::String) => Ok(value.clone()),
        (Value::Text(text), _) => converted_tensor(&parsed(text, to, call.device)?, to, conversion),
        (_, Element::String) => Ok(Value::Text(written(value.tensor()?)?)),
        _ => converted_tensor(&value.tensor()?.to_device(call.device)?, to, conversion),
    }
}

/// The numbers as elements of a type.
pub(in crate::ops) fn converted_tensor(x: &Tensor, to: Element, conversion: Conversion) -> Result<Value> {
    let dtype = to.dtype().ok_or_else(|| Error::unsupported(format!("conversion to {to:?}")))?;
    let result = match to {
        Element::Int4 | Element::Uint4 | Element::Int2 | Element::Uint2 => {
            low_bits(x, to)?.to_dtype(dtype)?
        }
        Element::Float8E8M0 => power_of_two(&computable(x)?.to_dtype(DType::F32)?, conversion)?,
        _ => match SmallFloat::of(to) {
            Some(format) => format.rounded(&computable(x)?, conversion.saturates)?.to_dtype(dtype)?,
            None => x.to_dtype(dtype)?,
        },
    };
    Ok(Value::of_element(result, to))
}

/// The numbers in a float of 32 or 64 bits. It has all that matters: larger integers are beyond every small float.
fn computable(x: &Tensor) -> phynexus::Result<Tensor> {
    match x.dtype() {
        DType::F64 => Ok(x.clone()),
        _ => x.to_dtype(DType::F32),
    }
}

/// Integers without their higher bits.
fn low_bits(x: &Tensor, to: Element) -> phynexus::Result<Tensor> {
    let numbers = x.to_dtype(DType::I64)?;
    let size = 1i64 << to.bits();
    let low = numbers.and_scalar(size - 1)?;
    match to {
        Element::Int4 | Element::Int2 => low.xor_scalar(size / 2)?.sub_scalar(size / 2),
        _ => Ok(low),
    }
}

/// A float of at most 8 bits.
struct SmallFloat {
    /// Bits of the significand that are stored.
    stored: i32,
    /// The exponent of the least normal number.
    least: i32,
    greatest: f64,
    /// What numbers become that are too great: infinity or NaN.
    overflow: f64,
    has_negative_zero: bool,
}

impl SmallFloat {
    fn of(element: Element) -> Option<SmallFloat> {
        let (stored, least, greatest, overflow, has_negative_zero) = match element {
            Element::Float8E4M3FN => (3, -6, 448.0, f64::NAN, true),
            Element::Float8E4M3FNUZ => (3, -7, 240.0, f64::NAN, false),
            Element::Float8E5M2 => (2, -14, 57344.0, f64::INFINITY, true),
            Element::Float8E5M2FNUZ => (2, -15, 57344.0, f64::NAN, false),
            // It has no special values: it always saturates, and NaN becomes -0, as in ONNX's tests.
            Element::Float4E2M1 => (1, 0, 6.0, 6.0, true),
            _ => return None,
        };
        Some(SmallFloat { stored, least, greatest, overflow, has_negative_zero })
    }

    /// The nearest numbers of the format, of two the even one. `x` is `float32` or `float64`.
    fn rounded(&self, x: &Tensor, saturates: bool) -> phynexus::Result<Tensor> {
        // All steps are exact but `round`: they scale by powers of two.
        let step = leading_power(x)?.maximum_scalar(f64::from(self.least).exp2())?;
        let step = step.mul_scalar(f64::from(-self.stored).exp2())?;
        let whole = x.div(&step)?.round()?.mul(&step)?;
        let whole = if self.has_negative_zero {
            whole
        } else {
            whole.eq_scalar(0)?.where_(&x.zeros_like()?, &whole)?
        };
        let limit = if saturates { self.greatest } else { self.overflow };
        let is_above = x.isinf()?.logical_or(&whole.abs()?.gt_scalar(self.greatest)?)?;
        let beyond = x.full_like(limit)?.copysign(x)?;
        let result = is_above.where_(&beyond, &whole)?;
        if self.overflow.is_finite() {
            return x.isnan()?.where_(&x.full_like(-0.0)?, &result);
        }
        Ok(result)
    }
}

/// The greatest power of two up to the magnitude, of normal numbers: their exponents. 0 of subnormal numbers.
fn leading_power(x: &Tensor) -> phynexus::Result<Tensor> {
    let (integer, exponent) = match x.dtype() {
        DType::F64 => (DType::I64, Scalar::Int(0x7ff0_0000_0000_0000)),
        _ => (DType::I32, Scalar::Int(0x7f80_0000)),
    };
    x.bitcast(integer)?.and_scalar(exponent)?.bitcast(x.dtype())
}

/// `float32` numbers as the powers of two that `float8e8m0` has, from 2^-127 to 2^127.
fn power_of_two(x: &Tensor, conversion: Conversion) -> phynexus::Result<Tensor> {
    let bits = x.bitcast(DType::I32)?.and_scalar(0x7fff_ffff)?;
    // What is added before the significand is dropped, and the greatest subnormal number that becomes 2^-127.
    let (added, subnormal) = match conversion.rounding {
        Rounding::Up => (0x7f_ffff, 0x40_0000),
        Rounding::Nearest => (0x40_0000, 0x5f_ffff),
        Rounding::Down => (0, 0x7f_ffff),
    };
    // Of infinity and NaN, only the test below counts.
    let normal = bits.minimum_scalar(0x7f7f_ffff)?.add_scalar(added)?.shift_right_scalar(23)?;
    let small = bits.gt_scalar(subnormal)?.to_dtype(DType::I32)?;
    let code = bits.lt_scalar(0x80_0000)?.where_(&small, &normal)?;
    let code = bits.ge_scalar(0x7f80_0000)?.where_(&code.full_like(255)?, &code)?;
    let (code, is_nan) = if conversion.saturates {
        (code.minimum_scalar(254)?, x.isnan()?)
    } else {
        let is_nan = code.ge_scalar(255)?.logical_or(&bits.lt_scalar(0x40_0000)?)?;
        (code.minimum_scalar(254)?, is_nan)
    };
    // The bits of 2^-127, which is subnormal, for the code 0.
    let value = code.shift_left_scalar(23)?.maximum_scalar(0x40_0000)?.bitcast(DType::F32)?;
    is_nan.where_(&value.full_like(f64::NAN)?, &value)
}

/// The numbers that strings are, in a dtype from which the element type is made.
fn parsed(text: &Text, to: Element, device: Device) -> Result<Tensor> {
    fn all<T>(text: &Text, parse: impl Fn(&str) -> Option<T>) -> Result<Vec<T>> {
        let parsed = text.values.iter().map(|value| {
            parse(value.trim()).ok_or_else(|| Error::invalid(format!("the string {value:?} is not a number")))
        });
        parsed.collect()
    }
    let float = |value: &str| value.parse::<f64>().ok();
    let shape = &text.shape;
    let dtype = to.dtype().ok_or_else(|| Error::unsupported(format!("conversion of strings to {to:?}")))?;
    Ok(match dtype {
        DType::F32 => Tensor::from_slice(&all(text, |value| value.parse::<f32>().ok())?, shape, device)?,
        dtype if dtype.is_float() => Tensor::from_slice(&all(text, float)?, shape, device)?,
        DType::Bool => {
            let parse = |value: &str| match value {
                "True" | "true" => Some(true),
                "False" | "false" => Some(false),
                _ => float(value).map(|number| number != 0.0),
            };
            Tensor::from_slice(&all(text, parse)?, shape, device)?
        }
        DType::U64 => {
            let parse =
                |value: &str| value.parse::<u64>().ok().or_else(|| float(value).map(|number| number as u64));
            Tensor::from_slice(&all(text, parse)?, shape, device)?
        }
        _ => {
            let parse =
                |value: &str| value.parse::<i64>().ok().or_else(|| float(value).map(|number| number as i64));
            Tensor::from_slice(&all(text, parse)?, shape, device)?
        }
    })
}

/// Numbers as strings, floats with as few digits as tell them from their neighbours in 32 or 64 bits.
fn written(tensor: &Tensor) -> Result<Text> {
    fn float(text: String, value: f64) -> String {
        match value {
            _ if value.is_nan() => "NaN".to_owned(),
            _ if value.is_infinite() => if value > 0.0 { "INF" } else { "-INF" }.to_owned(),
            _ if text.contains('.') => text,
            _ => text + ".0",
        }
    }
    let values = match tensor.dtype() {
        DType::F64 => tensor.to_vec::<f64>()?.into_iter().map(|x| float(x.to_string(), x)).collect(),
        dtype if dtype.is_float() => {
            let values = tensor.to_dtype(DType::F32)?.to_vec::<f32>()?;
            values.into_iter().map(|x| float(x.to_string(), x.into())).collect()
        }
        DType::Bool => {
            let name = |value| if value { "True" } else { "False" };
            tensor.to_vec::<bool>()?.into_iter().map(|value| name(value).to_owned()).collect()
        }
        DType::U64 => tensor.to_vec::<u64>()?.iter().map(u64::to_string).collect(),
        _ => tensor.to_dtype(DType::I64)?.to_vec::<i64>()?.iter().map(i64::to_string).collect(),
    };
    Ok(Text { shape: tensor.shape().to_vec(), values })
}

pub(super) fn bit_cast(call: &Call<'_>) -> Result<Vec<Value>> {
    let to = call.element("to")?.ok_or_else(|| Error::invalid("the attribute \"to\" is missing"))?;
    let from = call.value(0)?.element().ok_or_else(|| Error::invalid("only tensors have bits"))?;
    if from == to {
        return Ok(vec![call.value(0)?.clone()]);
    }
    let refused = || Error::unsupported(format!("BitCast from {from:?} to {to:?}"));
    let dtype = to.dtype().ok_or_else(refused)?;
    let x = call.tensor(0)?;
    if from.bits() != to.bits() {
        return Err(Error::invalid(format!("{from:?} and {to:?} have different numbers of bits")));
    }
    if from.is_narrow() || to.is_narrow() {
        let is_integer =
            |element| matches!(element, Element::Int4 | Element::Uint4 | Element::Int2 | Element::Uint2);
        if is_integer(from) && is_integer(to) {
            return Ok(vec![Value::of_element(low_bits(&x, to)?.to_dtype(dtype)?, to)]);
        }
        return Err(refused());
    }
    let x = if from == Element::Bool { x.to_dtype(DType::U8)? } else { x };
    one(if to == Element::Bool { x.bitcast(DType::U8)?.to_dtype(DType::Bool)? } else { x.bitcast(dtype)? })
}
