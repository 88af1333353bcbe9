//! Products of quantized matrices and images: sums of 32-bit integers, modulo 2^32.
//!
//! With zero points, `sum (a - za) (b - zb) = sum a b - za (sum b - k zb) - zb sum a` for sums of k products.

use phynexus::{DType, Tensor, schedule::capture};

use super::{
    factor::{Factor, Integers},
    saturated,
    zero_point::{ZeroPoint, stored_number},
};
use crate::{
    Element, Error, Result, Value,
    graph::{Call, one},
    ops::linear::{
        convolution::{convolve_as, groups, kernel_of, per_channel},
        window::{Window, pad_spatial, spatial, windows},
    },
};

/// The matrix product of integers less their zero points, `[.., M, K]` times `[.., K, N]`.
fn matmul(a: Integers, b: Integers) -> Result<Tensor> {
    let (is_row, is_column) = (a.tensor.rank() == 1, b.tensor.rank() == 1);
    let rows = if is_row { a.tensor.unsqueeze(0)? } else { a.tensor.clone() };
    let columns = if is_column { b.tensor.unsqueeze(1)? } else { b.tensor.clone() };
    let count = rows.shape().last().copied().unwrap_or(0);
    let ones = |shape: &[usize]| Tensor::ones(shape, rows.dtype(), rows.device());
    let sums = rows.matmul_as(&columns, DType::I32)?;
    let sums = corrected(
        sums,
        [&a.zero_point, &b.zero_point],
        || computed_once(a.is_constant, || Ok(rows.matmul_as(&ones(&[count, 1])?, DType::I32)?)),
        || computed_once(b.is_constant, || Ok(ones(&[1, count])?.matmul_as(&columns, DType::I32)?)),
        count,
    )?;
    let sums = if is_column { sums.squeeze(-1)? } else { sums };
    Ok(if is_row { sums.squeeze(if is_column { -1 } else { -2 })? } else { sums })
}

/// The convolution of images less their zero point, which is one number, with a weight less its zero points.
fn convolution(mut x: Integers, weight: Integers, windows: &[Window], groups: usize) -> Result<Tensor> {
    let mut windows = windows.to_vec();
    if !x.zero_point.is_zero() {
        // What padding stands for is 0.
        let sides: Vec<(usize, usize)> = windows.iter().map(|w| (w.before, w.after)).collect();
        x.tensor = padded(&x, &sides)?;
        windows.iter_mut().for_each(|window| (window.before, window.after) = (0, 0));
    }
    let filter = weight.tensor.shape();
    let (Some(&outputs), taken) = (filter.first(), filter.get(1..).unwrap_or_default()) else {
        return Err(Error::invalid("the weight of a convolution has no dimensions"));
    };
    let count: usize = taken.iter().product();
    let ones = |shape: &[usize]| Tensor::ones(shape, weight.tensor.dtype(), weight.tensor.device());
    let sums = convolve_as(&x.tensor, &weight.tensor, None, &windows, groups, DType::I32)?;
    corrected(
        sums,
        [&x.zero_point, &weight.zero_point],
        || {
            // The sums of a group are those of all of its channels.
            let ones = ones(&[&[groups], taken].concat())?;
            let sums = convolve_as(&x.tensor, &ones, None, &windows, groups, DType::I32)?;
            Ok(sums.repeat_interleave(outputs / groups, 1)?)
        },
        || {
            computed_once(weight.is_constant, || {
                let rows = weight.tensor.reshape(&[outputs, count])?;
                let sums = rows.matmul_as(&ones(&[count, 1])?, DType::I32)?;
                per_channel(&sums.reshape(&[outputs])?, windows.len())
            })
        },
        count,
    )
}

/// Sums of products, for given sums of `count` products of integers with these zero points. `sum_a` and `sum_b` give
/// the sums of the factors.
fn corrected(
    mut sums: Tensor,
    [a, b]: [&ZeroPoint; 2],
    sum_a: impl FnOnce() -> Result<Tensor>,
    sum_b: impl FnOnce() -> Result<Tensor>,
    count: usize,
) -> Result<Tensor> {
    if !a.is_zero() {
        let sum = sum_b()?;
        let zeros = b.times(&Tensor::full(&[], count as i64, DType::I32, sum.device())?)?;
        let sum = zeros.map_or_else(|| Ok(sum.clone()), |zeros| sum.sub(&zeros))?;
        sums = a.times(&sum)?.map_or_else(|| Ok(sums.clone()), |product| sums.sub(&product))?;
    }
    if !b.is_zero() {
        sums = b.times(&sum_a()?)?.map_or_else(|| Ok(sums.clone()), |product| sums.sub(&product))?;
    }
    Ok(sums)
}

