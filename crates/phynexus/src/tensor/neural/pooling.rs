//! Pooling over one to three spatial dimensions.

use crate::{
    DType, Error, Result, Scalar, Tensor,
    op::{Geometry, Iota, Op, Pool, PoolKind},
    shape::Dims,
};

/// The arguments common to all window pooling.
struct Window<'a> {
    op: &'static str,
    kernel: &'a [usize],
    stride: &'a [usize],
    padding: &'a [usize],
    dilation: &'a [usize],
    ceil_mode: bool,
}

impl Window<'_> {
    /// The input as `[N, C, spatial..]`, and whether N was missing.
    fn batched(&self, x: &Tensor) -> Result<(Tensor, bool)> {
        let dims = self.kernel.len();
        match x.rank().checked_sub(dims) {
            Some(2) => Ok((x.clone(), false)),
            Some(1) => Ok((x.unsqueeze(0)?, true)),
            _ => {
                let hint =
                    format!("the input must have {} dimensions, or one less without a batch", dims + 2);
                Err(Error::shape(self.op, &[x.shape()], hint))
            }
        }
    }

    /// The geometry and the spatial extents of the output. With `ceil_mode`, the last window may overhang the end of
    /// the padded input if it starts before the padding there.
    fn geometry(&self, x: &Tensor) -> Result<(Geometry, Dims)> {
        if self.kernel.contains(&0) || self.stride.contains(&0) || self.dilation.contains(&0) {
            return Err(Error::argument(self.op, "kernel_size, stride and dilation must be at least 1"));
        }
        if self.padding.iter().zip(self.kernel).any(|(&padding, &kernel)| padding > kernel / 2) {
            return Err(Error::argument(self.op, "padding must be at most half the kernel_size"));
        }
        let mut geometry = Geometry {
            kernel: self.kernel.into(),
            stride: self.stride.into(),
            dilation: self.dilation.into(),
            padding: self.padding.iter().map(|&p| (p, p)).collect(),
            groups: 1,
        };
        let mut spatial = Dims::new();
        for (d, &size) in x.shape()[2..].iter().enumerate() {
            let too_large =
                || Error::shape(self.op, &[x.shape()], "the window is larger than the padded input");
            let mut out = geometry.output_size(d, size).ok_or_else(too_large)?;
            let (stride, padding) = (self.stride[d], self.padding[d]);
            let window = self.dilation[d] * (self.kernel[d] - 1) + 1;
            let covered = (out - 1) * stride + window;
            if self.ceil_mode && covered < size + 2 * padding && out * stride < size + padding {
                geometry.padding[d].1 = covered + stride - size - padding;
                out += 1;
            }
            spatial.push(out);
        }
        Ok((geometry, spatial))
    }

    fn one(&self, x: &Tensor, kind: PoolKind) -> Result<Tensor> {
        let (x, lacks_batch) = self.batched(x)?;
        let (geometry, spatial) = self.geometry(&x)?;
        let shape: Dims = x.shape()[..2].iter().copied().chain(spatial).collect();
        let dtype = if kind == PoolKind::ArgMax { DType::I64 } else { x.dtype() };
        let y = Tensor::record(Op::Pool(Pool(kind, geometry)), dtype, shape, &[&x])?;
        if lacks_batch { y.squeeze(0) } else { Ok(y) }
    }

    fn average(&self, x: &Tensor, count_include_pad: bool) -> Result<Tensor> {
        check_float(self.op, x)?;
        let wide = x.wide(x.dtype())?;
        let sum = self.one(&wide, PoolKind::Sum)?;
        let (batched, _) = self.batched(x)?;
        let (geometry, _) = self.geometry(&batched)?;
        let padded = |d: usize| geometry.padding[d] != (0, 0);
        let overhangs = |d: usize| geometry.padding[d].1 != self.padding[d];
        let is_uniform =
            (0..self.kernel.len()).all(|d| if count_include_pad { !overhangs(d) } else { !padded(d) });
        let whole: usize = self.kernel.iter().product();
        if is_uniform {
            return sum.div_scalar(whole as f64)?.to_dtype(x.dtype());
        }
        // Windows cover different numbers of elements; count them by pooling ones.
        let mut shape: Vec<usize> = batched.shape().into();
        (shape[0], shape[1]) = (1, 1);
        let ones = Tensor::full(&shape, 1.0, wide.dtype(), x.device())?;
        let counts = if count_include_pad {
            let sides: Vec<(usize, usize)> =
                [(0, 0); 2].into_iter().chain(self.padding.iter().map(|&p| (p, p))).collect();
            let mut inner = geometry.clone();
            for (d, sides) in inner.padding.iter_mut().enumerate() {
                *sides = (0, sides.1 - self.padding[d]);
            }
            let shape =
                [1, 1].iter().chain(&sum.shape()[sum.rank() - self.kernel.len()..]).copied().collect();
            let ones = ones.pad(&sides, 1.0)?;
            Tensor::record(Op::Pool(Pool(PoolKind::Sum, inner)), wide.dtype(), shape, &[&ones])?
        } else {
            self.one(&ones, PoolKind::Sum)?
        };
        let counts = if sum.rank() < counts.rank() { counts.squeeze(0)? } else { counts };
        sum.div(&counts)?.to_dtype(x.dtype())
    }
}

