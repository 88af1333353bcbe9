//! Tests all three kinds against nested loops in `f64`.

mod bytes;
mod special;

use std::sync::Mutex;

use half::{bf16, f16};
use phynexus::Scalar;
use proptest::{prelude::*, test_runner::RngSeed};
use smallvec::SmallVec;

use super::*;
use crate::gemm::blocked::Shared;
use crate::test_values::{from_bytes, to_bytes, values};

/// The sizes of a convolution, owned.
#[derive(Clone, Debug)]
struct Case {
    batch: usize,
    channels: [usize; 2],
    input: Vec<usize>,
    geometry: Geometry,
}

impl Case {
    fn new(batch: usize, channels: [usize; 2], groups: usize, input: &[usize], kernel: &[usize]) -> Case {
        let rank = input.len();
        let geometry = Geometry {
            kernel: kernel.into(),
            stride: SmallVec::from_elem(1, rank),
            dilation: SmallVec::from_elem(1, rank),
            padding: SmallVec::from_elem((0, 0), rank),
            groups,
        };
        Case { batch, channels, input: input.to_vec(), geometry }
    }
    fn stride(mut self, stride: &[usize]) -> Case {
        self.geometry.stride = stride.into();
        self
    }
    fn dilation(mut self, dilation: &[usize]) -> Case {
        self.geometry.dilation = dilation.into();
        self
    }
    fn padding(mut self, padding: &[(usize, usize)]) -> Case {
        self.geometry.padding = padding.into();
        self
    }
    fn output(&self) -> Option<Vec<usize>> {
        (0..self.input.len()).map(|d| self.geometry.output_size(d, self.input[d])).collect()
    }
    fn shape<'a>(&'a self, output: &'a [usize]) -> ConvShape<'a> {
        ConvShape {
            batch: self.batch,
            input_channels: self.channels[0],
            output_channels: self.channels[1],
            input: &self.input,
            output,
            geometry: &self.geometry,
        }
    }
    /// The number of elements of x, w and y.
    fn sizes(&self) -> [usize; 3] {
        let product = |v: &[usize]| v.iter().product::<usize>();
        let x = self.batch * self.channels[0] * product(&self.input);
        let w = self.channels[1] * (self.channels[0] / self.geometry.groups) * product(&self.geometry.kernel);
        let y = self.batch * self.channels[1] * product(&self.output().unwrap());
        [x, w, y]
    }
}

/// Every kind, with the indices of its two operands and its result among x, w, y.
const KINDS: [(ConvKind, usize, usize, usize); 3] =
    [(ConvKind::Forward, 0, 1, 2), (ConvKind::InputGradient, 2, 1, 0), (ConvKind::FilterGradient, 0, 2, 1)];

/// Calls `each(x index, w index, y index)` for every product of the bilinear form.
fn products(case: &Case, mut each: impl FnMut(usize, usize, usize)) {
    let g = &case.geometry;
    let three = |v: &[usize]| {
        let mut all = vec![1; 3 - v.len()];
        all.extend_from_slice(v);
        all
    };
    let before: Vec<usize> = g.padding.iter().map(|p| p.0).collect();
    let (input, output, kernel) = (three(&case.input), three(&case.output().unwrap()), three(&g.kernel));
    let (stride, dilation) = (three(&g.stride), three(&g.dilation));
    let mut pad = vec![0; 3 - before.len()];
    pad.extend(before);
    let (inputs, outputs) = (case.channels[0] / g.groups, case.channels[1] / g.groups);
    let volume = |v: &[usize]| v.iter().product::<usize>();
    let at = |v: usize, size: &[usize]| [v / (size[1] * size[2]), v / size[2] % size[1], v % size[2]];
    for n in 0..case.batch {
        for o in 0..case.channels[1] {
            for p in 0..volume(&output) {
                for c in 0..inputs {
                    for r in 0..volume(&kernel) {
                        let (position, tap) = (at(p, &output), at(r, &kernel));
                        let place = [0, 1, 2]
                            .map(|d| (position[d] * stride[d] + tap[d] * dilation[d]).wrapping_sub(pad[d]));
                        if (0..3).any(|d| place[d] >= input[d]) {
                            continue;
                        }
                        let channel = n * case.channels[0] + o / outputs * inputs + c;
                        let x = ((channel * input[0] + place[0]) * input[1] + place[1]) * input[2] + place[2];
                        each(
                            x,
                            (o * inputs + c) * volume(&kernel) + r,
                            (n * case.channels[1] + o) * volume(&output) + p,
                        );
                    }
                }
            }
        }
    }
}

