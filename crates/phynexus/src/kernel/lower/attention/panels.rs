//! Attention by products of panels: a team of subgroups computes the scores of some rows from panels in shared memory,
//! and multiplies weights that it keeps in its fragments with panels of values. The panels of the next steps are copied
//! meanwhile.

use super::{
    Engine,
    problem::{Matrix, Pass, Place, Problem},
};
use crate::{
    DType,
    kernel::{
        Index, Mask,
        build::Builder,
        loops::{
            ArrayId, AsyncCopy, AxisKind, Factor, Fragment, KernelOp, Matrix as Operation, MatrixShape,
            MatrixUnit, MemoryAccess, Panel, Role, Tile, Type,
        },
        lower::Target,
    },
    op::Binary,
};

/// Columns of a step.
const COLUMNS: usize = Panel::WIDTH;
/// The most steps whose panels are in shared memory at once.
const STAGES: usize = 4;
/// Terms of a fragment of weights.
const DEPTH: usize = 16;

/// How a group's work is divided.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    teams: usize,
    /// Steps whose panels are in shared memory at once.
    stages: usize,
}

/// Candidates, the fastest first.
const SHAPES: [Shape; 3] =
    [Shape { teams: 2, stages: STAGES }, Shape { teams: 2, stages: 3 }, Shape { teams: 1, stages: 3 }];

/// Features with those that fill up panels.
fn padded(features: usize) -> usize {
    features.next_multiple_of(Panel::WIDTH).max(Panel::WIDTH)
}

/// The most features: with more of them, the sums do not fit an invocation's registers.
const FEATURES: usize = 128;

/// Whether products of panels multiply matrices of this type with so many features, and of so many values.
pub(super) fn pay(dtype: DType, features: [usize; 2], target: &Target) -> bool {
    let has = |unit: &MatrixUnit| unit.multiplies_panels([dtype; 2], dtype.compute());
    let piece = AsyncCopy::BYTES / dtype.size();
    target.limits.matrices.iter().any(has)
        && target.limits.async_copies
        && dtype.size() == 2
        && features.iter().all(|features| *features <= FEATURES && features.is_multiple_of(piece))
}

impl Shape {
    /// The shape for this problem, if the device has products of panels for it.
    pub(super) fn of(problem: &Problem, target: &Target) -> Option<Shape> {
        let limits = &target.limits;
        let dtype = problem.left[0].dtype;
        let features = [&problem.left[0], &problem.right[problem.right.len() - 1]].map(|m| m.features);
        let mut matrices = problem.left.iter().chain(&problem.right);
        let is_possible = pay(dtype, features, target)
            && problem.features() <= FEATURES
            && target.vector_bytes >= AsyncCopy::BYTES
            && matrices.all(|matrix| matrix.dtype == dtype && matrix.is_copied);
        let fits = |shape: &Shape| {
            shape.block()[1] <= limits.block_size && shape.shared_bytes(problem) <= limits.shared_bytes
        };
        // Measured on an H200. Keys have twice as many sums: with few features, three groups of one team fit a
        // processor.
        let is_small = problem.pass == Pass::Keys && padded(problem.features()) == Panel::WIDTH;
        let shapes = if is_small { &SHAPES[2..] } else { &SHAPES[..] };
        let most = if problem.pass == Pass::Keys { 3 } else { STAGES };
        let is_used = |shape: &Shape| shape.teams == 1 || problem.extents()[0] > Panel::ROWS;
        let usable = |shape: &&Shape| is_used(shape) && shape.stages <= most && fits(shape);
        shapes.iter().filter(|_| is_possible).find(usable).copied()
    }

    pub(super) fn rows(self) -> usize {
        self.teams * Panel::ROWS
    }

    pub(super) fn block(self) -> [usize; 2] {
        [1, self.teams * Panel::INVOCATIONS]
    }

    /// Steps whose panels are copied in advance. The products of the step before are complete for all teams only after
    /// the next barrier.
    fn ahead(self) -> usize {
        self.stages - 2
    }

    fn shared_bytes(self, problem: &Problem) -> usize {
        let features = |matrices: &[Matrix]| matrices.iter().map(|m| padded(m.features)).sum::<usize>();
        2 * (self.rows() * features(&problem.left) + self.stages * COLUMNS * features(&problem.right))
    }

