//! The statements of a group: what attention does with scores and sums, whatever computes them.

use super::{
    super::access::is_aligned,
    Engine,
    dropout::Dropout,
    problem::{Pass, Place, Problem},
};
use crate::{
    DType,
    kernel::{
        Index, Mask,
        build::Builder,
        loops::{ArrayId, AxisKind, KernelOp, Type, ValueId},
    },
    op::{Binary, Unary},
};

/// Greater than any index.
const MOST: i64 = i64::MAX / 4;

/// The tile of a group, and what its invocations keep of it besides the sums.
struct Tile<'a, E> {
    engine: &'a E,
    problem: &'a Problem<'a>,
    place: &'a Place,
    dropout: Option<Dropout>,
    /// Scores, then for gradients their derivatives.
    scores: Vec<ArrayId>,
    /// The greatest score of each row so far; for the queries' gradient the logarithm, as an exponent.
    row_max: ArrayId,
    /// The sum of each row's weights so far; for the queries' gradient `delta`.
    row_sum: ArrayId,
}

/// Sums for rows of the result.
#[derive(Clone, Copy)]
struct Sums {
    array: ArrayId,
    /// The array of weights, and the right matrix that is weighted.
    weights: usize,
    matrix: usize,
    features: usize,
    /// Where they go in the result.
    start: usize,
}

/// Emits the statements of a group.
pub(super) fn lower(b: &mut Builder, engine: &mut impl Engine, problem: &Problem, place: &Place) {
    let extents = engine.extents();
    let scores: Vec<ArrayId> = (0..problem.pairs()).map(|_| engine.array(b, extents[1])).collect();
    let sums: Vec<Sums> = problem
        .sums()
        .into_iter()
        .map(|(weights, matrix, start)| {
            let features = problem.right[matrix].features;
            Sums { array: engine.array(b, features), weights, matrix, features, start }
        })
        .collect();
    let engine = &*engine;
    let [row_max, row_sum] = [0, 1].map(|_| b.registers(problem.held, engine.rows()));
    let dropout = Dropout::new(b, problem);
    let tile = Tile { engine, problem, place, dropout, scores, row_max, row_sum };
    tile.begin(b, &sums);
    let steps = problem.extents()[1].div_ceil(extents[1]);
    b.over(steps.max(1), AxisKind::Serial, |b, step| {
        b.when(problem.has_step(b, place, extents, step), |b| {
            engine.scores(b, problem, place, &tile.scores, step);
            tile.mask_scores(b, step);
            match problem.pass {
                Pass::Output => tile.softmax(b, sums[0], step),
                _ => tile.derive(b, step),
            }
            for sums in &sums {
                let weights = tile.scores[sums.weights];
                engine.accumulate(b, problem, place, weights, sums.matrix, sums.array, step);
            }
        });
    });
    engine.complete(b);
    if problem.pass == Pass::Output {
        engine.exchange(b, Binary::Add, tile.row_sum);
    }
    for sums in &sums {
        tile.finish(b, *sums);
    }
}

