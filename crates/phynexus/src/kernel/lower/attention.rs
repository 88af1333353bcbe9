//! Attention and its gradient without the matrix of scores in memory (FlashAttention: Dao et al., 2022; its backward
//! pass in two launches, so that every sum has a fixed order).
//!
//! A group computes a tile of rows of the result: queries for the output and the queries' gradient, keys for the
//! gradients of keys and values. It goes through all columns, the other of both, in steps. A step computes the scores of
//! the tile's rows and some columns, makes weights of them, and adds the weighted columns to the sums. How the group's
//! invocations do that is the engine's affair.

mod panels;
mod plain;

use super::{
    Lowered, Source, Target, Unsupported,
    access::{self, Buffer, is_aligned},
    operand::Work,
};
use crate::{
    DType, Scalar,
    kernel::{
        Index, Mask,
        build::Builder,
        loops::{ArrayId, AsyncCopy, AxisKind, KernelOp, Type, ValueId},
        step::{Library, Operand},
    },
    op::{Binary, TensorType, Unary, composite::Attention},
};

/// What a launch computes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    /// The output and the logarithms. Rows are queries.
    Output,
    /// The queries' gradient. Rows are queries.
    Queries,
    /// The gradients of keys and values. Rows are keys.
    Keys,
}

/// An operand: a matrix of rows and features for each batch and head.
#[derive(Clone)]
struct Matrix {
    buffer: Buffer,
    dtype: DType,
    /// Whether features lie side by side, in pieces that can be copied by themselves.
    is_copied: bool,
    strides: [i64; 4],
    heads: i64,
    rows: usize,
    features: usize,
}

impl Matrix {
    fn new(work: &mut Work, operand: &Operand, at: usize) -> Matrix {
        let buffer = work.operand(operand, Source::Binding(at));
        let layout = &operand.layout;
        let extent = |d: usize| layout.shape.get(d).copied().unwrap_or(1);
        let strides = [0, 1, 2, 3].map(|d| layout.strides.get(d).map_or(0, |&stride| stride as i64));
        let piece = (AsyncCopy::BYTES / operand.dtype.size()) as i64;
        let whole = (0..3).all(|d| extent(d) == 1 || strides[d] % piece == 0);
        let is_copied =
            whole && strides[3] == 1 && extent(3) as i64 % piece == 0 && buffer.start % piece == 0;
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
    fn index(&self, b: &Builder, head: &Index, row: &Index, feature: &Index) -> Index {
        let at = [
            head.quotient(self.heads, b.ranges()),
            head.remainder(self.heads, b.ranges()),
            row.clone(),
            feature.clone(),
        ];
        at.iter().zip(self.strides).fold(Index::default(), |sum, (at, stride)| sum.add(&at.scale(stride)))
    }

    /// Where there is such an element.
    fn holds(&self, b: &Builder, row: &Index, feature: &Index) -> Mask {
        let inside = |index: &Index, extent: usize| Mask::within(index, 0, extent as i64, b.ranges());
        inside(row, self.rows).and(&inside(feature, self.features))
    }

    /// Loads an element, 0 where there is none.
    fn load(&self, b: &mut Builder, head: &Index, row: &Index, feature: &Index, holds: &Mask) -> ValueId {
        let index = self.index(b, head, row, feature);
        let mask = self.holds(b, row, feature);
        let access = self.buffer.access(b, &index, mask, holds, 1);
        b.load_access(access, Scalar::Int(0), 1)
    }
}

/// Shapes, operands and attributes.
struct Problem<'a> {
    attention: &'a Attention,
    pass: Pass,
    /// Batches times heads.
    heads: usize,
    queries: usize,
    keys: usize,
    /// The type of scores and sums.
    held: DType,
    /// Whether exponents are those of 2, which is faster, but rounds once more.
    is_binary: bool,
    /// What the scores are products of: matrices with the rows of the result, and with its columns.
    left: Vec<Matrix>,
    right: Vec<Matrix>,
    mask: Option<Matrix>,
    /// The rows' logarithms and `delta`, for gradients.
    of_queries: Vec<Matrix>,
    result: Buffer,
}

/// The tile of a group.
struct Place {
    head: Index,
    /// The first row.
    row: Index,
}