    pub(super) fn engine(self, b: &mut Builder, problem: &Problem, x: &Index) -> Teams {
        let mut panels = |matrices: &[Matrix], rows: usize| -> Vec<ArrayId> {
            matrices.iter().map(|m| b.panels(m.dtype, rows * padded(m.features))).collect()
        };
        let (left, right) =
            (panels(&problem.left, self.rows()), panels(&problem.right, self.stages * COLUMNS));
        let mut weights = vec![None; problem.right.len()];
        for (_, matrix, _) in problem.sums() {
            let fragments = b.fragments(Fragment {
                role: Role::Left,
                shape: MatrixShape { rows: Panel::ROWS, columns: Panel::WIDTH, depth: DEPTH },
                dtype: problem.left[0].dtype,
                length: COLUMNS / DEPTH,
            });
            weights[matrix] = Some(fragments(Index::default()));
        }
        Teams { shape: self, held: problem.held, x: x.clone(), left, right, weights }
    }
}

pub(super) struct Teams {
    shape: Shape,
    held: DType,
    /// The invocation.
    x: Index,
    /// The panels of the tile's rows, for each left matrix: by features in groups, then by rows.
    left: Vec<ArrayId>,
    /// The panels of some steps' columns, for each right matrix.
    right: Vec<ArrayId>,
    /// The first fragment of weights for each right matrix that is added to sums.
    weights: Vec<Option<Tile>>,
}

impl Teams {
    /// Starts copying rows of a matrix to panels that begin at `to`.
    fn copy(
        &self,
        b: &mut Builder,
        matrix: &Matrix,
        head: &Index,
        (first, rows, exists): (&Index, usize, &Mask),
        (array, to): (ArrayId, &Index),
    ) {
        let block = self.shape.block()[1];
        let (piece, width) = (AsyncCopy::BYTES / matrix.dtype.size(), Panel::WIDTH);
        let pieces = rows * padded(matrix.features) / piece;
        let across = (width / piece) as i64;
        b.over(pieces.div_ceil(block), AxisKind::Unroll, |b, turn| {
            let number = self.x.add(&turn.scale(block as i64));
            let inside = Mask::within(&number, 0, pieces as i64, b.ranges());
            b.when(inside, |b| {
                let in_row = number.remainder(across, b.ranges()).scale(piece as i64);
                let row = number.quotient(across, b.ranges());
                let group = row.quotient(rows as i64, b.ranges());
                let row = row.remainder(rows as i64, b.ranges());
                let feature = group.scale(width as i64).add(&in_row);
                let row_place = first.add(&row);
                let mask = matrix.holds(b, &row_place, &feature).and(exists);
                let index = matrix.index(b, head, &row_place, &feature);
                let from = matrix.buffer.access(b, &index, mask, &Mask::default(), piece);
                let panel = group.scale((rows * width) as i64).add(&row.scale(width as i64));
                let to = MemoryAccess::at(array, &to.add(&panel).add(&in_row));
                b.async_copy(AsyncCopy::Begin { from: Box::new(from), to: Box::new(to) });
            });
        });
    }

    /// Starts copying the columns of a step.
    fn copy_step(&self, b: &mut Builder, problem: &Problem, place: &Place, step: &Index) {
        let exists = problem.has_step(b, place, self.extents(), step);
        let first = problem.first_column(COLUMNS, step);
        for at in 0..self.right.len() {
            let to = (self.right[at], &self.slot(b, &problem.right[at], step));
            self.copy(b, &problem.right[at], &place.head, (&first, COLUMNS, &exists), to);
        }
    }

    /// Where the panels of a step begin.
    fn slot(&self, b: &Builder, matrix: &Matrix, step: &Index) -> Index {
        step.remainder(self.shape.stages as i64, b.ranges()).scale((COLUMNS * padded(matrix.features)) as i64)
    }
}

/// The fragment that an array stands for.
fn tile(array: ArrayId) -> Tile {
    let fragment = match array {
        ArrayId::Fragment(number) => number,
        // Arrays of the engine are fragments.
        _ => u16::MAX,
    };
    Tile { fragment, index: Index::default() }
}

impl Engine for Teams {
    fn extents(&self) -> [usize; 2] {
        [self.shape.rows(), COLUMNS]
    }

    fn rows(&self) -> usize {
        2
    }

    fn elements(&self, columns: usize) -> usize {
        padded(columns) / 4
    }

    fn row(&self, b: &Builder, row: &Index) -> Index {
        let subgroup = self.x.quotient(32, b.ranges()).scale(16);
        let quad = self.x.remainder(32, b.ranges()).quotient(4, b.ranges());
        subgroup.add(&quad).add(&row.scale(8))
    }

