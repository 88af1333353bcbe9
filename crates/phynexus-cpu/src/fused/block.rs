//! Elementwise kernels that run on blocks of a matrix as another routine finishes them: on that routine's threads,
//! while the block is in cache.

use std::ops::Range;

use phynexus::{Result, device::Binding, kernel::fused::Fusion};

use super::{
    access::Window,
    address,
    axis::{LANES, OUTER},
    compile,
    program::{Program, Schedule},
    scratch,
};

/// A kernel prepared to run on blocks.
pub(crate) struct BlockKernel {
    /// `None` for a matrix without elements.
    program: Option<Program>,
}

impl BlockKernel {
    /// Compiles a kernel without reductions. Its first `row_axes` ranges index the rows of the matrix, row-major; the
    /// others index the columns.
    ///
    /// # Errors
    /// [`phynexus::Error::Internal`] if an instruction does not support its dtypes.
    pub(crate) fn new(kernel: &Fusion, row_axes: usize) -> Result<BlockKernel> {
        if kernel.row_count() == 0 {
            return Ok(BlockKernel { program: None });
        }
        let mut kernel = kernel.clone();
        kernel.columns = kernel.rows.drain(row_axes..).collect();
        Ok(BlockKernel { program: Some(compile::compile_blocks(&kernel)?) })
    }

    /// The address of a parameter's first element. Checks that the binding holds every element that an unmasked index
    /// reaches.
    pub(crate) fn address(&self, parameter: usize, binding: &Binding) -> Result<*mut u8> {
        address(self.program.as_ref(), parameter, binding)
    }

    /// Runs the kernel on a block. Parameters are given by the address of their first element.
    ///
    /// # Safety
    /// Same as [`FusedKernel::run`](super::FusedKernel::run) for the block's elements; there must be as many parameters
    /// as the kernel has, and the block must be part of the matrix.
    pub(crate) unsafe fn run(&self, parameters: &[*mut u8], rows: Range<usize>, columns: Range<usize>) {
        let Some(program) = &self.program else { return };
        let Schedule::Whole(codes) = &program.schedule else { return };
        let [high, wide] = [OUTER, LANES].map(|axis| program.cuts[axis].longest.max(1));
        scratch::with(program, parameters, 0, |mut machine| {
            for row in rows.clone().step_by(high) {
                for column in columns.clone().step_by(wide) {
                    let count = [high.min(rows.end - row), wide.min(columns.end - column)];
                    let window = Window { start: [row, column], count };
                    machine.prepare(window, true);
                    // SAFETY: guaranteed by the caller; the scratch has the program's size, and tiles are disjoint.
                    unsafe { machine.run(codes, window) };
                }
            }
        });
    }
}
