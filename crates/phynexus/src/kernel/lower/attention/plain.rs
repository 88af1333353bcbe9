//! Attention by multiplications and additions, for any device and type. Matrices pass through shared memory in small
//! chunks; each invocation computes a square of the scores, and the same rows of the sums.

use super::{Engine, Matrix, Place, Problem, each};
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
    /// Invocations along each side of a tile.
    side: usize,
    /// Extent of the square of an invocation.
    part: usize,
}

/// Candidates, those for long sequences first.
const SHAPES: [Shape; 3] =
    [Shape { side: 16, part: 4 }, Shape { side: 16, part: 2 }, Shape { side: 8, part: 2 }];

impl Shape {
    /// The shapes that fit the device.
    pub(super) fn usable(held: DType, target: &Target) -> impl Iterator<Item = Shape> {
        let limits = &target.limits;
        SHAPES.into_iter().filter(move |shape| {
            shape.side * shape.side <= limits.block_size
                && shape.side <= limits.block[0].min(limits.block[1])
                && shape.shared_bytes(held) <= limits.shared_bytes
        })
    }

    /// The first shape that fits the device and is not mostly empty, or else the last one that fits.
    pub(super) fn of(problem: &Problem, target: &Target) -> Option<Shape> {
        let is_filled = |shape: &Shape| {
            let tiles = problem.extents()[0].div_ceil(shape.extent()) * problem.heads;
            problem.extents().iter().all(|extent| 2 * extent > shape.extent()) && tiles >= target.processors
        };
        let usable: Vec<Shape> = Shape::usable(problem.held, target).collect();
        usable.iter().find(|shape| is_filled(shape)).or(usable.last()).copied()
    }

    fn extent(self) -> usize {
        self.side * self.part
    }

    fn pitch(self) -> usize {
        self.extent() + APART
    }

    pub(super) fn extents(self) -> [usize; 2] {
        [self.extent(); 2]
    }

    pub(super) fn block(self) -> [usize; 2] {
        [self.side; 2]
    }

    fn shared_bytes(self, held: DType) -> usize {
        (2 * DEPTH + self.extent() + self.side) * self.pitch() * held.size()
    }

    pub(super) fn engine(
        self,
        b: &mut Builder,
        problem: &Problem,
        target: &Target,
        y: &Index,
        x: &Index,
    ) -> Plain {
        let mut array = |rows: usize| b.shared(problem.held, rows * self.pitch());
        let chunks = [array(DEPTH), array(DEPTH)];
        let (weights, partial) = (array(self.extent()), array(self.side));
        let wide = target.vector_bytes >= self.part * problem.held.size();
        Plain { shape: self, held: problem.held, y: y.clone(), x: x.clone(), chunks, weights, partial, wide }
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
    /// Whether an invocation loads its elements of a row at once.
    wide: bool,
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
        let (side, pitch) = (self.shape.side, self.shape.pitch() as i64);
        let invocation = self.y.scale(side as i64).add(&self.x);
        b.over(rows * features / (side * side), AxisKind::Unroll, |b, turn| {
            let number = invocation.add(&turn.scale((side * side) as i64));
            let row = number.quotient(features as i64, b.ranges());
            let feature = number.remainder(features as i64, b.ranges());
            let value =
                matrix.load(b, head, &first.add(&row), &first_feature.add(&feature), &Mask::default());
            let value = b.cast(self.held, value);
            let at =
                if by_features { feature.scale(pitch).add(&row) } else { row.scale(pitch).add(&feature) };
            b.store(to, &at, value);
        });
    }

    /// The invocation's elements of a row of a shared array.
    fn values(&self, b: &mut Builder, array: ArrayId, first: &Index) -> Vec<ValueId> {
        let part = self.shape.part;
        if !self.wide {
            return (0..part).map(|i| b.load(array, &first.shift(i as i64))).collect();
        }
        let vector = b.load_lanes(array, first, part as u8);
        (0..part).map(|lane| b.bind(Type::scalar(self.held), KernelOp::Lane(vector, lane as u8))).collect()
    }

