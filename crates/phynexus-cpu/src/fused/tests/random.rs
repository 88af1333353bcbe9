//! Random kernels: index maps, masks, dtypes, reduction phases, odd extents.

use phynexus::{
    DType, Scalar,
    kernel::{
        Index, Mask, Ranges,
        fused::{FusedOp, Fusion, Instruction, InstructionId, Parameter, Store},
    },
    op::{Binary, Combine, Unary},
};

use super::{Data, close, reference, run_all};

/// Xorshift: the same cases on every machine.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 >> 11
    }
    pub(super) fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }
    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
    fn pick<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.below(list.len())]
    }
}

const DTYPES: [DType; 9] = [
    DType::F32,
    DType::F32,
    DType::F32,
    DType::F16,
    DType::BF16,
    DType::F64,
    DType::I32,
    DType::I64,
    DType::Bool,
];

/// A small multiple of a quarter, so that short sums and products are exact.
pub(super) fn value(random: &mut Random, dtype: DType) -> Scalar {
    match dtype {
        DType::Bool => Scalar::Bool(random.chance(50)),
        d if d.is_float() => Scalar::Float((random.below(33) as f64 - 16.0) / 4.0),
        _ => Scalar::Int(random.below(20) as i64 - 7),
    }
}

struct Case {
    random: Random,
    kernel: Fusion,
    ranges: Ranges,
    data: Vec<Data>,
}

impl Case {
    fn new(seed: u64) -> Case {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
        for _ in 0..4 {
            random.next();
        }
        let mut kernel = Fusion::default();
        let (row_list, column_list): (&[usize], &[usize]) = match random.below(8) {
            0 => (&[1, 2, 3], &[5000, 20_000, 40_000]),
            1 => (&[30, 64, 130], &[300, 700, 1100]),
            _ => (&[1, 2, 3, 4, 5, 8, 17, 40, 130], &[1, 2, 3, 7, 12, 33, 100]),
        };
        for _ in 0..random.below(4) {
            kernel.rows.push(random.pick(row_list));
        }
        if random.chance(65) {
            for _ in 0..1 + random.below(2) {
                kernel.columns.push(random.pick(column_list));
            }
        }
        if random.chance(3) {
            kernel.rows.push(0);
        }
        if random.chance(3) && !kernel.columns.is_empty() {
            kernel.columns.push(0);
        }
        let extents = |kernel: &Fusion| {
            kernel.rows.iter().chain(&kernel.columns).map(|&extent| extent.max(1)).product::<usize>()
        };
        while extents(&kernel) > 60_000 {
            let list = if kernel.rows.len() > 1 { &mut kernel.rows } else { &mut kernel.columns };
            list.pop();
        }
        let ranges = Ranges(kernel.rows.iter().chain(&kernel.columns).copied().collect());
        Case { random, kernel, ranges, data: Vec::new() }
    }

    fn points(&self, per_column: bool) -> Vec<Vec<usize>> {
        let columns = if per_column { self.kernel.column_count() } else { 1 };
        let point = |i: usize| reference::point(&self.kernel, i / columns, i % columns);
        (0..self.kernel.row_count() * columns).map(point).collect()
    }

    fn push(&mut self, operation: FusedOp, dtype: DType, per_column: bool) -> InstructionId {
        self.kernel.instructions.push(Instruction { operation, dtype, per_column });
        self.kernel.instructions.len() as InstructionId - 1
    }

    fn of(&self, value: InstructionId) -> &Instruction {
        &self.kernel.instructions[value as usize]
    }

    /// Dense strides over some ranges in a random order.
    fn dense(&mut self, some: impl Fn(&mut Random, usize) -> bool, ordered: bool) -> Index {
        let mut chosen: Vec<usize> = (0..self.ranges.len()).filter(|&r| some(&mut self.random, r)).collect();
        if !ordered && chosen.len() > 1 {
            for _ in 0..2 {
                let (i, j) = (self.random.below(chosen.len()), self.random.below(chosen.len()));
                chosen.swap(i, j);
            }
        }
        let (mut index, mut stride) = (Index::default(), 1);
        for &range in chosen.iter().rev() {
            index = index.add(&Index::range(range, &self.ranges).scale(stride));
            stride *= self.ranges.0[range].max(1) as i64;
        }
        index
    }

