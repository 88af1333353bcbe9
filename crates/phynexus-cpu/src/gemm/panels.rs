//! Products of a few rows with a prepared matrix, on the caller's thread: for routines that multiply by the same matrix
//! repeatedly, between other work.

use std::ops::Range;

use phynexus::DType;

use super::pack::{Accumulator, Lines, panel};
use super::{Operand, part};
use crate::kernels::tile::Tile;
use crate::kernels::{HasKernels, InstructionSet, Kernels};

fn kernels() -> &'static Kernels<f32> {
    f32::kernels(InstructionSet::best())
}

/// The left operand. Strides are in elements.
#[derive(Clone, Copy)]
pub(crate) struct Left {
    pub(crate) data: *const f32,
    /// Row stride.
    pub(crate) row: isize,
    /// Stride between steps of k.
    pub(crate) step: isize,
}

/// The right operand: panels of columns as wide as a tile.
#[derive(Clone, Copy)]
pub(crate) struct Right {
    data: *const f32,
    k: usize,
    columns: usize,
    /// Elements between panels.
    panel: usize,
    /// Elements between steps of k.
    step: usize,
}

// SAFETY: it only describes a matrix; reading it is unsafe.
unsafe impl Send for Right {}
// SAFETY: as above.
unsafe impl Sync for Right {}

impl Right {
    /// A matrix with contiguous rows, `step` elements apart.
    pub(crate) fn rows(data: *const f32, k: usize, columns: usize, step: usize) -> Right {
        Right { data, k, columns, panel: kernels().columns(), step }
    }

    /// The number of elements of a packed matrix.
    pub(crate) fn packed_length(k: usize, columns: usize) -> usize {
        // A copy may write one register past the end.
        columns.next_multiple_of(kernels().columns()) * k + kernels().columns()
    }

    /// Packs a matrix of `f32` into memory.
    ///
    /// # Safety
    /// The matrix must exist, and `memory` must have room for [`Right::packed_length`] elements and outlive the result.
    pub(crate) unsafe fn pack(matrix: &Operand, k: usize, columns: usize, memory: *mut f32) -> Right {
        let kernels = kernels();
        let width = kernels.columns();
        for start in (0..columns).step_by(width) {
            let from = matrix.corner(0, start);
            let lines =
                Lines { data: from.data, dtype: DType::F32, lane: from.column_stride, step: from.row_stride };
            // SAFETY: guaranteed by the caller; panels are written in order.
            unsafe { panel(lines, width.min(columns - start), k, memory.add(start * k), width, kernels) };
        }
        Right { data: memory, k, columns, panel: width * k, step: width }
    }

    /// A range of the columns. It must start at a panel, so at a multiple of 64.
    pub(crate) fn columns(&self, columns: Range<usize>) -> Right {
        let at = columns.start / kernels().columns() * self.panel;
        Right { data: self.data.wrapping_add(at), columns: columns.len(), ..*self }
    }

    /// A range of the steps of k.
    pub(crate) fn steps(&self, steps: Range<usize>) -> Right {
        Right { data: self.data.wrapping_add(steps.start * self.step), k: steps.len(), ..*self }
    }
}

/// `c = left * right`, or `c += left * right`, for some rows; the row stride of c is `c_row` elements.
///
/// # Safety
/// The operands must exist; c must be writable with contiguous columns, and must not overlap an operand.
pub(crate) unsafe fn multiply(
    rows: usize,
    left: Left,
    right: Right,
    c: *mut f32,
    c_row: usize,
    accumulate: bool,
) {
    let kernels = kernels();
    let width = kernels.columns();
    if right.k == 0 && !accumulate {
        for row in 0..rows {
            // SAFETY: a row of c.
            unsafe { std::slice::from_raw_parts_mut(c.add(row * c_row), right.columns).fill(0.0) };
        }
    }
    let tiles = rows.div_ceil(kernels.rows());
    for k in (0..right.k).step_by(f32::K_BLOCK) {
        let steps = f32::K_BLOCK.min(right.k - k);
        for start in (0..right.columns).step_by(width) {
            let columns = width.min(right.columns - start);
            let b = right.data.wrapping_add(start / width * right.panel + k * right.step);
            for tile in 0..tiles {
                let range = part(rows, tiles, tile);
                let a = range.start as isize * left.row + k as isize * left.step;
                // SAFETY: guaranteed by the caller; the tile is inside c.
                unsafe {
                    kernels.tiles[range.len() - 1][columns.div_ceil(kernels.lanes) - 1](&Tile {
                        k: steps,
                        a: left.data.offset(a),
                        a_row: left.row,
                        a_step: left.step,
                        b,
                        b_step: right.step as isize,
                        c: c.add(range.start * c_row + start),
                        c_row: c_row as isize,
                        columns,
                        accumulate: accumulate || k > 0,
                    });
                }
            }
        }
    }
}