/// Values as elements of a dtype.
fn encode(dtype: DType, values: &[f64]) -> Vec<u64> {
    let mut out = vec![0u64; (values.len() * dtype.size()).div_ceil(8) + 1];
    let p = out.as_mut_ptr();
    for (i, &v) in values.iter().enumerate() {
        // SAFETY: the vector has room.
        unsafe {
            match dtype {
                DType::F16 => *p.cast::<f16>().add(i) = f16::from_f64(v),
                DType::BF16 => *p.cast::<bf16>().add(i) = bf16::from_f64(v),
                DType::F32 => *p.cast::<f32>().add(i) = v as f32,
                _ => *p.cast::<f64>().add(i) = v,
            }
        }
    }
    out
}

/// The inverse of `encode`.
fn decode(dtype: DType, data: &[u64], count: usize) -> Vec<f64> {
    let p = data.as_ptr();
    // SAFETY: the slice holds the elements.
    let element = |i: usize| unsafe {
        match dtype {
            DType::F16 => (*p.cast::<f16>().add(i)).to_f64(),
            DType::BF16 => (*p.cast::<bf16>().add(i)).to_f64(),
            DType::F32 => f64::from(*p.cast::<f32>().add(i)),
            _ => *p.cast::<f64>().add(i),
        }
    };
    (0..count).map(element).collect()
}

fn check(case: &Case, dtype: DType, set: InstructionSet) {
    let sizes = case.sizes();
    let mut state = 12345u64;
    let mut operands: Vec<Vec<u64>> = Vec::new();
    let mut values: Vec<Vec<f64>> = Vec::new();
    for size in sizes {
        let random: Vec<f64> = (0..size)
            .map(|_| {
                state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
                ((state >> 40) % 2001) as f64 / 1000.0 - 1.0
            })
            .collect();
        operands.push(encode(dtype, &random));
        values.push(decode(dtype, &operands[operands.len() - 1], size));
    }
    let output = case.output().unwrap();
    let shape = case.shape(&output);
    for (kind, left, right, result) in KINDS {
        let mut expected = vec![(0.0f64, 0.0f64, 0usize); sizes[result]];
        products(case, |x, w, y| {
            let index = [x, w, y];
            let term = values[left][index[left]] * values[right][index[right]];
            let (sum, size, count) = &mut expected[index[result]];
            *sum += term;
            *size += term.abs();
            *count += 1;
        });
        let guard = 0x7a7a_7a7a_7a7a_7a7au64;
        let mut out = vec![guard; (sizes[result] * dtype.size()).div_ceil(8) + 4];
        let plane: usize = if kind == ConvKind::Forward { &output } else { &case.input }.iter().product();
        let finished = Mutex::new(vec![0; if kind == ConvKind::FilterGradient { 0 } else { sizes[result] }]);
        let told = |rows: Range<usize>, positions: Range<usize>| {
            let mut finished = finished.lock().unwrap();
            for row in rows {
                positions.clone().for_each(|position| finished[row * plane + position] += 1);
            }
        };
        // SAFETY: the vectors hold the tensors.
        unsafe {
            let (l, r) = (operands[left].as_ptr().cast(), operands[right].as_ptr().cast());
            let out = Destination::Memory(out.as_mut_ptr().cast(), Some(&told));
            convolution_with(set, kind, [dtype; 2], dtype, &shape, l, r, out).unwrap();
        }
        assert!(finished.into_inner().unwrap().iter().all(|&n| n == 1), "{case:?} {kind:?} {dtype} {set:?}");
        assert!(
            out[(sizes[result] * dtype.size()).div_ceil(8)..].iter().all(|&w| w == guard),
            "wrote past the end"
        );
        let got = decode(dtype, &out, sizes[result]);
        // The error of a sum's steps, of rounding the result, and of rounding a subnormal result.
        let (sums, store, least) = match dtype {
            DType::F64 => (f64::EPSILON, 0.0, 0.0),
            DType::F32 => (1.2e-7, 0.0, 0.0),
            DType::F16 => (1.2e-7, 4.9e-4, 2f64.powi(-25)),
            _ => (1.2e-7, 3.95e-3, 0.0),
        };
        for (i, (&got, &(sum, size, count))) in got.iter().zip(&expected).enumerate() {
            let bound = sums * (count as f64 + 2.0) * size + store * sum.abs() + least;
            assert!(
                (got - sum).abs() <= bound,
                "{case:?} {kind:?} {dtype} {set:?}: element {i}: {got}, not {sum}"
            );
        }
    }
}

