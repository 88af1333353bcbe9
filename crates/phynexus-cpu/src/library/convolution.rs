//! `Op::Conv`: convolutions and their gradients.

use std::ops::Range;

use phynexus::{
    DType, Result,
    device::Support,
    kernel::step::Operand,
    op::{ConvKind, Geometry, ir::IrNode},
    shape::Dims,
};

use super::{Finished, InBlocks, Routine, misfit};
use crate::conv::{self, ConvShape, PITCH, convolution, convolution_in_blocks, has_blocks};
use crate::gemm::blocked::Shared;
use crate::gemm::has_product;

/// Whether there are kernels for these dtypes and this number of spatial dimensions.
pub(super) fn support(geometry: &Geometry, dtype: DType, operands: &[DType]) -> Support {
    if !(1..=3).contains(&geometry.kernel.len()) {
        return Support::Unsupported(format!(
            "convolution does not support {} dimensions",
            geometry.kernel.len()
        ));
    }
    let are_bytes = operands.iter().all(|operand| operand.is_integer() && operand.size() == 1);
    let mixed = operands.windows(2).any(|pair| pair[0] != pair[1]);
    if !has_product(dtype, operands) || mixed && !are_bytes {
        let names: Vec<&str> = operands.iter().map(|o| o.name()).collect();
        return Support::Unsupported(format!(
            "convolution does not support {} with result {dtype}",
            names.join(" and ")
        ));
    }
    Support::Routine
}

/// A convolution of fixed shapes.
pub(super) struct Convolution {
    kind: ConvKind,
    operands: [DType; 2],
    dtype: DType,
    geometry: Geometry,
    batch: usize,
    input_channels: usize,
    output_channels: usize,
    input: Dims,
    output: Dims,
}

impl Convolution {
    pub(super) fn new(
        kind: ConvKind,
        geometry: &Geometry,
        node: &IrNode,
        operands: &[Operand],
    ) -> Result<Convolution> {
        let [left, right] = operands else { return Err(misfit("conv", operands)) };
        let (left_shape, right_shape) = (&left.layout.shape, &right.layout.shape);
        let (x, y) = match kind {
            ConvKind::Forward => (left_shape, &node.shape),
            ConvKind::InputGradient => (&node.shape, left_shape),
            ConvKind::FilterGradient => (left_shape, right_shape),
        };
        let rank = geometry.kernel.len() + 2;
        let fits = x.len() == rank
            && y.len() == rank
            && support(geometry, node.dtype, &[left.dtype, right.dtype]) == Support::Routine;
        if !fits {
            return Err(misfit("conv", operands));
        }
        Ok(Convolution {
            kind,
            operands: [left.dtype, right.dtype],
            dtype: node.dtype,
            geometry: geometry.clone(),
            batch: x[0],
            input_channels: x[1],
            output_channels: y[1],
            input: x[2..].into(),
            output: y[2..].into(),
        })
    }
}

/// Positions of the smallest image that is processed in blocks.
const SMALLEST: usize = 16;

impl Convolution {
    /// # Safety
    /// Same as [`Routine::run`].
    unsafe fn convolve(
        &self,
        operands: &[*const u8],
        result: *mut u8,
        finished: Option<Finished<'_>>,
    ) -> Result<()> {
        let [left, right] = operands else { return Err(misfit("conv", &[])) };
        let origin = Shared(result);
        let told = finished.map(|finished| {
            move |rows: Range<usize>, positions: Range<usize>| finished(rows, positions, origin.get())
        });
        let told = told.as_ref().map(|told| told as conv::Finished<'_>);
        let shape = ConvShape {
            batch: self.batch,
            input_channels: self.input_channels,
            output_channels: self.output_channels,
            input: &self.input,
            output: &self.output,
            geometry: &self.geometry,
        };
        // SAFETY: guaranteed by the caller; operands are row-major.
        unsafe {
            match finished {
                Some(finished) if result.is_null() => {
                    convolution_in_blocks(self.operands, self.dtype, &shape, *left, *right, finished)
                }
                _ => convolution(self.kind, self.operands, self.dtype, &shape, *left, *right, result, told),
            }
        }
    }
}

impl Routine for Convolution {
    unsafe fn run(&self, operands: &[*const u8], result: *mut u8) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.convolve(operands, result, None) }
    }

    fn in_blocks(&self) -> Option<&dyn InBlocks> {
        let positions: usize = match self.kind {
            ConvKind::Forward => self.output.iter().product(),
            ConvKind::InputGradient => self.input.iter().product(),
            ConvKind::FilterGradient => 0,
        };
        (positions >= SMALLEST).then_some(self)
    }
}

impl InBlocks for Convolution {
    fn row_axes(&self) -> usize {
        2
    }

    fn pitch(&self) -> Option<usize> {
        has_blocks(self.kind, self.operands, self.dtype).then_some(PITCH)
    }

    unsafe fn run(&self, operands: &[*const u8], result: *mut u8, finished: Finished<'_>) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.convolve(operands, result, Some(finished)) }
    }
}