/// How the invocations of a group compute scores and sums. Each holds the same number of elements of some rows of a
/// tile, and several hold parts of the same row.
trait Engine {
    /// Extents of the scores that a group computes in a step.
    fn extents(&self) -> [usize; 2];
    /// Rows of which an invocation holds elements.
    fn rows(&self) -> usize;
    /// Elements of a row that an invocation holds, of this many columns; an even number.
    fn held(&self, columns: usize) -> usize;
    /// The place of row number `row` of the invocation in the tile.
    fn row(&self, b: &Builder, row: &Index) -> Index;
    /// The place of column number `column` of the invocation in the tile.
    fn column(&self, b: &Builder, column: &Index) -> Index;
    /// Whether the invocation is the first of those that hold elements of its rows.
    fn is_first(&self, b: &Builder) -> Mask;
    /// Adds an array for a matrix of the tile's rows and this many columns.
    fn array(&mut self, b: &mut Builder, columns: usize) -> ArrayId;
    /// The place in such an array of an element of the invocation: its row and its column.
    fn element(&self, b: &Builder, columns: usize, row: &Index, column: &Index) -> Index;
    /// Prepares what does not depend on the step.
    fn begin(&self, b: &mut Builder, problem: &Problem, place: &Place);
    /// Combines values of the invocation's rows with those of the others that hold elements of these rows.
    fn exchange(&self, b: &mut Builder, op: Binary, values: ArrayId);
    /// Sets the scores of a step, one array for each pair of matrices. Sums of the step before are complete then.
    fn scores(&self, b: &mut Builder, problem: &Problem, place: &Place, scores: &[ArrayId], step: &Index);
    /// Adds columns of a right matrix, weighted with the contents of an array, to sums.
    fn accumulate(
        &self,
        b: &mut Builder,
        problem: &Problem,
        place: &Place,
        weights: ArrayId,
        matrix: usize,
        sums: ArrayId,
        step: &Index,
    );
    /// Completes the sums.
    fn complete(&self, b: &mut Builder);
}

/// The most features of queries, keys and values: an invocation holds sums for all of them.
const FEATURES: usize = 256;

/// Whether a kernel of its own pays off for attention, or its gradient, of these operands. The products of a single query
/// are sums that are computed together with what makes the keys and values, such as their place in a cache.
pub(super) fn pays(operands: &[TensorType], target: &Target) -> bool {
    let [q, _, v, ..] = operands else { return false };
    let (&[.., queries, features], &[.., values]) = (q.shape(), v.shape()) else { return false };
    queries != 1
        && features.max(values) <= FEATURES
        && plain::Shape::usable(q.dtype().compute(), target).next().is_some()
}

/// Lowers attention, or its gradient.
pub(super) fn lower(
    library: &Library,
    attention: &Attention,
    is_gradient: bool,
    result: Source,
    target: &Target,
    lowered: &mut Lowered,
) -> Result<(), Unsupported> {
    let passes: &[Pass] = if is_gradient { &[Pass::Queries, Pass::Keys] } else { &[Pass::Output] };
    for &pass in passes {
        let name = match pass {
            Pass::Output => "attention",
            Pass::Queries => "attention_queries",
            Pass::Keys => "attention_keys",
        };
        let mut work = Work::new(name);
        let problem = Problem::new(&mut work, library, attention, pass, result);
        if problem.heads == 0 || problem.extents()[0] == 0 {
            continue;
        }
        let (panels, plain) = (panels::Shape::of(&problem, target), plain::Shape::of(&problem, target));
        let (rows, block) = match (panels, plain) {
            (Some(panels), _) => (panels.rows(), panels.block()),
            (None, Some(plain)) => (plain.extents()[0], plain.block()),
            (None, None) => {
                return Err(Unsupported("attention needs groups of 64 invocations".to_owned()));
            }
        };
        let tiles = problem.extents()[0].div_ceil(rows);
        access::launch(&mut work.b, &target.limits, tiles * problem.heads, block, |b, group, y, x| {
            let place = problem.place(b, group, rows, tiles);
            match (panels, plain) {
                (Some(panels), _) => {
                    let mut engine = panels.engine(b, &problem, x);
                    emit(b, &mut engine, &problem, &place);
                }
                (None, Some(plain)) => {
                    let mut engine = plain.engine(b, &problem, target, y, x);
                    emit(b, &mut engine, &problem, &place);
                }
                (None, None) => {}
            }
        });
        work.finish(lowered);
    }
    Ok(())
}

