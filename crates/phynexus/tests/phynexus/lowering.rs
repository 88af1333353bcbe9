//! Lowered steps against the oracle: random graphs and every kind of step, on devices with very different capabilities.
//! The interpreter detects races, out-of-bounds accesses and reads of uninitialised memory.

mod attention;
#[path = "../lowering/cases.rs"]
mod cases;
mod convolutions;
mod elementwise;
mod in_place;
mod panels;
mod recurrent;
mod rows;

use cases::{big, many, narrow, tiny};
use phynexus::kernel::step::{Library, Operand, Step};
use phynexus::{
    DType, Device, Element, Scalar, Tensor,
    device::Binding,
    kernel::{
        Index, Ranges,
        check::Limits,
        fused::{FusedOp, Fusion, Instruction, Parameter, Store},
        loops::{MatrixShape, MatrixUnit},
        lower::{Target, lower},
    },
    op::{
        Binary, Op, Unary,
        composite::{InPrecision, MatmulPrecision},
        ir::IrNode,
    },
    oracle::{
        Comparison, compare, evaluate,
        generate::{
            Case, Choice, Distribution, inconsistency, random_array, random_case, random_case_of, shrink,
        },
        lowered_device, reference_device,
    },
    schedule::execute_ir,
    shape::Layout,
};

fn targets() -> [Target; 4] {
    [tiny(), big(), narrow(), many()]
}

fn devices() -> Vec<Device> {
    targets().into_iter().map(|t| lowered_device(&t.limits.device.clone(), t)).collect()
}

/// The last operation of a case as a step by itself, with row-major operands.
fn last_step(case: &Case) -> Step {
    let mut node = case.ir.node(case.ir.outputs[0]).clone();
    let operands = node.inputs.iter().map(|&input| {
        let IrNode { dtype, shape, .. } = case.ir.node(input);
        Operand { dtype: *dtype, layout: Layout::contiguous(shape) }
    });
    let operands = operands.collect();
    node.inputs.clear();
    Step::Library(Library { node, operands, epilogue: None })
}

/// What is wrong with a device's results, if anything.
fn fault(case: &Case, device: Device) -> Option<String> {
    let work = || {
        let expected = evaluate(&case.ir, &case.values())?;
        let leaves = case.leaves.iter().map(|l| l.upload(device)).collect::<phynexus::Result<Vec<_>>>()?;
        let outputs = execute_ir(&case.ir, &leaves, device)?;
        let mut all = Comparison::default();
        for (expected, actual) in expected.iter().zip(&outputs) {
            all.merge(compare(expected, &actual.to_bytes()?, actual.dtype()));
        }
        Ok::<_, phynexus::Error>((!all.passed()).then(|| all.to_string()))
    };
    match work() {
        Ok(message) => message,
        Err(error) => Some(error.to_string()),
    }
}

#[test]
fn random_graphs() {
    let mut failures = Vec::new();
    for device in devices() {
        for seed in 0..250 {
            let case = random_case(seed, 12);
            if fault(&case, device).is_some() {
                let small = shrink(&case, &mut |c| fault(c, device).is_some());
                failures.push(format!("{device}: {small}\n{}", fault(&small, device).unwrap_or_default()));
                if failures.len() > 4 {
                    break;
                }
            }
        }
    }
    assert!(failures.is_empty(), "{} failures\n{}", failures.len(), failures.join("\n"));
}

/// A device with matrix instructions and asynchronous copies.
fn tensor() -> Target {
    let shape = MatrixShape { rows: 16, columns: 16, depth: 16 };
    let rounding = MatrixUnit::new(MatrixShape { depth: 8, ..shape }, DType::F32, DType::F32);
    let halves = [DType::F16, DType::BF16].map(|dtype| MatrixUnit::new(shape, dtype, DType::F32));
    let matrices = halves.into_iter().chain([rounding]).collect();
    let limits =
        Limits { device: "tensor".to_owned(), matrices, quads: true, async_copies: true, ..big().limits };
    Target { limits: Limits { shared_bytes: 160 << 10, ..limits }, ..big() }
}

/// The same with subgroups of 64 and without asynchronous copies.
fn wide() -> Target {
    let Target { limits, .. } = tensor();
    let limits =
        Limits { device: "wide".to_owned(), subgroup: Some(64), quads: false, async_copies: false, ..limits };
    Target { limits: Limits { shared_bytes: 64 << 10, ..limits }, ..big() }
}

