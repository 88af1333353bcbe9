//! Rows by their numbers.

use super::{
    Call, Check, InputGradients, IrNode, Number, Op, Operation, OracleArray, Reads, Sample, SampleOperand,
    need, scatter::ScatterMode,
};
use crate::{DType, Error, Result, op::Combine};

/// What is known about the indices of a gather or scatter when it is recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IndexRange {
    /// Nothing: the device checks them, and an index out of range is an error.
    Unknown,
    /// All are in range: a GPU skips the check, and the host need not wait for its result.
    Known,
}

/// Inputs x `[N, D]` and index `[M]` (any integer dtype, -N to N-1): selects rows of x, `[M, D]`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Gather(pub IndexRange);

impl Operation for Gather {
    fn name(&self) -> &'static str {
        "gather"
    }

    fn operands(&self) -> Option<usize> {
        Some(2)
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        let (table, index) = (inputs[0], inputs[1]);
        need(
            table.shape.len() == 2 && index.shape.len() == 1 && node.shape.len() == 2,
            "rows of a matrix by a vector",
        )?;
        need(index.dtype.is_integer() && table.dtype == node.dtype, "wrong dtypes")?;
        need(node.shape[0] == index.shape[0] && node.shape[1] == table.shape[1], "wrong shape")?;
        need(node.is_empty() || table.shape[0] > 0, "no row to take")
    }

    /// Rows that were read several times accumulate their gradients.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        let sum = (ScatterMode::Combine(Combine::Sum), self.0);
        call.each(|_| call.input(0).like(0.0).scatter(sum, &call.input(1), &call.gradient()))
    }

    fn gradient_reads(&self) -> Reads {
        Reads::OPERANDS
    }

    fn can_fail(&self) -> bool {
        self.0 == IndexRange::Unknown
    }

    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let (x, index) = (inputs[0], inputs[1]);
        let (rows, width) = (x.shape[0], x.shape[1]);
        let mut out = Vec::with_capacity(node.len());
        for &i in &index.elements {
            match row(self.name(), i, rows)? {
                Some(r) => out.extend_from_slice(&x.elements[r * width..(r + 1) * width]),
                None => out.extend(std::iter::repeat_n(Number::Undetermined, width)),
            }
        }
        Ok(out)
    }

    fn samples() -> Vec<Sample> {
        let sample = |(rows, width, count): (usize, usize, usize), dtype| {
            let index = SampleOperand::new(&[count]).fixed(dtype).index(rows);
            let gather = Op::Gather(Gather(IndexRange::Unknown));
            Sample::primitive(gather, &[count, width], [SampleOperand::new(&[rows, width]), index])
        };
        SIZES.into_iter().flat_map(|size| DType::INTEGERS.map(|dtype| sample(size, dtype))).collect()
    }
}

/// Rows of a matrix, their width, and the number of indices. The last one has many updates of few rows, whose runs GPUs
/// combine first.
pub(super) const SIZES: [(usize, usize, usize); 6] =
    [(1, 1, 1), (5, 3, 8), (5, 3, 0), (40, 70, 25), (6, 0, 2), (2, 3, 300)];

/// Maps a row index from -N to N-1 to 0 to N-1; `None` if the index is undetermined.
pub(super) fn row(op: &'static str, index: Number, rows: usize) -> Result<Option<usize>> {
    let Number::Integer(i) = index else { return Ok(None) };
    let wrapped = if i < 0 { i + rows as i128 } else { i };
    let found = usize::try_from(wrapped).ok().filter(|row| *row < rows);
    found.map(Some).ok_or(Error::Index { op, index: i as i64, size: rows, axis: None })
}
