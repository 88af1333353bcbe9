//! Products of panels.

use phynexus::{
    DType,
    kernel::{
        check::Limits,
        loops::{Kernel, MatrixShape, MatrixUnit, Panel},
        lower::{Target, lower},
        step::{Library, Operand, Step},
    },
    op::{
        Composite, Op, Permute,
        composite::{InPrecision, MatmulPrecision},
        ir::IrNode,
    },
    oracle::generate::{Case, CaseLeaf, Choice, Distribution, random_array},
    shape::{Dims, Layout},
};

use super::{big, cases, check_all, tensor};

/// A device with products of panels and this many processors.
pub(super) fn panels(processors: usize) -> Target {
    let Target { mut limits, .. } = tensor();
    let product = MatrixShape { rows: Panel::ROWS, columns: 256, depth: 16 };
    limits
        .matrices
        .extend([DType::F16, DType::BF16].map(|dtype| MatrixUnit::new(product, dtype, DType::F32)));
    let limits = Limits { device: "panels".to_owned(), shared_bytes: 227 << 10, ..limits };
    Target { limits, processors, ..big() }
}

/// The same, which also multiplies panels of `float32` that may be rounded.
pub(super) fn rounding(processors: usize) -> Target {
    let mut target = panels(processors);
    let product = MatrixShape { rows: Panel::ROWS, columns: 256, depth: 8 };
    target.limits.matrices.push(MatrixUnit::new(product, DType::F32, DType::F32));
    target
}

/// The same, which also multiplies panels of bytes.
fn of_bytes(processors: usize) -> Target {
    let mut target = panels(processors);
    let product = MatrixShape { rows: Panel::ROWS, columns: 256, depth: 32 };
    let integers = [DType::I8, DType::U8].map(|dtype| MatrixUnit::new(product, dtype, DType::I32));
    let float8 = [DType::F8E4M3, DType::F8E5M2];
    let floats = float8.map(|left| {
        float8.map(|right| MatrixUnit { shape: product, factors: [left, right], sum: DType::F32 })
    });
    target.limits.matrices.extend(integers.into_iter().chain(floats.into_iter().flatten()));
    target
}

/// Products that fill panels, with either factor transposed: batch, rows, terms, columns.
fn products(sizes: &[(DType, [usize; 4])]) -> Vec<Case> {
    let mut choice = Choice::new(31);
    let mut cases = Vec::new();
    for &(dtype, [batch, m, k, n]) in sizes {
        for turned in 0..4 {
            let mut case = Case::new(format!("product {turned} of {dtype}"));
            let mut factor = |case: &mut Case, rows: usize, columns: usize, is_turned: bool| {
                let shape = if is_turned { [batch, columns, rows] } else { [batch, rows, columns] };
                let leaf = CaseLeaf::contiguous(random_array(&mut choice, Distribution::Tame, dtype, &shape));
                let leaf = case.leaf(leaf);
                let swap = Op::Permute(Permute([0u8, 2, 1].into_iter().collect()));
                let shape = [batch, rows, columns].as_slice().into();
                if is_turned { case.ir.push(swap, dtype, shape, [leaf]) } else { leaf }
            };
            let left = factor(&mut case, m, k, turned & 1 != 0);
            let right = factor(&mut case, k, n, turned & 2 != 0);
            let sum = if dtype.is_float() { DType::F32 } else { DType::I32 };
            let product = case.ir.push(Op::Dot, sum, [batch, m, n].as_slice().into(), [left, right]);
            case.ir.outputs.push(product);
            cases.push(case);
        }
    }
    cases
}

/// Whether each launch of a product multiplies panels.
fn launches(case: &Case, target: &Target) -> Vec<bool> {
    let [left, right] = [0, 1].map(|input| case.ir.node(case.ir.node(case.ir.outputs[0]).inputs[input]));
    let operand = |node: &IrNode| {
        let mut layout = Layout::contiguous(&node.shape);
        if matches!(node.op, Op::Permute(_)) {
            let rank = layout.strides.len();
            (layout.strides[rank - 2], layout.strides[rank - 1]) = (1, node.shape[rank - 2] as isize);
        }
        Operand { dtype: node.dtype, layout }
    };
    let mut node = case.ir.node(case.ir.outputs[0]).clone();
    node.inputs.clear();
    let step = Step::Library(Library { node, operands: vec![operand(left), operand(right)], epilogue: None });
    let launches = lower(&step, target).unwrap().launches;
    launches.iter().map(|launch| launch.kernel.has_panels()).collect()
}