    fn column(&self, b: &Builder, column: &Index) -> Index {
        let in_quad = self.x.remainder(4, b.ranges()).scale(2);
        column.quotient(2, b.ranges()).scale(8).add(&in_quad).add(&column.remainder(2, b.ranges()))
    }

    fn is_first(&self, b: &Builder) -> Mask {
        Mask::within(&self.x.remainder(4, b.ranges()), 0, 1, b.ranges())
    }

    fn array(&mut self, b: &mut Builder, columns: usize) -> ArrayId {
        let sums = b.fragments(Fragment {
            role: Role::Accumulator,
            shape: MatrixShape { rows: Panel::ROWS, columns: padded(columns), depth: DEPTH },
            dtype: self.held,
            length: 1,
        });
        ArrayId::Fragment(sums(Index::default()).fragment)
    }

    fn element(&self, b: &Builder, _: usize, row: &Index, column: &Index) -> Index {
        let pair = column.quotient(2, b.ranges()).scale(4);
        pair.add(&row.scale(2)).add(&column.remainder(2, b.ranges()))
    }

    fn begin(&self, b: &mut Builder, problem: &Problem, place: &Place) {
        let always = Mask::default();
        for (matrix, &array) in problem.left.iter().zip(&self.left) {
            let rows = (&place.row, self.shape.rows(), &always);
            self.copy(b, matrix, &place.head, rows, (array, &Index::default()));
        }
        for step in 0..self.shape.ahead() {
            self.copy_step(b, problem, place, &Index::constant(step as i64));
            b.async_copy(AsyncCopy::Mark);
        }
    }

    fn exchange(&self, b: &mut Builder, op: Binary, values: ArrayId) {
        b.over(self.rows(), AxisKind::Unroll, |b, row| {
            for bits in [1, 2] {
                let value = b.load(values, row);
                let other = b.bind(Type::scalar(self.held), KernelOp::ShuffleXor(value, bits));
                let both = b.binary(op, value, other);
                b.store(values, row, both);
            }
        });
    }

    fn scores(&self, b: &mut Builder, problem: &Problem, place: &Place, scores: &[ArrayId], step: &Index) {
        b.async_copy(AsyncCopy::Wait(self.shape.ahead() as u8 - 1));
        b.barrier();
        let team = self.x.quotient(Panel::INVOCATIONS as i64, b.ranges());
        for (at, &array) in scores.iter().enumerate() {
            let sums = tile(array);
            let matrix = &problem.right[at];
            let first = self.slot(b, matrix, step);
            for group in 0..padded(matrix.features) / Panel::WIDTH {
                let panel = |array: ArrayId, index: Index, rows: usize| {
                    let index = index.shift((group * rows * Panel::WIDTH) as i64);
                    Panel { access: MemoryAccess::at(array, &index), along_terms: true }
                };
                let rows = team.scale((Panel::ROWS * Panel::WIDTH) as i64);
                let left = Factor::Panel(panel(self.left[at], rows, self.shape.rows()));
                let right = panel(self.right[at], first.clone(), COLUMNS);
                b.matrix(Operation::Product { sums: sums.fragment, left, right, begins: group == 0 });
            }
        }
        self.copy_step(b, problem, place, &step.shift(self.shape.ahead() as i64));
        b.async_copy(AsyncCopy::Mark);
        b.matrix(Operation::Settle(0));
    }

    fn accumulate(
        &self,
        b: &mut Builder,
        problem: &Problem,
        _: &Place,
        weights: ArrayId,
        matrix: usize,
        sums: ArrayId,
        step: &Index,
    ) {
        let Some(factor) = self.weights[matrix].clone() else { return };
        let dtype = problem.right[matrix].dtype;
        // Fragments of both roles are distributed alike.
        b.over(COLUMNS / 4, AxisKind::Unroll, |b, pair| {
            let values = [0, 1].map(|lane| {
                let weight = b.load(weights, &pair.scale(2).shift(lane));
                b.cast(dtype, weight)
            });
            let both = b.bind(Type { dtype, lanes: 2 }, KernelOp::Pack(values.into_iter().collect()));
            b.store(ArrayId::Fragment(factor.fragment), &pair.scale(2), both);
        });
        let index = self.slot(b, &problem.right[matrix], step);
        let right = Panel { access: MemoryAccess::at(self.right[matrix], &index), along_terms: false };
        let left = Factor::Fragments(factor);
        b.matrix(Operation::Product { sums: tile(sums).fragment, left, right, begins: false });
    }

    fn complete(&self, b: &mut Builder) {
        b.matrix(Operation::Settle(0));
    }
}