    fn load(&mut self) -> InstructionId {
        let rows = self.kernel.rows.len();
        let all = self.ranges.len();
        let columns = all > rows && self.random.chance(75);
        let keep = self.random.pick(&[100, 100, 60]);
        let ordered = self.random.chance(60);
        let mut index = self.dense(|random, r| (r < rows || columns) && random.chance(keep), ordered);
        let mut mask = None;
        let ranges = self.ranges.clone();
        match self.random.below(10) {
            0 => {
                // A different shape: a transposed matrix of the flat elements.
                let k = 2 + self.random.below(6) as i64;
                let (_, greatest) = index.bounds(&ranges);
                let lines = greatest / k + 1;
                index = index.remainder(k, &ranges).scale(lines).add(&index.quotient(k, &ranges));
            }
            1 => index = index.scale(2 + self.random.below(3) as i64),
            2 => {
                let (_, greatest) = index.bounds(&ranges);
                index = index.scale(-1).shift(greatest);
            }
            3 | 4 if all > 0 => {
                let range = self.random.below(all);
                if range < rows || columns {
                    let shift = self.random.below(4) as i64 - 1;
                    let tested =
                        Index::range(range, &ranges).scale(self.random.pick(&[1, 1, -1, 2])).shift(shift);
                    let high = ranges.0[range] as i64 - self.random.below(3) as i64;
                    let mut m = Mask::within(&tested, 0, high, &ranges);
                    if self.random.chance(20) {
                        let k = 2 + self.random.below(3) as i64;
                        m = m.and(&Mask::within(&index.remainder(k, &ranges), 0, k - 1, &ranges));
                    }
                    mask = Some(m).filter(|m| !m.is_always());
                }
            }
            _ => {}
        }
        let dtype = self.random.pick(&DTYPES);
        let per_column = columns;
        let points = self.points(per_column);
        let valid = points.iter().filter(|p| mask.as_ref().is_none_or(|m| m.evaluate(p)));
        let reached: Vec<i64> = valid.map(|p| index.evaluate(p)).collect();
        let least = reached.iter().min().copied().unwrap_or(0);
        let index = index.shift(-least + self.random.below(3) as i64);
        let count = reached.iter().max().map_or(0, |m| m - least + 3) as usize;
        let fill = value(&mut self.random, dtype);
        let data: Vec<Scalar> = (0..count.max(3)).map(|_| value(&mut self.random, dtype)).collect();
        self.kernel.parameters.push(Parameter { dtype, written: false });
        self.data.push(Data::new(dtype, data));
        let parameter = self.data.len() as u16 - 1;
        self.push(FusedOp::Load { parameter, index, mask, fill }, dtype, per_column)
    }

    /// Converts a value to this dtype.
    fn cast(&mut self, value: InstructionId, dtype: DType) -> InstructionId {
        let per_column = self.of(value).per_column;
        if self.of(value).dtype == dtype { value } else { self.push(FusedOp::Cast(value), dtype, per_column) }
    }

    /// Bounds a value, so that later operations are exact.
    fn bounded(&mut self, value: InstructionId) -> InstructionId {
        let dtype = self.of(value).dtype;
        if dtype == DType::Bool {
            return value;
        }
        let per_column = self.of(value).per_column;
        let high = self.push(FusedOp::Constant(Scalar::Int(8)), dtype, false);
        let low = self.push(FusedOp::Constant(Scalar::Int(-8)), dtype, false);
        let value = self.push(FusedOp::Binary(Binary::Min, value, high), dtype, per_column);
        self.push(FusedOp::Binary(Binary::Max, value, low), dtype, per_column)
    }