/// Integers summed in `dtype`: exact modulo two to the width. Checks that every element is reported as final once.
fn check_integers(case: &Case, operands: [DType; 2], dtype: DType, set: InstructionSet) {
    let sizes = case.sizes();
    let random = |t: usize, own: DType| values(own, sizes[t], t as u64 + 1);
    let output = case.output().unwrap();
    let shape = case.shape(&output);
    for (kind, left, right, result) in KINDS {
        let (l, r) = (random(left, operands[0]), random(right, operands[1]));
        check_sums(case, kind, &shape, operands, dtype, [&l, &r], [left, right, result], set);
    }
}

/// Checks one kind with these operands, given the indices of the operands and the result among x, w, y.
fn check_sums(
    case: &Case,
    kind: ConvKind,
    shape: &ConvShape<'_>,
    operands: [DType; 2],
    dtype: DType,
    [l, r]: [&[Scalar]; 2],
    [left, right, result]: [usize; 3],
    set: InstructionSet,
) {
    let size = case.sizes()[result];
    let mut expected = vec![0u64; size];
    products(case, |x, w, y| {
        let index = [x, w, y];
        let term = l[index[left]].as_u64().wrapping_mul(r[index[right]].as_u64());
        expected[index[result]] = expected[index[result]].wrapping_add(term);
    });
    let expected: Vec<Scalar> = expected.into_iter().map(|sum| Scalar::UInt(sum).cast(dtype)).collect();
    let (l, r) = (to_bytes(l, operands[0]), to_bytes(r, operands[1]));
    let aligned = |bytes: &[u8]| -> Vec<u64> {
        let mut words = vec![0u64; bytes.len().div_ceil(8) + 1];
        // SAFETY: the words have room for the bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), words.as_mut_ptr().cast(), bytes.len());
        }
        words
    };
    let (l, r) = (aligned(&l), aligned(&r));
    let guard = 0x7a7a_7a7a_7a7a_7a7au64;
    let mut out = vec![guard; (size * dtype.size()).div_ceil(8) + 4];
    let plane: usize = shape.output.iter().product();
    let finished = Mutex::new(vec![0; if kind == ConvKind::Forward { size } else { 0 }]);
    let count = |rows: Range<usize>, positions: Range<usize>| {
        let mut finished = finished.lock().unwrap();
        for row in rows {
            positions.clone().for_each(|position| finished[row * plane + position] += 1);
        }
    };
    let told = (kind == ConvKind::Forward).then_some(&count as Finished<'_>);
    let run = |out: *mut u8, destination: Destination<'_>| {
        let (l, r) = (l.as_ptr().cast(), r.as_ptr().cast());
        // SAFETY: the vectors hold the tensors.
        unsafe {
            convolution_with(set, kind, operands, dtype, shape, l, r, destination).unwrap();
            from_bytes(std::slice::from_raw_parts(out, size * dtype.size()), dtype)
        }
    };
    let address = out.as_mut_ptr().cast::<u8>();
    let found = run(address, Destination::Memory(address, told));
    if has_blocks(kind, operands, dtype) {
        // Blocks of a result that is not stored are the same.
        let mut copied = vec![0u64; size * dtype.size() / 8 + 1];
        let to = Shared(copied.as_mut_ptr().cast::<u32>());
        let copy = |rows: Range<usize>, positions: Range<usize>, origin: *mut u8| {
            for (row, position) in rows.flat_map(|row| positions.clone().map(move |position| (row, position)))
            {
                // SAFETY: the block and the vector have this element, and blocks are disjoint.
                unsafe {
                    let from = origin.cast::<u32>().wrapping_add(row * PITCH + position);
                    *to.get().add(row * plane + position) = *from;
                }
            }
        };
        let blocks = run(copied.as_mut_ptr().cast(), Destination::Blocks(&copy));
        assert_eq!(blocks, found, "blocks: {case:?} {operands:?} to {dtype} {set:?}");
    }
    assert_eq!(found, expected, "{case:?} {kind:?} {operands:?} to {dtype} {set:?}");
    let past = &out[(size * dtype.size()).div_ceil(8)..];
    assert!(past.iter().all(|&word| word == guard), "wrote past the end: {case:?} {set:?}");
    assert!(finished.into_inner().unwrap().iter().all(|&n| n == 1), "{case:?} {kind:?} {operands:?} {set:?}");
}

