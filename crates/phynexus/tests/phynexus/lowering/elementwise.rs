//! Elementwise kernels: the order of elements, and conditions with shared parts.

use phynexus::{
    DType, Device, Result, Scalar, Tensor,
    kernel::{
        fused::{FusedOp, Fusion, Instruction, Parameter, Store},
        index::{Index, Ranges},
        loops::{Axis, AxisKind},
        lower::lower,
        step::Step,
    },
    op::Binary,
    oracle::lowered_device,
};

use super::cases::big;

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