/// Sums that a captured function does not compute again if their integers are constant.
fn computed_once(is_constant: bool, sums: impl FnOnce() -> Result<Tensor>) -> Result<Tensor> {
    match is_constant && capture::is_recording() {
        true => capture::outside(|| Ok(sums()?.evaluated()?)),
        false => sums(),
    }
}

/// Images padded with their zero point.
fn padded(x: &Integers, sides: &[(usize, usize)]) -> Result<Tensor> {
    let padding = || sides.iter().copied();
    match &x.zero_point {
        ZeroPoint::Number(zero) => pad_spatial(&x.tensor, padding(), *zero),
        ZeroPoint::Tensor(zero) if sides.iter().any(|&side| side != (0, 0)) => {
            let inside = Tensor::ones(x.tensor.shape(), DType::Bool, x.tensor.device())?;
            let inside = pad_spatial(&inside, padding(), false)?;
            let zero = zero.to_dtype(x.tensor.dtype())?;
            Ok(inside.where_(&pad_spatial(&x.tensor, padding(), 0)?, &zero)?)
        }
        ZeroPoint::Tensor(_) => Ok(x.tensor.clone()),
    }
}

/// The matrix product of inputs 0 and 1, transposed as said, times `alpha`, computed with the integers that they stand
/// for. `None` if they have none, or their sums could exceed `int32`.
pub(in crate::ops) fn dequantized_matmul(
    call: &Call<'_>,
    [transposes_a, transposes_b]: [bool; 2],
    alpha: f64,
) -> Result<Option<Tensor>> {
    let axis = |input: usize, from_end: usize| -> Result<Option<usize>> {
        Ok(call.value(input)?.shape()?.len().checked_sub(from_end))
    };
    let rows = if transposes_a { axis(0, 1)? } else { axis(0, 2)? };
    let columns = if transposes_b { axis(1, 2)? } else { axis(1, 1)? };
    let is_vector = call.value(1)?.shape()?.len() < 2;
    // The product with a vector has no axis after its rows.
    let Some(a) = Factor::of_input(call, 0, rows.filter(|_| !is_vector), 1)? else { return Ok(None) };
    let Some(b) = Factor::of_input(call, 1, columns.filter(|_| !is_vector), 0)? else { return Ok(None) };
    let turned = |integers: &Integers, transposes: bool| -> Result<Integers> {
        let tensor = if transposes { integers.tensor.t()? } else { integers.tensor.clone() };
        Ok(Integers { tensor, ..integers.clone() })
    };
    let (left, right) = (turned(&a.integers, transposes_a)?, turned(&b.integers, transposes_b)?);
    if !a.fits(&b, left.tensor.shape().last().copied().unwrap_or(0)) {
        return Ok(None);
    }
    a.scaled(&b, &matmul(left, right)?, alpha).map(Some)
}

/// The convolution that a node describes, without the bias, computed with the integers that its inputs stand for.
/// `None` if they have none, or their sums could exceed `int32`.
pub(in crate::ops) fn dequantized_conv(
    call: &Call<'_>,
    windows: &[Window],
    groups: usize,
) -> Result<Option<Tensor>> {
    let Some(x) = Factor::of_input(call, 0, None, 0)? else { return Ok(None) };
    let Some(weight) = Factor::of_input(call, 1, Some(0), windows.len())? else { return Ok(None) };
    if !x.fits(&weight, weight.integers.tensor.shape().iter().skip(1).product()) {
        return Ok(None);
    }
    let sums = convolution(x.integers.clone(), weight.integers.clone(), windows, groups)?;
    x.scaled(&weight, &sums, 1.0).map(Some)
}

