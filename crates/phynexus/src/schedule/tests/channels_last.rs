//! Tests of what is permuted around convolutions.

use super::*;
use crate::{
    kernel::{
        check::Limits,
        loops::{MatrixShape, Panel},
        lower::{Target, lower},
        step::Step,
    },
    op::{Conv, ConvKind, Geometry},
    oracle::lowered_device,
    schedule::{
        plan::{self, Leaf, Plan},
        slots::Slots,
    },
};

/// A device that multiplies panels of 16-bit floats.
fn target() -> Target {
    let product = MatrixShape { rows: Panel::ROWS, columns: 256, depth: 16 };
    let limits = Limits {
        device: "panels".to_owned(),
        dtypes: DType::ALL.to_vec(),
        bindings: 64,
        block: [1024; 3],
        grid: [1 << 16; 3],
        block_size: 1024,
        shared_bytes: 227 << 10,
        subgroup: Some(32),
        matrices: vec![(product, DType::BF16, DType::F32)],
        async_copies: true,
    };
    Target { limits, vector_bytes: 16, processors: 132, sums: 64 }
}

fn planned(ir: Ir) -> Plan {
    let leaf = |&id: &Id| Leaf { layout: Layout::contiguous(&ir.node(id).shape), donatable: false };
    let leaves: Vec<Leaf> = ir.leaves.iter().map(leaf).collect();
    plan::plan(ir, &leaves, Slots::default(), lowered_device("panels", target())).unwrap()
}

#[test]
fn zzz() {
    let mut ir = Ir::default();
    let shape = Dims::from_slice(&[64, 128, 28, 28]);
    let x = ir.push(Op::Buffer, DType::BF16, shape.clone(), []);
    let w = ir.push(Op::Buffer, DType::F32, Dims::from_slice(&[128, 128, 3, 3]), []);
    let w = ir.push(Op::Cast, DType::BF16, Dims::from_slice(&[128, 128, 3, 3]), [w]);
    let both = |n: usize| Dims::from_slice(&[n, n]);
    let geometry = Geometry {
        kernel: both(3),
        stride: both(1),
        dilation: both(1),
        padding: [(1, 1); 2].into_iter().collect(),
        groups: 1,
    };
    let x = ir.push(Op::Unary(Unary::Abs), DType::BF16, shape.clone(), [x]);
    let y = ir.push(Op::Conv(Conv(ConvKind::Forward, geometry.clone())), DType::BF16, shape.clone(), [x, w]);
    let wide = ir.push(Op::Cast, DType::F32, shape.clone(), [y]);
    let per: Dims = Dims::from_slice(&[1, 128, 1, 1]);
    let sum = |ir: &mut Ir, x| {
        ir.push(
            Op::Reduce(Reduce { combine: Combine::Sum, axes: Axes::of([0, 2, 3]) }),
            DType::F32,
            per.clone(),
            [x],
        )
    };
    let scale = ir.push(Op::Constant(Constant(Scalar::Float(0.0001))), DType::F32, per.clone(), []);
    let mean = sum(&mut ir, wide);
    let mean = ir.push(Op::Binary(Binary::Mul), DType::F32, per.clone(), [mean, scale]);
    let mean = ir.push(Op::Expand, DType::F32, shape.clone(), [mean]);
    let d = ir.push(Op::Binary(Binary::Sub), DType::F32, shape.clone(), [wide, mean]);
    let dd = ir.push(Op::Binary(Binary::Mul), DType::F32, shape.clone(), [d, d]);
    let var = sum(&mut ir, dd);
    let var = ir.push(Op::Binary(Binary::Mul), DType::F32, per.clone(), [var, scale]);
    let var = ir.push(Op::Expand, DType::F32, shape.clone(), [var]);
    let y = ir.push(Op::Binary(Binary::Div), DType::F32, shape.clone(), [d, var]);
    let y = ir.push(Op::Cast, DType::BF16, shape.clone(), [y]);
    let y = ir.push(Op::Conv(Conv(ConvKind::Forward, geometry)), DType::BF16, shape.clone(), [y, w]);
    ir.outputs.push(y);
    let plan = planned(ir);
    for step in &plan.steps {
        if let Step::Library(library) = &step.step {
            eprintln!("{:?} {:?} epilogue {}", library.node.op, library.operands, library.epilogue.is_some());
        } else {
            let f = step.step.fused().unwrap();
            eprintln!(
                "{:?} {:?} {:?}",
                f.rows,
                f.columns,
                f.instructions.iter().map(|i| format!("{:?}", i.operation)).collect::<Vec<_>>()
            );
        }
        for launch in lower(&step.step, &target()).unwrap().launches {
            eprintln!(
                "   {} panels {} grid {:?} block {:?} buffers {:?}",
                launch.kernel.name,
                launch.kernel.has_panels(),
                launch.kernel.grid(),
                launch.kernel.block(),
                launch.kernel.buffers.iter().map(|b| b.length).collect::<Vec<_>>()
            );
        }
    }
}

