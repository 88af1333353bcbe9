//! Products of quantized matrices and images: sums of 32-bit integers.

use phynexus::{DType, Tensor};

use super::saturated;
use crate::{
    Element, Error, Result, Value,
    graph::{Call, one},
    ops::linear::{
        convolution::{convolve, groups, kernel_of},
        window::{spatial, windows},
    },
};

/// Which vectors of a matrix a parameter has one number for.
#[derive(Clone, Copy)]
enum Along {
    Rows,
    Columns,
    /// The output channels of images or of a convolution's weight, on this axis.
    Channels(usize),
}

/// A scale or a zero point, in a shape that broadcasts to that of a tensor of this rank.
fn parameter(call: &Call<'_>, input: usize, along: Along, rank: usize) -> Result<Tensor> {
    let given = call.tensor(input)?;
    Ok(match (along, given.shape()) {
        (_, &[] | &[1]) => given.reshape(&[])?,
        (Along::Rows, &[rows]) => given.reshape(&[rows, 1])?,
        (Along::Channels(axis), &[channels]) => {
            let mut shape = vec![1; rank];
            *shape.get_mut(axis).ok_or_else(|| Error::invalid("images have at least 3 dimensions"))? =
                channels;
            given.reshape(&shape)?
        }
        _ => given,
    })
}

/// An input less its zero point, as 32-bit integers.
fn centred(call: &Call<'_>, input: usize, zero_point: usize, along: Along) -> Result<Tensor> {
    let x = call.tensor(input)?;
    let wide = x.to_dtype(DType::I32)?;
    if !call.has(zero_point) {
        return Ok(wide);
    }
    let zero_point = parameter(call, zero_point, along, x.shape().len())?;
    let centred = wide.sub(&zero_point.to_dtype(DType::I32)?)?;
    if centred.shape() != x.shape() {
        return Err(Error::invalid(format!(
            "the zero points of input {input} do not fit its shape {:?}",
            x.shape()
        )));
    }
    Ok(centred)
}

pub(super) fn matmul_integer(call: &Call<'_>) -> Result<Vec<Value>> {
    let (a, b) = (call.tensor(0)?, call.tensor(1)?);
    if a.dtype() == b.dtype() && !call.has(2) && !call.has(3) {
        return one(a.matmul_as(&b, DType::I32)?);
    }
    one(centred(call, 0, 2, Along::Rows)?.matmul(&centred(call, 1, 3, Along::Columns)?)?)
}

pub(super) fn quantized_matmul(call: &Call<'_>) -> Result<Vec<Value>> {
    let product = centred(call, 0, 2, Along::Rows)?.matmul(&centred(call, 3, 5, Along::Columns)?)?;
    let rank = product.shape().len();
    let scales = [
        parameter(call, 1, Along::Rows, rank)?,
        parameter(call, 4, Along::Columns, rank)?,
        parameter(call, 6, Along::Rows, rank)?,
    ];
    let zero_point = parameter(call, 7, Along::Rows, rank)?;
    requantized(call, &product, scales, &zero_point, call.value(7)?.element())
}

pub(super) fn conv_integer(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, weight) = (centred(call, 0, 2, Along::Channels(1))?, centred(call, 1, 3, Along::Channels(0))?);
    one(convolution(call, &x, &weight)?)
}

pub(super) fn quantized_conv(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, weight) = (centred(call, 0, 2, Along::Channels(1))?, centred(call, 3, 5, Along::Channels(0))?);
    let mut sum = convolution(call, &x, &weight)?;
    let rank = sum.shape().len();
    if call.has(8) {
        sum = sum.add(&parameter(call, 8, Along::Channels(1), rank)?)?;
    }
    let scales = [
        parameter(call, 1, Along::Channels(1), rank)?,
        parameter(call, 4, Along::Channels(1), rank)?,
        parameter(call, 6, Along::Channels(1), rank)?,
    ];
    let zero_point = parameter(call, 7, Along::Channels(1), rank)?;
    requantized(call, &sum, scales, &zero_point, call.value(7)?.element())
}

/// Sums of products, with the scales of both factors and of the result, as elements of the result's type.
fn requantized(
    call: &Call<'_>,
    sum: &Tensor,
    [a, b, result]: [Tensor; 3],
    zero_point: &Tensor,
    target: Option<Element>,
) -> Result<Vec<Value>> {
    let target = target.ok_or_else(|| Error::invalid("the zero point of the result must be a tensor"))?;
    let wide = |scale: Tensor| scale.to_dtype(DType::F32);
    let factor = wide(a)?.mul(&wide(b)?)?.div(&wide(result)?)?;
    let quotient = sum.to_dtype(DType::F32)?.mul(&factor)?;
    if quotient.shape() != sum.shape() {
        return Err(Error::invalid(format!(
            "{}: the scales do not fit the result's shape",
            call.node.operator
        )));
    }
    Ok(vec![saturated(&quotient, Some(zero_point), target, true)?])
}

/// The convolution that the node's attributes describe.
fn convolution(call: &Call<'_>, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
    let windows = windows(call, spatial(x)?, &kernel_of(call, weight)?)?;
    convolve(x, weight, None, &windows, groups(call, "group")?)
}