impl<'a> Problem<'a> {
    fn new(
        work: &mut Work,
        library: &Library,
        attention: &'a Attention,
        pass: Pass,
        result: Source,
    ) -> Problem<'a> {
        let operands = &library.operands;
        let mut matrix = |at: usize| Matrix::new(work, &operands[at], at);
        let [q, k, v] = [matrix(0), matrix(1), matrix(2)];
        let mask = attention.mask.then(|| matrix(3));
        let first = 3 + usize::from(attention.mask);
        let (queries, keys, heads) = (q.rows, k.rows, operands[0].layout.shape[..2].iter().product());
        let (mut of_queries, mut left, mut right) = (Vec::new(), vec![q], vec![k]);
        match pass {
            Pass::Output => right.push(v),
            Pass::Queries | Pass::Keys => {
                of_queries.extend([matrix(first), matrix(first + 2)]);
                left.push(matrix(first + 1));
                right.push(v);
            }
        }
        if pass == Pass::Keys {
            std::mem::swap(&mut left, &mut right);
        }
        let held = library.node.dtype;
        let result = work.buffer(held, library.node.len(), result, true);
        // Weights for products of panels are rounded to 16 bits.
        let is_binary = left[0].dtype.size() == 2;
        Problem {
            attention,
            pass,
            heads,
            queries,
            keys,
            held,
            is_binary,
            left,
            right,
            mask,
            of_queries,
            result,
        }
    }

    /// The number of rows and of columns.
    fn extents(&self) -> [usize; 2] {
        match self.pass {
            Pass::Output | Pass::Queries => [self.queries, self.keys],
            Pass::Keys => [self.keys, self.queries],
        }
    }

    /// The most features of a matrix.
    fn features(&self) -> usize {
        self.left.iter().chain(&self.right).map(|matrix| matrix.features).max().unwrap_or(0)
    }

    /// Products of the first matrices are scores; those of the second ones are derivatives by weights.
    fn pairs(&self) -> usize {
        self.left.len()
    }

    /// What is added to the sums: the array of weights, the matrix, and where the sums go in the result.
    fn sums(&self) -> Vec<(usize, usize, usize)> {
        let of_keys = self.heads * self.queries * self.right[0].features;
        let of_values = of_keys + self.heads * self.keys * self.right[0].features;
        match self.pass {
            Pass::Output => vec![(0, 1, 0)],
            Pass::Queries => vec![(1, 0, 0)],
            Pass::Keys => vec![(1, 0, of_keys), (0, 1, of_values)],
        }
    }

    /// The tile of a group. Those with the most columns come first.
    fn place(&self, b: &Builder, group: &Index, rows: usize, tiles: usize) -> Place {
        let number = group.quotient(self.heads as i64, b.ranges());
        let tile = match self.pass {
            Pass::Keys => number,
            Pass::Output | Pass::Queries => Index::constant(tiles as i64 - 1).sub(&number),
        };
        Place { head: group.remainder(self.heads as i64, b.ranges()), row: tile.scale(rows as i64) }
    }

    /// The first column of a step. Steps begin where all rows of a tile have weights.
    fn first_column(&self, columns: usize, step: &Index) -> Index {
        let last = self.extents()[1].div_ceil(columns) as i64 - 1;
        match self.pass {
            Pass::Keys => Index::constant(last).sub(step).scale(columns as i64),
            Pass::Output | Pass::Queries => step.scale(columns as i64),
        }
    }

    /// Whether there is such a step, and a weight in it that may differ from 0.
    fn has_step(&self, b: &Builder, place: &Place, [rows, columns]: [usize; 2], step: &Index) -> Mask {
        let steps = self.extents()[1].div_ceil(columns) as i64;
        let exists = Mask::within(step, 0, steps, b.ranges());
        if !self.attention.causal {
            return exists;
        }
        let apart = self.key_after_query(&place.row, &self.first_column(columns, step));
        // Some key of the step comes no later than some query.
        let farthest = match self.pass {
            Pass::Keys => columns,
            Pass::Output | Pass::Queries => rows,
        };
        exists.and(&Mask::within(&apart, i64::MIN / 4, farthest as i64, b.ranges()))
    }

    /// By how much the key of a row and a column comes after the query.
    fn key_after_query(&self, row: &Index, column: &Index) -> Index {
        match self.pass {
            Pass::Keys => row.sub(column),
            Pass::Output | Pass::Queries => column.sub(row),
        }
    }

    /// The factor of natural logarithms in exponents.
    fn unit(&self) -> f64 {
        if self.is_binary { std::f64::consts::LOG2_E } else { 1.0 }
    }

    /// The factor of scores in exponents.
    fn scale(&self) -> f64 {
        self.attention.scale.as_f64() * self.unit()
    }

    /// Whether scores are kept unscaled until their exponentials are computed. The greatest one must stay the greatest.
    fn is_scaled_late(&self) -> bool {
        self.mask.is_none() && self.attention.scale.as_f64() >= 0.0
    }
}

