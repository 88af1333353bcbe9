//! Convolutions over one to three spatial dimensions and their gradients, of contiguous tensors.
//!
//! A convolution and its input gradient are implicit matrix products (`correlate`), and so is the filter's gradient
//! (`filter`). The full matrix of patches is never created. Filters of 3 by 3 (`winograd`), depthwise convolutions
//! (`depthwise`) and those of 8-bit integers with 32-bit results (`bytes`) have separate code. Sums do not depend on the
//! number of threads.

mod axes;
mod bytes;
mod correlate;
mod depthwise;
mod filter;
mod slab;
mod winograd;
mod words;

#[cfg(test)]
mod tests;

use std::ops::Range;

use phynexus::op::{ConvKind, Geometry};
use phynexus::{DType, DTypeKind, Error, Result};

use self::axes::Axis;
use self::correlate::{Correlation, correlate};
use self::filter::{FilterGradient, filter_gradient};
use crate::gemm::pack::Accumulator;
use crate::gemm::{InstructionSet, has_product};
use crate::kernels::bytes::MAX_COLUMNS;

/// The sizes of a convolution, independent of which of its three tensors is computed.
#[derive(Clone, Copy, Debug)]
pub struct ConvShape<'a> {
    /// Number of images.
    pub batch: usize,
    /// Channels of x in all groups.
    pub input_channels: usize,
    /// Channels of y in all groups.
    pub output_channels: usize,
    /// The spatial extents of x: one to three.
    pub input: &'a [usize],
    /// The spatial extents of y.
    pub output: &'a [usize],
    /// The filter's extents, strides, dilation, padding and groups.
    pub geometry: &'a Geometry,
}

/// Computes a convolution or one of its gradients: x is `[batch, input_channels, input..]`, w is
/// `[output_channels, input_channels / groups, kernel..]`, y is `[batch, output_channels, output..]`, all contiguous.
/// `operands` are the dtypes of the left and the right operand. Sums follow the rules of matrix products of these dtypes: 16-bit floats are
/// summed in `f32` and rounded once; integers wrap modulo two to the width of the result.
///
/// | kind | left | right | result |
/// |---|---|---|---|
/// | `Forward` | x | w | y |
/// | `InputGradient` | y | w | x |
/// | `FilterGradient` | x | y | w |
///
/// If given, `finished` is called exactly once for every element of the result, in blocks. Each call comes from any
/// thread, after the block's values are stored and while they are likely in cache. `FilterGradient` does not call it.
///
/// # Errors
/// [`Error::Shape`] if the sizes do not match, [`Error::DType`] for dtypes without a product.
///
/// # Safety
/// The tensors must exist and be aligned, and the result must not overlap an operand.
pub unsafe fn convolution(
    kind: ConvKind,
    operands: [DType; 2],
    dtype: DType,
    shape: &ConvShape<'_>,
    left: *const u8,
    right: *const u8,
    result: *mut u8,
    finished: Option<Finished<'_>>,
) -> Result<()> {
    let set = InstructionSet::best();
    let destination = Destination::Memory(result, finished);
    // SAFETY: guaranteed by the caller; this machine supports the best set.
    unsafe { convolution_with(set, kind, operands, dtype, shape, left, right, destination) }
}

/// The callback for finished blocks of a result: a range of `image * channels + channel`, and a range of row-major
/// positions in an image.
pub type Finished<'a> = &'a (dyn Fn(Range<usize>, Range<usize>) + Sync);

/// The callback for blocks of a result that is not stored as a whole: as [`Finished`], and the address that element
/// (0, 0) of the result would have if its rows were [`PITCH`] elements apart. The block is overwritten afterwards.
pub(crate) type FinishedBlock<'a> = &'a (dyn Fn(Range<usize>, Range<usize>, *mut u8) + Sync);

/// Elements between rows of a block of several rows that is not stored as a whole. Rows must not be a power of two apart,
/// or they would share cache sets.
pub(crate) const PITCH: usize = bytes::PANELS * MAX_COLUMNS + 16;

/// Where a result is stored.
#[derive(Clone, Copy)]
enum Destination<'a> {
    /// In memory that has room for it.
    Memory(*mut u8, Option<Finished<'a>>),
    /// Nowhere: blocks are only reported.
    Blocks(FinishedBlock<'a>),
}

/// Whether [`convolution_in_blocks`] supports these dtypes: 8-bit operands and a 32-bit result.
pub(crate) fn has_blocks(kind: ConvKind, operands: [DType; 2], dtype: DType) -> bool {
    let is_byte = |dtype: DType| dtype.is_integer() && dtype.size() == 1;
    kind == ConvKind::Forward
        && operands.into_iter().all(is_byte)
        && dtype.is_integer()
        && dtype.size() == size_of::<i32>()
}

/// Computes a convolution whose result is not stored as a whole, in blocks.
///
/// # Errors
/// Same as [`convolution`].
///
/// # Safety
/// Same as [`convolution`]; the dtypes must be those of [`has_blocks`].
pub(crate) unsafe fn convolution_in_blocks(
    operands: [DType; 2],
    dtype: DType,
    shape: &ConvShape<'_>,
    left: *const u8,
    right: *const u8,
    finished: FinishedBlock<'_>,
) -> Result<()> {
    let (set, destination) = (InstructionSet::best(), Destination::Blocks(finished));
    // SAFETY: guaranteed by the caller; this machine supports the best set.
    unsafe { convolution_with(set, ConvKind::Forward, operands, dtype, shape, left, right, destination) }
}

/// [`convolution`] with the kernels of a given instruction set.
///
/// # Safety
/// Same as [`convolution`], and the machine must support the instruction set.
unsafe fn convolution_with(
    set: InstructionSet,
    kind: ConvKind,
    operands: [DType; 2],
    dtype: DType,
    shape: &ConvShape<'_>,
    left: *const u8,
    right: *const u8,
    destination: Destination<'_>,
) -> Result<()> {
    shape.check()?;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let compute = match (dtype.kind(), dtype.size()) {
            _ if !has_product(dtype, &operands) => {
                return Err(Error::dtype(
                    "convolution",
                    &[operands[0], operands[1], dtype],
                    "no product has these dtypes",
                ));
            }
            (DTypeKind::Float, 8) => typed::<f64>,
            (DTypeKind::Float, _) => typed::<f32>,
            (_, 8) => typed::<i64>,
            _ => typed::<i32>,
        };
        compute(set, kind, operands, dtype, shape, left, right, destination);
    }
    Ok(())
}