#[test]
fn products_of_panels() {
    // Edges, several tiles for each group, and batches.
    let large = products(&[
        (DType::BF16, [1, 128, 64, 128]),
        (DType::F16, [1, 144, 328, 256]),
        (DType::BF16, [3, 128, 72, 136]),
        (DType::BF16, [1, 136, 200, 160]),
        (DType::F16, [2, 264, 72, 64]),
    ]);
    large.iter().for_each(|case| assert_eq!(launches(case, &panels(2)), [true], "{}", case.name));
    check_all(cases::products().into_iter().chain(large), &[panels(2)]);
}

/// Lowers the product of matrices of this type, neither of which is transposed.
fn product(dtype: DType, rounds: bool, [m, k, n]: [usize; 3], target: &Target) -> Vec<Kernel> {
    let shape: Dims = [m, n].as_slice().into();
    let op = match rounds {
        true => Op::Composite(Composite::InPrecision(InPrecision {
            op: Box::new(Op::Dot),
            shape: shape.clone(),
            precision: MatmulPrecision::High,
        })),
        false => Op::Dot,
    };
    let node = IrNode { op, dtype, shape, inputs: Default::default() };
    let operand = |shape: &[usize]| Operand { dtype, layout: Layout::contiguous(shape) };
    let operands = vec![operand(&[m, k]), operand(&[k, n])];
    let step = Step::Library(Library { node, operands, epilogue: None });
    lower(&step, target).unwrap().launches.into_iter().map(|launch| launch.kernel).collect()
}

/// Short sums of many tiles take less time if another group multiplies while one stores its sums.
#[test]
fn groups_share_a_processor() {
    for (sizes, residents, launched) in [
        ([4096, 128, 4096], 2, 288),
        ([4096, 4096, 4096], 0, 288),
        ([128, 64, 128], 0, 288),
        // Rows that cannot be copied in bulk.
        ([4096, 124, 4096], 0, 256),
    ] {
        let kernel = &product(DType::BF16, false, sizes, &panels(32))[0];
        let found = (kernel.residents, kernel.launched_block()[0]);
        assert_eq!(found, (residents, launched), "{sizes:?}");
    }
}

/// Panels of `float32` need the terms of a column beside each other.
#[test]
fn rounded_products_of_panels() {
    let launches = |rounds, sizes| -> Vec<bool> {
        product(DType::F32, rounds, sizes, &rounding(8)).iter().map(Kernel::has_panels).collect()
    };
    assert_eq!(launches(true, [256, 128, 256]), [false, true]);
    assert_eq!(launches(false, [256, 128, 256]), [false]);
    // Rows of the left factor cannot be copied in bulk, so the right one need not be turned.
    assert_eq!(launches(true, [256, 126, 256]), [false]);
}

/// Factors of bytes are copied first where the terms are no neighbours. Sums wrap, and parts of them are added.
#[test]
fn products_of_bytes() {
    let target = of_bytes(3);
    let cases = products(&[
        (DType::I8, [1, 128, 128, 128]),
        (DType::U8, [2, 136, 272, 200]),
        (DType::F8E4M3, [1, 264, 144, 64]),
        (DType::F8E5M2, [1, 128, 400, 136]),
    ]);
    for (number, case) in cases.iter().enumerate() {
        // The left factor's terms are apart if it is transposed, the right one's if it is not.
        let copies = [1, 2, 0, 1][number % 4];
        assert_eq!(launches(case, &target), [vec![false; copies], vec![true]].concat(), "{}", case.name);
    }
    let long = products(&[(DType::U8, [1, 64, 4096, 64])]).swap_remove(2);
    assert_eq!(launches(&long, &of_bytes(16)), [true, false]);
    check_all([long], &[of_bytes(16)]);
    check_all(cases, &[target]);
}