fn check_all(cases: impl IntoIterator<Item = Case>, targets: &[Target]) {
    let devices: Vec<Device> = targets.iter().map(|t| lowered_device(&t.limits.device, t.clone())).collect();
    for case in cases {
        for &device in &devices {
            let fault = fault(&case, device);
            assert!(fault.is_none(), "{device}: {case}\n{}", fault.unwrap_or_default());
        }
    }
}

#[test]
fn products_of_matrices() {
    check_all(cases::products(), &[tiny(), narrow(), many(), tensor(), wide()]);
}

#[test]
fn products_that_may_round_their_factors() {
    check_all(cases::rounded(), &[tensor(), wide(), many(), panels::rounding(5)]);
}

/// The instruction that rounds factors is used only where rounding is allowed.
#[test]
fn only_products_that_may_round_do() {
    let operand = |shape: &[usize]| Operand { dtype: DType::F32, layout: Layout::contiguous(shape) };
    let fragments = |op: Op| {
        let node =
            IrNode { op, dtype: DType::F32, shape: [64, 64].as_slice().into(), inputs: Default::default() };
        let operands = vec![operand(&[64, 64]), operand(&[64, 64])];
        let step = Step::Library(Library { node, operands, epilogue: None });
        lower(&step, &tensor())
            .unwrap()
            .launches
            .iter()
            .map(|launch| launch.kernel.fragments.len())
            .sum::<usize>()
    };
    let rounded = InPrecision {
        op: Box::new(Op::Dot),
        shape: [64, 64].as_slice().into(),
        precision: MatmulPrecision::High,
    };
    assert_eq!((fragments(Op::Dot), fragments(Op::Composite(rounded.into()))), (0, 3));
}

#[test]
fn convolutions_and_their_gradients() {
    check_all(cases::convolutions(), &[tiny(), many(), tensor(), wide()]);
}

#[test]
fn long_reductions_sorts_and_scans() {
    check_all(cases::reductions_sorts_and_scans(), &[tiny(), narrow(), many()]);
}

#[test]
fn empty_operands() {
    check_all(cases::empty(), &[tiny(), big(), many()]);
}

/// A batch of functions of vectors.
fn batch(lengths: &[usize]) -> Step {
    let f = DType::F32;
    let fused = |&length: &usize| {
        let at = Index::range(0, &Ranges::of(&[length]));
        let load = FusedOp::Load { parameter: 0, index: at.clone(), mask: None, fill: Scalar::Float(0.0) };
        let instruction = |operation| Instruction { operation, dtype: f, per_column: false };
        Fusion {
            rows: [length].into_iter().collect(),
            columns: Default::default(),
            instructions: [load, FusedOp::Unary(Unary::Neg, 0)].map(instruction).to_vec(),
            stores: vec![Store { parameter: 1, value: 1, index: at, replaces: None }],
            parameters: [false, true].map(|written| Parameter { dtype: f, written }).to_vec(),
        }
    };
    Step::Batch(lengths.iter().map(fused).collect())
}

#[test]
fn a_batch_is_one_launch() {
    let launches =
        |lengths: &[usize], target: &Target| lower(&batch(lengths), target).unwrap().launches.len();
    assert_eq!(launches(&[1000, 7, 301, 0, 4096], &big()), 1);
    let few = Target { limits: Limits { bindings: 5, ..big().limits }, ..big() };
    assert_eq!(launches(&[1000, 7, 301, 0, 4096], &few), 2);
    // `tiny` has at most 60 groups of 32 invocations per dimension.
    assert_eq!(launches(&[1000, 7, 301, 4096], &tiny()), 2);
    assert_eq!(launches(&[5; 130], &Target { limits: Limits { bindings: 500, ..big().limits }, ..big() }), 3);
}

#[test]
fn parts_of_a_grid_are_those_of_their_kernels() {
    let lengths = [1000, 7, 301, 1, 4096];
    for target in [tiny(), big(), narrow(), many()] {
        let device = lowered_device(&target.limits.device.clone(), target);
        let backend = device.backend();
        let mut choice = Choice::new(5);
        let mut bindings = Vec::new();
        let mut expected = Vec::new();
        for length in lengths {
            let values = random_array(&mut choice, Distribution::Tame, DType::F32, &[length]).to_bytes();
            let negated: Vec<f32> = f32::read_bytes(&values).into_iter().map(|x| -x).collect();
            for fill in [values, vec![0xff; length * 4]] {
                let buffer = backend.allocate(length * 4).unwrap();
                backend.write(&buffer, 0, &fill).unwrap();
                bindings.push(Binding { buffer, offset: 0 });
            }
            expected.push(negated);
        }
        backend.compile(&batch(&lengths)).unwrap().run(&bindings).unwrap();
        for (expected, pair) in expected.iter().zip(bindings.chunks(2)) {
            let mut bytes = vec![0; expected.len() * 4];
            backend.read(&pair[1].buffer, 0, &mut bytes).unwrap();
            assert_eq!(&f32::read_bytes(&bytes), expected, "{device}");
        }
    }
}

