//! Convolutions and transposed convolutions over one to three spatial dimensions.

use crate::{
    DType, Error, Result, Tensor,
    op::{Conv, ConvKind, Geometry, Op},
    shape::Dims,
    tensor::product::factors,
};

/// The arguments common to all convolutions.
struct Arguments<'a> {
    op: &'static str,
    weight: &'a Tensor,
    bias: Option<&'a Tensor>,
    stride: &'a [usize],
    padding: &'a [usize],
    dilation: &'a [usize],
    groups: usize,
    /// The dtype of the result, if it is not that of the promoted operands.
    result: Option<DType>,
}

impl Arguments<'_> {
    fn spatial(&self) -> usize {
        self.stride.len()
    }

    fn shape_error(&self, x: &Tensor, hint: impl Into<String>) -> Error {
        Error::shape(self.op, &[x.shape(), self.weight.shape()], hint)
    }

    fn check(&self, x: &Tensor) -> Result<()> {
        let dims = self.spatial();
        if x.rank() != dims + 2 || self.weight.rank() != dims + 2 {
            let hint = format!(
                "the input must have {} dimensions (or one less without a batch), the weight {0}",
                dims + 2
            );
            return Err(self.shape_error(x, hint));
        }
        if self.groups == 0 || self.stride.contains(&0) || self.dilation.contains(&0) {
            return Err(Error::argument(self.op, "stride, dilation and groups must be at least 1"));
        }
        if self.weight.shape()[2..].contains(&0) {
            return Err(self.shape_error(x, "the kernel is empty"));
        }
        if self.weight.dtype().promote(x.dtype()) == DType::Bool {
            let hint = "bool is not numeric: convert with .to_dtype()";
            return Err(Error::dtype(self.op, &[x.dtype(), self.weight.dtype()], hint));
        }
        Ok(())
    }

    fn geometry(&self, padding: impl Iterator<Item = (usize, usize)>) -> Geometry {
        Geometry {
            kernel: self.weight.shape()[2..].into(),
            stride: self.stride.into(),
            dilation: self.dilation.into(),
            padding: padding.collect(),
            groups: self.groups,
        }
    }

    /// Limits a stride that skips the rest of the image anyway. The result is the same, and devices need not handle
    /// huge strides.
    fn shorten_stride(geometry: &mut Geometry, d: usize, size: usize) {
        let single = Geometry { stride: Dims::from_elem(1, geometry.stride.len()), ..geometry.clone() };
        if let Some(places) = single.output_size(d, size) {
            geometry.stride[d] = geometry.stride[d].min(places);
        }
    }

    /// The input with a batch dimension, and whether it was missing.
    fn batched(&self, x: &Tensor) -> Result<(Tensor, bool)> {
        let lacks = x.rank() == self.spatial() + 1;
        Ok((if lacks { x.unsqueeze(0)? } else { x.clone() }, lacks))
    }

    /// Records the operation on the input and the weight as factors of a sum of the result's dtype.
    fn record(&self, kind: ConvKind, geometry: Geometry, shape: Dims, x: &Tensor) -> Result<Tensor> {
        let promoted = x.dtype().promote(self.weight.dtype());
        let dtype = self.result.unwrap_or(promoted);
        let (x, weight) = if self.result.is_some() {
            if promoted.float8().is_some() {
                let hint = "8-bit floats have no convolutions: convert them with .to_dtype() first";
                return Err(Error::dtype(self.op, &[x.dtype(), self.weight.dtype(), dtype], hint));
            }
            factors(self.op, [x, self.weight], dtype)?
        } else {
            (x.to_dtype(promoted)?, self.weight.to_dtype(promoted)?)
        };
        Tensor::record_product(Op::Conv(Conv(kind, geometry)), dtype, shape, [&x, &weight])
    }

    fn finish(&self, y: Tensor, channels: usize, lacks_batch: bool) -> Result<Tensor> {
        let y = match self.bias {
            None => y,
            Some(bias) if bias.shape() == [channels] => {
                let mut shape = vec![1; y.rank()];
                shape[1] = channels;
                y.add(&bias.to_dtype(y.dtype())?.reshape(&shape)?)?
            }
            Some(bias) => {
                let hint = format!("the bias must have one element for each of {channels} channels");
                return Err(Error::shape(self.op, &[bias.shape()], hint));
            }
        };
        if lacks_batch { y.squeeze(0) } else { Ok(y) }
    }

    fn convolve(&self, x: &Tensor) -> Result<Tensor> {
        let (x, lacks_batch) = self.batched(x)?;
        self.check(&x)?;
        let (channels, weight) = (x.shape()[1], self.weight.shape());
        if weight[1].checked_mul(self.groups) != Some(channels) || !weight[0].is_multiple_of(self.groups) {
            let hint = match self.groups {
                1 => format!("{channels} input channels need a weight (outputs, {channels}, ..)"),
                groups => format!(
                    "in {groups} groups, {channels} input channels need a weight (outputs, {}, ..) with outputs a \
                     multiple of the groups",
                    channels / groups
                ),
            };
            return Err(self.shape_error(&x, hint));
        }
        let mut geometry = self.geometry(self.padding.iter().map(|&p| (p, p)));
        let mut shape = Dims::from_slice(&[x.shape()[0], weight[0]]);
        for (d, &size) in x.shape()[2..].iter().enumerate() {
            let fits = geometry.output_size(d, size);
            shape.push(
                fits.ok_or_else(|| self.shape_error(&x, "the kernel is larger than the padded input"))?,
            );
            Self::shorten_stride(&mut geometry, d, size);
        }
        let y = self.record(ConvKind::Forward, geometry, shape, &x)?;
        self.finish(y, weight[0], lacks_batch)
    }

    fn transposed(&self, x: &Tensor, output_padding: &[usize]) -> Result<Tensor> {
        let (x, lacks_batch) = self.batched(x)?;
        self.check(&x)?;
        let weight = self.weight.shape();
        if weight[0] != x.shape()[1] || !weight[0].is_multiple_of(self.groups) {
            let hint = match self.groups {
                1 => "the weight must be (input channels, outputs, ..)".to_owned(),
                groups => {
                    format!("the weight must be (input channels, outputs / groups, ..) for {groups} groups")
                }
            };
            return Err(self.shape_error(&x, hint));
        }
        let limits = self.stride.iter().zip(self.dilation).map(|(s, d)| s.max(d));
        if output_padding.iter().zip(limits).any(|(&extra, &limit)| extra >= limit) {
            let message = "output_padding must be smaller than the stride or the dilation";
            return Err(Error::argument(self.op, message));
        }
        // Output padding reduces the padding at the end. What exceeds it is beyond every kernel, so it is filled with
        // zeros.
        let after = |d: usize| self.padding[d].saturating_sub(output_padding[d]);
        let mut geometry = self.geometry((0..self.spatial()).map(|d| (self.padding[d], after(d))));
        let channels = weight[1].saturating_mul(self.groups);
        let mut shape = Dims::from_slice(&[x.shape()[0], channels]);
        let mut beyond = vec![(0, 0); 2];
        for (d, &size) in x.shape()[2..].iter().enumerate() {
            let full = || {
                let window =
                    self.dilation[d].checked_mul(geometry.kernel[d].checked_sub(1)?)?.checked_add(1)?;
                size.checked_sub(1)?.checked_mul(self.stride[d])?.checked_add(window)
            };
            let kept = full().and_then(|full| full.checked_sub(self.padding[d].checked_add(after(d))?));
            let kept = kept.filter(|&kept| kept > 0);
            let kept = kept.ok_or_else(|| self.shape_error(&x, "the padding leaves no output"))?;
            Self::shorten_stride(&mut geometry, d, kept);
            shape.push(kept);
            beyond.push((0, output_padding[d].saturating_sub(self.padding[d])));
        }
        let y = self.record(ConvKind::InputGradient, geometry, shape, &x)?;
        let y = if beyond.iter().any(|&(_, after)| after > 0) { y.pad(&beyond, 0)? } else { y };
        self.finish(y, channels, lacks_batch)
    }
}

