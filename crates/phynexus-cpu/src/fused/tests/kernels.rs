//! Common kernels against the interpreter: softmax, norms, sums, transposes; NaN, long sums, odd shapes.

use phynexus::{
    DType, Scalar,
    kernel::{
        Index, Mask, Ranges,
        fused::{FusedOp, Fusion, Instruction, InstructionId, Parameter, Store},
    },
    op::{Binary, Combine, Unary},
};

use super::{Data, close, reference, run_all};

/// A kernel of `f32` values under construction.
pub(super) struct Builder {
    pub(super) kernel: Fusion,
    pub(super) ranges: Ranges,
    pub(super) data: Vec<Data>,
}

impl Builder {
    pub(super) fn new(rows: &[usize], columns: &[usize]) -> Builder {
        let kernel = Fusion { rows: rows.into(), columns: columns.into(), ..Fusion::default() };
        Builder { kernel, ranges: Ranges(rows.iter().chain(columns).copied().collect()), data: Vec::new() }
    }
    /// The row-major index over all ranges.
    pub(super) fn flat(&self) -> Index {
        let extents = self.ranges.0.iter().enumerate();
        extents.fold(Index::default(), |i, (r, &n)| i.scale(n as i64).add(&Index::range(r, &self.ranges)))
    }
    pub(super) fn range(&self, range: usize) -> Index {
        Index::range(range, &self.ranges)
    }
    pub(super) fn parameter(&mut self, data: Data, written: bool) -> u16 {
        self.kernel.parameters.push(Parameter { dtype: data.dtype, written });
        self.data.push(data);
        self.data.len() as u16 - 1
    }
    fn push(&mut self, operation: FusedOp, dtype: DType, per_column: bool) -> InstructionId {
        self.kernel.instructions.push(Instruction { operation, dtype, per_column });
        self.kernel.instructions.len() as InstructionId - 1
    }
    fn wide(&self, value: InstructionId) -> bool {
        self.kernel.instructions[value as usize].per_column
    }
    pub(super) fn load_masked(&mut self, data: Data, index: Index, mask: Option<Mask>) -> InstructionId {
        let dtype = data.dtype;
        let parameter = self.parameter(data, false);
        let per_column = (self.kernel.rows.len()..self.ranges.len()).any(|r| index.depends_on(r));
        self.push(FusedOp::Load { parameter, index, mask, fill: Scalar::Float(0.5) }, dtype, per_column)
    }
    pub(super) fn load(&mut self, data: Data, index: Index) -> InstructionId {
        self.load_masked(data, index, None)
    }
    pub(super) fn unary(&mut self, op: Unary, a: InstructionId) -> InstructionId {
        self.push(FusedOp::Unary(op, a), DType::F32, self.wide(a))
    }
    pub(super) fn binary(&mut self, op: Binary, a: InstructionId, b: InstructionId) -> InstructionId {
        self.push(FusedOp::Binary(op, a, b), DType::F32, self.wide(a) || self.wide(b))
    }
    pub(super) fn number(&mut self, x: f64) -> InstructionId {
        self.push(FusedOp::Constant(Scalar::Float(x)), DType::F32, false)
    }
    pub(super) fn reduce(&mut self, combine: Combine, a: InstructionId) -> InstructionId {
        self.push(FusedOp::Reduce(combine, a), DType::F32, false)
    }
    pub(super) fn store(&mut self, value: InstructionId, index: Index, dtype: DType) {
        let (_, greatest) = index.bounds(&self.ranges);
        let data = Data::new(dtype, (0..=greatest).map(|_| Scalar::Int(7)));
        let parameter = self.parameter(data, true);
        self.kernel.stores.push(Store { parameter, value, index, replaces: None });
    }
    /// Runs the kernel and compares all stores with the interpreter.
    fn check(&self, tolerance: f64) {
        let alias: Vec<usize> = (0..self.data.len()).collect();
        let got = run_all(&self.kernel, &self.data, &alias);
        let want = reference::interpret(&self.kernel, &self.data);
        for (parameter, (got, want)) in got.iter().zip(&want).enumerate() {
            for (at, (&got, &want)) in got.all().iter().zip(want).enumerate() {
                let (rows, columns) = (&self.kernel.rows, &self.kernel.columns);
                assert!(
                    close(got, want, tolerance),
                    "rows {rows:?} columns {columns:?} parameter {parameter} element {at}: {got} not {want}"
                );
            }
        }
    }
}

