//! Attention by multiplications and additions, for any device and type. Matrices pass through shared memory in small
//! chunks; each invocation computes a square of the scores, and the same rows of the sums.

use super::{
    Engine,
    problem::{Matrix, Place, Problem},
};
use crate::{
    DType,
    kernel::{
        Index, Mask,
        build::Builder,
        loops::{ArrayId, AxisKind, KernelOp, Type, ValueId},
        lower::Target,
    },
    op::Binary,
};

/// Features, or columns, in shared memory at once.
const DEPTH: usize = 16;
/// Elements more than needed between rows of shared arrays, to spread over the memory banks.
const APART: usize = 4;

/// How a group's work is divided.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Invocations that share columns, and invocations that share rows.
    block: [usize; 2],
    /// Rows and columns of the part of a tile that an invocation computes.
    part: [usize; 2],
}

/// Candidates, those for long sequences first.
const SHAPES: [Shape; 3] = [
    Shape { block: [8, 16], part: [8, 4] },
    Shape { block: [16, 16], part: [2, 2] },
    Shape { block: [8, 8], part: [2, 2] },
];

impl Shape {
    /// The shapes that fit the device.
    pub(super) fn usable(held: DType, target: &Target) -> impl Iterator<Item = Shape> {
        let limits = &target.limits;
        SHAPES.into_iter().filter(move |shape| {
            let [down, across] = shape.block;
            down * across <= limits.block_size
                && across <= limits.block[0]
                && down <= limits.block[1]
                && shape.shared_bytes(held) <= limits.shared_bytes
        })
    }

    /// The first shape that fits the device and is not mostly empty, or else the last one that fits.
    pub(super) fn of(problem: &Problem, target: &Target) -> Option<Shape> {
        let is_filled = |shape: &Shape| {
            let [rows, columns] = shape.extents();
            let [has_rows, has_columns] = problem.extents();
            let tiles = has_rows.div_ceil(rows) * problem.heads;
            2 * has_rows > rows && 2 * has_columns > columns && tiles >= target.processors
        };
        // Sums and scores that an invocation holds. It may hold more than one of a product, but not any number.
        let registers = |shape: &Shape| {
            let [rows, columns] = shape.part;
            let held = |features: usize| features.div_ceil(shape.extents()[1]).max(1) * columns;
            let sums: usize =
                problem.sums().iter().map(|&(_, matrix, _)| held(problem.right[matrix].features)).sum();
            rows * (sums + problem.pairs() * columns) * problem.held.size() / DType::F32.size()
        };
        let holds = |shape: &&Shape| registers(shape) <= 3 * target.sums;
        let usable: Vec<Shape> = Shape::usable(problem.held, target).collect();
        usable.iter().filter(holds).find(|shape| is_filled(shape)).or(usable.last()).copied()
    }

    pub(super) fn extents(self) -> [usize; 2] {
        [0, 1].map(|d| self.block[d] * self.part[d])
    }

    /// Elements between rows of shared arrays of rows, and of columns.
    fn pitches(self) -> [usize; 2] {
        self.extents().map(|extent| extent + APART)
    }

    pub(super) fn block(self) -> [usize; 2] {
        self.block
    }

    fn shared_bytes(self, held: DType) -> usize {
        let ([rows, columns], [_, width]) = (self.pitches(), self.extents());
        ((DEPTH + width + self.block[1]) * rows + DEPTH * columns) * held.size()
    }

    pub(super) fn engine(
        self,
        b: &mut Builder,
        problem: &Problem,
        target: &Target,
        y: &Index,
        x: &Index,
    ) -> Plain {
        let [rows, columns] = self.pitches();
        let mut array = |length: usize| b.shared(problem.held, length);
        let chunks = [array(DEPTH * rows), array(DEPTH * columns)];
        let (weights, partial) = (array(self.extents()[1] * rows), array(self.block[1] * rows));
        let most = target.vector_bytes / problem.held.size();
        let wide = [4, 2].into_iter().find(|&lanes| lanes <= most && self.part[1].is_multiple_of(lanes));
        let (y, x, wide) = (y.clone(), x.clone(), wide.unwrap_or(1));
        Plain { shape: self, held: problem.held, y, x, chunks, weights, partial, wide }
    }
}

