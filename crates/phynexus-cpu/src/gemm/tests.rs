//! Tests every method of computing products against sums in `f64` and `i64`.

mod bytes;

use std::sync::Mutex;

use phynexus::Scalar;
use proptest::{prelude::*, test_runner::RngSeed};

use super::*;
use crate::by_dtype::by_dtype;

/// A matrix in its own buffer, accessed as scalars.
struct Matrix {
    bytes: Vec<u64>,
    dtype: DType,
    start: isize,
    row: isize,
    column: isize,
}

/// How a matrix is arranged in its buffer.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Arrangement {
    Rows,
    Columns,
    /// Gaps between rows and between elements.
    Gaps,
    /// Both axes are reversed.
    Backwards,
    /// Every row is the first one.
    SameRow,
    /// Every column is the first one.
    SameColumn,
}

const READ: [Arrangement; 6] = [
    Arrangement::Rows,
    Arrangement::Columns,
    Arrangement::Gaps,
    Arrangement::Backwards,
    Arrangement::SameRow,
    Arrangement::SameColumn,
];

impl Matrix {
    fn new(rows: usize, columns: usize, items: usize, dtype: DType, arrangement: Arrangement) -> Matrix {
        let (r, c) = (rows as isize, columns as isize);
        let (row, column, start) = match arrangement {
            Arrangement::Rows => (c, 1, 0),
            Arrangement::Columns => (1, r, 0),
            Arrangement::Gaps => (2 * c + 3, 2, 1),
            Arrangement::Backwards => (-c, -1, (r * c - 1).max(0)),
            Arrangement::SameRow => (0, 1, 0),
            Arrangement::SameColumn => (1, 0, 0),
        };
        let elements = (2 * columns + 3) * rows.max(1) + columns + rows + 8;
        Matrix { bytes: vec![0; (elements * items * dtype.size()).div_ceil(8)], dtype, start, row, column }
    }

    /// Elements between the items of a batch.
    fn item(&self, items: usize) -> isize {
        (self.bytes.len() * 8 / self.dtype.size() / items) as isize
    }

    fn place(&self, offset: isize, i: usize, j: usize) -> isize {
        self.start + offset + i as isize * self.row + j as isize * self.column
    }

    fn get(&self, offset: isize, i: usize, j: usize) -> Scalar {
        let at = self.place(offset, i, j);
        read(self.dtype, self.bytes.as_ptr().cast(), at)
    }

    fn fill(&mut self, mut value: impl FnMut() -> f64) {
        let count = self.bytes.len() * 8 / self.dtype.size();
        for at in 0..count {
            write(self.dtype, self.bytes.as_mut_ptr().cast(), at as isize, Scalar::Float(value()));
        }
    }

    fn operand(&self) -> Operand {
        let data = self.bytes.as_ptr().cast::<u8>().wrapping_offset(self.start * self.dtype.size() as isize);
        Operand { data, dtype: self.dtype, row_stride: self.row, column_stride: self.column }
    }

    fn output(&mut self) -> Output {
        let data =
            self.bytes.as_mut_ptr().cast::<u8>().wrapping_offset(self.start * self.dtype.size() as isize);
        Output { data, dtype: self.dtype, row_stride: self.row, column_stride: self.column }
    }
}

fn read(dtype: DType, data: *const u8, at: isize) -> Scalar {
    // SAFETY: the matrices of these tests contain the element.
    unsafe { by_dtype!(dtype, bool is bool, T => phynexus::Element::to_scalar(*data.cast::<T>().offset(at))) }
}

fn write(dtype: DType, data: *mut u8, at: isize, value: Scalar) {
    // SAFETY: the matrices of these tests contain the element.
    unsafe {
        by_dtype!(dtype, bool is bool, T => *data.cast::<T>().offset(at) = <T as phynexus::Element>::from_scalar(value))
    }
}

