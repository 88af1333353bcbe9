//! What attention's kernels compute: shapes, operands, and which columns belong to a tile of rows.

use super::super::{Source, Target, access::Buffer, operand::Work};
use crate::{
    DType, Scalar,
    kernel::{
        Index, Mask,
        build::Builder,
        loops::{AsyncCopy, ValueId},
        step::{Library, Operand},
    },
    op::composite::Attention,
    shape::Layout,
};

/// What a launch computes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Pass {
    /// The output and the logarithms. Rows are queries.
    Output,
    /// The queries' gradient. Rows are queries.
    Queries,
    /// The gradients of keys and values. Rows are keys.
    KeysAndValues,
    /// One of both, if the sums for both at once do not fit.
    Keys,
    Values,
}

/// Whether the features of a matrix lie side by side, and begin at multiples of a copy's size.
pub(super) fn has_pieces(dtype: DType, layout: &Layout) -> bool {
    let piece = (AsyncCopy::BYTES / dtype.size()) as isize;
    let Some((last, strides)) = layout.strides.split_last() else { return false };
    let whole = |(stride, &extent): (&isize, &usize)| extent == 1 || stride % piece == 0;
    *last == 1 && strides.iter().zip(&layout.shape).all(whole)
}

impl Pass {
    /// The kernel's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Pass::Output => "attention",
            Pass::Queries => "attention_queries",
            Pass::KeysAndValues => "attention_keys_values",
            Pass::Keys => "attention_keys",
            Pass::Values => "attention_values",
        }
    }

    /// Whether rows are keys.
    pub(super) fn is_of_keys(self) -> bool {
        matches!(self, Pass::KeysAndValues | Pass::Keys | Pass::Values)
    }

    /// Passes that compute the same one after the other, if there are any.
    pub(super) fn parts(self) -> &'static [Pass] {
        if self == Pass::KeysAndValues { &[Pass::Keys, Pass::Values] } else { &[] }
    }
}

/// An operand: a matrix of rows and features for each batch and head.
#[derive(Clone)]
pub(super) struct Matrix {
    pub(super) buffer: Buffer,
    pub(super) dtype: DType,
    /// Whether features lie side by side, in pieces that can be copied by themselves.
    pub(super) is_copied: bool,
    pub(super) strides: [i64; 4],
    pub(super) heads: i64,
    pub(super) rows: usize,
    pub(super) features: usize,
}

impl Matrix {
    pub(super) fn new(work: &mut Work, operand: &Operand, at: usize) -> Matrix {
        let buffer = work.operand(operand, Source::Binding(at));
        let layout = &operand.layout;
        let extent = |d: usize| layout.shape.get(d).copied().unwrap_or(1);
        let strides = [0, 1, 2, 3].map(|d| layout.strides.get(d).map_or(0, |&stride| stride as i64));
        let piece = AsyncCopy::BYTES / operand.dtype.size();
        let is_copied = layout.shape.len() == 4
            && has_pieces(operand.dtype, layout)
            && extent(3).is_multiple_of(piece)
            && buffer.start % piece as i64 == 0;
        Matrix {
            buffer,
            dtype: operand.dtype,
            is_copied,
            strides,
            heads: extent(1).max(1) as i64,
            rows: extent(2),
            features: extent(3),
        }
    }

    /// The index of an element, given a head of the whole batch.
    pub(super) fn index(&self, b: &Builder, head: &Index, row: &Index, feature: &Index) -> Index {
        let at = [
            head.quotient(self.heads, b.ranges()),
            head.remainder(self.heads, b.ranges()),
            row.clone(),
            feature.clone(),
        ];
        at.iter().zip(self.strides).fold(Index::default(), |sum, (at, stride)| sum.add(&at.scale(stride)))
    }

    /// Where there is such an element.
    pub(super) fn holds(&self, b: &Builder, row: &Index, feature: &Index) -> Mask {
        let inside = |index: &Index, extent: usize| Mask::within(index, 0, extent as i64, b.ranges());
        inside(row, self.rows).and(&inside(feature, self.features))
    }

    /// Loads an element, 0 where there is none.
    pub(super) fn load(&self, b: &mut Builder, head: &Index, row: &Index, feature: &Index) -> ValueId {
        let index = self.index(b, head, row, feature);
        let mask = self.holds(b, row, feature);
        let access = self.buffer.access(b, &index, mask, &Mask::default(), 1);
        b.load_access(access, Scalar::Int(0), 1)
    }
}

/// Shapes, operands and attributes.
pub(super) struct Problem<'a> {
    pub(super) attention: &'a Attention,
    pub(super) pass: Pass,
    /// Batches times heads.
    pub(super) heads: usize,
    pub(super) queries: usize,
    pub(super) keys: usize,
    /// The type of scores and sums.
    pub(super) held: DType,
    /// The type of the result.
    pub(super) stored: DType,
    /// Bytes of the widest store.
    pub(super) vector_bytes: usize,
    /// Whether exponents are those of 2, which is faster, but rounds once more.
    pub(super) is_binary: bool,
    /// What the scores are products of: matrices with the rows of the result, and with its columns.
    pub(super) left: Vec<Matrix>,
    pub(super) right: Vec<Matrix>,
    pub(super) mask: Option<Matrix>,
    /// The random state of dropout, and the elements between its words.
    pub(super) state: Option<(Buffer, i64)>,
    /// The rows' logarithms and `delta`, for gradients.
    pub(super) of_queries: Vec<Matrix>,
    pub(super) result: Buffer,
}

/// The tile of a group.
pub(super) struct Place {
    pub(super) head: Index,
    /// The first row.
    pub(super) row: Index,
}