/// Emits the statements of a group.
fn emit(b: &mut Builder, engine: &mut impl Engine, problem: &Problem, place: &Place) {
    let extents = engine.extents();
    let columns = extents[1];
    let scores: Vec<ArrayId> = (0..problem.pairs()).map(|_| engine.array(b, columns)).collect();
    let outputs = problem.sums();
    let sums: Vec<ArrayId> =
        outputs.iter().map(|&(_, matrix, _)| engine.array(b, problem.right[matrix].features)).collect();
    for (&sums, &(_, matrix, _)) in sums.iter().zip(&outputs) {
        each(b, engine, problem.right[matrix].features, |b, engine, row, column| {
            let zero = b.constant(problem.held, 0i32);
            let at = engine.element(b, problem.right[matrix].features, row, column);
            b.store(sums, &at, zero);
        });
    }
    let rows = engine.rows();
    let state =
        State { scores, greatest: b.registers(problem.held, rows), total: b.registers(problem.held, rows) };
    state.begin(b, engine, problem, place);
    engine.begin(b, problem, place);
    let steps = problem.extents()[1].div_ceil(columns);
    b.over(steps.max(1), AxisKind::Serial, |b, step| {
        b.when(problem.has_step(b, place, extents, step), |b| {
            engine.scores(b, problem, place, &state.scores, step);
            state.hide(b, engine, problem, place, step);
            match problem.pass {
                Pass::Output => state.softmax(b, engine, problem, sums[0]),
                Pass::Queries | Pass::Keys => state.derive(b, engine, problem, place, step),
            }
            for (&sums, &(weights, matrix, _)) in sums.iter().zip(&outputs) {
                engine.accumulate(b, problem, place, state.scores[weights], matrix, sums, step);
            }
        });
    });
    engine.complete(b);
    for (&sums, &(_, matrix, start)) in sums.iter().zip(&outputs) {
        state.finish(b, engine, problem, place, sums, problem.right[matrix].features, start);
    }
}

/// Statements for each element that an invocation holds, given its row and column among those of the invocation.
fn each<E: Engine>(
    b: &mut Builder,
    engine: &E,
    columns: usize,
    body: impl FnOnce(&mut Builder, &E, &Index, &Index),
) {
    b.over(engine.rows(), AxisKind::Unroll, |b, row| {
        b.over(engine.held(columns), AxisKind::Unroll, |b, column| body(b, engine, row, column));
    });
}

/// What a group keeps of its rows besides the sums.
struct State {
    /// Scores, then their derivatives.
    scores: Vec<ArrayId>,
    /// The greatest score of each row so far; for gradients the logarithm, as an exponent.
    greatest: ArrayId,
    /// The sum of each row's weights so far; for gradients `delta`.
    total: ArrayId,
}

impl State {
    fn begin(&self, b: &mut Builder, engine: &impl Engine, problem: &Problem, place: &Place) {
        b.over(engine.rows(), AxisKind::Unroll, |b, row| {
            let (greatest, total) = match problem.pass {
                Pass::Output | Pass::Keys => {
                    let nothing = b.constant(problem.held, f64::NEG_INFINITY);
                    (nothing, b.constant(problem.held, 0i32))
                }
                Pass::Queries => {
                    let query = place.row.add(&engine.row(b, row));
                    query_values(b, problem, place, &query)
                }
            };
            b.store(self.greatest, row, greatest);
            b.store(self.total, row, total);
        });
    }