/// A deterministic sequence of numbers.
fn numbers(seed: u64) -> impl FnMut() -> u64 {
    let mut state = seed.wrapping_mul(2).wrapping_add(1);
    move || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        state >> 33
    }
}

/// A product to check.
#[derive(Clone, Debug)]
struct Case {
    m: usize,
    n: usize,
    k: usize,
    items: usize,
    dtypes: [DType; 3],
    arrangements: [Arrangement; 3],
    set: InstructionSet,
    seed: u64,
}

/// The sum of the products, and that of their magnitudes.
fn sums_of_products(left: &[f64], right: &[f64]) -> (f64, f64) {
    let (mut sum, mut size) = (0.0, 0.0);
    let ((left, last_left), (right, last_right)) = (left.as_chunks(), right.as_chunks());
    // Four products at a time: in one chain, each addition would wait for the one before.
    for ([a, b, c, d], [e, f, g, h]) in left.iter().zip(right) {
        sum += (a * e + b * f) + (c * g + d * h);
        size += ((a * e).abs() + (b * f).abs()) + ((c * g).abs() + (d * h).abs());
    }
    for (x, y) in last_left.iter().zip(last_right) {
        sum += x * y;
        size += (x * y).abs();
    }
    (sum, size)
}

/// Computes the case and compares every element. Checks that the epilogue covers C exactly once and sees final values,
/// and that nothing outside C was written.
fn check(case: &Case) {
    let Case { m, n, k, items, dtypes: [at, bt, ct], arrangements: [ap, bp, cp], set, seed } = *case;
    let mut next = numbers(seed);
    let mut a = Matrix::new(m, k, items, at, ap);
    let mut b = Matrix::new(k, n, items, bt, bp);
    let mut c = Matrix::new(m, n, items, ct, cp);
    let mut value = |dtype: DType| match dtype {
        DType::Bool => (next() % 2) as f64,
        DType::I8 => (next() % 256) as f64 - 128.0,
        DType::U8 => (next() % 256) as f64,
        d if d.is_float() => (next() % 2000) as f64 / 1000.0 - 1.0,
        _ => (next() % 60_000) as f64,
    };
    a.fill(|| value(at));
    b.fill(|| value(bt));
    c.fill(|| 77.0);
    let (a_item, b_item, c_item) = (a.item(items), b.item(items), c.item(items));
    let batch: Vec<BatchItem> =
        (0..items as isize).map(|i| BatchItem { a: i * a_item, b: i * b_item, c: i * c_item }).collect();
    let output = c.output();
    let seen = Mutex::new(vec![None; items * m * n]);
    let written = &output;
    let epilogue = |item: usize, rows: Range<usize>, columns: Range<usize>| {
        let output = *written;
        for i in rows {
            for j in columns.clone() {
                let at = batch[item].c + i as isize * output.row_stride + j as isize * output.column_stride;
                let now = read(ct, output.data, at);
                let before = seen.lock().unwrap()[(item * m + i) * n + j].replace(now);
                assert_eq!(before, None, "twice: item {item}, row {i}, column {j}");
            }
        }
    };
    // SAFETY: the matrices hold every element.
    unsafe { gemm_with(set, m, n, k, &batch, &a.operand(), &b.operand(), &output, Some(&epilogue)).unwrap() };
    let seen = seen.into_inner().unwrap();
    for (item, offsets) in batch.iter().enumerate() {
        let left: Vec<Scalar> = (0..m * k).map(|e| a.get(offsets.a, e / k, e % k)).collect();
        let right: Vec<Scalar> = (0..n * k).map(|e| b.get(offsets.b, e % k, e / k)).collect();
        let (lf, rf): (Vec<f64>, Vec<f64>) =
            (left.iter().map(|x| x.as_f64()).collect(), right.iter().map(|x| x.as_f64()).collect());
        let (li, ri): (Vec<i64>, Vec<i64>) =
            (left.iter().map(|x| x.as_i64()).collect(), right.iter().map(|x| x.as_i64()).collect());
        for (i, j) in (0..m * n).map(|e| (e / n, e % n)) {
            let got = c.get(offsets.c, i, j);
            assert_eq!(seen[(item * m + i) * n + j], Some(got), "{case:?}: epilogue at {item} {i} {j}");
            if ct.is_float() {
                let (sum, size) = sums_of_products(&lf[i * k..][..k], &rf[j * k..][..k]);
                // The error of a sum's steps, of rounding the result, and of rounding a subnormal result.
                let (sums, store, least) = match ct {
                    DType::F64 => (f64::EPSILON, 0.0, 0.0),
                    DType::F16 => (1.2e-7, 4.9e-4, 2f64.powi(-25)),
                    DType::BF16 => (1.2e-7, 3.95e-3, 0.0),
                    _ => (1.2e-7, 0.0, 0.0),
                };
                let bound = sums * (k as f64 + 2.0) * size + store * sum.abs() + least;
                let error = (got.as_f64() - sum).abs();
                assert!(error <= bound, "{case:?}: {i} {j}: {got} instead of {sum}, bound {bound}");
            } else {
                let pairs = li[i * k..][..k].iter().zip(&ri[j * k..][..k]);
                let sum = pairs.fold(0i64, |s, (x, y)| s.wrapping_add(x.wrapping_mul(*y)));
                assert_eq!(got, Scalar::Int(sum).cast(ct), "{case:?}: {i} {j}");
            }
        }
    }
    let mut mine = std::collections::HashSet::new();
    for offsets in &batch {
        mine.extend((0..m * n).map(|e| c.place(offsets.c, e / n, e % n)));
    }
    for at in 0..(c.bytes.len() * 8 / ct.size()) as isize {
        if !mine.contains(&at) {
            assert_eq!(
                read(ct, c.bytes.as_ptr().cast(), at),
                Scalar::Int(77).cast(ct),
                "{case:?}: wrote outside"
            );
        }
    }
}

