//! Matrix products in random graphs.

use smallvec::smallvec;

use super::{Builder, GREATEST};
use crate::{
    DType,
    op::{Binary, Op, Permute, Slice},
    shape::element_count,
};

impl Builder {
    /// A product whose left factor is the operand; or one with few rows and columns and many terms, which devices sum
    /// differently.
    pub(super) fn product(&mut self, x: u32) {
        if self.choice.one_in(5) {
            return self.deep_product(x);
        }
        let (dtype, shape) = (self.dtype_of(x), self.shape_of(x));
        let rank = shape.len();
        if rank < 2 || dtype == DType::Bool || element_count(&shape) > 1500 {
            return;
        }
        let wide = 33 + self.choice.below(40);
        let fits = element_count(&shape[..rank - 1]) * wide <= GREATEST;
        let columns = if fits && self.choice.one_in(3) { wide } else { 1 + self.choice.below(5) };
        let mut right = shape.clone();
        (right[rank - 2], right[rank - 1]) = (shape[rank - 1], columns);
        let mut out = shape.clone();
        out[rank - 1] = columns;
        let y = self.leaf(dtype, &right);
        let wide = if dtype == DType::I8 && self.choice.one_in(2) { DType::I32 } else { dtype };
        let dot = self.push(Op::Dot, wide, &out, &[x, y]);
        if self.choice.one_in(2) {
            let bias = self.partner(wide, &out);
            self.push(Op::Binary(Binary::Add), wide, &out, &[dot, bias]);
        }
    }

    /// The transpose of a product of new matrices of the operand's dtype.
    fn deep_product(&mut self, x: u32) {
        let dtype = self.dtype_of(x);
        if dtype == DType::Bool {
            return;
        }
        let (rows, columns) = (1 + self.choice.below(4), 1 + self.choice.below(4));
        let columns = if self.choice.one_in(2) { rows } else { columns };
        let terms = 16 + self.choice.below(240);
        let left = self.lying(dtype, [rows, terms]);
        let right = self.lying(dtype, [terms, columns]);
        let dot = self.push(Op::Dot, dtype, &[rows, columns], &[left, right]);
        self.push(Op::Permute(Permute(smallvec![1, 0])), dtype, &[columns, rows], &[dot]);
    }

    /// A new matrix in row-major layout, transposed, or every second column of one through a pending sum.
    fn lying(&mut self, dtype: DType, [rows, columns]: [usize; 2]) -> u32 {
        let transposed = |builder: &mut Builder, shape: [usize; 2], x: u32| {
            builder.push(Op::Permute(Permute(smallvec![1, 0])), dtype, &shape, &[x])
        };
        match self.choice.below(4) {
            0 | 1 => self.leaf(dtype, &[rows, columns]),
            2 => {
                let leaf = self.leaf(dtype, &[columns, rows]);
                transposed(self, [rows, columns], leaf)
            }
            _ => {
                let leaf = self.leaf(dtype, &[rows, 2 * columns]);
                let doubled = self.push(Op::Binary(Binary::Add), dtype, &[rows, 2 * columns], &[leaf, leaf]);
                let (start, step) = (smallvec![0, 1], smallvec![1, 2]);
                self.push(Op::Slice(Slice { start, step }), dtype, &[rows, columns], &[doubled])
            }
        }
    }
}