    /// Scales and masks the scores.
    fn hide(&self, b: &mut Builder, engine: &impl Engine, problem: &Problem, place: &Place, step: &Index) {
        let [_, columns] = engine.extents();
        let first = problem.first_column(columns, step);
        let scores = self.scores[0];
        if !problem.is_scaled_late() {
            each(b, engine, columns, |b, engine, row, column| {
                let at = engine.element(b, columns, row, column);
                let score = b.load(scores, &at);
                let scale = b.constant(problem.held, problem.scale());
                let mut score = b.binary(Binary::Mul, score, scale);
                if let Some(mask) = &problem.mask {
                    let row = place.row.add(&engine.row(b, row));
                    let column = first.add(&engine.column(b, column));
                    let [query, key] = match problem.pass {
                        Pass::Keys => [&column, &row],
                        Pass::Output | Pass::Queries => [&row, &column],
                    };
                    let loaded = mask.load(b, &place.head, query, key, &Mask::default());
                    score = masked(b, problem, score, loaded);
                }
                b.store(scores, &at, score);
            });
        }
        let hidden = |b: &mut Builder, where_: &dyn Fn(&Builder, &Index, &Index) -> Mask| {
            each(b, engine, columns, |b, engine, row, column| {
                let at = engine.element(b, columns, row, column);
                let row = place.row.add(&engine.row(b, row));
                let column = first.add(&engine.column(b, column));
                b.when(where_(b, &row, &column), |b| {
                    let nothing = b.constant(problem.held, f64::NEG_INFINITY);
                    b.store(scores, &at, nothing);
                });
            });
        };
        let extent = problem.extents()[1] as i64;
        let last = first.shift(columns as i64 - 1);
        b.when(Mask::within(&last, extent, i64::MAX / 4, b.ranges()), |b| {
            hidden(b, &|b, _, column| Mask::within(column, extent, i64::MAX / 4, b.ranges()));
        });
        if problem.attention.causal {
            let [rows, columns] = engine.extents().map(|extent| extent as i64 - 1);
            let farthest = match problem.pass {
                Pass::Keys => problem.key_after_query(&place.row.shift(rows), &first),
                Pass::Output | Pass::Queries => problem.key_after_query(&place.row, &first.shift(columns)),
            };
            b.when(Mask::within(&farthest, 1, i64::MAX / 4, b.ranges()), |b| {
                hidden(b, &|b, row, column| {
                    Mask::within(&problem.key_after_query(row, column), 1, i64::MAX / 4, b.ranges())
                });
            });
        }
    }

    /// Replaces scores by weights, relative to the greatest score so far, and the sums so far accordingly.
    fn softmax(&self, b: &mut Builder, engine: &impl Engine, problem: &Problem, sums: ArrayId) {
        let [_, columns] = engine.extents();
        let (held, scores, rows) = (problem.held, self.scores[0], engine.rows());
        let (before, shift) = (b.registers(held, rows), b.registers(held, rows));
        b.over(rows, AxisKind::Unroll, |b, row| {
            let greatest = b.load(self.greatest, row);
            b.store(before, row, greatest);
        });
        each(b, engine, columns, |b, engine, row, column| {
            let score = load(b, engine, scores, columns, row, column);
            b.accumulate(self.greatest, row, Binary::Max, score);
        });
        engine.exchange(b, Binary::Max, self.greatest);
        b.over(rows, AxisKind::Unroll, |b, row| {
            let (old, new) = (b.load(before, row), b.load(self.greatest, row));
            let nothing = b.constant(held, f64::NEG_INFINITY);
            let zero = b.constant(held, 0i32);
            let is_empty = b.binary(Binary::Eq, new, nothing);
            let new = b.select(is_empty, zero, new);
            let shifted = b.unary(Unary::Neg, new);
            let shifted = self.scaled(b, problem, shifted);
            b.store(shift, row, shifted);
            let factor = self.weight(b, problem, old, shifted);
            b.store(before, row, factor);
            b.accumulate(self.total, row, Binary::Mul, factor);
        });
        each(b, engine, columns, |b, engine, row, column| {
            let score = load(b, engine, scores, columns, row, column);
            let shift = b.load(shift, row);
            let weight = self.weight(b, problem, score, shift);
            b.accumulate(self.total, row, Binary::Add, weight);
            let at = engine.element(b, columns, row, column);
            b.store(scores, &at, weight);
        });
        let values = problem.right[1].features;
        each(b, engine, values, |b, engine, row, column| {
            let sum = load(b, engine, sums, values, row, column);
            let factor = b.load(before, row);
            let sum = b.binary(Binary::Mul, sum, factor);
            let at = engine.element(b, values, row, column);
            b.store(sums, &at, sum);
        });
    }