fn available() -> impl Iterator<Item = InstructionSet> {
    InstructionSet::ALL.into_iter().filter(|set| set.is_available())
}

fn case(m: usize, n: usize, k: usize, dtype: DType) -> Case {
    let arrangements = [Arrangement::Rows; 3];
    Case {
        m,
        n,
        k,
        items: 1,
        dtypes: [dtype; 3],
        arrangements,
        set: InstructionSet::best(),
        seed: (m + n * 3 + k * 7) as u64,
    }
}

#[test]
fn sizes_around_every_boundary() {
    for set in available() {
        for size in 0..70 {
            check(&Case { set, ..case(size, 33, 17, DType::F32) });
            check(&Case { set, ..case(9, size, 21, DType::F32) });
            check(&Case { set, ..case(15, 34, size, DType::F32) });
            check(&Case { set, ..case(size, size, size, DType::F64) });
        }
    }
}

#[test]
fn every_arrangement() {
    for set in available() {
        for a in READ {
            for b in READ {
                for c in [Arrangement::Rows, Arrangement::Columns, Arrangement::Gaps, Arrangement::Backwards]
                {
                    for (m, n, k) in [(31, 45, 37), (3, 70, 90), (70, 2, 90), (1, 1, 40), (20, 24, 300)] {
                        check(&Case { set, arrangements: [a, b, c], ..case(m, n, k, DType::F32) });
                    }
                }
            }
        }
    }
}

#[test]
fn every_combination_of_floats() {
    for set in available() {
        for a in DType::FLOATS {
            for b in DType::FLOATS {
                for c in DType::FLOATS {
                    if c != DType::F64 && (a == DType::F64 || b == DType::F64) {
                        continue;
                    }
                    for arrangements in
                        [[Arrangement::Rows; 3], [Arrangement::Columns; 3], [Arrangement::Gaps; 3]]
                    {
                        check(&Case { set, dtypes: [a, b, c], arrangements, ..case(30, 35, 150, c) });
                    }
                }
            }
        }
    }
}