macro_rules! convolutions {
    ($($dims:literal $conv:ident $conv_as:ident $transposed:ident $transposed_as:ident)+) => { impl Tensor { $(
        /// The cross-correlation of `[N, C, spatial..]` (N is optional) with `weight` `[O, C / groups, kernel..]`, plus
        /// `bias` `[O]`. The result is `[N, O, out..]` with `out = floor((size + 2 padding - dilation (kernel - 1) - 1)
        /// / stride) + 1`. Integers wrap.
        ///
        /// # Errors
        /// [`Error::Shape`] if the shapes do not fit or the kernel exceeds the padded input; [`Error::Argument`] if a
        /// stride, a dilation or the number of groups is 0; [`Error::DType`] for `bool`.
        pub fn $conv(
            &self,
            weight: &Tensor,
            bias: Option<&Tensor>,
            stride: [usize; $dims],
            padding: [usize; $dims],
            dilation: [usize; $dims],
            groups: usize,
        ) -> Result<Tensor> {
            let (stride, padding, dilation, result) = (&stride[..], &padding[..], &dilation[..], None);
            let op = stringify!($conv);
            Arguments { op, weight, bias, stride, padding, dilation, groups, result }.convolve(self)
        }

        /// The convolution with a result of this dtype, in which sums are computed, as by [`Tensor::matmul_as`]: an
        /// `int32` result of `int8` and `uint8` operands is exact unless it wraps. The bias is converted to `dtype`.
        ///
        /// # Errors
        /// As for the convolution; [`Error::DType`] if `dtype` is narrower than the operands' promoted dtype or of
        /// another kind, and for 8-bit floats.
        pub fn $conv_as(
            &self,
            weight: &Tensor,
            bias: Option<&Tensor>,
            stride: [usize; $dims],
            padding: [usize; $dims],
            dilation: [usize; $dims],
            groups: usize,
            dtype: DType,
        ) -> Result<Tensor> {
            let (stride, padding, dilation, result) = (&stride[..], &padding[..], &dilation[..], Some(dtype));
            let op = stringify!($conv_as);
            Arguments { op, weight, bias, stride, padding, dilation, groups, result }.convolve(self)
        }

        /// The transposed convolution of `[N, C, spatial..]` (N is optional) with `weight` `[C, O / groups, kernel..]`,
        /// plus `bias` `[O]`. The result is `[N, O, out..]` with `out = (size - 1) stride - 2 padding + dilation
        /// (kernel - 1) + output_padding + 1`.
        ///
        /// # Errors
        /// As for the convolution; [`Error::Argument`] unless `output_padding` is smaller than the stride or the
        /// dilation.
        pub fn $transposed(
            &self,
            weight: &Tensor,
            bias: Option<&Tensor>,
            stride: [usize; $dims],
            padding: [usize; $dims],
            output_padding: [usize; $dims],
            groups: usize,
            dilation: [usize; $dims],
        ) -> Result<Tensor> {
            let (stride, padding, dilation, result) = (&stride[..], &padding[..], &dilation[..], None);
            let op = stringify!($transposed);
            let arguments = Arguments { op, weight, bias, stride, padding, dilation, groups, result };
            arguments.transposed(self, &output_padding)
        }

        /// The transposed convolution with a result of this dtype, in which sums are computed, as by
        /// [`Tensor::matmul_as`]. The bias is converted to `dtype`.
        ///
        /// # Errors
        /// As for the transposed convolution; [`Error::DType`] if `dtype` is narrower than the operands' promoted dtype
        /// or of another kind, and for 8-bit floats.
        pub fn $transposed_as(
            &self,
            weight: &Tensor,
            bias: Option<&Tensor>,
            stride: [usize; $dims],
            padding: [usize; $dims],
            output_padding: [usize; $dims],
            groups: usize,
            dilation: [usize; $dims],
            dtype: DType,
        ) -> Result<Tensor> {
            let (stride, padding, dilation, result) = (&stride[..], &padding[..], &dilation[..], Some(dtype));
            let op = stringify!($transposed_as);
            let arguments = Arguments { op, weight, bias, stride, padding, dilation, groups, result };
            arguments.transposed(self, &output_padding)
        }
    )+ } };
}
convolutions! {
    1 conv1d conv1d_as conv_transpose1d conv_transpose1d_as
    2 conv2d conv2d_as conv_transpose2d conv_transpose2d_as
    3 conv3d conv3d_as conv_transpose3d conv_transpose3d_as
}