/// Irregular numbers between -2 and 2.
pub(super) fn numbers(count: usize) -> Data {
    Data::floats((0..count).map(|i| ((i * 7919 + 13) % 4001) as f32 / 1000.0 - 2.0))
}

fn softmax(builder: &mut Builder, x: InstructionId) -> InstructionId {
    let greatest = builder.reduce(Combine::Max, x);
    let shifted = builder.binary(Binary::Sub, x, greatest);
    let e = builder.unary(Unary::Exp, shifted);
    let sum = builder.reduce(Combine::Sum, e);
    builder.binary(Binary::Div, e, sum)
}

fn positive(count: usize) -> Data {
    Data::floats(numbers(count).all().into_iter().map(|x| x.as_f64() as f32 + 2.5))
}

#[test]
fn softmax_of_rows_of_all_lengths() {
    for (rows, columns) in [(1, 1), (7, 2), (300, 10), (33, 1000), (3, 20_001), (1, 100_000), (2000, 3)] {
        let mut b = Builder::new(&[rows], &[columns]);
        let x = b.load(numbers(rows * columns), b.flat());
        let y = softmax(&mut b, x);
        b.store(y, b.flat(), DType::F32);
        b.check(2e-6);
    }
}

#[test]
fn softmax_along_an_outer_dimension() {
    for (n, c, inner) in [(2, 5, 40), (3, 19, 7), (1, 1500, 70), (4, 300, 129)] {
        let mut b = Builder::new(&[n, inner], &[c]);
        let index = b.range(0).scale(c as i64).add(&b.range(2)).scale(inner as i64).add(&b.range(1));
        let x = b.load(numbers(n * c * inner), index.clone());
        let y = softmax(&mut b, x);
        b.store(y, index, DType::F32);
        b.check(2e-6);
    }
}

#[test]
fn layer_norm_with_its_statistics() {
    for (rows, columns) in [(5, 3), (64, 768), (2, 30_000)] {
        let mut b = Builder::new(&[rows], &[columns]);
        let x = b.load(numbers(rows * columns), b.flat());
        let (weight, bias) =
            (b.load(numbers(columns), b.range(1)), b.load(numbers(columns), b.range(1).shift(0)));
        let (count, epsilon) = (b.number(1.0 / columns as f64), b.number(1e-5));
        let sum = b.reduce(Combine::Sum, x);
        let mean = b.binary(Binary::Mul, sum, count);
        let centred = b.binary(Binary::Sub, x, mean);
        let square = b.binary(Binary::Mul, centred, centred);
        let sum = b.reduce(Combine::Sum, square);
        let variance = b.binary(Binary::Mul, sum, count);
        let variance = b.binary(Binary::Add, variance, epsilon);
        let scale = b.unary(Unary::Rsqrt, variance);
        let y = b.binary(Binary::Mul, centred, scale);
        let y = b.binary(Binary::Mul, y, weight);
        let y = b.binary(Binary::Add, y, bias);
        b.store(y, b.flat(), DType::BF16);
        b.store(mean, b.range(0), DType::F32);
        b.store(scale, b.range(0), DType::F32);
        b.check(1e-2);
    }
}

#[test]
fn sums_of_columns_rows_and_everything() {
    for (outer, inner) in [(1, 300_000), (5000, 33), (40_000, 3), (3, 1000), (700, 700)] {
        // Reductions of rows, columns, and everything.
        for (rows, columns) in [(vec![0], vec![1]), (vec![1], vec![0]), (vec![], vec![0, 1])] {
            let extents = [outer, inner];
            let of = |list: &[usize]| list.iter().map(|&r| extents[r]).collect::<Vec<_>>();
            let mut b = Builder::new(&of(&rows), &of(&columns));
            let order: Vec<usize> = rows.iter().chain(&columns).copied().collect();
            let place = |range: usize| order.iter().position(|&r| r == range).unwrap();
            let index = b.range(place(0)).scale(inner as i64).add(&b.range(place(1)));
            // All positive: with cancellation, a relative error would be meaningless.
            let x = b.load(positive(outer * inner), index);
            let sum = b.reduce(Combine::Sum, x);
            let row_index = if rows.is_empty() { Index::default() } else { b.range(0) };
            b.store(sum, row_index, DType::F32);
            b.check(1e-5);
        }
    }
}