    /// A greatest score, or 0 minus one, as an exponent.
    fn scaled(&self, b: &mut Builder, problem: &Problem, score: ValueId) -> ValueId {
        if !problem.is_scaled_late() {
            return score;
        }
        let scale = b.constant(problem.held, problem.scale());
        b.binary(Binary::Mul, score, scale)
    }

    /// The exponential of a score, scaled if it is not yet, plus a shift.
    fn weight(&self, b: &mut Builder, problem: &Problem, score: ValueId, shift: ValueId) -> ValueId {
        let exponent = match problem.is_scaled_late() {
            true => {
                let scale = b.constant(problem.held, problem.scale());
                b.multiply_add(score, scale, shift)
            }
            false => b.binary(Binary::Add, score, shift),
        };
        b.unary(if problem.is_binary { Unary::Exp2 } else { Unary::Exp }, exponent)
    }

    /// Replaces scores by weights, and derivatives by weights by derivatives by unscaled scores.
    fn derive(&self, b: &mut Builder, engine: &impl Engine, problem: &Problem, place: &Place, step: &Index) {
        let [_, columns] = engine.extents();
        let first = problem.first_column(columns, step);
        let [scores, derivatives] = [self.scores[0], self.scores[1]];
        each(b, engine, columns, |b, engine, row, column| {
            let (logarithm, delta) = match problem.pass {
                Pass::Keys => {
                    let query = first.add(&engine.column(b, column));
                    query_values(b, problem, place, &query)
                }
                Pass::Output | Pass::Queries => (b.load(self.greatest, row), b.load(self.total, row)),
            };
            let score = load(b, engine, scores, columns, row, column);
            let shift = b.unary(Unary::Neg, logarithm);
            let weight = self.weight(b, problem, score, shift);
            let derivative = load(b, engine, derivatives, columns, row, column);
            let derivative = b.binary(Binary::Sub, derivative, delta);
            let derivative = b.binary(Binary::Mul, derivative, weight);
            let at = engine.element(b, columns, row, column);
            b.store(scores, &at, weight);
            b.store(derivatives, &at, derivative);
        });
    }

    /// Stores finished sums from element `start` of the result on.
    #[expect(clippy::too_many_arguments, reason = "all of them vary")]
    fn finish(
        &self,
        b: &mut Builder,
        engine: &impl Engine,
        problem: &Problem,
        place: &Place,
        sums: ArrayId,
        features: usize,
        start: usize,
    ) {
        let (held, rows) = (problem.held, problem.extents()[0]);
        let factors = b.registers(held, engine.rows());
        if problem.pass == Pass::Output {
            engine.exchange(b, Binary::Add, self.total);
        }
        b.over(engine.rows(), AxisKind::Unroll, |b, row| {
            if problem.pass != Pass::Output {
                // Weights are no scores, but all other derivatives are multiplied by the scale.
                let is_of_values = problem.pass == Pass::Keys && self.is_of_values(problem, start);
                let scale = if is_of_values { 1.0 } else { problem.attention.scale.as_f64() };
                let scale = b.constant(held, scale);
                return b.store(factors, row, scale);
            }
            let total = b.load(self.total, row);
            let [zero, one] = [0i32, 1].map(|number| b.constant(held, number));
            let is_empty = b.binary(Binary::Eq, total, zero);
            let divisor = b.select(is_empty, one, total);
            let factor = b.binary(Binary::Div, one, divisor);
            b.store(factors, row, factor);
            let greatest = b.load(self.greatest, row);
            let greatest = self.scaled(b, problem, greatest);
            let natural = b.constant(held, 1.0 / problem.unit());
            let greatest = b.binary(Binary::Mul, greatest, natural);
            let logarithm = b.unary(Unary::Log, divisor);
            let logarithm = b.binary(Binary::Add, logarithm, greatest);
            let place_of_row = place.row.add(&engine.row(b, row));
            let exists = Mask::within(&place_of_row, 0, rows as i64, b.ranges());
            let of_head = place.head.scale(rows as i64).shift((problem.heads * rows * features) as i64);
            let at = of_head.add(&place_of_row);
            let first = engine.is_first(b);
            b.when(first.and(&exists), |b| {
                b.store(problem.result.array, &at, logarithm);
            });
        });
        b.over(engine.rows(), AxisKind::Unroll, |b, row| {
            b.over(engine.held(features) / 2, AxisKind::Unroll, |b, pair| {
                let pair = pair.scale(2);
                let row_place = place.row.add(&engine.row(b, row));
                let column = engine.column(b, &pair);
                let factor = b.load(factors, row);
                let values = [0, 1].map(|lane| {
                    let sum = load(b, engine, sums, features, row, &pair.shift(lane));
                    b.binary(Binary::Mul, sum, factor)
                });
                let of_row = place.head.scale(rows as i64).add(&row_place).scale(features as i64);
                let at = of_row.shift(start as i64).add(&column);
                let exists = Mask::within(&row_place, 0, rows as i64, b.ranges());
                b.when(exists.clone(), |b| {
                    store_pair(b, problem, &exists, (features, &column), &at, values);
                });
            });
        });
    }