/// Requires floats: for means, and for maxima over windows of unequal sizes.
fn check_float(op: &'static str, x: &Tensor) -> Result<()> {
    if x.dtype().is_float() {
        return Ok(());
    }
    Err(Error::dtype(op, &[x.dtype()], "expected floats: convert with .to_dtype()"))
}

/// `bool [size, out]`: whether a position (row) lies in the window of an output (column). Window `o` spans `floor(o
/// size / out)` to `ceil((o + 1) size / out)`.
fn adaptive_windows(x: &Tensor, size: usize, out: usize) -> Result<Tensor> {
    let iota = |axis: usize| {
        let shape = Dims::from_slice(&[size, out]);
        Tensor::record_on(x.device(), Op::Iota(Iota { axis }), DType::I64, shape, &[])
    };
    let (position, window) = (iota(0)?, iota(1)?.mul_scalar(size as i64)?);
    let start = window.floor_divide_scalar(out as i64)?;
    let end = window.add_scalar((size + out - 1) as i64)?.floor_divide_scalar(out as i64)?;
    position.ge(&start)?.and(&position.lt(&end)?)
}

#[derive(Clone, Copy, PartialEq)]
enum Adaptive {
    Average,
    Max,
}

fn adaptive(op: &'static str, x: &Tensor, output_size: &[usize], kind: Adaptive) -> Result<Tensor> {
    let dims = output_size.len();
    let rank = x.rank();
    if rank != dims + 2 && rank != dims + 1 {
        let hint = format!("the input must have {} dimensions, or one less without a batch", dims + 2);
        return Err(Error::shape(op, &[x.shape()], hint));
    }
    check_float(op, x)?;
    let first = rank - dims;
    if output_size.contains(&0) || x.shape()[first..].contains(&0) {
        return Err(Error::shape(op, &[x.shape()], "input and output must not be empty"));
    }
    if kind == Adaptive::Average && output_size.iter().all(|&size| size == 1) {
        let axes: Vec<i64> = (first as i64..rank as i64).collect();
        return x.wide(x.dtype())?.mean(&axes, true)?.to_dtype(x.dtype());
    }
    let size = |d: usize| x.shape()[first + d];
    if (0..dims).all(|d| size(d).is_multiple_of(output_size[d])) {
        let kernel: Dims = (0..dims).map(|d| size(d) / output_size[d]).collect();
        let (padding, dilation) = (vec![0; dims], vec![1; dims]);
        let window = Window {
            op,
            kernel: &kernel,
            stride: &kernel,
            padding: &padding,
            dilation: &dilation,
            ceil_mode: false,
        };
        return match kind {
            Adaptive::Average => window.average(x, true),
            Adaptive::Max => window.one(x, PoolKind::Max),
        };
    }
    // Windows of unequal sizes: pool one axis after another.
    let mut y = x.wide(x.dtype())?;
    for (d, &out) in output_size.iter().enumerate() {
        let axis = (first + d) as i64;
        let inside = adaptive_windows(&y, size(d), out)?;
        let last = y.move_axis(axis, -1)?;
        // Elements outside a window are replaced, not multiplied by 0, since they may be infinite or NaN.
        let within = |nothing: f64| {
            let nothing = Tensor::full(&[], Scalar::Float(nothing), y.dtype(), y.device())?;
            inside.where_(&last.unsqueeze(-1)?, &nothing)
        };
        let pooled = match kind {
            Adaptive::Average => {
                let counts = inside.to_dtype(y.dtype())?.sum(&[0], false)?;
                within(0.0)?.sum(&[-2], false)?.div(&counts)?
            }
            Adaptive::Max => within(f64::NEG_INFINITY)?.max(&[-2], false)?,
        };
        y = pooled.move_axis(-1, axis)?;
    }
    y.to_dtype(x.dtype())
}