/// Products of `float32` as products of parts: copies of both factors, then a product of panels. Sums of few terms, and
/// those of few rows, are computed as they are.
#[test]
fn products_of_parts() {
    let mut choice = Choice::new(33);
    let op = |shape: &[usize]| InPrecision {
        op: Box::new(Op::Dot),
        shape: shape.into(),
        precision: MatmulPrecision::Split,
    };
    let mut cases = Vec::new();
    for (sizes, expected) in [
        ([136, 200, 72], vec![false, false, true]),
        ([64, 128, 64], vec![false, false, true]),
        ([136, 120, 72], vec![false]),
        ([40, 200, 72], vec![false]),
    ] {
        let [m, k, n] = sizes;
        let node = IrNode {
            op: Op::Composite(op(&[m, n]).into()),
            dtype: DType::F32,
            shape: [m, n].as_slice().into(),
            inputs: Default::default(),
        };
        let operands =
            [[m, k], [k, n]].map(|shape| Operand { dtype: DType::F32, layout: Layout::contiguous(&shape) });
        let step = Step::Library(Library { node: node.clone(), operands: operands.to_vec(), epilogue: None });
        if expected.len() > 1 {
            let launches = lower(&step, &panels(3)).unwrap().launches;
            let found: Vec<bool> = launches.iter().map(|launch| launch.kernel.has_panels()).collect();
            assert_eq!(found, expected, "{sizes:?}");
        }
        for distribution in [Distribution::Tame, Distribution::Special] {
            let mut case = Case::new(format!("{distribution:?} product of parts, {sizes:?}"));
            let factors = [[m, k], [k, n]].map(|shape| {
                case.leaf(CaseLeaf::contiguous(random_array(&mut choice, distribution, DType::F32, &shape)))
            });
            let product = case.ir.push(node.op.clone(), DType::F32, node.shape.clone(), factors);
            case.ir.outputs.push(product);
            cases.push(case);
        }
    }
    check_all(cases, &[panels(3)]);
}

#[test]
fn long_sums_of_few_tiles_are_split_once() {
    let long = products(&[(DType::BF16, [1, 128, 2048, 128])]);
    long.iter().for_each(|case| assert_eq!(launches(case, &panels(16)), [true, false], "{}", case.name));
    check_all(long, &[panels(16)]);
}

/// Weights times values of several heads that lie side by side in memory: two batch dimensions that are no single one.
#[test]
fn heads_of_attention() {
    let mut choice = Choice::new(32);
    let mut case = Case::new("heads");
    let dtype = DType::BF16;
    let mut leaf = |case: &mut Case, shape: &[usize]| {
        case.leaf(CaseLeaf::contiguous(random_array(&mut choice, Distribution::Tame, dtype, shape)))
    };
    let weights = leaf(&mut case, &[2, 3, 264, 72]);
    let values = leaf(&mut case, &[2, 72, 3, 64]);
    let heads = Op::Permute(Permute([0u8, 2, 1, 3].into_iter().collect()));
    let values = case.ir.push(heads, dtype, [2, 3, 72, 64].as_slice().into(), [values]);
    let product = case.ir.push(Op::Dot, dtype, [2, 3, 264, 64].as_slice().into(), [weights, values]);
    case.ir.outputs.push(product);
    let mut layout = Layout::contiguous(&[2, 3, 72, 64]);
    layout.strides = [72 * 192, 64, 192, 1].into_iter().collect();
    let weights = Operand { dtype, layout: Layout::contiguous(&[2, 3, 264, 72]) };
    let mut node = case.ir.node(product).clone();
    node.inputs.clear();
    let operands = vec![weights, Operand { dtype, layout }];
    let step = Step::Library(Library { node, operands, epilogue: None });
    let launches = lower(&step, &panels(5)).unwrap().launches;
    assert!(launches.iter().all(|launch| launch.kernel.shared[0].panels));
    check_all([case], &[panels(5)]);
}

/// Rows that do not begin at multiples of 16 bytes are copied first where the copy is read often enough.
#[test]
fn rows_are_padded_where_that_pays_off() {
    // The left factor's rows have 73 elements, or the right one's 75.
    let padded = [
        (DType::BF16, [1, 64, 73, 512], 0),
        (DType::F16, [1, 512, 72, 75], 0),
        (DType::BF16, [2, 512, 65, 64], 3),
    ];
    for (dtype, sizes, turned) in padded {
        let all = products(&[(dtype, sizes)]);
        assert_eq!(launches(&all[turned], &panels(2)), [false, true], "{sizes:?}");
        check_all([all[turned].clone()], &[panels(2)]);
    }
    // Too few columns to read the copy.
    let few = &products(&[(DType::BF16, [1, 64, 73, 128])])[0];
    assert_eq!(launches(few, &panels(2)), [false]);
}