#[test]
fn yyy() {
    use crate::Tensor;
    let device = lowered_device("panels", target());
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, device).unwrap().evaluated().unwrap();
    let x = zeros(&[16, 64, 28, 28], DType::BF16).with_grad().unwrap();
    let w = zeros(&[64, 64, 3, 3], DType::BF16).with_grad().unwrap();
    let (g, b) =
        (zeros(&[64], DType::F32).with_grad().unwrap(), zeros(&[64], DType::F32).with_grad().unwrap());
    let y = x.conv2d(&w, None, [1, 1], [1, 1], [1, 1], 1).unwrap();
    let y = y.to_dtype(DType::F32).unwrap().batch_norm(None, None, Some(&g), Some(&b), true, 1e-5).unwrap();
    let y = y.relu().unwrap().to_dtype(DType::BF16).unwrap();
    let y = y.conv2d(&w, None, [1, 1], [1, 1], [1, 1], 1).unwrap();
    let loss = y.to_dtype(DType::F32).unwrap().sum(&[], false).unwrap();
    let one = Tensor::full(&[], 1.0, DType::F32, device).unwrap();
    let all = loss.vector_jacobian_product(&one, &[&w, &g, &b], false).unwrap();
    let sum = all
        .iter()
        .map(|t| t.sum(&[], false).unwrap().to_dtype(DType::F32).unwrap())
        .reduce(|a, b| a.add(&b).unwrap())
        .unwrap();
    let plan = crate::schedule::explain(&sum).unwrap().unwrap();
    for step in &plan.steps {
        if let Step::Library(library) = &step.step {
            eprintln!(
                "{:?} {:?} epilogue {}",
                library.node.op,
                library.operands.iter().map(|o| o.layout.strides.to_vec()).collect::<Vec<_>>(),
                library.epilogue.is_some()
            );
        } else {
            let Some(f) = step.step.fused() else { continue };
            eprintln!(
                "{:?} {:?} {:?} stores {:?}",
                f.rows,
                f.columns,
                f.instructions
                    .iter()
                    .map(|i| match &i.operation {
                        crate::kernel::fused::FusedOp::Load { index, .. } => format!("load {index}"),
                        o => format!("{o:?}"),
                    })
                    .collect::<Vec<_>>(),
                f.stores
                    .iter()
                    .map(|s| format!("%{} {} {}", s.value, f.parameters[s.parameter as usize].dtype, s.index))
                    .collect::<Vec<_>>()
            );
        }
        for launch in lower(&step.step, &target()).unwrap().launches {
            eprintln!(
                "   {} panels {} grid {:?} block {:?} buffers {:?}",
                launch.kernel.name,
                launch.kernel.has_panels(),
                launch.kernel.grid(),
                launch.kernel.block(),
                launch.kernel.buffers.iter().map(|b| b.length).collect::<Vec<_>>()
            );
        }
    }
}