#[test]
fn rounding_errors_of_long_sums_do_not_add_up() {
    // A running sum in f32 would stall at 2^24 units of its summands, or be off by percents.
    let count = 5_000_000;
    for upright in [false, true] {
        let lanes = if upright { 16 } else { 1 };
        let mut b = Builder::new(&[lanes], &[count / lanes]);
        let index = if upright { b.range(1).scale(lanes as i64).add(&b.range(0)) } else { b.flat() };
        let x = b.load(Data::floats((0..count).map(|_| 0.1)), index);
        let sum = b.reduce(Combine::Sum, x);
        b.store(sum, b.range(0), DType::F32);
        let alias = [0, 1];
        let got = run_all(&b.kernel, &b.data, &alias)[1].all()[0].as_f64();
        let want = f64::from(0.1f32) * (count / lanes) as f64;
        assert!((got - want).abs() < 2e-6 * want, "{got} instead of {want}");
    }
}

#[test]
fn transposes_and_flips() {
    for (m, n) in [(1, 5), (17, 33), (300, 513), (1000, 3), (3, 1000)] {
        let mut b = Builder::new(&[n, m], &[]);
        let index = b.range(1).scale(n as i64).add(&b.range(0));
        let x = b.load(numbers(m * n), index);
        let back = b.flat().scale(-1).shift((m * n) as i64 - 1);
        let flipped = b.load(numbers(m * n), back);
        let y = b.binary(Binary::Sub, x, flipped);
        b.store(x, b.flat(), DType::F32);
        b.store(y, b.flat(), DType::F16);
        b.check(1e-6);
    }
}

#[test]
fn padding_and_windows() {
    // The nine shifted copies of an image for a 3 by 3 filter.
    let (h, w) = (13, 37);
    let mut b = Builder::new(&[9, h, w], &[]);
    let (dy, dx) = (b.range(0).quotient(3, &b.ranges), b.range(0).remainder(3, &b.ranges));
    let (y, x) = (b.range(1).add(&dy).shift(-1), b.range(2).add(&dx).shift(-1));
    let mask = Mask::within(&y, 0, h as i64, &b.ranges).and(&Mask::within(&x, 0, w as i64, &b.ranges));
    let value = b.load_masked(numbers(h * w), y.scale(w as i64).add(&x), Some(mask));
    b.store(value, b.flat(), DType::F32);
    b.check(0.0);
}

#[test]
fn not_a_number_spreads_as_it_should() {
    for columns in [5, 40_000] {
        let mut b = Builder::new(&[3], &[columns]);
        let mut values = vec![1.0; 3 * columns];
        values[columns + 2] = f32::NAN;
        values[2 * columns] = f32::NEG_INFINITY;
        let x = b.load(Data::floats(values), b.flat());
        for combine in [Combine::Sum, Combine::Max, Combine::Min] {
            let result = b.reduce(combine, x);
            b.store(result, b.range(0), DType::F32);
        }
        b.check(1e-6);
    }
}

#[test]
fn a_row_value_stored_in_every_column() {
    for (rows, columns) in [(6, 50), (2, 70_000)] {
        let mut b = Builder::new(&[rows], &[columns]);
        let x = b.load(numbers(rows * columns), b.flat());
        let greatest = b.reduce(Combine::Max, x);
        let zero = b.number(0.0);
        let zeros = b.binary(Binary::Mul, x, zero);
        let everywhere = b.binary(Binary::Add, zeros, greatest);
        b.store(everywhere, b.flat(), DType::F32);
        b.check(1e-6);
    }
}
