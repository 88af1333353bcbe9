//! Convolutions and pooling.

use pyo3::prelude::*;

use super::optional;
use crate::{
    argument::{Count, Each},
    error::Result,
    tensor::PyTensor,
};

macro_rules! convolutions {
    ($($dims:literal $conv:ident $transposed:ident;)+) => { $(
        /// Convolution of ``[N, C, spatial...]`` (or one sample without N) with ``weight`` of shape ``[out, in /
        /// groups, kernel...]``.
        #[pyfunction]
        #[pyo3(signature = (input, weight, bias=None, stride=Each::from(1), padding=Each::from(0), dilation=Each::from(1), groups=Count(1)))]
        pub(crate) fn $conv(
            input: &PyTensor,
            weight: &PyTensor,
            bias: Option<&PyTensor>,
            stride: Each,
            padding: Each,
            dilation: Each,
            groups: Count,
        ) -> Result<PyTensor> {
            let (stride, padding) = (stride.of::<$dims>("stride")?, padding.of::<$dims>("padding")?);
            let dilation = dilation.of::<$dims>("dilation")?;
            let (x, weight, bias) = (input.tensor()?, weight.tensor()?, optional(bias)?);
            Ok(PyTensor::wrap(x.$conv(&weight, bias.as_ref(), stride, padding, dilation, groups.0)?))
        }
        /// Transposed convolution: the gradient of a convolution with respect to its input.
        #[pyfunction]
        #[pyo3(signature = (input, weight, bias=None, stride=Each::from(1), padding=Each::from(0), output_padding=Each::from(0), groups=Count(1), dilation=Each::from(1)))]
        pub(crate) fn $transposed(
            input: &PyTensor,
            weight: &PyTensor,
            bias: Option<&PyTensor>,
            stride: Each,
            padding: Each,
            output_padding: Each,
            groups: Count,
            dilation: Each,
        ) -> Result<PyTensor> {
            let (stride, padding) = (stride.of::<$dims>("stride")?, padding.of::<$dims>("padding")?);
            let extra = output_padding.of::<$dims>("output_padding")?;
            let dilation = dilation.of::<$dims>("dilation")?;
            let (x, weight, bias) = (input.tensor()?, weight.tensor()?, optional(bias)?);
            Ok(PyTensor::wrap(x.$transposed(&weight, bias.as_ref(), stride, padding, extra, groups.0, dilation)?))
        }
    )+ };
}

convolutions! {
    1 conv1d conv_transpose1d;
    2 conv2d conv_transpose2d;
    3 conv3d conv_transpose3d;
}

macro_rules! pooling {
    ($($dims:literal $max:ident $indexed:ident $average:ident $adaptive_max:ident $adaptive_average:ident;)+) => { $(
        /// Max pooling: the maximum of each window.
        #[pyfunction]
        #[pyo3(signature = (input, kernel_size, stride=None, padding=Each::from(0), dilation=Each::from(1), ceil_mode=false))]
        pub(crate) fn $max(
            input: &PyTensor,
            kernel_size: Each,
            stride: Option<Each>,
            padding: Each,
            dilation: Each,
            ceil_mode: bool,
        ) -> Result<PyTensor> {
            let stride = stride.map(|stride| stride.of::<$dims>("stride")).transpose()?;
            let (kernel, padding) = (kernel_size.of::<$dims>("kernel_size")?, padding.of::<$dims>("padding")?);
            let dilation = dilation.of::<$dims>("dilation")?;
            Ok(PyTensor::wrap(input.tensor()?.$max(kernel, stride, padding, dilation, ceil_mode)?))
        }
        /// Max pooling that also returns the index of each maximum.
        #[pyfunction]
        #[pyo3(signature = (input, kernel_size, stride=None, padding=Each::from(0), dilation=Each::from(1), ceil_mode=false))]
        pub(crate) fn $indexed(
            input: &PyTensor,
            kernel_size: Each,
            stride: Option<Each>,
            padding: Each,
            dilation: Each,
            ceil_mode: bool,
        ) -> Result<(PyTensor, PyTensor)> {
            let stride = stride.map(|stride| stride.of::<$dims>("stride")).transpose()?;
            let (kernel, padding) = (kernel_size.of::<$dims>("kernel_size")?, padding.of::<$dims>("padding")?);
            let dilation = dilation.of::<$dims>("dilation")?;
            let (values, indices) = input.tensor()?.$indexed(kernel, stride, padding, dilation, ceil_mode)?;
            Ok((PyTensor::wrap(values), PyTensor::wrap(indices)))
        }
        /// Average pooling: the mean of each window.
        #[pyfunction]
        #[pyo3(signature = (input, kernel_size, stride=None, padding=Each::from(0), ceil_mode=false, count_include_pad=true))]
        pub(crate) fn $average(
            input: &PyTensor,
            kernel_size: Each,
            stride: Option<Each>,
            padding: Each,
            ceil_mode: bool,
            count_include_pad: bool,
        ) -> Result<PyTensor> {
            let stride = stride.map(|stride| stride.of::<$dims>("stride")).transpose()?;
            let (kernel, padding) = (kernel_size.of::<$dims>("kernel_size")?, padding.of::<$dims>("padding")?);
            Ok(PyTensor::wrap(input.tensor()?.$average(kernel, stride, padding, ceil_mode, count_include_pad)?))
        }
        /// Adaptive max pooling to spatial size ``output_size``.
        #[pyfunction]
        pub(crate) fn $adaptive_max(input: &PyTensor, output_size: Each) -> Result<PyTensor> {
            Ok(PyTensor::wrap(input.tensor()?.$adaptive_max(output_size.of::<$dims>("output_size")?)?))
        }
        /// Adaptive average pooling to spatial size ``output_size``.
        #[pyfunction]
        pub(crate) fn $adaptive_average(input: &PyTensor, output_size: Each) -> Result<PyTensor> {
            Ok(PyTensor::wrap(input.tensor()?.$adaptive_average(output_size.of::<$dims>("output_size")?)?))
        }
    )+ };
}

pooling! {
    1 max_pool1d max_pool1d_with_indices avg_pool1d adaptive_max_pool1d adaptive_avg_pool1d;
    2 max_pool2d max_pool2d_with_indices avg_pool2d adaptive_max_pool2d adaptive_avg_pool2d;
    3 max_pool3d max_pool3d_with_indices avg_pool3d adaptive_max_pool3d adaptive_avg_pool3d;
}
