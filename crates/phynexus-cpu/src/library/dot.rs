//! `Op::Dot`: batches of matrix products.

use std::ops::Range;

use phynexus::{DType, Result, device::Support, kernel::step, op::ir::IrNode, shape::contiguous_strides};

use super::{Finished, InBlocks, Routine, misfit};
use crate::gemm::{BatchItem, Epilogue, Operand, Output, blocked::Shared, gemm, has_product};

/// Whether products of these operands can be summed to the result's dtype.
pub(super) fn support(dtype: DType, operands: &[DType]) -> Support {
    if has_product(dtype, operands) {
        return Support::Routine;
    }
    let names: Vec<&str> = operands.iter().map(|o| o.name()).collect();
    Support::Unsupported(format!("no matrix product of {} to {dtype}", names.join(" and ")))
}

/// A batch of matrix products of fixed shapes.
pub(super) struct Dot {
    m: usize,
    n: usize,
    k: usize,
    batch: Vec<BatchItem>,
    a: Matrix,
    b: Matrix,
    dtype: DType,
    /// The number of axes of the result.
    rank: usize,
}

/// The layout of an operand's matrices.
struct Matrix {
    dtype: DType,
    row_stride: isize,
    column_stride: isize,
}

impl Matrix {
    fn at(&self, data: *const u8) -> Operand {
        Operand { data, dtype: self.dtype, row_stride: self.row_stride, column_stride: self.column_stride }
    }
}

impl Dot {
    pub(super) fn new(node: &IrNode, operands: &[step::Operand]) -> Result<Dot> {
        let [a, b] = operands else { return Err(misfit("dot", operands)) };
        let (rank, shape) = (node.shape.len(), &node.shape);
        let (sa, sb) = (&a.layout.shape, &b.layout.shape);
        if rank < 2 || sa.len() != rank || sb.len() != rank {
            return Err(misfit("dot", operands));
        }
        let lead = rank - 2;
        let (m, n, k) = (shape[lead], shape[lead + 1], sa[lead + 1]);
        let fits = sa[..lead] == shape[..lead]
            && sb[..lead] == shape[..lead]
            && (sa[lead], sb[lead], sb[lead + 1]) == (m, k, n)
            && support(node.dtype, &[a.dtype, b.dtype]) == Support::Routine;
        if !fits {
            return Err(misfit("dot", operands));
        }
        let mut batch = vec![BatchItem::default()];
        let result = contiguous_strides(shape);
        for axis in 0..lead {
            let (a, b, c) = (a.layout.strides[axis], b.layout.strides[axis], result[axis]);
            batch = (batch.iter())
                .flat_map(|item| {
                    (0..shape[axis] as isize).map(move |i| BatchItem {
                        a: item.a + i * a,
                        b: item.b + i * b,
                        c: item.c + i * c,
                    })
                })
                .collect();
        }
        let matrix = |o: &step::Operand| Matrix {
            dtype: o.dtype,
            row_stride: o.layout.strides[lead],
            column_stride: o.layout.strides[lead + 1],
        };
        Ok(Dot { m, n, k, batch, a: matrix(a), b: matrix(b), dtype: node.dtype, rank })
    }
}

/// Columns of the narrowest result, and elements of the smallest of a batch, that are processed in blocks: the setup of
/// a smaller block takes longer than its work.
const NARROWEST: usize = 32;
const SMALLEST: usize = 1024;

impl Dot {
    /// # Safety
    /// Same as [`Routine::run`].
    unsafe fn multiply(
        &self,
        operands: &[*const u8],
        result: *mut u8,
        epilogue: Option<Epilogue<'_>>,
    ) -> Result<()> {
        let [a, b] = operands else { return Err(misfit("dot", &[])) };
        let c = Output { data: result, dtype: self.dtype, row_stride: self.n as isize, column_stride: 1 };
        // SAFETY: the caller guarantees that the strides are those of the operands; the result is row-major.
        unsafe { gemm(self.m, self.n, self.k, &self.batch, &self.a.at(*a), &self.b.at(*b), &c, epilogue) }
    }
}

impl Routine for Dot {
    unsafe fn run(&self, operands: &[*const u8], result: *mut u8) -> Result<()> {
        // SAFETY: guaranteed by the caller.
        unsafe { self.multiply(operands, result, None) }
    }

    fn in_blocks(&self) -> Option<&dyn InBlocks> {
        let tiny = self.batch.len() > 1 && self.m * self.n < SMALLEST;
        (self.n >= NARROWEST && !tiny).then_some(self)
    }
}

impl InBlocks for Dot {
    fn row_axes(&self) -> usize {
        self.rank - 1
    }

    unsafe fn run(&self, operands: &[*const u8], result: *mut u8, finished: Finished<'_>) -> Result<()> {
        let origin = Shared(result);
        let epilogue = |item: usize, rows: Range<usize>, columns: Range<usize>| {
            finished(item * self.m + rows.start..item * self.m + rows.end, columns, origin.get());
        };
        // SAFETY: guaranteed by the caller.
        unsafe { self.multiply(operands, result, Some(&epilogue)) }
    }
}
