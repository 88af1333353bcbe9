//! Attention by matrix instructions: each subgroup has 16 rows. It computes their scores from matrices in shared memory,
//! and multiplies weights that it keeps in its fragments with others. Those of the next steps are copied meanwhile.

use super::{
    Engine,
    problem::{Matrix, Place, Problem},
};
use crate::{
    DType, Scalar,
    kernel::{
        Index, Mask,
        build::Builder,
        check::Limits,
        loops::{
            ArrayId, AsyncCopy, AxisKind, Factor, Fragment, KernelOp, Matrix as Operation, MatrixShape,
            MatrixUnit, MemoryAccess, Panel, Role, Tile, Type,
        },
        lower::Target,
    },
    op::Binary,
};

/// Rows, columns and terms of the fragments of a subgroup.
const SIDE: usize = 16;
/// Elements that a row in shared memory has more than features, so that rows spread over the memory banks.
const PAD: usize = 8;

/// How matrices are multiplied.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Unit {
    /// By products of panels: teams of four subgroups read both factors from shared memory.
    Panels,
    /// By fragments, which each subgroup loads from shared memory.
    Fragments,
}

/// How a group's work is divided.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    unit: Unit,
    subgroups: usize,
    /// Columns of a step.
    columns: usize,
    /// Steps whose matrices are in shared memory at once.
    stages: usize,
}

const fn of_panels(subgroups: usize, stages: usize) -> Shape {
    Shape { unit: Unit::Panels, subgroups, columns: Panel::WIDTH, stages }
}

const fn of_fragments(subgroups: usize, columns: usize) -> Shape {
    Shape { unit: Unit::Fragments, subgroups, columns, stages: 2 }
}

/// Candidates, the fastest first.
const SHAPES: [Shape; 8] = [
    of_panels(8, 4),
    of_panels(8, 3),
    of_panels(4, 3),
    of_fragments(8, 64),
    of_fragments(4, 64),
    of_fragments(4, 32),
    of_fragments(2, 32),
    of_fragments(2, 16),
];

impl Unit {
    /// Features with those that fill up panels or fragments.
    fn padded(self, features: usize) -> usize {
        let width = if self == Unit::Panels { Panel::WIDTH } else { SIDE };
        features.next_multiple_of(width).max(width)
    }

    /// The elements of a row in shared memory.
    fn pitch(self, features: usize) -> usize {
        self.padded(features) + if self == Unit::Panels { 0 } else { PAD }
    }

    /// Whether the device multiplies numbers of this type so.
    fn multiplies(self, dtype: DType, limits: &Limits) -> bool {
        let multiplies = |unit: &MatrixUnit| match self {
            Unit::Panels => unit.multiplies_panels([dtype; 2], dtype.compute()),
            Unit::Fragments => {
                let shape = MatrixShape { rows: SIDE, columns: SIDE, depth: SIDE };
                limits.quads && *unit == MatrixUnit::new(shape, dtype, dtype.compute())
            }
        };
        limits.matrices.iter().any(multiplies)
    }

    /// The most registers of an invocation that hold scores, weights and sums.
    fn registers(self) -> usize {
        if self == Unit::Panels { 224 } else { 176 }
    }

    fn least_subgroups(self) -> usize {
        if self == Unit::Panels { Panel::SUBGROUPS } else { 2 }
    }

    /// Rows of a fragment.
    fn rows(self) -> usize {
        if self == Unit::Panels { Panel::ROWS } else { SIDE }
    }
}

impl Shape {
    /// The shape for this problem, if the device has matrix instructions for it.
    pub(super) fn of(problem: &Problem, target: &Target) -> Option<Shape> {
        let limits = &target.limits;
        let dtype = problem.left[0].dtype;
        let mut matrices = problem.left.iter().chain(&problem.right);
        let is_possible = limits.async_copies
            && dtype.size() == 2
            && limits.subgroup == Some(SUBGROUP)
            && target.vector_bytes >= AsyncCopy::BYTES
            && matrices.all(|matrix| matrix.dtype == dtype && matrix.is_copied);
        let fits = |shape: &Shape| {
            let matrices = problem.left.iter().chain(&problem.right);
            let is_whole = |m: &Matrix| shape.pieces(m, shape.columns).is_multiple_of(shape.block()[1]);
            shape.block()[1] <= limits.block_size
                && shape.shared_bytes(problem) <= limits.shared_bytes
                && shape.registers(problem) <= shape.unit.registers()
                && matrices.clone().all(is_whole)
        };
        let is_used = |shape: &Shape| match (shape.unit, problem.sums().len()) {
            // Measured on an H200: of two sums at once, with few features, three groups of one team fit a processor.
            (Unit::Panels, 2) if shape.unit.padded(problem.features()) == Panel::WIDTH => {
                shape.subgroups == 4
            }
            (Unit::Panels, 2) => shape.stages == 3,
            _ => true,
        };
        let has_rows = |shape: &Shape| {
            shape.subgroups == shape.unit.least_subgroups() || problem.extents()[0] > shape.rows() / 2
        };
        let usable = |shape: &&Shape| {
            shape.unit.multiplies(dtype, limits) && is_used(shape) && has_rows(shape) && fits(shape)
        };
        SHAPES.iter().filter(|_| is_possible).find(usable).copied()
    }