pub(super) struct Plain {
    shape: Shape,
    held: DType,
    y: Index,
    x: Index,
    /// Some features of the tile's rows and of a step's columns; or some columns and their features.
    chunks: [ArrayId; 2],
    /// Weights by columns.
    weights: ArrayId,
    /// Values of each row, to be combined.
    partial: ArrayId,
    /// Elements of a row that an invocation loads at once.
    wide: usize,
}

/// A part of a matrix: its first row, the number of rows, its first feature, the number of features.
struct Chunk<'a>(&'a Index, usize, &'a Index, usize);

impl Plain {
    /// Copies a part of a matrix to a shared array, by features or by rows.
    fn fill(
        &self,
        b: &mut Builder,
        to: ArrayId,
        matrix: &Matrix,
        head: &Index,
        chunk: &Chunk,
        by_features: bool,
    ) {
        let Chunk(first, rows, first_feature, features) = *chunk;
        let [down, across] = self.shape.block;
        let pitch = self.shape.pitches()[usize::from(to != self.chunks[0])] as i64;
        let invocation = self.y.scale(across as i64).add(&self.x);
        b.over(rows * features / (down * across), AxisKind::Unroll, |b, turn| {
            let number = invocation.add(&turn.scale((down * across) as i64));
            let row = number.quotient(features as i64, b.ranges());
            let feature = number.remainder(features as i64, b.ranges());
            let value = matrix.load(b, head, &first.add(&row), &first_feature.add(&feature));
            let value = b.cast(self.held, value);
            let at =
                if by_features { feature.scale(pitch).add(&row) } else { row.scale(pitch).add(&feature) };
            b.store(to, &at, value);
        });
    }

    /// The invocation's elements of a row of a shared array.
    fn values(&self, b: &mut Builder, array: ArrayId, first: &Index, count: usize) -> Vec<ValueId> {
        let mut values = Vec::with_capacity(count);
        for at in (0..count).step_by(self.wide) {
            let vector = b.load_lanes(array, &first.shift(at as i64), self.wide as u8);
            values.extend((0..self.wide).map(|lane| match self.wide {
                1 => vector,
                _ => b.bind(Type::scalar(self.held), KernelOp::Lane(vector, lane as u8)),
            }));
        }
        values
    }

    /// Adds products of elements of two rows of shared arrays to the invocation's elements from `first` on of each row.
    fn multiply(
        &self,
        b: &mut Builder,
        [left, right]: [(ArrayId, &Index); 2],
        (sums, first, held): (ArrayId, usize, usize),
    ) {
        let [height, width] = self.shape.part;
        let left = self.values(b, left.0, &left.1.add(&self.y.scale(height as i64)), height);
        let right = self.values(b, right.0, &right.1.add(&self.x.scale(width as i64)), width);
        for (row, &left) in left.iter().enumerate() {
            for (column, &right) in right.iter().enumerate() {
                let at = Index::constant((row * held + first + column) as i64);
                let before = b.load(sums, &at);
                let after = b.multiply_add(left, right, before);
                b.store(sums, &at, after);
            }
        }
    }
}

impl Engine for Plain {
    fn extents(&self) -> [usize; 2] {
        self.shape.extents()
    }

    fn rows(&self) -> usize {
        self.shape.part[0]
    }

    fn elements(&self, columns: usize) -> usize {
        columns.div_ceil(self.shape.extents()[1]).max(1) * self.shape.part[1]
    }

    fn row(&self, _: &Builder, row: &Index) -> Index {
        self.y.scale(self.shape.part[0] as i64).add(row)
    }

    fn column(&self, b: &Builder, column: &Index) -> Index {
        let part = self.shape.part[1] as i64;
        let block = column.quotient(part, b.ranges()).scale(self.shape.extents()[1] as i64);
        block.add(&self.x.scale(part)).add(&column.remainder(part, b.ranges()))
    }

    fn is_first(&self, b: &Builder) -> Mask {
        Mask::within(&self.x, 0, 1, b.ranges())
    }

    fn array(&mut self, b: &mut Builder, columns: usize) -> ArrayId {
        b.registers(self.held, self.rows() * self.elements(columns))
    }