macro_rules! pooling {
    ($($dims:literal $max:ident $max_with_indices:ident $average:ident $adaptive_max:ident $adaptive_average:ident)+) => {
        impl Tensor { $(
            /// The maximum of each window of `[N, C, spatial..]` (N is optional). Padding is ignored. `stride` defaults
            /// to the window size. With `ceil_mode`, the last window may overhang the end.
            ///
            /// # Errors
            /// [`Error::Shape`] if a window exceeds the padded input; [`Error::Argument`] if a size is 0 or the padding
            /// exceeds half a window.
            pub fn $max(
                &self,
                kernel_size: [usize; $dims],
                stride: Option<[usize; $dims]>,
                padding: [usize; $dims],
                dilation: [usize; $dims],
                ceil_mode: bool,
            ) -> Result<Tensor> {
                let stride = stride.unwrap_or(kernel_size);
                let (kernel, stride) = (&kernel_size[..], &stride[..]);
                let (padding, dilation) = (&padding[..], &dilation[..]);
                Window { op: stringify!($max), kernel, stride, padding, dilation, ceil_mode }.one(self, PoolKind::Max)
            }

            /// Max pooling that also returns the flat positions (`int64`) of the maxima within their spatial plane. The
            /// first of equal elements wins.
            pub fn $max_with_indices(
                &self,
                kernel_size: [usize; $dims],
                stride: Option<[usize; $dims]>,
                padding: [usize; $dims],
                dilation: [usize; $dims],
                ceil_mode: bool,
            ) -> Result<(Tensor, Tensor)> {
                let stride = stride.unwrap_or(kernel_size);
                let (kernel, stride) = (&kernel_size[..], &stride[..]);
                let (padding, dilation) = (&padding[..], &dilation[..]);
                let window = Window { op: stringify!($max), kernel, stride, padding, dilation, ceil_mode };
                Ok((window.one(self, PoolKind::Max)?, window.one(self, PoolKind::ArgMax)?))
            }

            /// The mean of each window of `[N, C, spatial..]` (N is optional). `stride` defaults to the window size.
            /// With `count_include_pad`, padding counts as zeros; otherwise it is ignored. The overhang of `ceil_mode`
            /// is always ignored. 16-bit floats are summed in `float32`.
            ///
            /// # Errors
            /// As for max pooling; [`Error::DType`] unless the dtype is a float.
            pub fn $average(
                &self,
                kernel_size: [usize; $dims],
                stride: Option<[usize; $dims]>,
                padding: [usize; $dims],
                ceil_mode: bool,
                count_include_pad: bool,
            ) -> Result<Tensor> {
                let (stride, dilation) = (stride.unwrap_or(kernel_size), [1; $dims]);
                let (kernel, stride) = (&kernel_size[..], &stride[..]);
                let (padding, dilation) = (&padding[..], &dilation[..]);
                let window = Window { op: stringify!($average), kernel, stride, padding, dilation, ceil_mode };
                window.average(self, count_include_pad)
            }

            /// The maximum of each of `output_size` windows that cover `[N, C, spatial..]` evenly. If windows differ in
            /// size, equal elements share the gradient.
            ///
            /// # Errors
            /// [`Error::Shape`] if input or output is empty; [`Error::DType`] unless the dtype is a float.
            pub fn $adaptive_max(&self, output_size: [usize; $dims]) -> Result<Tensor> {
                adaptive(stringify!($adaptive_max), self, &output_size, Adaptive::Max)
            }

            /// The mean of each of `output_size` windows that cover `[N, C, spatial..]` evenly.
            ///
            /// # Errors
            /// As for adaptive max pooling.
            pub fn $adaptive_average(&self, output_size: [usize; $dims]) -> Result<Tensor> {
                adaptive(stringify!($adaptive_average), self, &output_size, Adaptive::Average)
            }
        )+ }
    };
}
pooling! {
    1 max_pool1d max_pool1d_with_indices avg_pool1d adaptive_max_pool1d adaptive_avg_pool1d
    2 max_pool2d max_pool2d_with_indices avg_pool2d adaptive_max_pool2d adaptive_avg_pool2d
    3 max_pool3d max_pool3d_with_indices avg_pool3d adaptive_max_pool3d adaptive_avg_pool3d
}