impl<E: Engine> Tile<'_, E> {
    /// Statements for each of the invocation's rows.
    fn rows(&self, b: &mut Builder, body: impl FnOnce(&mut Builder, &Index)) {
        b.over(self.engine.rows(), AxisKind::Unroll, body);
    }

    /// Statements for each of the invocation's elements, given its row and column among these.
    fn each(&self, b: &mut Builder, columns: usize, body: impl FnOnce(&mut Builder, &Index, &Index)) {
        self.rows(b, |b, row| {
            b.over(self.engine.elements(columns), AxisKind::Unroll, |b, column| body(b, row, column));
        });
    }

    /// Loads an element of the invocation's share of an array.
    fn load(&self, b: &mut Builder, array: ArrayId, columns: usize, row: &Index, column: &Index) -> ValueId {
        let at = self.engine.element(b, columns, row, column);
        b.load(array, &at)
    }

    fn store(
        &self,
        b: &mut Builder,
        array: ArrayId,
        columns: usize,
        [row, column]: [&Index; 2],
        value: ValueId,
    ) {
        let at = self.engine.element(b, columns, row, column);
        b.store(array, &at, value);
    }

    fn constant(&self, b: &mut Builder, number: f64) -> ValueId {
        b.constant(self.problem.held, number)
    }

    /// A row of the invocation among all rows.
    fn row(&self, b: &Builder, row: &Index) -> Index {
        self.place.row.add(&self.engine.row(b, row))
    }

    /// A column of the invocation in a step among all columns.
    fn column(&self, b: &Builder, step: &Index, column: &Index) -> Index {
        self.problem.first_column(self.columns(), step).add(&self.engine.column(b, column))
    }

    /// Columns of a step.
    fn columns(&self) -> usize {
        self.engine.extents()[1]
    }

    fn begin(&self, b: &mut Builder, sums: &[Sums]) {
        for sums in sums {
            self.each(b, sums.features, |b, row, column| {
                let zero = self.constant(b, 0.0);
                self.store(b, sums.array, sums.features, [row, column], zero);
            });
        }
        if !self.problem.pass.is_of_keys() {
            self.rows(b, |b, row| {
                let (greatest, total) = match self.problem.pass {
                    Pass::Queries => {
                        let query = self.row(b, row);
                        self.of_query(b, &query)
                    }
                    _ => (self.constant(b, f64::NEG_INFINITY), self.constant(b, 0.0)),
                };
                b.store(self.row_max, row, greatest);
                b.store(self.row_sum, row, total);
            });
        }
        self.engine.begin(b, self.problem, self.place);
    }

    /// Masks the scores; scales them if that is not left to the exponentials.
    fn mask_scores(&self, b: &mut Builder, step: &Index) {
        let (problem, columns, scores) = (self.problem, self.columns(), self.scores[0]);
        if !problem.is_scaled_late() {
            self.each(b, columns, |b, row, column| {
                let score = self.load(b, scores, columns, row, column);
                let scale = self.constant(b, problem.scale());
                let score = b.binary(Binary::Mul, score, scale);
                let score = self.masked(b, score, &self.row(b, row), &self.column(b, step, column));
                self.store(b, scores, columns, [row, column], score);
            });
        }
        let hide = |b: &mut Builder, is_hidden: &dyn Fn(&Builder, &Index, &Index) -> Mask| {
            self.each(b, columns, |b, row, column| {
                let (of_row, of_column) = (self.row(b, row), self.column(b, step, column));
                b.when(is_hidden(b, &of_row, &of_column), |b| {
                    let nothing = self.constant(b, f64::NEG_INFINITY);
                    self.store(b, scores, columns, [row, column], nothing);
                });
            });
        };
        let beyond = |b: &Builder, index: &Index, extent: i64| Mask::within(index, extent, MOST, b.ranges());
        let first = problem.first_column(columns, step);
        let (extent, last) = (problem.extents()[1] as i64, first.shift(columns as i64 - 1));
        b.when(beyond(b, &last, extent), |b| {
            hide(b, &|b, _, column| beyond(b, column, extent));
        });
        if problem.attention.causal {
            let last_row = self.place.row.shift(self.engine.extents()[0] as i64 - 1);
            let farthest = match problem.pass.is_of_keys() {
                true => problem.key_after_query(&last_row, &first),
                false => problem.key_after_query(&self.place.row, &last),
            };
            b.when(beyond(b, &farthest, 1), |b| {
                hide(b, &|b, row, column| beyond(b, &problem.key_after_query(row, column), 1));
            });
        }
    }

    /// A score, as an exponent, with the mask, if there is one.
    fn masked(&self, b: &mut Builder, score: ValueId, row: &Index, column: &Index) -> ValueId {
        let problem = self.problem;
        let Some(mask) = &problem.mask else { return score };
        let [query, key] = if problem.pass.is_of_keys() { [column, row] } else { [row, column] };
        let mask = mask.load(b, &self.place.head, query, key);
        if b.type_of(mask).dtype == DType::Bool {
            let nothing = self.constant(b, f64::NEG_INFINITY);
            return b.select(mask, score, nothing);
        }
        let (mask, unit) = (b.cast(problem.held, mask), self.constant(b, problem.unit()));
        b.multiply_add(mask, unit, score)
    }

    /// Replaces scores by weights, relative to the greatest score so far, and the sums so far accordingly.
    fn softmax(&self, b: &mut Builder, sums: Sums, step: &Index) {
        let (columns, scores, rows) = (self.columns(), self.scores[0], self.engine.rows());
        let [factor, shift] = [0, 1].map(|_| b.registers(self.problem.held, rows));
        self.rows(b, |b, row| {
            let greatest = b.load(self.row_max, row);
            b.store(factor, row, greatest);
        });
        self.each(b, columns, |b, row, column| {
            let score = self.load(b, scores, columns, row, column);
            b.accumulate(self.row_max, row, Binary::Max, score);
        });
        self.engine.exchange(b, Binary::Max, self.row_max);
        self.rows(b, |b, row| {
            let (before, greatest) = (b.load(factor, row), b.load(self.row_max, row));
            let [nothing, zero] = [f64::NEG_INFINITY, 0.0].map(|number| self.constant(b, number));
            let is_empty = b.binary(Binary::Eq, greatest, nothing);
            let greatest = b.select(is_empty, zero, greatest);
            let negative = b.unary(Unary::Neg, greatest);
            let negative = self.exponent(b, negative);
            b.store(shift, row, negative);
            let change = self.weight(b, before, negative);
            b.store(factor, row, change);
            b.accumulate(self.row_sum, row, Binary::Mul, change);
        });
        self.each(b, columns, |b, row, column| {
            let (score, shift) = (self.load(b, scores, columns, row, column), b.load(shift, row));
            let weight = self.weight(b, score, shift);
            b.accumulate(self.row_sum, row, Binary::Add, weight);
            let kept = self.keeps(b, step, row, column);
            let weight = self.kept(b, kept, weight, 1.0);
            self.store(b, scores, columns, [row, column], weight);
        });
        self.each(b, sums.features, |b, row, column| {
            let sum = self.load(b, sums.array, sums.features, row, column);
            let factor = b.load(factor, row);
            let sum = b.binary(Binary::Mul, sum, factor);
            self.store(b, sums.array, sums.features, [row, column], sum);
        });
    }

    /// Whether an element is not dropped, if elements are.
    fn keeps(&self, b: &mut Builder, step: &Index, row: &Index, column: &Index) -> Option<ValueId> {
        let (row, column) = (self.row(b, row), self.column(b, step, column));
        let place = if self.problem.pass.is_of_keys() { [&column, &row] } else { [&row, &column] };
        self.dropout.as_ref().map(|dropout| dropout.keeps(b, self.problem, &self.place.head, place))
    }

    /// A scaled element, or 0 if it is dropped.
    fn kept(&self, b: &mut Builder, kept: Option<ValueId>, value: ValueId, factor: f64) -> ValueId {
        let Some(kept) = kept else { return value };
        let (zero, factor) = (self.constant(b, 0.0), self.constant(b, factor));
        let scaled = b.binary(Binary::Mul, value, factor);
        b.select(kept, scaled, zero)
    }

    /// The greatest score, or 0 minus it, as an exponent.
    fn exponent(&self, b: &mut Builder, score: ValueId) -> ValueId {
        if !self.problem.is_scaled_late() {
            return score;
        }
        let scale = self.constant(b, self.problem.scale());
        b.binary(Binary::Mul, score, scale)
    }

    /// The exponential of a score, scaled if it is not yet, plus a shift.
    fn weight(&self, b: &mut Builder, score: ValueId, shift: ValueId) -> ValueId {
        let exponent = match self.problem.is_scaled_late() {
            true => {
                let scale = self.constant(b, self.problem.scale());
                b.multiply_add(score, scale, shift)
            }
            false => b.binary(Binary::Add, score, shift),
        };
        b.unary(if self.problem.is_binary { Unary::Exp2 } else { Unary::Exp }, exponent)
    }

    /// Replaces scores by weights, and derivatives by weights, if there are any, by derivatives by products of queries
    /// and keys.
    fn derive(&self, b: &mut Builder, step: &Index) {
        let columns = self.columns();
        let (scores, derivatives) = (self.scores[0], self.scores.get(1));
        self.each(b, columns, |b, row, column| {
            let (logarithm, delta) = match self.problem.pass.is_of_keys() {
                true => {
                    let query = self.column(b, step, column);
                    self.of_query(b, &query)
                }
                false => (b.load(self.row_max, row), b.load(self.row_sum, row)),
            };
            let score = self.load(b, scores, columns, row, column);
            let shift = b.unary(Unary::Neg, logarithm);
            let weight = self.weight(b, score, shift);
            let (kept, factor) = (self.keeps(b, step, row, column), self.problem.attention.kept_factor());
            let derivative = derivatives.map(|&derivatives| {
                let derivative = self.load(b, derivatives, columns, row, column);
                let derivative = self.kept(b, kept, derivative, factor);
                let derivative = b.binary(Binary::Sub, derivative, delta);
                let derivative = b.binary(Binary::Mul, derivative, weight);
                // Scaled before they are rounded, so that they seldom exceed 16-bit floats.
                let scale = self.constant(b, self.problem.attention.scale.as_f64());
                (derivatives, b.binary(Binary::Mul, derivative, scale))
            });
            let weight = self.kept(b, kept, weight, factor);
            self.store(b, scores, columns, [row, column], weight);
            if let Some((derivatives, derivative)) = derivative {
                self.store(b, derivatives, columns, [row, column], derivative);
            }
        });
    }

    /// A query's logarithm as an exponent, 0 for minus infinity, and its `delta`.
    fn of_query(&self, b: &mut Builder, query: &Index) -> (ValueId, ValueId) {
        let (only, head) = (Index::default(), &self.place.head);
        let [logarithm, delta] = [0, 1].map(|at| self.problem.of_queries[at].load(b, head, query, &only));
        let [nothing, zero, unit] =
            [f64::NEG_INFINITY, 0.0, self.problem.unit()].map(|number| self.constant(b, number));
        let is_empty = b.binary(Binary::Eq, logarithm, nothing);
        let logarithm = b.select(is_empty, zero, logarithm);
        (b.binary(Binary::Mul, logarithm, unit), delta)
    }

    /// Stores sums; with those of the output also the logarithms.
    fn finish(&self, b: &mut Builder, sums: Sums) {
        let rows = self.problem.extents()[0] as i64;
        let factors = (self.problem.pass == Pass::Output).then(|| {
            let factors = b.registers(self.problem.held, self.engine.rows());
            self.rows(b, |b, row| {
                let factor = self.finish_row(b, row, sums.features);
                b.store(factors, row, factor);
            });
            factors
        });
        self.rows(b, |b, row| {
            b.over(self.engine.elements(sums.features) / 2, AxisKind::Unroll, |b, pair| {
                let pair = pair.scale(2);
                let values = [0, 1].map(|lane| {
                    let sum = self.load(b, sums.array, sums.features, row, &pair.shift(lane));
                    let Some(factors) = factors else { return sum };
                    let factor = b.load(factors, row);
                    b.binary(Binary::Mul, sum, factor)
                });
                let (row, column) = (self.row(b, row), self.engine.column(b, &pair));
                let exists = Mask::within(&row, 0, rows, b.ranges());
                b.when(exists.clone(), |b| self.store_pair(b, &exists, sums, [&row, &column], values));
            });
        });
    }

    /// Stores the logarithm of a row of the output. Returns the factor of its sums.
    fn finish_row(&self, b: &mut Builder, row: &Index, values: usize) -> ValueId {
        let (problem, rows) = (self.problem, self.problem.extents()[0]);
        let total = b.load(self.row_sum, row);
        let [zero, one] = [0.0, 1.0].map(|number| self.constant(b, number));
        let is_empty = b.binary(Binary::Eq, total, zero);
        let divisor = b.select(is_empty, one, total);
        let greatest = b.load(self.row_max, row);
        let greatest = self.exponent(b, greatest);
        let natural = self.constant(b, 1.0 / problem.unit());
        let greatest = b.binary(Binary::Mul, greatest, natural);
        let logarithm = b.unary(Unary::Log, divisor);
        let logarithm = b.binary(Binary::Add, logarithm, greatest);
        let row = self.row(b, row);
        let start = problem.heads * rows * values;
        let at = self.place.head.scale(rows as i64).add(&row).shift(start as i64);
        let exists = Mask::within(&row, 0, rows as i64, b.ranges());
        let first = self.engine.is_first(b);
        b.when(first.and(&exists), |b| b.store(problem.result.array, &at, logarithm));
        // Weights were dropped, but not scaled.
        let factor = self.constant(b, problem.attention.kept_factor());
        b.binary(Binary::Div, factor, divisor)
    }

    /// Stores two neighbouring features of a row, as far as they exist.
    fn store_pair(
        &self,
        b: &mut Builder,
        row_exists: &Mask,
        Sums { features, start, .. }: Sums,
        [row, column]: [&Index; 2],
        values: [ValueId; 2],
    ) {
        let problem = self.problem;
        let values = values.map(|value| b.cast(problem.stored, value));
        let number = problem.result_row(b, &self.place.head, row);
        let at = number.scale(features as i64).shift(start as i64).add(column);
        let exists =
            |b: &Builder, lane: i64| Mask::within(&column.shift(lane), 0, features as i64, b.ranges());
        let is_wide = 2 * problem.stored.size() <= problem.vector_bytes;
        if is_wide && features.is_multiple_of(2) && is_aligned(&at, 2) && is_aligned(column, 2) {
            let access = problem.result.access(b, &at, exists(b, 1), row_exists, 2);
            let of = Type { dtype: problem.stored, lanes: 2 };
            let both = b.bind(of, KernelOp::Pack(values.into_iter().collect()));
            return b.store_access(access, both);
        }
        for (lane, value) in (0..).zip(values) {
            let access = problem.result.access(b, &at.shift(lane), exists(b, lane), row_exists, 1);
            b.store_access(access, value);
        }
    }
}