#[test]
fn integers_wrap_around() {
    let cases = [
        Case::new(2, [3, 9], 1, &[7, 8], &[3, 3]).padding(&[(1, 1), (1, 0)]),
        Case::new(2, [4, 6], 2, &[50], &[5]).stride(&[3]).padding(&[(2, 4)]),
        Case::new(1, [4, 4], 4, &[9, 9], &[3, 3]).stride(&[2, 2]).padding(&[(1, 1), (1, 1)]),
        Case::new(1, [2, 3], 1, &[4, 5, 6], &[2, 1, 3]).dilation(&[1, 1, 2]).stride(&[2, 1, 1]),
        Case::new(1, [130, 2], 1, &[4, 4], &[2, 2]),
        Case::new(0, [3, 4], 1, &[8, 8], &[3, 3]),
    ];
    for case in &cases {
        for dtype in DType::INTEGERS {
            check_integers(case, [dtype; 2], dtype, InstructionSet::best());
        }
        check_integers(case, [DType::U8; 2], DType::I64, InstructionSet::best());
        check_integers(case, [DType::I64; 2], DType::U16, InstructionSet::best());
        check_integers(case, [DType::U8, DType::I8], DType::U32, InstructionSet::best());
    }
}

fn available() -> Vec<InstructionSet> {
    InstructionSet::ALL.into_iter().filter(|set| set.is_available()).collect()
}

fn check_all(case: &Case) {
    for set in available() {
        for dtype in DType::FLOATS {
            check(case, dtype, set);
        }
    }
}

#[test]
fn two_dimensions() {
    check_all(&Case::new(3, [3, 16], 1, &[10, 12], &[3, 3]).padding(&[(1, 1), (1, 1)]));
    check_all(&Case::new(2, [5, 7], 1, &[9, 11], &[3, 2]).stride(&[2, 3]).padding(&[(1, 0), (0, 2)]));
    check_all(
        &Case::new(1, [2, 3], 1, &[20, 21], &[3, 5])
            .dilation(&[3, 2])
            .stride(&[1, 2])
            .padding(&[(4, 2), (3, 5)]),
    );
    check_all(&Case::new(2, [17, 33], 1, &[6, 5], &[1, 1]));
    check_all(&Case::new(2, [40, 5], 1, &[5, 40], &[3, 3]).stride(&[2, 2]).padding(&[(1, 1), (1, 1)]));
}

#[test]
fn one_and_three_dimensions() {
    check_all(&Case::new(2, [4, 6], 2, &[50], &[5]).stride(&[3]).padding(&[(2, 4)]));
    check_all(&Case::new(1, [3, 15], 1, &[300], &[4]).dilation(&[2]));
    check_all(&Case::new(2, [2, 4], 1, &[5, 6, 7], &[2, 3, 2]).stride(&[2, 1, 3]).padding(&[
        (0, 1),
        (1, 1),
        (2, 0),
    ]));
    check_all(&Case::new(1, [2, 2], 2, &[4, 4, 9], &[3, 2, 3]).dilation(&[1, 2, 2]).padding(&[
        (1, 1),
        (0, 0),
        (2, 2),
    ]));
}

#[test]
fn strides_beyond_the_kernel_and_padding_beyond_it() {
    check_all(&Case::new(2, [3, 4], 1, &[13, 17], &[2, 1]).stride(&[4, 3]));
    check_all(&Case::new(2, [3, 4], 1, &[4, 3], &[2, 3]).padding(&[(3, 5), (4, 4)]));
    check_all(&Case::new(1, [1, 1], 1, &[2], &[2]).stride(&[5]).padding(&[(7, 7)]));
    check_all(&Case::new(1, [2, 2], 1, &[3, 3], &[3, 3]).stride(&[7, 7]));
}