/// A product with an epilogue, against the oracle's run of the same step.
#[test]
fn products_with_an_epilogue() {
    let f = DType::F32;
    let (m, k, n) = (37, 20, 28);
    let operand = |shape: &[usize]| Operand { dtype: f, layout: Layout::contiguous(shape) };
    let ranges = Ranges::of(&[m, n]);
    let (row, column) = (Index::range(0, &ranges), Index::range(1, &ranges));
    let at = row.scale(n as i64).add(&column);
    let load = |parameter, index: &Index| FusedOp::Load {
        parameter,
        index: index.clone(),
        mask: None,
        fill: Scalar::Float(0.0),
    };
    let operations = [
        load(0, &at),
        load(1, &column),
        FusedOp::Binary(Binary::Add, 0, 1),
        FusedOp::Constant(Scalar::Float(0.0)),
        FusedOp::Binary(Binary::Max, 2, 3),
    ];
    let epilogue = Fusion {
        rows: [m, n].into_iter().collect(),
        columns: Default::default(),
        instructions: operations
            .map(|operation| Instruction { operation, dtype: f, per_column: false })
            .to_vec(),
        stores: vec![
            Store { parameter: 2, value: 4, index: at.clone(), replaces: None },
            Store { parameter: 3, value: 0, index: at, replaces: None },
        ],
        parameters: [false, false, true, true].map(|written| Parameter { dtype: f, written }).to_vec(),
    };
    let node =
        IrNode { op: Op::Dot, dtype: f, shape: [m, n].into_iter().collect(), inputs: Default::default() };
    let operands = vec![operand(&[m, k]), operand(&[k, n])];
    let step = Step::Library(Library { node, operands, epilogue: Some(epilogue) });
    let run = |device: Device| {
        let mut choice = Choice::new(3);
        let backend = device.backend();
        let bindings: Vec<Binding> = [m * k, k * n, n, m * n, m * n]
            .into_iter()
            .map(|length| {
                let buffer = backend.allocate(length * 4).unwrap();
                let values = random_array(&mut choice, Distribution::Tame, f, &[length]);
                backend.write(&buffer, 0, &values.to_bytes()).unwrap();
                Binding { buffer, offset: 0 }
            })
            .collect();
        backend.compile(&step).unwrap().run(&bindings).unwrap();
        let read = |binding: &Binding| {
            let mut bytes = vec![0; m * n * 4];
            backend.read(&binding.buffer, 0, &mut bytes).unwrap();
            f32::read_bytes(&bytes)
        };
        bindings[3..].iter().map(read).collect::<Vec<_>>()
    };
    let expected = run(reference_device());
    for target in [tiny(), big(), narrow(), many()] {
        let actual = run(lowered_device(&target.limits.device.clone(), target));
        for (x, y) in actual.iter().flatten().zip(expected.iter().flatten()) {
            assert!((x - y).abs() <= 1e-4 * (1.0 + y.abs()), "{x} instead of {y}");
        }
    }
}

/// The sum of a row in the order that `kernel::lower::rows` describes.
fn sum_in_order(row: &[f32]) -> f32 {
    let power = usize::next_power_of_two;
    let mut sums = vec![0.0; power(row.len().div_ceil(4)).max(power(row.len()).min(32))];
    let count = sums.len();
    row.iter().enumerate().for_each(|(column, x)| sums[column % count] += x);
    while sums.len() > 1 {
        sums = sums.chunks(2).map(|pair| pair[0] + pair[1]).collect();
    }
    sums[0]
}