    /// Adds products of elements of two rows of shared arrays to the invocation's elements from `first` on of each row.
    fn multiply(
        &self,
        b: &mut Builder,
        [left, right]: [(ArrayId, &Index); 2],
        (sums, first, held): (ArrayId, usize, usize),
    ) {
        let part = self.shape.part as i64;
        let left = self.values(b, left.0, &left.1.add(&self.y.scale(part)));
        let right = self.values(b, right.0, &right.1.add(&self.x.scale(part)));
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
        self.shape.part
    }

    fn held(&self, columns: usize) -> usize {
        columns.div_ceil(self.shape.extent()).max(1) * self.shape.part
    }

    fn row(&self, _: &Builder, row: &Index) -> Index {
        self.y.scale(self.shape.part as i64).add(row)
    }

    fn column(&self, b: &Builder, column: &Index) -> Index {
        let part = self.shape.part as i64;
        let block = column.quotient(part, b.ranges()).scale(self.shape.extent() as i64);
        block.add(&self.x.scale(part)).add(&column.remainder(part, b.ranges()))
    }

    fn is_first(&self, b: &Builder) -> Mask {
        Mask::within(&self.x, 0, 1, b.ranges())
    }

    fn array(&mut self, b: &mut Builder, columns: usize) -> ArrayId {
        b.registers(self.held, self.shape.part * self.held(columns))
    }

    fn element(&self, _: &Builder, columns: usize, row: &Index, column: &Index) -> Index {
        row.scale(self.held(columns) as i64).add(column)
    }

    fn begin(&self, _: &mut Builder, _: &Problem, _: &Place) {}

    fn exchange(&self, b: &mut Builder, op: Binary, values: ArrayId) {
        let pitch = self.shape.pitch() as i64;
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
            b.over(self.shape.side - 1, AxisKind::Unroll, |b, other| {
                let value = b.load(self.partial, &at.add(&other.shift(1).scale(pitch)));
                b.accumulate(values, row, op, value);
            });
        });
    }

    fn scores(&self, b: &mut Builder, problem: &Problem, place: &Place, scores: &[ArrayId], step: &Index) {
        let [rows, columns] = self.extents();
        let (first, pitch) = (problem.first_column(columns, step), self.shape.pitch() as i64);
        for ((left, right), &sums) in problem.left.iter().zip(&problem.right).zip(scores) {
            each(b, self, columns, |b, engine, row, column| {
                let zero = b.constant(engine.held, 0i32);
                b.store(sums, &engine.element(b, columns, row, column), zero);
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
                    let at = term.scale(pitch);
                    let factors = [(of_rows, &at), (of_columns, &at)];
                    self.multiply(b, factors, (sums, 0, self.held(columns)));
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
        let (first, pitch) = (problem.first_column(columns, step), self.shape.pitch() as i64);
        let matrix = &problem.right[matrix];
        b.barrier();
        each(b, self, columns, |b, engine, row, column| {
            let weight = super::load(b, engine, weights, columns, row, column);
            let at = engine.column(b, column).scale(pitch).add(&engine.row(b, row));
            b.store(engine.weights, &at, weight);
        });
        let width = self.shape.extent();
        for block in 0..matrix.features.div_ceil(width) {
            let feature = Index::constant((block * width) as i64);
            b.over(columns / DEPTH, AxisKind::Serial, |b, chunk| {
                let of_chunk = chunk.scale(DEPTH as i64);
                b.barrier();
                let chunk = Chunk(&first.add(&of_chunk), DEPTH, &feature, width);
                self.fill(b, self.chunks[1], matrix, &place.head, &chunk, false);
                b.barrier();
                b.over(DEPTH, AxisKind::Unroll, |b, term| {
                    let (left, right) = (of_chunk.add(term).scale(pitch), term.scale(pitch));
                    let factors = [(self.weights, &left), (self.chunks[1], &right)];
                    self.multiply(b, factors, (sums, block * self.shape.part, self.held(matrix.features)));
                });
            });
        }
    }

    fn complete(&self, _: &mut Builder) {}
}