#[test]
fn groups_and_depthwise() {
    check_all(&Case::new(2, [6, 9], 3, &[8, 9], &[3, 3]).padding(&[(1, 1), (1, 1)]));
    check_all(&Case::new(2, [5, 5], 5, &[12, 70], &[3, 3]).padding(&[(1, 1), (1, 1)]));
    check_all(&Case::new(3, [4, 4], 4, &[9, 9], &[3, 3]).stride(&[2, 2]).padding(&[(1, 1), (1, 1)]));
    check_all(&Case::new(2, [3, 6], 3, &[7, 8], &[5, 2]).dilation(&[1, 3]));
}

#[test]
fn many_channels_and_images() {
    check(
        &Case::new(2, [70, 50], 1, &[9, 9], &[3, 3]).padding(&[(1, 1), (1, 1)]),
        DType::F32,
        InstructionSet::best(),
    );
    check(&Case::new(40, [2, 3], 1, &[6, 6], &[3, 3]).stride(&[2, 2]), DType::F32, InstructionSet::best());
    check(&Case::new(1, [3, 4], 1, &[70, 65], &[3, 3]), DType::F32, InstructionSet::best());
    check(&Case::new(1, [300, 300], 1, &[3, 3], &[3, 3]), DType::F32, InstructionSet::best());
}

#[test]
fn nothing_in_nothing_out() {
    check_all(&Case::new(0, [3, 4], 1, &[8, 8], &[3, 3]));
    check_all(&Case::new(2, [0, 4], 1, &[8, 8], &[3, 3]));
    check_all(&Case::new(2, [3, 0], 1, &[8, 8], &[3, 3]));
    check_all(&Case::new(2, [3, 2], 1, &[0, 4], &[2, 2]).padding(&[(1, 2), (0, 0)]));
}

#[test]
fn sizes_that_do_not_fit_are_errors() {
    let case = Case::new(1, [4, 6], 1, &[8, 8], &[3, 3]);
    let call = |case: &Case, output: &[usize], dtype: DType| {
        let shape = ConvShape {
            batch: 1,
            input_channels: case.channels[0],
            output_channels: case.channels[1],
            input: &case.input,
            output,
            geometry: &case.geometry,
        };
        let mut nothing = 0u64;
        let p = (&raw mut nothing).cast::<u8>();
        // SAFETY: nothing is read or written if the sizes do not match.
        unsafe { convolution(ConvKind::Forward, [dtype; 2], dtype, &shape, p, p, p, None) }
    };
    assert!(matches!(call(&case, &[7, 6], DType::F32), Err(Error::Shape { .. })));
    assert!(matches!(call(&case, &[6], DType::F32), Err(Error::Shape { .. })));
    assert!(matches!(call(&case, &[6, 6], DType::Bool), Err(Error::DType { .. })));
    assert!(matches!(call(&case.clone().stride(&[0, 1]), &[6, 6], DType::F32), Err(Error::Shape { .. })));
    let mut groups = case;
    groups.geometry.groups = 3;
    assert!(matches!(call(&groups, &[6, 6], DType::F32), Err(Error::Shape { .. })));
}

prop_compose! {
    fn any_case()(rank in 1usize..4)(
        batch in 0usize..4, groups in 1usize..4, per_group in (1usize..6, 1usize..20),
        input in prop::collection::vec(1usize..12, rank), kernel in prop::collection::vec(1usize..4, rank),
        stride in prop::collection::vec(1usize..5, rank), dilation in prop::collection::vec(1usize..4, rank),
        padding in prop::collection::vec((0usize..4, 0usize..4), rank),
    ) -> Case {
        Case::new(batch, [groups * per_group.0, groups * per_group.1], groups, &input, &kernel)
            .stride(&stride).dilation(&dilation).padding(&padding)
    }
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(150) })]
    #[test]
    fn any_geometry(
        case in any_case(), set in prop::sample::select(available()),
        dtype in prop::sample::select(DType::FLOATS.to_vec()),
    ) {
        if case.output().is_some() {
            check(&case, dtype, set);
        }
    }

    #[test]
    fn any_geometry_of_bytes(
        case in any_case(), set in prop::sample::select(available()),
        operands in prop::sample::select(vec![
            [DType::I8, DType::I8], [DType::U8, DType::I8], [DType::I8, DType::U8], [DType::U8, DType::U8],
        ]),
    ) {
        if case.output().is_some() {
            check_integers(&case, operands, DType::I32, set);
        }
    }
}
