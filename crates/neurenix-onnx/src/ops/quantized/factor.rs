//! Factors of products of integers.

use phynexus::{DType, Tensor};

use super::zero_point::{ZeroPoint, stored_number};
use crate::{Error, Result, Value, graph::Call};

/// Integers of 8 bits, and the one that stands for 0.
#[derive(Clone, Debug)]
pub(super) struct Integers {
    pub(super) tensor: Tensor,
    /// It broadcasts to the product.
    pub(super) zero_point: ZeroPoint,
    /// Whether they are the same in every run.
    pub(super) is_constant: bool,
}

impl Integers {
    /// Inputs of a node: integers, and a zero point if it is given. `shaped` returns the zero point in a shape that
    /// broadcasts to the product, or `None` if its shape does not fit.
    pub(super) fn of_inputs(
        call: &Call<'_>,
        [input, zero_point]: [usize; 2],
        shaped: impl FnOnce(&Tensor, &Tensor) -> Result<Option<Tensor>>,
    ) -> Result<Integers> {
        let (tensor, is_constant) = (call.tensor(input)?, call.is_constant(input));
        if !call.has(zero_point) {
            return Ok(Integers { tensor, zero_point: ZeroPoint::Number(0), is_constant });
        }
        let given = call.tensor(zero_point)?;
        let wrong = || {
            Error::invalid(format!(
                "zero points of the shape {:?} do not fit input {input} of the shape {:?}",
                given.shape(),
                tensor.shape()
            ))
        };
        let shaped = match given.len() == 1 && given.rank() <= 1 {
            true => given.reshape(&[])?,
            false => shaped(&tensor, &given)?.ok_or_else(wrong)?,
        };
        let zero_point =
            stored_number(call, zero_point)?.map_or(ZeroPoint::Tensor(shaped), ZeroPoint::Number);
        Ok(Integers { tensor, zero_point, is_constant })
    }

    /// The greatest distance from the zero point.
    fn greatest(&self) -> u64 {
        let (least, most) = if self.tensor.dtype() == DType::U8 { (0, 255) } else { (-128, 127) };
        match self.zero_point {
            ZeroPoint::Number(zero) => (most - zero).unsigned_abs().max((zero - least).unsigned_abs()),
            ZeroPoint::Tensor(_) => 255,
        }
    }
}

/// A factor that stands for floats.
pub(super) struct Factor {
    pub(super) integers: Integers,
    /// Its scale in `float32`, which broadcasts to the product.
    pub(super) scale: Tensor,
    /// The least and the greatest magnitude of the scale, if it can be read.
    magnitudes: Option<(f64, f64)>,
    /// The dtype of the floats.
    pub(super) dtype: DType,
}

impl Factor {
    /// The integers of an input. `None` if it has none, if they have 16 bits, or if their scale changes along another
    /// axis than `kept`, which is followed by `trailing` axes in the product.
    ///
    /// Sums of products of 16-bit integers could exceed `int32`: these are multiplied as floats.
    pub(super) fn of_input(
        call: &Call<'_>,
        input: usize,
        kept: Option<usize>,
        trailing: usize,
    ) -> Result<Option<Factor>> {
        let Value::Dequantized(dequantized) = call.value(input)? else { return Ok(None) };
        let quantization = &dequantized.quantization;
        if dequantized.integers.dtype().size() != 1
            || quantization.axis.is_some() && quantization.axis != kept
        {
            return Ok(None);
        }
        let shaped = |parameter: &Tensor| -> Result<Tensor> {
            let mut shape = Vec::new();
            if quantization.axis.is_some() && parameter.len() != 1 {
                shape.resize(trailing + 1, 1);
                shape[0] = parameter.len();
            }
            Ok(parameter.to_device(call.device)?.reshape(&shape)?)
        };
        let zero_point = match (quantization.zero, &quantization.zero_point) {
            (Some(zero), _) => ZeroPoint::Number(zero),
            (None, Some(tensor)) => ZeroPoint::Tensor(shaped(tensor)?),
            (None, None) => ZeroPoint::Number(0),
        };
        let tensor = dequantized.integers.to_device(call.device)?;
        let magnitudes = quantization.scales.as_ref().map(|scales| {
            let magnitudes = scales.iter().map(|scale| scale.abs());
            // NaN is kept.
            magnitudes.fold((f64::INFINITY, 0.0), |(least, most): (f64, f64), own| match own.is_nan() {
                true => (own, own),
                false => (if own < least { own } else { least }, if own > most { own } else { most }),
            })
        });
        Ok(Some(Factor {
            integers: Integers { tensor, zero_point, is_constant: dequantized.is_constant },
            scale: shaped(&quantization.scale)?.to_dtype(DType::F32)?,
            magnitudes,
            dtype: dequantized.tensor.dtype(),
        }))
    }

    /// Whether sums of so many products with another factor of the same dtype are within `int32`.
    pub(super) fn fits(&self, other: &Factor, count: usize) -> bool {
        let product = self.integers.greatest() * other.integers.greatest();
        self.dtype == other.dtype && product.saturating_mul(count as u64) <= i32::MAX as u64
    }

    /// The floats that sums of products with another factor stand for, times `alpha`.
    pub(super) fn scaled(&self, other: &Factor, sums: &Tensor, alpha: f64) -> Result<Tensor> {
        let product = self.scale.mul(&other.scale)?;
        let product = if alpha == 1.0 { product } else { product.mul_scalar(alpha)? };
        let sums = sums.to_dtype(DType::F32)?;
        let (least, most) = (f64::from(f32::MIN_POSITIVE), f64::from(f32::MAX));
        let is_normal = self.magnitudes.zip(other.magnitudes).is_some_and(|(own, other)| {
            own.0 * other.0 * alpha.abs() >= least
                && [own.1 * other.1, own.1 * other.1 * alpha.abs()].iter().all(|&product| product <= most)
        });
        if is_normal {
            return Ok(sums.mul(&product)?.to_dtype(self.dtype)?);
        }
        // A product that is infinite, or has lost digits, gives way to its factors.
        let magnitude = product.abs()?;
        let is_normal = magnitude.ge_scalar(least)?.logical_and(&magnitude.le_scalar(most)?)?;
        let one = Tensor::ones(&[], DType::F32, product.device())?;
        let mut scaled = sums.mul(&is_normal.where_(&product, &self.scale)?)?;
        if alpha != 1.0 {
            scaled = scaled.mul(&is_normal.where_(&one, &one.mul_scalar(alpha)?)?)?;
        }
        let scaled = scaled.mul(&is_normal.where_(&one, &other.scale)?)?;
        Ok(scaled.to_dtype(self.dtype)?)
    }
}