    fn element(&self, _: &Builder, columns: usize, row: &Index, column: &Index) -> Index {
        row.scale(self.elements(columns) as i64).add(column)
    }

    fn begin(&self, _: &mut Builder, _: &Problem, _: &Place) {}

    fn exchange(&self, b: &mut Builder, op: Binary, values: ArrayId) {
        let pitch = self.shape.pitches()[0] as i64;
        b.over(self.rows(), AxisKind::Unroll, |b, row| {
            let value = b.load(values, row);
            let at = self.x.scale(pitch).add(&self.row(b, row));
            b.store(self.partial, &at, value);
        });
        b.barrier();
        b.over(self.rows(), AxisKind::Unroll, |b, row| {
            let at = self.row(b, row);
            let first = b.load(self.partial, &at);
            b.store(values, row, first);
            b.over(self.shape.block[1] - 1, AxisKind::Unroll, |b, other| {
                let value = b.load(self.partial, &at.add(&other.shift(1).scale(pitch)));
                b.accumulate(values, row, op, value);
            });
        });
    }

    fn scores(&self, b: &mut Builder, problem: &Problem, place: &Place, scores: &[ArrayId], step: &Index) {
        let [rows, columns] = self.extents();
        let first = problem.first_column(columns, step);
        let pitches = self.shape.pitches().map(|pitch| pitch as i64);
        for ((left, right), &sums) in problem.left.iter().zip(&problem.right).zip(scores) {
            b.over(self.rows() * self.elements(columns), AxisKind::Unroll, |b, at| {
                let zero = b.constant(self.held, 0i32);
                b.store(sums, at, zero);
            });
            if left.features == 0 {
                continue;
            }
            b.over(left.features.div_ceil(DEPTH), AxisKind::Serial, |b, chunk| {
                let feature = chunk.scale(DEPTH as i64);
                b.barrier();
                let [of_rows, of_columns] = self.chunks;
                self.fill(b, of_rows, left, &place.head, &Chunk(&place.row, rows, &feature, DEPTH), true);
                self.fill(b, of_columns, right, &place.head, &Chunk(&first, columns, &feature, DEPTH), true);
                b.barrier();
                b.over(DEPTH, AxisKind::Unroll, |b, term| {
                    let [row, column] = pitches.map(|pitch| term.scale(pitch));
                    let factors = [(of_rows, &row), (of_columns, &column)];
                    self.multiply(b, factors, (sums, 0, self.elements(columns)));
                });
            });
        }
    }

    fn accumulate(
        &self,
        b: &mut Builder,
        problem: &Problem,
        place: &Place,
        weights: ArrayId,
        matrix: usize,
        sums: ArrayId,
        step: &Index,
    ) {
        let [_, columns] = self.extents();
        let first = problem.first_column(columns, step);
        let [row_pitch, pitch] = self.shape.pitches().map(|pitch| pitch as i64);
        let matrix = &problem.right[matrix];
        b.barrier();
        b.over(self.rows(), AxisKind::Unroll, |b, row| {
            b.over(self.elements(columns), AxisKind::Unroll, |b, column| {
                let weight = b.load(weights, &self.element(b, columns, row, column));
                let at = self.column(b, column).scale(row_pitch).add(&self.row(b, row));
                b.store(self.weights, &at, weight);
            });
        });
        let [_, width] = self.shape.extents();
        for block in 0..matrix.features.div_ceil(width) {
            let feature = Index::constant((block * width) as i64);
            b.over(columns / DEPTH, AxisKind::Serial, |b, chunk| {
                let of_chunk = chunk.scale(DEPTH as i64);
                b.barrier();
                let chunk = Chunk(&first.add(&of_chunk), DEPTH, &feature, width);
                self.fill(b, self.chunks[1], matrix, &place.head, &chunk, false);
                b.barrier();
                b.over(DEPTH, AxisKind::Unroll, |b, term| {
                    let (left, right) = (of_chunk.add(term).scale(row_pitch), term.scale(pitch));
                    let factors = [(self.weights, &left), (self.chunks[1], &right)];
                    self.multiply(
                        b,
                        factors,
                        (sums, block * self.shape.part[1], self.elements(matrix.features)),
                    );
                });
            });
        }
    }

    fn complete(&self, _: &mut Builder) {}
}
