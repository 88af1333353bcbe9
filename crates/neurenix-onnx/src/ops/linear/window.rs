//! Windows that slide over the spatial axes of `[N, C, spatial..]`, for convolutions and pools.

use phynexus::{Scalar, Tensor};

use crate::{Error, Result, graph::Call};

/// The windows along an axis. Padding is what the node declares; the last windows may reach beyond it.
#[derive(Clone, Copy, Debug)]
pub(in crate::ops) struct Window {
    pub(in crate::ops) size: usize,
    pub(in crate::ops) kernel: usize,
    pub(in crate::ops) stride: usize,
    pub(in crate::ops) dilation: usize,
    pub(in crate::ops) before: usize,
    pub(in crate::ops) after: usize,
    pub(in crate::ops) outputs: usize,
}

impl Window {
    /// The elements from the first to the last of a window.
    pub(in crate::ops) fn span(&self) -> usize {
        span(self.kernel, self.dilation)
    }

    /// The padding at the end that all windows, and none beyond them, fit in.
    pub(in crate::ops) fn needed_after(&self) -> usize {
        let reach = self.outputs.saturating_sub(1).saturating_mul(self.stride).saturating_add(self.span());
        reach.saturating_sub(self.size.saturating_add(self.before))
    }
}

fn span(kernel: usize, dilation: usize) -> usize {
    kernel.saturating_sub(1).saturating_mul(dilation).saturating_add(1)
}

/// One number of each window, as the engine wants them.
pub(in crate::ops) fn each<const N: usize>(windows: &[Window], get: fn(&Window) -> usize) -> [usize; N] {
    std::array::from_fn(|axis| windows.get(axis).map_or(1, get))
}

/// A list attribute of `count` numbers from `least` on, by default all `default`.
pub(in crate::ops) fn numbers(
    call: &Call<'_>,
    name: &str,
    count: usize,
    least: usize,
    default: usize,
) -> Result<Vec<usize>> {
    let given = call.ints(name)?.filter(|given| !given.is_empty());
    let Some(given) = given else { return Ok(vec![default; count]) };
    let fits = |&number: &i64| {
        i32::try_from(number).ok().and_then(|n| usize::try_from(n).ok()).filter(|&n| n >= least)
    };
    let numbers: Option<Vec<usize>> = given.iter().map(fits).collect();
    let wrong = || {
        Error::invalid(format!("{name} must be {count} numbers from {least} to {}, got {given:?}", i32::MAX))
    };
    numbers.filter(|numbers| numbers.len() == count).ok_or_else(wrong)
}

/// The windows of a node over these spatial sizes.
pub(in crate::ops) fn windows(call: &Call<'_>, sizes: &[usize], kernel: &[usize]) -> Result<Vec<Window>> {
    let count = sizes.len();
    if kernel.len() != count {
        return Err(Error::invalid(format!("a kernel {kernel:?} does not fit the spatial sizes {sizes:?}")));
    }
    let strides = numbers(call, "strides", count, 1, 1)?;
    let dilations = numbers(call, "dilations", count, 1, 1)?;
    let pads = numbers(call, "pads", 2 * count, 0, 0)?;
    let mode = call.string_or("auto_pad", "NOTSET")?;
    let is_ceil = call.int_or("ceil_mode", 0)? != 0;
    let window = |axis: usize| {
        let (size, kernel, stride, dilation) = (sizes[axis], kernel[axis], strides[axis], dilations[axis]);
        let span = span(kernel, dilation);
        let (before, after) = match mode {
            "NOTSET" | "" => (pads[axis], pads[count + axis]),
            "VALID" => (0, 0),
            "SAME_UPPER" | "SAME_LOWER" => {
                let last = size.div_ceil(stride).saturating_sub(1).saturating_mul(stride);
                let total = last.saturating_add(span).saturating_sub(size);
                if mode == "SAME_UPPER" {
                    (total / 2, total.div_ceil(2))
                } else {
                    (total.div_ceil(2), total / 2)
                }
            }
            other => return Err(Error::invalid(format!("there is no auto_pad {other:?}"))),
        };
        let padded = size.saturating_add(before).saturating_add(after);
        let outputs = match padded.checked_sub(span) {
            Some(rest) if is_ceil => rest.div_ceil(stride) + 1,
            Some(rest) => rest / stride + 1,
            // A window that overhangs by less than a stride.
            None => usize::from(is_ceil && span - padded < stride),
        };
        // Windows that begin in the padding at the end are left out.
        let is_beyond =
            is_ceil && outputs > 0 && (outputs - 1).saturating_mul(stride) >= size.saturating_add(before);
        let outputs = outputs - usize::from(is_beyond);
        if kernel == 0 || outputs == 0 {
            let message = format!(
                "a window of {span} elements does not fit {size} elements padded by {before} and {after}"
            );
            return Err(Error::invalid(message));
        }
        Ok(Window { size, kernel, stride, dilation, before, after, outputs })
    };
    (0..count).map(window).collect()
}

/// Pads the spatial axes, given the padding of each.
pub(in crate::ops) fn pad_spatial(
    x: &Tensor,
    padding: impl Iterator<Item = (usize, usize)>,
    value: impl Into<Scalar>,
) -> Result<Tensor> {
    let padding: Vec<(usize, usize)> = [(0, 0); 2].into_iter().chain(padding).collect();
    Ok(if padding.iter().all(|&sides| sides == (0, 0)) { x.clone() } else { x.pad(&padding, value)? })
}

/// The spatial sizes of `[N, C, spatial..]`.
pub(in crate::ops) fn spatial(x: &Tensor) -> Result<&[usize]> {
    match x.shape() {
        [_, _, spatial @ ..] if !spatial.is_empty() => Ok(spatial),
        other => Err(Error::invalid(format!("expected a shape [N, C, spatial..], got {other:?}"))),
    }
}

/// More spatial axes than the engine's convolutions and pools have.
pub(in crate::ops) fn too_many_axes(windows: &[Window]) -> Error {
    Error::unsupported(format!("windows over {} axes, at most 3 are supported", windows.len()))
}