    pub(super) fn rows(self) -> usize {
        self.subgroups * SIDE
    }

    pub(super) fn block(self) -> [usize; 2] {
        [1, self.subgroups * SUBGROUP]
    }

    /// Steps whose matrices are copied in advance. The products of panels of the step before are complete for all teams
    /// only after the next barrier.
    fn ahead(self) -> usize {
        self.stages - if self.unit == Unit::Panels { 2 } else { 1 }
    }

    /// What is copied at a time of so many rows of a matrix.
    fn pieces(self, matrix: &Matrix, rows: usize) -> usize {
        rows * self.unit.padded(matrix.features) * matrix.dtype.size() / AsyncCopy::BYTES
    }

    /// The registers of an invocation that hold scores, weights and sums.
    fn registers(self, problem: &Problem) -> usize {
        let held = |columns: usize| SIDE * columns / SUBGROUP;
        let of = |matrix: usize| held(self.unit.padded(problem.right[matrix].features));
        let sums: usize = problem.sums().iter().map(|&(_, matrix, _)| of(matrix)).sum();
        // Two weights share a register.
        sums + problem.pairs() * held(self.columns) + problem.sums().len() * held(self.columns) / 2
    }

    fn shared_bytes(self, problem: &Problem) -> usize {
        let pitches = |matrices: &[Matrix]| -> usize {
            matrices.iter().map(|matrix| self.unit.pitch(matrix.features)).sum()
        };
        2 * (self.rows() * pitches(&problem.left) + self.stages * self.columns * pitches(&problem.right))
    }

    /// A fragment of this role.
    fn fragment(self, role: Role, dtype: DType, columns: usize, length: usize) -> Fragment {
        let shape = MatrixShape { rows: self.unit.rows(), columns, depth: SIDE };
        Fragment { role, shape, dtype, length }
    }

    pub(super) fn engine(self, b: &mut Builder, problem: &Problem, x: &Index) -> Subgroups {
        let mut shared = |matrices: &[Matrix], rows: usize| -> Vec<ArrayId> {
            let array = |matrix: &Matrix| {
                let length = rows * self.unit.pitch(matrix.features);
                match self.unit {
                    Unit::Panels => b.panels(matrix.dtype, length),
                    Unit::Fragments => b.shared(matrix.dtype, length),
                }
            };
            matrices.iter().map(array).collect()
        };
        let (left, right) =
            (shared(&problem.left, self.rows()), shared(&problem.right, self.stages * self.columns));
        let dtype = problem.left[0].dtype;
        let mut first = |role, length| {
            let columns = if self.unit == Unit::Panels { Panel::WIDTH } else { SIDE };
            b.fragments(self.fragment(role, dtype, columns, length))(Index::default())
        };
        let mut weights = vec![None; problem.right.len()];
        for (_, matrix, _) in problem.sums() {
            weights[matrix] = Some(first(Role::Left, self.columns / SIDE));
        }
        let factors = match self.unit {
            Unit::Panels => None,
            Unit::Fragments => Some([Role::Left, Role::Right].map(|role| first(role, 1))),
        };
        Subgroups { shape: self, held: problem.held, x: x.clone(), left, right, weights, factors }
    }
}

/// Invocations of a subgroup.
const SUBGROUP: usize = Panel::INVOCATIONS / Panel::SUBGROUPS;

pub(super) struct Subgroups {
    shape: Shape,
    held: DType,
    /// The invocation.
    x: Index,
    /// Each left matrix, for the tile's rows: panels by features in groups, then by rows; or rows.
    left: Vec<ArrayId>,
    /// Each right matrix, for some steps' columns.
    right: Vec<ArrayId>,
    /// The first fragment of weights for each right matrix that is added to sums.
    weights: Vec<Option<Tile>>,
    /// A left and a right factor, if fragments are multiplied.
    factors: Option<[Tile; 2]>,
}

