//! Convolutions.

use phynexus::{DType, Tensor};

use super::window::{Window, each, numbers, pad_spatial, spatial, too_many_axes, windows};
use crate::{
    Error, Result, Value,
    graph::{Call, one},
    ops::quantized::product::dequantized_conv,
};

/// The convolution of `[N, C, spatial..]` with `[O, C / groups, kernel..]`.
pub(in crate::ops) fn convolve(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    windows: &[Window],
    groups: usize,
) -> Result<Tensor> {
    convolve_as(x, weight, bias, windows, groups, x.dtype().promote(weight.dtype()))
}

/// [`convolve`] with sums and a result of this dtype.
pub(in crate::ops) fn convolve_as(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    windows: &[Window],
    groups: usize,
    dtype: DType,
) -> Result<Tensor> {
    // The engine pads both sides equally.
    let shared = |window: &Window| window.before.min(window.after);
    let rest = windows.iter().map(|w| (w.before - shared(w), w.after - shared(w)));
    let x = pad_spatial(x, rest, 0)?;
    macro_rules! apply {
        ($method:ident) => {
            x.$method(
                weight,
                bias,
                each(windows, |w| w.stride),
                each(windows, |w| w.before.min(w.after)),
                each(windows, |w| w.dilation),
                groups,
                dtype,
            )?
        };
    }
    Ok(match windows.len() {
        1 => apply!(conv1d_as),
        2 => apply!(conv2d_as),
        3 => apply!(conv3d_as),
        _ => return Err(too_many_axes(windows)),
    })
}

/// The attribute `group` or `offset_group`.
pub(in crate::ops) fn groups(call: &Call<'_>, name: &str) -> Result<usize> {
    let groups = call.int_or(name, 1)?;
    let wrong = || Error::invalid(format!("{name} must be at least 1, it is {groups}"));
    usize::try_from(groups).ok().filter(|&groups| groups > 0).ok_or_else(wrong)
}

/// The extents of the weight's kernel, with which the attribute `kernel_shape` must agree.
pub(in crate::ops) fn kernel_of(call: &Call<'_>, weight: &Tensor) -> Result<Vec<usize>> {
    let kernel = spatial(weight)?.to_vec();
    let declared = call.ints("kernel_shape")?.filter(|declared| !declared.is_empty());
    let agrees =
        |declared: &Vec<i64>| declared.iter().copied().eq(kernel.iter().map(|&extent| extent as i64));
    match declared.filter(|declared| !agrees(declared)) {
        Some(declared) => {
            Err(Error::invalid(format!("kernel_shape is {declared:?}, the weight's kernel {kernel:?}")))
        }
        None => Ok(kernel),
    }
}

pub(super) fn conv(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, weight, bias) = (call.tensor(0)?, call.tensor(1)?, call.optional(2)?);
    let windows = windows(call, spatial(&x)?, &kernel_of(call, &weight)?)?;
    let groups = groups(call, "group")?;
    let Some(y) = dequantized_conv(call, &windows, groups)? else {
        return one(convolve(&x, &weight, bias.as_ref(), &windows, groups)?);
    };
    one(match bias {
        Some(bias) => y.add(&per_channel(&bias, windows.len())?)?,
        None => y,
    })
}

/// What a transposed convolution keeps along an axis: `outputs` elements, after the first `before`, of all `full` that
/// the kernels reach. Elements beyond these are zeros.
struct Part {
    before: usize,
    outputs: usize,
    full: usize,
}

impl Part {
    /// The output padding with which the engine gives this part of a result padded by `before`.
    fn output_padding(&self, window: &Window) -> Option<usize> {
        let extra = self.outputs.saturating_add(self.before.saturating_mul(2)).checked_sub(self.full)?;
        let after = self.before.saturating_sub(extra);
        (extra < window.stride.max(window.dilation) && self.before + after < self.full).then_some(extra)
    }
}