impl<'a> Problem<'a> {
    pub(super) fn new(
        work: &mut Work,
        library: &Library,
        attention: &'a Attention,
        pass: Pass,
        result: Source,
        target: &Target,
    ) -> Problem<'a> {
        let operands = &library.operands;
        let mut matrix = |at: usize| Matrix::new(work, &operands[at], at);
        let [q, k, v] = [matrix(0), matrix(1), matrix(2)];
        let mask = attention.mask.then(|| matrix(3));
        let first = attention.shared();
        let (queries, keys, heads) = (q.rows, k.rows, operands[0].layout.shape[..2].iter().product());
        let (mut of_queries, mut left, mut right) = (Vec::new(), vec![q], vec![k]);
        if pass != Pass::Output {
            of_queries.extend([matrix(first), matrix(first + 2)]);
            left.push(matrix(first + 1));
        }
        if pass != Pass::Values {
            right.push(v);
        }
        if pass.is_of_keys() {
            std::mem::swap(&mut left, &mut right);
        }
        let state = (attention.dropout > 0).then(|| {
            let (at, operand) = (attention.state(), &operands[attention.state()]);
            (work.operand(operand, Source::Binding(at)), operand.layout.strides[0] as i64)
        });
        let (held, stored) = (operands[0].dtype.compute(), library.node.dtype);
        let result = work.buffer(stored, library.node.len(), result, true);
        // Weights for products of panels are rounded to 16 bits.
        let is_binary = left[0].dtype.size() == 2;
        Problem {
            vector_bytes: target.vector_bytes,
            attention,
            pass,
            heads,
            queries,
            keys,
            held,
            stored,
            is_binary,
            left,
            right,
            mask,
            state,
            of_queries,
            result,
        }
    }

    /// The number of rows and of columns.
    pub(super) fn extents(&self) -> [usize; 2] {
        if self.pass.is_of_keys() { [self.keys, self.queries] } else { [self.queries, self.keys] }
    }

    /// The most features of a matrix.
    pub(super) fn features(&self) -> usize {
        self.left.iter().chain(&self.right).map(|matrix| matrix.features).max().unwrap_or(0)
    }

    /// Products of the first matrices are scores; those of the second ones are derivatives by weights.
    pub(super) fn pairs(&self) -> usize {
        self.left.len()
    }

    /// What is added to the sums: the array of weights, the matrix, and where the sums go in the result.
    pub(super) fn sums(&self) -> Vec<(usize, usize, usize)> {
        let of_keys = self.heads * self.queries * self.right[0].features;
        let of_values = of_keys + self.heads * self.keys * self.right[0].features;
        let (keys, values) = ((1, 0, of_keys), (0, 1, of_values));
        match self.pass {
            Pass::Output => vec![(0, 1, 0)],
            Pass::Queries => vec![(1, 0, 0)],
            Pass::KeysAndValues => vec![keys, values],
            Pass::Keys => vec![keys],
            Pass::Values => vec![values],
        }
    }

    /// The number of a row of a part of the result. In gradients, positions come before heads.
    pub(super) fn result_row(&self, b: &Builder, head: &Index, row: &Index) -> Index {
        let rows = self.extents()[0] as i64;
        if self.pass == Pass::Output {
            return head.scale(rows).add(row);
        }
        let heads = self.left[0].heads;
        let batch = head.quotient(heads, b.ranges());
        batch.scale(rows).add(row).scale(heads).add(&head.remainder(heads, b.ranges()))
    }

    /// The tile of a group. Those with the most columns come first.
    pub(super) fn place(&self, b: &Builder, group: &Index, rows: usize, tiles: usize) -> Place {
        let number = group.quotient(self.heads as i64, b.ranges());
        let tile = match self.pass.is_of_keys() {
            true => number,
            false => Index::constant(tiles as i64 - 1).sub(&number),
        };
        Place { head: group.remainder(self.heads as i64, b.ranges()), row: tile.scale(rows as i64) }
    }

    /// The first column of a step. Steps begin where all rows of a tile have weights.
    pub(super) fn first_column(&self, columns: usize, step: &Index) -> Index {
        let last = self.extents()[1].div_ceil(columns) as i64 - 1;
        let number = if self.pass.is_of_keys() { Index::constant(last).sub(step) } else { step.clone() };
        number.scale(columns as i64)
    }

    /// Whether there is such a step, and a weight in it that may differ from 0.
    pub(super) fn has_step(
        &self,
        b: &Builder,
        place: &Place,
        [rows, columns]: [usize; 2],
        step: &Index,
    ) -> Mask {
        let steps = self.extents()[1].div_ceil(columns) as i64;
        let exists = Mask::within(step, 0, steps, b.ranges());
        if !self.attention.causal {
            return exists;
        }
        let apart = self.key_after_query(&place.row, &self.first_column(columns, step));
        // Some key of the step comes no later than some query.
        let farthest = if self.pass.is_of_keys() { columns } else { rows };
        exists.and(&Mask::within(&apart, i64::MIN / 4, farthest as i64, b.ranges()))
    }

    /// By how much the key of a row and a column comes after the query.
    pub(super) fn key_after_query(&self, row: &Index, column: &Index) -> Index {
        if self.pass.is_of_keys() { row.sub(column) } else { column.sub(row) }
    }

    /// The factor of natural logarithms in exponents.
    pub(super) fn unit(&self) -> f64 {
        if self.is_binary { std::f64::consts::LOG2_E } else { 1.0 }
    }

    /// The factor of scores in exponents.
    pub(super) fn scale(&self) -> f64 {
        self.attention.scale.as_f64() * self.unit()
    }

    /// Whether scores are kept unscaled until their exponentials are computed. The greatest one must stay the greatest.
    pub(super) fn is_scaled_late(&self) -> bool {
        self.mask.is_none() && self.scale() as f32 > 0.0
    }
}