impl Subgroups {
    /// Starts copying rows of a matrix to an array, from `to` on.
    fn copy(
        &self,
        b: &mut Builder,
        matrix: &Matrix,
        head: &Index,
        (first, rows, exists): (&Index, usize, &Mask),
        (array, to): (ArrayId, &Index),
    ) {
        let (block, piece) = (self.shape.block()[1], AsyncCopy::BYTES / matrix.dtype.size());
        let [width, pitch] = match self.shape.unit {
            Unit::Panels => [Panel::WIDTH; 2],
            unit => [unit.padded(matrix.features), unit.pitch(matrix.features)],
        };
        let across = (width / piece) as i64;
        b.over(self.shape.pieces(matrix, rows) / block, AxisKind::Unroll, |b, turn| {
            let number = self.x.add(&turn.scale(block as i64));
            let in_row = number.remainder(across, b.ranges()).scale(piece as i64);
            let row = number.quotient(across, b.ranges());
            let group = row.quotient(rows as i64, b.ranges());
            let row = row.remainder(rows as i64, b.ranges());
            let feature = group.scale(width as i64).add(&in_row);
            let row_place = first.add(&row);
            let mask = matrix.holds(b, &row_place, &feature).and(exists);
            let index = matrix.index(b, head, &row_place, &feature);
            let from = matrix.buffer.access(b, &index, mask, &Mask::default(), piece);
            let place = group.scale((rows * pitch) as i64).add(&row.scale(pitch as i64));
            let to = MemoryAccess::at(array, &to.add(&place).add(&in_row));
            b.async_copy(AsyncCopy::Begin { from: Box::new(from), to: Box::new(to) });
        });
    }

    /// Starts copying the columns of a step.
    fn copy_step(&self, b: &mut Builder, problem: &Problem, place: &Place, step: &Index) {
        let exists = problem.has_step(b, place, self.extents(), step);
        let columns = self.shape.columns;
        let first = problem.first_column(columns, step);
        for at in 0..self.right.len() {
            let to = (self.right[at], &self.slot(b, &problem.right[at], step));
            self.copy(b, &problem.right[at], &place.head, (&first, columns, &exists), to);
        }
    }

    /// Where a matrix of a step begins.
    fn slot(&self, b: &Builder, matrix: &Matrix, step: &Index) -> Index {
        let size = self.shape.columns * self.shape.unit.pitch(matrix.features);
        step.remainder(self.shape.stages as i64, b.ranges()).scale(size as i64)
    }

    /// Starts the product of rows of left panels and a step's right ones.
    fn multiply_panels(&self, b: &mut Builder, sums: ArrayId, at: usize, features: usize, first: &Index) {
        let team = self.x.quotient(Panel::INVOCATIONS as i64, b.ranges());
        let rows = team.scale((Panel::ROWS * Panel::WIDTH) as i64);
        for group in 0..features / Panel::WIDTH {
            let panel = |array: ArrayId, index: &Index, rows: usize| {
                let index = index.shift((group * rows * Panel::WIDTH) as i64);
                Panel { access: MemoryAccess::at(array, &index), along_terms: true }
            };
            let left = Factor::Panel(panel(self.left[at], &rows, self.shape.rows()));
            let right = panel(self.right[at], first, self.shape.columns);
            b.matrix(Operation::Product { sums: tile(sums).fragment, left, right, begins: group == 0 });
        }
    }

    /// Sets the sums to the products of the subgroup's rows of a left matrix and a step's columns.
    fn multiply_rows(
        &self,
        b: &mut Builder,
        [left, right]: &[Tile; 2],
        sums: ArrayId,
        at: usize,
        features: usize,
        first: &Index,
    ) {
        let (stride, of_step) = (self.shape.unit.pitch(features), self.shape.columns / SIDE);
        let rows = self.x.quotient(SUBGROUP as i64, b.ranges()).scale((SIDE * stride) as i64);
        let zero = Scalar::Float(0.0).cast(self.held);
        b.over(of_step, AxisKind::Unroll, |b, column| {
            b.matrix(Operation::Fill(fragment(sums, column), zero))
        });
        b.over(features / SIDE, AxisKind::Unroll, |b, step| {
            let term = step.scale(SIDE as i64);
            let load = |b: &mut Builder, tile: &Tile, array: ArrayId, index: Index, transposed: bool| {
                let access = MemoryAccess::at(array, &index.add(&term));
                b.matrix(Operation::Load { tile: tile.clone(), access, stride, transposed });
            };
            load(b, left, self.left[at], rows.clone(), false);
            b.over(of_step, AxisKind::Unroll, |b, column| {
                load(b, right, self.right[at], first.add(&column.scale((SIDE * stride) as i64)), true);
                let accumulator = fragment(sums, column);
                b.matrix(Operation::MultiplyAdd { accumulator, left: left.clone(), right: right.clone() });
            });
        });
    }