pub(super) fn conv_transpose(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, weight, bias) = (call.tensor(0)?, call.tensor(1)?, call.optional(2)?);
    let (sizes, kernel) = (spatial(&x)?, kernel_of(call, &weight)?);
    let (count, groups) = (sizes.len(), groups(call, "group")?);
    if kernel.len() != count || sizes.contains(&0) {
        return Err(Error::invalid(format!("a kernel {kernel:?} does not fit the spatial sizes {sizes:?}")));
    }
    let strides = numbers(call, "strides", count, 1, 1)?;
    let dilations = numbers(call, "dilations", count, 1, 1)?;
    let pads = numbers(call, "pads", 2 * count, 0, 0)?;
    let extras = numbers(call, "output_padding", count, 0, 0)?;
    let mode = call.string_or("auto_pad", "NOTSET")?;
    let targets: Option<Vec<usize>> = match mode {
        _ if call.has_attribute("output_shape") => Some(numbers(call, "output_shape", count, 1, 1)?),
        "NOTSET" | "VALID" | "" => None,
        "SAME_UPPER" | "SAME_LOWER" => {
            Some(sizes.iter().zip(&strides).map(|(n, stride)| n.saturating_mul(*stride)).collect())
        }
        other => return Err(Error::invalid(format!("there is no auto_pad {other:?}"))),
    };
    let (mut windows, mut parts) = (Vec::new(), Vec::new());
    for (axis, (&size, &kernel)) in sizes.iter().zip(&kernel).enumerate() {
        let (stride, dilation, extra) = (strides[axis], dilations[axis], extras[axis]);
        let (mut before, mut after) = if mode == "VALID" { (0, 0) } else { (pads[axis], pads[count + axis]) };
        let window = Window { size, kernel, stride, dilation, before: 0, after: 0, outputs: size };
        let full = (size - 1).saturating_mul(stride).saturating_add(window.span());
        let long = full.saturating_add(extra);
        if let Some(target) = targets.as_ref().and_then(|targets| targets.get(axis)) {
            let total = long.saturating_sub(*target);
            before = if mode == "SAME_UPPER" { total / 2 } else { total.div_ceil(2) };
            after = total - before;
        }
        let outputs = match &targets {
            Some(targets) => targets[axis],
            None => long.saturating_sub(before + after),
        };
        if outputs == 0 {
            return Err(Error::invalid(format!("the padding {pads:?} leaves nothing of {long} elements")));
        }
        parts.push(Part { before, outputs, full });
        windows.push(window);
    }
    let direct: Option<Vec<usize>> =
        parts.iter().zip(&windows).map(|(part, window)| part.output_padding(window)).collect();
    if let Some(output_padding) = direct {
        let padding: Vec<usize> = parts.iter().map(|part| part.before).collect();
        return one(transposed(&x, &weight, bias.as_ref(), &windows, &padding, &output_padding, groups)?);
    }
    let none = vec![0; count];
    let mut y = transposed(&x, &weight, None, &windows, &none, &none, groups)?;
    let kept = |part: &Part| part.outputs.min(part.full.saturating_sub(part.before));
    for (axis, part) in parts.iter().enumerate() {
        y = y.narrow(axis as i64 + 2, part.before.min(part.full), kept(part))?;
    }
    let y = pad_spatial(&y, parts.iter().map(|part| (0, part.outputs - kept(part))), 0)?;
    one(match bias {
        Some(bias) => y.add(&per_channel(&bias, count)?)?,
        None => y,
    })
}

/// A vector with an element for each channel of `[N, C, spatial..]`.
pub(in crate::ops) fn per_channel(bias: &Tensor, spatial: usize) -> Result<Tensor> {
    let mut shape = vec![1; spatial + 1];
    shape[0] = bias.len();
    Ok(bias.reshape(&shape)?)
}

fn transposed(
    x: &Tensor,
    weight: &Tensor,
    bias: Option<&Tensor>,
    windows: &[Window],
    padding: &[usize],
    output_padding: &[usize],
    groups: usize,
) -> Result<Tensor> {
    macro_rules! apply {
        ($method:ident) => {
            x.$method(
                weight,
                bias,
                each(windows, |w| w.stride),
                std::array::from_fn(|axis| padding[axis]),
                std::array::from_fn(|axis| output_padding[axis]),
                groups,
                each(windows, |w| w.dilation),
            )?
        };
    }
    Ok(match windows.len() {
        1 => apply!(conv_transpose1d),
        2 => apply!(conv_transpose2d),
        3 => apply!(conv_transpose3d),
        _ => return Err(too_many_axes(windows)),
    })
}

/// A depthwise convolution of `[N, C, length]` with a past, and the past of the next call.
pub(super) fn causal_conv_with_state(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, weight, bias) = (call.tensor(0)?, call.tensor(1)?, call.optional(2)?);
    let (&[batch, channels, length], &[_, 1, kernel]) = (x.shape(), weight.shape()) else {
        let message =
            format!("expected [N, C, length] and [C, 1, kernel], got {:?}, {:?}", x.shape(), weight.shape());
        return Err(Error::invalid(message));
    };
    let kept = kernel.saturating_sub(1);
    let past = match call.optional(3)? {
        Some(past) => past,
        None => Tensor::zeros(&[batch, channels, kept], x.dtype(), x.device())?,
    };
    if past.shape() != [batch, channels, kept] {
        return Err(Error::invalid(format!(
            "past_state must be [N, C, kernel - 1], it is {:?}",
            past.shape()
        )));
    }
    let all = Tensor::cat(&[&past, &x], 2)?;
    let y = all.conv1d(&weight, bias.as_ref(), [1], [0], [1], channels)?;
    let y = match call.string_or("activation", "none")? {
        "none" => y,
        "silu" | "swish" => y.silu()?,
        other => {
            return Err(Error::invalid(format!(
                "the activation must be none, silu or swish, it is {other:?}"
            )));
        }
    };
    Ok(vec![y.into(), all.narrow(2, length, kept)?.into()])
}