/// The factors of a matrix product, with a zero point for each row of the first or for each column of the second.
fn matrices(call: &Call<'_>, a: [usize; 2], b: [usize; 2]) -> Result<(Integers, Integers)> {
    // One number along the axis of the sums, and as many as the matrix has along others.
    let fits = |data: &Tensor, given: &Tensor, from_end: usize| {
        let own = data.shape().iter().rev().enumerate();
        given.rank() <= data.rank()
            && own
                .zip(given.shape().iter().rev())
                .all(|((place, &size), &extent)| extent == 1 || extent == size && place + 1 != from_end)
    };
    let rows = Integers::of_inputs(call, a, |data, given| {
        let shaped = if given.rank() == 1 { given.unsqueeze(1)? } else { given.clone() };
        Ok(Some(shaped).filter(|shaped| fits(data, shaped, 1)))
    })?;
    let columns =
        Integers::of_inputs(call, b, |data, given| Ok(Some(given.clone()).filter(|own| fits(data, own, 2))))?;
    Ok((rows, columns))
}

/// The factors of a convolution, with one zero point of the images, and one or one for each output of the weight.
fn images(call: &Call<'_>, x: [usize; 2], weight: [usize; 2]) -> Result<(Integers, Integers)> {
    let images = Integers::of_inputs(call, x, |_, _| Ok(None))?;
    let filters = Integers::of_inputs(call, weight, |data, given| match data.shape() {
        [outputs, rest @ ..] if given.shape() == [*outputs] && !rest.is_empty() => {
            per_channel(given, rest.len() - 1).map(Some)
        }
        _ => Ok(None),
    })?;
    Ok((images, filters))
}

pub(super) fn matmul_integer(call: &Call<'_>) -> Result<Vec<Value>> {
    let (a, b) = matrices(call, [0, 2], [1, 3])?;
    one(matmul(a, b)?)
}

pub(super) fn quantized_matmul(call: &Call<'_>) -> Result<Vec<Value>> {
    let (a, b) = matrices(call, [0, 2], [3, 5])?;
    let product = matmul(a, b)?;
    let per_row = |given: Tensor| match given.shape() {
        &[rows] => given.reshape(&[rows, 1]),
        _ => Ok(given),
    };
    let scales = [per_row(parameter(call, 1)?)?, parameter(call, 4)?, per_row(parameter(call, 6)?)?];
    let zero_point = per_row(parameter(call, 7)?)?;
    requantized(call, &product, scales, zero_point)
}

pub(super) fn conv_integer(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, weight) = images(call, [0, 2], [1, 3])?;
    one(node_convolution(call, x, weight)?)
}

pub(super) fn quantized_conv(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, weight) = images(call, [0, 2], [3, 5])?;
    let mut sums = node_convolution(call, x, weight)?;
    let spatial = sums.rank().saturating_sub(2);
    if call.has(8) {
        sums = sums.add(&per_channel(&call.tensor(8)?, spatial)?)?;
    }
    let per_output = |given: Tensor| if given.rank() == 1 { per_channel(&given, spatial) } else { Ok(given) };
    let scales = [parameter(call, 1)?, per_output(parameter(call, 4)?)?, parameter(call, 6)?];
    let zero_point = parameter(call, 7)?;
    requantized(call, &sums, scales, zero_point)
}

/// The convolution that the node's attributes describe.
fn node_convolution(call: &Call<'_>, x: Integers, weight: Integers) -> Result<Tensor> {
    let windows = windows(call, spatial(&x.tensor)?, &kernel_of(call, &weight.tensor)?)?;
    convolution(x, weight, &windows, groups(call, "group")?)
}

/// A scale or a zero point. One number has no dimensions.
fn parameter(call: &Call<'_>, input: usize) -> Result<Tensor> {
    let given = call.tensor(input)?;
    Ok(if given.shape() == [1] { given.reshape(&[])? } else { given })
}

/// Sums of products, with the scales of both factors and of the result, as elements of the result's type, which is that
/// of its zero point, input 7.
fn requantized(
    call: &Call<'_>,
    sums: &Tensor,
    [a, b, result]: [Tensor; 3],
    zero_point: Tensor,
) -> Result<Vec<Value>> {
    let target = call.value(7)?.element().unwrap_or(Element::Uint8);
    let wide = |scale: Tensor| scale.to_dtype(DType::F32);
    let factor = wide(a)?.mul(&wide(b)?)?.div(&wide(result)?)?;
    let quotient = sums.to_dtype(DType::F32)?.mul(&factor)?;
    if quotient.shape() != sums.shape() {
        return Err(Error::invalid("the scales do not fit the result's shape"));
    }
    let zero_point = stored_number(call, 7)?.map_or(ZeroPoint::Tensor(zero_point), ZeroPoint::Number);
    Ok(vec![saturated(&quotient, &zero_point, target, true)?])
}