    /// Adds a step's rows of a right matrix, multiplied with weights, to sums.
    fn add_rows(
        &self,
        b: &mut Builder,
        right: &Tile,
        weights: &Tile,
        (matrix, features): (usize, usize),
        sums: ArrayId,
        first: &Index,
    ) {
        let stride = self.shape.unit.pitch(features);
        b.over(features / SIDE, AxisKind::Unroll, |b, column| {
            b.over(self.shape.columns / SIDE, AxisKind::Unroll, |b, row| {
                let index = first.add(&row.scale((SIDE * stride) as i64)).add(&column.scale(SIDE as i64));
                let access = MemoryAccess::at(self.right[matrix], &index);
                b.matrix(Operation::Load { tile: right.clone(), access, stride, transposed: false });
                let left = Tile { index: row.clone(), ..weights.clone() };
                let accumulator = fragment(sums, column);
                b.matrix(Operation::MultiplyAdd { accumulator, left, right: right.clone() });
            });
        });
    }
}

/// A fragment of those that an array stands for.
fn fragment(array: ArrayId, index: &Index) -> Tile {
    Tile { index: index.clone(), ..tile(array) }
}

/// The first fragment that an array stands for.
fn tile(array: ArrayId) -> Tile {
    let fragment = match array {
        ArrayId::Fragment(number) => number,
        // Arrays of the engine are fragments.
        _ => u16::MAX,
    };
    Tile { fragment, index: Index::default() }
}

impl Engine for Subgroups {
    fn extents(&self) -> [usize; 2] {
        [self.shape.rows(), self.shape.columns]
    }

    fn rows(&self) -> usize {
        2
    }

    fn elements(&self, columns: usize) -> usize {
        self.shape.unit.padded(columns) / 4
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
        let columns = self.shape.unit.padded(columns);
        let (columns, length) = match self.shape.unit {
            Unit::Panels => (columns, 1),
            Unit::Fragments => (SIDE, columns / SIDE),
        };
        let sums = b.fragments(self.shape.fragment(Role::Accumulator, self.held, columns, length));
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
        let copy_next = |b: &mut Builder| {
            self.copy_step(b, problem, place, &step.shift(self.shape.ahead() as i64));
            b.async_copy(AsyncCopy::Mark);
        };
        if self.factors.is_some() {
            copy_next(b);
        }
        for (at, &array) in scores.iter().enumerate() {
            let matrix = &problem.right[at];
            let (first, features) = (self.slot(b, matrix, step), self.shape.unit.padded(matrix.features));
            match &self.factors {
                Some(factors) => self.multiply_rows(b, factors, array, at, features, &first),
                None => self.multiply_panels(b, array, at, features, &first),
            }
        }
        if self.factors.is_none() {
            copy_next(b);
            b.matrix(Operation::Settle(0));
        }
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
        let Matrix { dtype, features, .. } = problem.right[matrix];
        // Fragments of both roles are distributed alike.
        b.over(self.shape.columns / 4, AxisKind::Unroll, |b, pair| {
            let values = [0, 1].map(|lane| {
                let weight = b.load(weights, &pair.scale(2).shift(lane));
                b.cast(dtype, weight)
            });
            let both = b.bind(Type { dtype, lanes: 2 }, KernelOp::Pack(values.into_iter().collect()));
            b.store(ArrayId::Fragment(factor.fragment), &pair.scale(2), both);
        });
        let index = self.slot(b, &problem.right[matrix], step);
        if let Some([_, right]) = &self.factors {
            let of_matrix = (matrix, self.shape.unit.padded(features));
            return self.add_rows(b, right, &factor, of_matrix, sums, &index);
        }
        let right = Panel { access: MemoryAccess::at(self.right[matrix], &index), along_terms: false };
        let left = Factor::Fragments(factor);
        b.matrix(Operation::Product { sums: tile(sums).fragment, left, right, begins: false });
    }

    fn complete(&self, b: &mut Builder) {
        if self.factors.is_none() {
            b.matrix(Operation::Settle(0));
        }
    }
}