#[test]
fn every_combination_of_integers() {
    let mut types = DType::INTEGERS.to_vec();
    types.push(DType::Bool);
    for set in available() {
        for &a in &types {
            for &b in &types {
                for c in DType::INTEGERS {
                    let k = if set == InstructionSet::Plain { 13 } else { 39 };
                    check(&Case { set, dtypes: [a, b, c], ..case(5, 18, k, c) });
                }
            }
        }
    }
}

#[test]
fn many_blocks() {
    for (m, n, k) in
        [(300, 500, 700), (200, 40, 5000), (130, 200, 4500), (1, 600, 700), (2, 100, 3000), (700, 3, 400)]
    {
        for a in [Arrangement::Rows, Arrangement::Columns] {
            for b in [Arrangement::Rows, Arrangement::Columns] {
                for c in [Arrangement::Rows, Arrangement::Columns, Arrangement::Gaps] {
                    check(&Case { arrangements: [a, b, c], ..case(m, n, k, DType::F32) });
                }
            }
        }
        check(&Case { dtypes: [DType::F16, DType::F16, DType::F16], ..case(m, n, k, DType::F16) });
    }
    check(&case(512, 512, 256, DType::F32));
}

#[test]
fn batches() {
    for (m, n, k) in [(3, 5, 7), (64, 64, 64), (100, 90, 80), (1, 300, 200)] {
        for items in [0, 1, 2, 5, 33] {
            if m * n * items < 100_000 {
                let items_or_one = items.max(1);
                let mut many = case(m, n, k, DType::F32);
                many.items = items_or_one;
                check(&many);
            }
        }
    }
}

#[test]
fn a_batch_with_one_right_side_is_one_tall_product() {
    let (m, n, k, items) = (5, 40, 30, 7);
    let mut next = numbers(3);
    let a: Vec<f32> = (0..items * m * k).map(|_| (next() % 7) as f32).collect();
    let b: Vec<f32> = (0..k * n).map(|_| (next() % 5) as f32).collect();
    let mut c = vec![0f32; items * m * n];
    let batch: Vec<BatchItem> =
        (0..items).map(|i| BatchItem { a: (i * m * k) as isize, b: 0, c: (i * m * n) as isize }).collect();
    let seen = Mutex::new(vec![0; items * m * n]);
    let epilogue = |item: usize, rows: Range<usize>, columns: Range<usize>| {
        for i in rows {
            assert!(i < m);
            columns.clone().for_each(|j| seen.lock().unwrap()[(item * m + i) * n + j] += 1);
        }
    };
    let row_major = |data: *const f32, columns: usize| Operand {
        data: data.cast(),
        dtype: DType::F32,
        row_stride: columns as isize,
        column_stride: 1,
    };
    let output =
        Output { data: c.as_mut_ptr().cast(), dtype: DType::F32, row_stride: n as isize, column_stride: 1 };
    let (left, right) = (row_major(a.as_ptr(), k), row_major(b.as_ptr(), n));
    // SAFETY: the vectors hold the matrices.
    unsafe { gemm(m, n, k, &batch, &left, &right, &output, Some(&epilogue)).unwrap() };
    assert!(seen.into_inner().unwrap().iter().all(|&count| count == 1));
    for i in 0..items * m {
        for j in 0..n {
            let sum: f32 = (0..k).map(|p| a[i * k + p] * b[p * n + j]).sum();
            assert_eq!(c[i * n + j], sum);
        }
    }
}

