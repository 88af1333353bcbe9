//! Elementwise kernels: the order of elements, and conditions with shared parts.

use phynexus::{
    DType, Device, Result, Scalar, Tensor,
    kernel::{
        check::Limits,
        fused::{FusedOp, Fusion, Instruction, Parameter, Store},
        index::{Index, Ranges},
        loops::{Axis, AxisKind},
        lower::{Target, lower},
        step::Step,
    },
    op::{Binary, Op, Permute},
    oracle::{
        generate::{Case, CaseLeaf, Choice, Distribution, random_array},
        lowered_device,
    },
    shape::Dims,
};

use super::{
    cases::{big, tiny},
    check_all,
    panels::panels,
};

fn ones(shape: &[usize], device: Device) -> Result<Tensor> {
    Tensor::ones(shape, DType::F32, device)?.evaluated()
}

/// The order is that of most bytes: operands with one element for each row do not outweigh the matrix.
#[test]
fn elements_are_in_the_order_of_most_bytes() {
    let shape = [64, 4096];
    let ranges = Ranges(shape.into_iter().collect());
    let [row, column] = [0, 1].map(|range| Index::range(range, &ranges));
    let matrix = row.scale(4096).add(&column);
    let load = |parameter: u16, index: &Index| Instruction {
        operation: FusedOp::Load { parameter, index: index.clone(), mask: None, fill: Scalar::Float(0.0) },
        dtype: DType::F32,
        per_column: false,
    };
    let mut instructions = vec![load(0, &matrix)];
    for operand in 1..6 {
        instructions.push(load(operand, &row));
        let operation =
            FusedOp::Binary(Binary::Mul, instructions.len() as u32 - 2, instructions.len() as u32 - 1);
        instructions.push(Instruction { operation, dtype: DType::F32, per_column: false });
    }
    let parameter = |written| Parameter { dtype: DType::F32, written };
    let value = instructions.len() as u32 - 1;
    let fused = Fusion {
        rows: shape.into_iter().collect(),
        parameters: [false; 6].map(parameter).into_iter().chain([parameter(true)]).collect(),
        instructions,
        stores: vec![Store { parameter: 6, value, index: matrix, replaces: None }],
        ..Fusion::default()
    };
    let lowered = lower(&Step::Fused(fused), &big()).unwrap();
    let axes = &lowered.launches[0].kernel.axes;
    let of_grid = |axis: &&Axis| matches!(axis.kind, AxisKind::Grid(_) | AxisKind::Block(_));
    let invocations: usize = axes.iter().filter(of_grid).map(|axis| axis.extent).product();
    assert_eq!(invocations, 64 * 4096 / 4, "{axes:?}");
}

/// What is stored along another dimension than it is loaded passes through shared memory in tiles.
#[test]
fn transposed_copies() {
    let permuted = |case: &mut Case, dtype: DType, shape: &[usize], order: &[u8]| {
        let mut choice = Choice::new(shape[0] as u64);
        let array = random_array(&mut choice, Distribution::Tame, dtype, shape);
        let leaf = case.leaf(CaseLeaf::contiguous(array));
        let turned: Dims = order.iter().map(|&d| shape[usize::from(d)]).collect();
        case.ir.push(Op::Permute(Permute(order.iter().copied().collect())), dtype, turned, [leaf])
    };
    let mut cases = Vec::new();
    for (dtype, shape, order) in [
        (DType::U8, &[132, 64][..], &[1, 0][..]),
        (DType::F32, &[130, 67], &[1, 0]),
        (DType::BF16, &[2, 68, 3, 64], &[3, 0, 2, 1]),
        (DType::F64, &[3, 40, 36], &[0, 2, 1]),
        (DType::F8E4M3, &[64, 128], &[1, 0]),
    ] {
        let mut case = Case::new(format!("{dtype} {shape:?} {order:?}"));
        let turned = permuted(&mut case, dtype, shape, order);
        let shape = case.ir.node(turned).shape.clone();
        let copy = case.ir.push(Op::Contiguous, dtype, shape, [turned]);
        case.ir.outputs.push(copy);
        cases.push(case);
    }
    // Beside it, what is loaded as it is stored, and what is turned twice, in another dtype.
    let mut case = Case::new("a sum of turned and other matrices".to_owned());
    let first = permuted(&mut case, DType::F32, &[64, 96], &[1, 0]);
    let second = permuted(&mut case, DType::F32, &[96, 64], &[0, 1]);
    let third = permuted(&mut case, DType::BF16, &[64, 96], &[1, 0]);
    let shape: Dims = [96, 64].as_slice().into();
    let third = case.ir.push(Op::Cast, DType::F32, shape.clone(), [third]);
    let sum = case.ir.push(Op::Binary(Binary::Add), DType::F32, shape.clone(), [first, second]);
    let sum = case.ir.push(Op::Binary(Binary::Mul), DType::F32, shape, [sum, third]);
    case.ir.outputs.push(sum);
    cases.push(case);
    let limits = Limits { device: "16 KB".to_owned(), shared_bytes: 16 << 10, ..big().limits };
    let small = Target { limits, ..big() };
    check_all(cases, &[big(), big().unaligned(), small, tiny(), panels(1)]);

    let ranges = Ranges([64, 96].into_iter().collect());
    let [row, column] = [0, 1].map(|range| Index::range(range, &ranges));
    let load = FusedOp::Load {
        parameter: 0,
        index: column.scale(64).add(&row),
        mask: None,
        fill: Scalar::Float(0.0),
    };
    let copy = Fusion {
        rows: [64, 96].into_iter().collect(),
        parameters: [false, true].map(|written| Parameter { dtype: DType::F32, written }).into(),
        instructions: vec![Instruction { operation: load, dtype: DType::F32, per_column: false }],
        stores: vec![Store { parameter: 1, value: 0, index: row.scale(96).add(&column), replaces: None }],
        ..Fusion::default()
    };
    for (target, is_tiled) in [(big(), true), (tiny(), false), (Target { processors: 2, ..big() }, false)] {
        let lowered = lower(&Step::Fused(copy.clone()), &target).unwrap();
        assert_eq!(!lowered.launches[0].kernel.shared.is_empty(), is_tiled, "{target:?}");
    }
}

/// Conjunctions whose operands are shared many times are lowered in a time that does not double with each.
#[test]
fn conjunctions_with_shared_operands() -> Result<()> {
    let device = lowered_device("conjunctions", big());
    let other = ones(&[8], device)?.eq_scalar(1)?.evaluated()?;
    let mut condition = ones(&[8], device)?.eq_scalar(1)?;
    for _ in 0..40 {
        condition = condition.logical_and(&condition.logical_and(&other)?)?;
    }
    assert!(condition.to_vec::<bool>()?.iter().all(|&holds| holds));
    Ok(())
}
