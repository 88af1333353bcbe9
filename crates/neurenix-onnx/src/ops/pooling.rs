//! Pools.

mod regions;

use phynexus::{Scalar, Tensor};

use super::{
    Rows, counted,
    linear::{
        convolution::convolve,
        window::{Window, each, numbers, pad_spatial, spatial, too_many_axes, windows},
    },
    reductions::lowest,
    widened,
};
use crate::{
    Error, Result, Value,
    graph::{Call, one},
};

pub(super) const ROWS: Rows = &[
    ("AveragePool", average_pool),
    ("GlobalAveragePool", |call| global(call, |x, axes| Ok(x.mean(axes, true)?))),
    ("GlobalLpPool", global_lp_pool),
    ("GlobalMaxPool", |call| global(call, |x, axes| Ok(x.max(axes, true)?))),
    ("LpPool", lp_pool),
    ("MaxPool", max_pool),
    ("MaxRoiPool", regions::max_roi_pool),
    ("MaxUnpool", max_unpool),
    ("RoiAlign", regions::roi_align),
];

fn global(call: &Call<'_>, apply: impl Fn(&Tensor, &[i64]) -> Result<Tensor>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let axes: Vec<i64> = (2..x.rank() as i64).collect();
    one(if axes.is_empty() { x } else { apply(&x, &axes)? })
}

fn global_lp_pool(call: &Call<'_>) -> Result<Vec<Value>> {
    let p = call.int_or("p", 2)? as f64;
    global(call, |x, axes| Ok(x.norm(p, axes, true)?))
}

fn pool_windows(call: &Call<'_>, x: &Tensor) -> Result<Vec<Window>> {
    let sizes = spatial(x)?;
    if !call.has_attribute("kernel_shape") {
        return Err(Error::invalid("kernel_shape is missing"));
    }
    windows(call, sizes, &numbers(call, "kernel_shape", sizes.len(), 1, 1)?)
}

/// The input as the engine's pools need it: padded with `value`, unless they can pad it as they should.
fn padded(x: &Tensor, windows: &mut [Window], value: Scalar) -> Result<Tensor> {
    let is_regular = |w: &Window| {
        let rest = (w.size + w.before + w.after).checked_sub(w.span());
        w.before == w.after
            && w.before <= w.kernel / 2
            && rest.is_some_and(|rest| rest / w.stride + 1 == w.outputs)
    };
    if windows.iter().all(is_regular) {
        return Ok(x.clone());
    }
    let sides: Vec<(usize, usize)> =
        windows.iter().map(|window| (window.before, window.needed_after())).collect();
    windows.iter_mut().for_each(|window| window.before = 0);
    pad_spatial(x, sides.into_iter(), value)
}

fn max_pool(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let windows = pool_windows(call, &x)?;
    let mut rest = windows.clone();
    let filled = padded(&x, &mut rest, lowest(x.dtype()))?;
    macro_rules! apply {
        ($method:ident) => {
            filled.$method(
                each(&rest, |w| w.kernel),
                Some(each(&rest, |w| w.stride)),
                each(&rest, |w| w.before),
                each(&rest, |w| w.dilation),
                false,
            )?
        };
    }
    if !call.wants(1) {
        return one(match rest.len() {
            1 => apply!(max_pool1d),
            2 => apply!(max_pool2d),
            3 => apply!(max_pool3d),
            _ => return Err(too_many_axes(&rest)),
        });
    }
    let (values, places) = match rest.len() {
        1 => apply!(max_pool1d_with_indices),
        2 => apply!(max_pool2d_with_indices),
        3 => apply!(max_pool3d_with_indices),
        _ => return Err(too_many_axes(&rest)),
    };
    // From places in a padded plane to places in the whole input.
    let (mut places, mut index) = (places, None::<Tensor>);
    let sizes = filled.shape().iter().skip(2);
    let columns_first = call.int_or("storage_order", 0)? != 0;
    let step = |axis: usize| -> i64 {
        let inner = if columns_first { &windows[..axis] } else { &windows[axis + 1..] };
        inner.iter().map(|window| window.size as i64).product()
    };
    for (axis, &size) in sizes.enumerate().rev() {
        let added = windows[axis].before - rest[axis].before;
        let coordinate =
            places.remainder_scalar(size as i64)?.sub_scalar(added as i64)?.mul_scalar(step(axis))?;
        places = places.floor_divide_scalar(size as i64)?;
        index = Some(match index {
            Some(index) => index.add(&coordinate)?,
            None => coordinate,
        });
    }
    let planes = x.shape().iter().take(2).product::<usize>();
    let mut shape = vec![1; x.rank()];
    shape[..2].copy_from_slice(&x.shape()[..2]);
    let start = counted(planes, x.device())?;
    let start = start
        .mul_scalar(windows.iter().map(|window| window.size as i64).product::<i64>())?
        .reshape(&shape)?;
    let index = index.ok_or_else(|| Error::invalid("there is no spatial axis"))?;
    Ok(vec![values.into(), index.add(&start)?.into()])
}