/// A convolution with sums in `T`.
///
/// # Safety
/// Same as [`convolution_with`]; the shape must have been checked.
unsafe fn typed<T: Accumulator>(
    set: InstructionSet,
    kind: ConvKind,
    operands: [DType; 2],
    dtype: DType,
    shape: &ConvShape<'_>,
    left: *const u8,
    right: *const u8,
    destination: Destination<'_>,
) {
    let (result, finished, blocks) = match destination {
        Destination::Memory(result, finished) => (result, finished, None),
        Destination::Blocks(blocks) => (std::ptr::null_mut(), None, Some(blocks)),
    };
    let geometry = shape.geometry;
    let rank = shape.input.len();
    let axis = |d: usize| {
        let Some(d) = (d + rank).checked_sub(3) else {
            return Axis::of_points(1);
        };
        let make = if kind == ConvKind::InputGradient { Axis::backward } else { Axis::forward };
        make(geometry, d, shape.input[d], shape.output[d])
    };
    let mut axes = [axis(0), axis(1), axis(2)];
    if axes.iter().all(Axis::is_pointwise) {
        axes = [1, 1, shape.input.iter().product()].map(Axis::of_points);
    }
    let kernel = [0, 1, 2].map(|d: usize| (d + rank).checked_sub(3).map_or(1, |d| geometry.kernel[d]));
    let groups = geometry.groups;
    let (channels, outputs) = (shape.input_channels / groups, shape.output_channels / groups);
    let taps: usize = kernel.iter().product();
    let images = shape.batch;
    let is_depthwise = groups > 1 && channels == 1 && outputs == 1;
    // SAFETY: guaranteed by the caller.
    unsafe {
        if kind == ConvKind::FilterGradient {
            let (input, output_gradient) = (left, right);
            let job = FilterGradient {
                set,
                dtypes: operands,
                result_dtype: dtype,
                images,
                groups,
                outputs,
                channels,
                axes: &axes,
                input,
                output_gradient,
                result,
            };
            if !(is_depthwise && depthwise::filter_gradient::<T>(&job)) {
                filter_gradient::<T>(&job);
            }
            return;
        }
        let (row, channel) = (channels * taps, taps);
        let forward = kind == ConvKind::Forward;
        let job = Correlation {
            set,
            dtype: operands[0],
            filter_dtype: operands[1],
            result_dtype: dtype,
            images,
            groups,
            rows: if forward { outputs } else { channels },
            channels: if forward { channels } else { outputs },
            axes: &axes,
            kernel,
            source: left,
            filter: right,
            filter_strides: if forward {
                [outputs * row, row, channel]
            } else {
                [outputs * row, channel, row]
            },
            result,
            finished,
        };
        if has_blocks(kind, operands, dtype) {
            bytes::convolve(&job, blocks);
            return;
        }
        // Each method says whether it is for this job.
        let is_done = is_depthwise && depthwise::correlate::<T>(&job) || winograd::correlate::<T>(&job);
        if !is_done {
            correlate::<T>(&job);
        }
    }
}

impl ConvShape<'_> {
    /// Checks that all sizes match.
    fn check(&self) -> Result<()> {
        let g = self.geometry;
        check_windows("convolution", self.input, g, self.output)?;
        if g.groups == 0
            || !self.input_channels.is_multiple_of(g.groups)
            || !self.output_channels.is_multiple_of(g.groups)
        {
            let hint = "channels must be divisible by the groups";
            return Err(Error::shape("convolution", &[self.input, &g.kernel, self.output], hint));
        }
        Ok(())
    }
}

/// Checks that these are the windows of an input over one to three spatial dimensions.
pub(crate) fn check_windows(op: &'static str, input: &[usize], g: &Geometry, output: &[usize]) -> Result<()> {
    let rank = input.len();
    let fail = |hint: &str| Err(Error::shape(op, &[input, &g.kernel, output], hint));
    let lengths = [output.len(), g.kernel.len(), g.stride.len(), g.dilation.len(), g.padding.len()];
    if !(1..=3).contains(&rank) || lengths.iter().any(|&l| l != rank) {
        return fail(
            "expected one to three spatial dimensions, and as many extents, strides, dilations and paddings",
        );
    }
    if g.stride.contains(&0) || g.dilation.contains(&0) {
        return fail("strides and dilations must be at least 1");
    }
    if (0..rank).any(|d| g.output_size(d, input[d]) != Some(output[d])) {
        return fail(
            "the output's extents must be floor((input + padding - dilation * (kernel - 1) - 1) / stride) + 1",
        );
    }
    Ok(())
}