    /// Whether the sums that go there are the gradient of values.
    fn is_of_values(&self, problem: &Problem, start: usize) -> bool {
        problem.sums().last().is_some_and(|&(.., of_values)| of_values == start)
    }
}

/// Loads an element of the invocation's share of an array.
fn load(
    b: &mut Builder,
    engine: &impl Engine,
    array: ArrayId,
    columns: usize,
    row: &Index,
    column: &Index,
) -> ValueId {
    let at = engine.element(b, columns, row, column);
    b.load(array, &at)
}

/// Stores two neighbouring features of a row, as far as they exist.
fn store_pair(
    b: &mut Builder,
    problem: &Problem,
    row_exists: &Mask,
    (features, column): (usize, &Index),
    at: &Index,
    values: [ValueId; 2],
) {
    let inside = |b: &Builder, lane: i64| Mask::within(&column.shift(lane), 0, features as i64, b.ranges());
    if features.is_multiple_of(2) && is_aligned(at, 2) && is_aligned(column, 2) {
        let of = Type { dtype: problem.held, lanes: 2 };
        let exists = inside(b, 1);
        let access = problem.result.access(b, at, exists, row_exists, 2);
        let both = b.bind(of, KernelOp::Pack(values.into_iter().collect()));
        return b.store_access(access, both);
    }
    for (lane, value) in (0..).zip(values) {
        let exists = inside(b, lane);
        let access = problem.result.access(b, &at.shift(lane), exists, row_exists, 1);
        b.store_access(access, value);
    }
}

/// A query's logarithm as an exponent, 0 for minus infinity, and its `delta`.
fn query_values(b: &mut Builder, problem: &Problem, place: &Place, query: &Index) -> (ValueId, ValueId) {
    let only = Index::default();
    let [logarithm, delta] =
        [0, 1].map(|at| problem.of_queries[at].load(b, &place.head, query, &only, &Mask::default()));
    let [nothing, zero, scale] =
        [f64::NEG_INFINITY, 0.0, problem.unit()].map(|number| b.constant(problem.held, number));
    let is_empty = b.binary(Binary::Eq, logarithm, nothing);
    let logarithm = b.select(is_empty, zero, logarithm);
    (b.binary(Binary::Mul, logarithm, scale), delta)
}

/// A score, as an exponent, with an element of the mask.
fn masked(b: &mut Builder, problem: &Problem, score: ValueId, mask: ValueId) -> ValueId {
    let held = problem.held;
    if b.type_of(mask).dtype == DType::Bool {
        let nothing = b.constant(held, f64::NEG_INFINITY);
        return b.select(mask, score, nothing);
    }
    let mask = b.cast(held, mask);
    let scale = b.constant(held, problem.unit());
    b.multiply_add(mask, scale, score)
}