/// The sums over the windows, divided by the number of elements of a kernel. Padding counts as zeros.
fn means(x: &Tensor, windows: &[Window]) -> Result<Tensor> {
    let mut rest = windows.to_vec();
    if rest.iter().any(|window| window.dilation > 1) {
        // Each channel is convolved alone.
        let kernel: Vec<usize> = rest.iter().map(|window| window.kernel).collect();
        let count: f64 = kernel.iter().map(|&extent| extent as f64).product();
        let weight = Tensor::full(&[&[1, 1], &kernel[..]].concat(), 1.0 / count, x.dtype(), x.device())?;
        let (outer, inner) = x.shape().split_at(2);
        let alone = x.reshape(&[&[outer.iter().product(), 1], inner].concat())?;
        rest.iter_mut().for_each(|window| window.after = window.needed_after());
        let y = convolve(&alone, &weight, None, &rest, 1)?;
        return Ok(y.reshape(&[outer, y.shape().get(2..).unwrap_or_default()].concat())?);
    }
    let filled = padded(x, &mut rest, Scalar::Int(0))?;
    macro_rules! apply {
        ($method:ident) => {
            filled.$method(
                each(&rest, |w| w.kernel),
                Some(each(&rest, |w| w.stride)),
                each(&rest, |w| w.before),
                false,
                true,
            )?
        };
    }
    Ok(match rest.len() {
        1 => apply!(avg_pool1d),
        2 => apply!(avg_pool2d),
        3 => apply!(avg_pool3d),
        _ => return Err(too_many_axes(&rest)),
    })
}

/// For each window along an axis, the size of the kernel over the number of its elements that count. `None` if all do.
fn shares(window: &Window, count_padding: bool, like: &Tensor) -> Result<Option<Tensor>> {
    let overhang = window.needed_after();
    let all_count =
        if count_padding { overhang <= window.after } else { window.before == 0 && overhang == 0 };
    if all_count {
        return Ok(None);
    }
    let [size, before, after, kernel, stride, dilation] =
        [window.size, window.before, window.after, window.kernel, window.stride, window.dilation]
            .map(|n| n as i64);
    let (first, end) = if count_padding { (-before, size + after) } else { (0, size) };
    let start = counted(window.outputs, like.device())?.mul_scalar(stride)?;
    // The number of elements of each window that lie before a place.
    let before = |place: i64| -> Result<Tensor> {
        let count = start.rsub_scalar(place + before + dilation - 1)?.floor_divide_scalar(dilation)?;
        Ok(count.clamp(Some(Scalar::Int(0)), Some(Scalar::Int(kernel)))?)
    };
    let counts = before(end)?.sub(&before(first)?)?;
    Ok(Some(counts.to_dtype(like.dtype())?.rdiv_scalar(kernel as f64)?))
}

fn average_pool(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let windows = pool_windows(call, &x)?;
    let count_padding = call.int_or("count_include_pad", 0)? != 0;
    let mut y = means(&widened(&x)?, &windows)?;
    for (axis, window) in windows.iter().enumerate() {
        if let Some(shares) = shares(window, count_padding, &y)? {
            let mut shape = vec![1; windows.len()];
            shape[axis] = window.outputs;
            y = y.mul(&shares.reshape(&shape)?)?;
        }
    }
    one(y.to_dtype(x.dtype())?)
}

fn lp_pool(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    let windows = pool_windows(call, &x)?;
    let p = call.int_or("p", 2)?;
    if p < 1 {
        return Err(Error::invalid(format!("p must be at least 1, it is {p}")));
    }
    let powers = widened(&x)?.abs()?.pow_scalar(p as f64)?;
    let count: f64 = windows.iter().map(|window| window.kernel as f64).product();
    let sums = means(&powers, &windows)?.mul_scalar(count)?;
    // The infinite derivative of the root at 0, times 0, would be NaN.
    let is_zero = sums.eq_scalar(0)?;
    let roots = is_zero.where_(&sums.ones_like()?, &sums)?.pow_scalar(1.0 / p as f64)?;
    one(is_zero.where_(&sums.zeros_like()?, &roots)?.to_dtype(x.dtype())?)
}

/// Puts the elements back where a max pool took them from. Indices refer to the shape that the attributes imply; a
/// greater `output_shape` adds zeros at the ends.
fn max_unpool(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, index) = (call.tensor(0)?, call.tensor(1)?);
    if index.shape() != x.shape() {
        let message =
            format!("the indices must have the shape {:?} of the input, not {:?}", x.shape(), index.shape());
        return Err(Error::invalid(message));
    }
    let sizes = spatial(&x)?;
    let count = sizes.len();
    let kernel = numbers(call, "kernel_shape", count, 1, 1)?;
    let strides = numbers(call, "strides", count, 1, 1)?;
    let pads = numbers(call, "pads", 2 * count, 0, 0)?;
    let mut shape = x.shape().to_vec();
    for axis in 0..count {
        let full = sizes[axis].saturating_sub(1).saturating_mul(strides[axis]).saturating_add(kernel[axis]);
        shape[axis + 2] = full.saturating_sub(pads[axis] + pads[count + axis]);
    }
    let total = shape.iter().try_fold(1usize, |total, &size| total.checked_mul(size));
    let total = total.ok_or_else(|| Error::invalid(format!("the output {shape:?} is too large")))?;
    let zeros = Tensor::zeros(&[total], x.dtype(), x.device())?;
    let y = zeros.scatter(0, &index.reshape(&[index.len()])?, &x.reshape(&[x.len()])?)?.reshape(&shape)?;
    let Some(target) = call.optional_integers(2)? else { return one(y) };
    let missing = |(&target, &size): (&i64, &usize)| {
        usize::try_from(target).ok()?.checked_sub(size).map(|after| (0, after))
    };
    let padding: Option<Vec<(usize, usize)>> = target.iter().zip(&shape).map(missing).collect();
    match padding.filter(|padding| padding.len() == y.rank() && target.len() == y.rank()) {
        Some(padding) => one(y.pad(&padding, 0)?),
        None => Err(Error::invalid(format!("the output_shape {target:?} must be at least {shape:?}"))),
    }
}