    fn build(&mut self) {
        let mut values: Vec<InstructionId> = (0..1 + self.random.below(4)).map(|_| self.load()).collect();
        if self.random.chance(20) {
            let all = self.ranges.len();
            let rows = self.kernel.rows.len();
            let range = self.random.below(all.max(1));
            let index = if all == 0 { Index::default() } else { Index::range(range, &self.ranges) };
            let index = index.quotient(1 + self.random.below(3) as i64, &self.ranges.clone());
            let dtype = self.random.pick(&[DType::I64, DType::I32, DType::F32]);
            let value = self.push(FusedOp::Coordinate(index), dtype, all > rows && range >= rows);
            values.push(self.bounded(value));
        }
        let mut reductions = 0;
        for _ in 0..3 + self.random.below(8) {
            let a = self.random.pick(&values);
            let (dtype, per_column) = (self.of(a).dtype, self.of(a).per_column);
            let result = match self.random.below(9) {
                0 | 1 if reductions < 3 && !self.kernel.columns.is_empty() => {
                    reductions += 1;
                    let sums = dtype != DType::Bool && dtype.size() >= 4;
                    let combine = self.random.pick(&[Combine::Sum, Combine::Max, Combine::Min]);
                    let combine = if sums { combine } else { Combine::Max };
                    // A sum of products over few enough columns to be exact.
                    let products = combine == Combine::Sum && self.kernel.column_count() < 1000;
                    let a = if products && self.random.chance(50) {
                        let b = self.random.pick(&values);
                        let b = self.cast(b, dtype);
                        let wide = per_column || self.of(b).per_column;
                        self.push(FusedOp::Binary(Binary::Mul, a, b), dtype, wide)
                    } else {
                        a
                    };
                    let reduced = self.push(FusedOp::Reduce(combine, a), dtype, false);
                    self.bounded(reduced)
                }
                2 => {
                    let op = if dtype == DType::Bool {
                        Unary::Not
                    } else {
                        self.random.pick(&[Unary::Neg, Unary::Abs])
                    };
                    self.push(FusedOp::Unary(op, a), dtype, per_column)
                }
                3 => {
                    let to = self.random.pick(&DTYPES);
                    self.cast(a, to)
                }
                4 => {
                    let (condition, other) = (self.random.pick(&values), self.random.pick(&values));
                    let (condition, other) = (self.cast(condition, DType::Bool), self.cast(other, dtype));
                    let wide = per_column || self.of(condition).per_column || self.of(other).per_column;
                    self.push(FusedOp::Select(condition, a, other), dtype, wide)
                }
                _ => {
                    let b = self.random.pick(&values);
                    let b = self.cast(b, dtype);
                    let wide = per_column || self.of(b).per_column;
                    let op = match dtype {
                        DType::Bool => self.random.pick(&[Binary::And, Binary::Or, Binary::Xor, Binary::Eq]),
                        _ => self.random.pick(&[
                            Binary::Add,
                            Binary::Add,
                            Binary::Sub,
                            Binary::Mul,
                            Binary::Max,
                            Binary::Lt,
                        ]),
                    };
                    let value = self.push(FusedOp::Binary(op, a, b), op.result(dtype), wide);
                    self.bounded(value)
                }
            };
            values.push(result);
        }
        for _ in 0..1 + self.random.below(3) {
            let recent = values.len().saturating_sub(4);
            let value = values[recent + self.random.below(values.len() - recent)];
            let (rows, per_column) = (self.kernel.rows.len(), self.of(value).per_column);
            let ordered = self.random.chance(80);
            let index = self.dense(|_, range| range < rows || per_column, ordered);
            let (_, greatest) = index.bounds(&self.ranges);
            let dtype = match self.of(value).dtype {
                DType::F32 => self.random.pick(&[DType::F32, DType::F32, DType::F16]),
                other => other,
            };
            self.kernel.parameters.push(Parameter { dtype, written: true });
            let count = greatest.max(0) as usize + 1;
            self.data.push(Data::new(dtype, (0..count).map(|_| Scalar::Int(1))));
            let parameter = self.data.len() as u16 - 1;
            self.kernel.stores.push(Store { parameter, value, index, replaces: None });
        }
    }
}

#[test]
fn random_kernels_do_what_they_say() {
    for seed in 1..=800 {
        let mut case = Case::new(seed);
        case.build();

        let alias: Vec<usize> = (0..case.data.len()).collect();
        let got = run_all(&case.kernel, &case.data, &alias);
        let want = reference::interpret(&case.kernel, &case.data);
        for (parameter, (got, want)) in got.iter().zip(&want).enumerate() {
            for (at, (got, want)) in got.all().iter().zip(want).enumerate() {
                let kernel = &case.kernel;
                assert!(
                    close(*got, *want, 1e-5),
                    "seed {seed}: parameter {parameter} element {at}: {got} instead of {want}\n{kernel:#?}"
                );
            }
        }
    }
}