/// The order of additions depends only on the number of columns: not on layouts, the width of loads, the number of
/// rows, or what else is computed.
#[test]
fn sums_have_one_order() {
    let shapes = [(3, 7), (40, 16), (33, 50), (17, 129), (9, 515), (2, 2050), (1, 9001)];
    for device in devices() {
        for (rows, columns) in shapes {
            let mut choice = Choice::new(7);
            let values =
                random_array(&mut choice, Distribution::Tame, DType::F32, &[rows, columns]).to_bytes();
            let values: Vec<f32> = f32::read_bytes(&values);
            let expected: Vec<u32> = values.chunks(columns).map(|row| sum_in_order(row).to_bits()).collect();
            let turned: Vec<f32> =
                (0..rows * columns).map(|at| values[at % rows * columns + at / rows]).collect();
            let odd: Vec<f32> = values.chunks(columns).flat_map(|row| [&[9.0], row].concat()).collect();
            let leaf =
                |values: &[f32], shape: [usize; 2]| Tensor::from_slice(values, &shape, device).unwrap();
            let straight = leaf(&values, [rows, columns]);
            let turned = leaf(&turned, [columns, rows]).t().unwrap();
            let odd = leaf(&odd, [rows, columns + 1]).narrow(1, 1, columns).unwrap();
            let halves = |a: &Tensor, b: &Tensor| {
                let half = |x: &Tensor| x.mul_scalar(0.5).unwrap();
                half(a).add(&half(b)).unwrap()
            };
            let check = |what: &str, sum: &Tensor, rows: std::ops::Range<usize>| {
                let found: Vec<u32> = sum.to_vec::<f32>().unwrap().into_iter().map(f32::to_bits).collect();
                assert_eq!(found, expected[rows], "{device}: {what}, {:?}", straight.shape());
            };
            for (what, x) in [("straight", &straight), ("turned", &turned), ("odd", &odd)] {
                let sum = |x: &Tensor| x.sum(&[1], false).unwrap();
                check(what, &sum(x), 0..rows);
                check("as rows of the other axis", &x.t().unwrap().sum(&[0], false).unwrap(), 0..rows);
                check("a sum of sums of loads", &sum(&halves(x, &turned)), 0..rows);
                let half = rows.div_ceil(2);
                let negative = sum(x).narrow(0, 0, half).unwrap().neg().unwrap();
                check("of half of the rows", &negative.evaluated().unwrap().neg().unwrap(), 0..half);
                // Together with operations that use the sum, and with a stored value for each column.
                let total = x.sum(&[1], true).unwrap();
                let apart = x.sub(&total).unwrap();
                let squares = apart.square().unwrap().sum(&[1], false).unwrap();
                Tensor::evaluate_all(&[&squares, &apart, &total]).unwrap();
                check("in a kernel of several loops", &total, 0..rows);
            }
        }
    }
}

/// Products that are summed in the kernel that computes them are rounded and added as if they were stored.
#[test]
fn sums_of_products_are_sums() {
    for device in devices() {
        let (m, n, k) = (9, 17, 300);
        let mut choice = Choice::new(8);
        let mut leaf = |shape: [usize; 3]| {
            let values = random_array(&mut choice, Distribution::Tame, DType::F32, &shape).to_bytes();
            Tensor::from_slice(&f32::read_bytes(&values), &shape, device).unwrap()
        };
        let (a, b) = (leaf([m, 1, k]), leaf([1, n, k]));
        let product = || a.mul(&b).unwrap();
        let stored: Vec<f32> = product().to_vec().unwrap();
        let expected: Vec<f32> = stored.chunks(k).map(sum_in_order).collect();
        assert_eq!(product().sum(&[2], false).unwrap().to_vec::<f32>().unwrap(), expected, "{device}");
    }
}

/// The order in which a GPU adds depends on shapes alone, so values do not depend on what is fused.
#[test]
fn random_programs_have_one_value_however_they_are_evaluated() {
    for device in devices() {
        for seed in 0..40u64 {
            let dtypes: &[DType] =
                if seed.is_multiple_of(2) { &[DType::F16, DType::BF16] } else { &DType::FLOATS };
            let case = random_case_of(seed, 12, dtypes);
            let differs =
                |case: &Case| inconsistency(case, device, seed).unwrap_or_else(|e| Some(e.to_string()));
            if let Some(difference) = differs(&case) {
                let small = shrink(&case, &mut |case| differs(case).is_some());
                panic!("{} seed {seed}: {difference}\n{small}\n{:?}", device.name(), differs(&small));
            }
        }
    }
}

#[test]
fn a_vector_longer_than_32_bits_count_is_searched() {
    let (length, target) = ((1usize << 31) + 5, big());
    let device = lowered_device("long", target);
    // One element, repeated.
    let sorted = Tensor::from_slice(&[7i8], &[1], device).unwrap().broadcast_to(&[length]).unwrap();
    let values = Tensor::from_slice(&[6i8, 7, 8], &[3], device).unwrap();
    let places = |right| sorted.searchsorted(&values, right).unwrap().to_vec::<i64>().unwrap();
    assert_eq!(places(false), [0, 0, length as i64]);
    assert_eq!(places(true), [0, length as i64, length as i64]);
}