/// A product of row-major `f32` matrices.
fn product(m: usize, n: usize, k: usize, a: &[f32], b: &[f32]) -> Vec<f32> {
    let mut c = vec![f32::NAN; m * n];
    let operand = |data: &[f32], columns: usize| Operand {
        data: data.as_ptr().cast(),
        dtype: DType::F32,
        row_stride: columns as isize,
        column_stride: 1,
    };
    let output =
        Output { data: c.as_mut_ptr().cast(), dtype: DType::F32, row_stride: n as isize, column_stride: 1 };
    // SAFETY: the vectors hold the matrices.
    unsafe { gemm(m, n, k, &[BatchItem::default()], &operand(a, k), &operand(b, n), &output, None).unwrap() };
    c
}

#[test]
fn nan_and_infinity_stay_in_their_rows_and_columns() {
    for (m, n, k) in [(20, 40, 30), (2, 300, 200), (150, 130, 200), (30, 40, 2500)] {
        let mut a = vec![1f32; m * k];
        let mut b = vec![1f32; k * n];
        a[k + 3] = f32::NAN;
        b[5 * n + 7] = f32::INFINITY;
        let c = product(m, n, k, &a, &b);
        for i in 0..m {
            for j in 0..n {
                let x = c[i * n + j];
                match (i, j) {
                    (1, _) => assert!(x.is_nan(), "{i} {j}"),
                    (_, 7) => assert_eq!(x, f32::INFINITY, "{i} {j}"),
                    _ => assert_eq!(x, k as f32, "{i} {j}"),
                }
            }
        }
    }
}

#[test]
fn results_do_not_depend_on_threads() {
    for (m, n, k) in [(100, 120, 3000), (400, 300, 500), (1, 900, 900), (4, 100, 5000), (40, 500, 700)] {
        let mut next = numbers(9);
        let mut values =
            |count: usize| -> Vec<f32> { (0..count).map(|_| next() as f32 / 1e9 - 1.0).collect() };
        let (a, b) = (values(m * k), values(k * n));
        let bits = |threads: usize| -> Vec<u32> {
            pool::set_threads(threads);
            product(m, n, k, &a, &b).into_iter().map(f32::to_bits).collect()
        };
        let expected = bits(1);
        for threads in [2, 3, 5, 0] {
            assert_eq!(bits(threads), expected, "{m} {n} {k} with {threads} threads");
        }
    }
}

#[test]
fn unfit_types_are_an_error() {
    let zero = 0u64;
    let operand = |dtype| Operand { data: (&raw const zero).cast(), dtype, row_stride: 0, column_stride: 0 };
    let mut out = 0u64;
    let mut try_types = |a, b, c| {
        let output = Output { data: (&raw mut out).cast(), dtype: c, row_stride: 1, column_stride: 1 };
        // SAFETY: every operand is a single element.
        unsafe { gemm(1, 1, 1, &[BatchItem::default()], &operand(a), &operand(b), &output, None) }
    };
    assert!(try_types(DType::F64, DType::F32, DType::F32).is_err());
    assert!(try_types(DType::I32, DType::F32, DType::F32).is_err());
    assert!(try_types(DType::F32, DType::F32, DType::I32).is_err());
    assert!(try_types(DType::F32, DType::F32, DType::F64).is_ok());
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(200) })]
    #[test]
    fn any_product(
        m in 0usize..80, n in 0usize..80, k in 0usize..120, items in 1usize..4, seed in any::<u64>(),
        set in prop::sample::select(available().collect::<Vec<_>>()),
        a in prop::sample::select(READ.to_vec()), b in prop::sample::select(READ.to_vec()),
        c in prop::sample::select(READ[..4].to_vec()),
        dtypes in prop::sample::select(vec![
            [DType::F32; 3], [DType::F64; 3], [DType::BF16; 3], [DType::F16, DType::F16, DType::F32],
            [DType::I8, DType::I8, DType::I32], [DType::U8, DType::I8, DType::I32], [DType::I32; 3], [DType::I64; 3],
        ]),
    ) {
        check(&Case { m, n, k, items, dtypes, arrangements: [a, b, c], set, seed });
    }
}
