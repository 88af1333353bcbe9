//! Tests of what is permuted around convolutions.

use super::*;
use crate::{
    Tensor,
    kernel::{
        check::Limits,
        fused::{FusedOp, Fusion, Instruction, Parameter, Store},
        index::{Index, Ranges},
        loops::{MatrixShape, MatrixUnit, Panel},
        lower::{Target, lower},
        step::{Library, Step},
    },
    op::{Conv, ConvKind},
    oracle::lowered_device,
    schedule::explain,
};

/// A device that multiplies panels of 16-bit floats.
fn target() -> Target {
    let product = MatrixShape { rows: Panel::ROWS, columns: 256, depth: 16 };
    let limits = Limits {
        device: "panels".to_owned(),
        bindings: 64,
        shared_bytes: 227 << 10,
        block: [1024; 3],
        block_size: 1024,
        grid: [1 << 16; 3],
        subgroup: Some(32),
        dtypes: DType::ALL.to_vec(),
        matrices: vec![MatrixUnit::new(product, DType::BF16, DType::F32)],
        quads: true,
        async_copies: true,
        meeting_groups: 0,
    };
    Target { limits, vector_bytes: 16, processors: 132, sums: 64 }
}

fn is_conv(step: &Step) -> Option<&Library> {
    match step {
        Step::Library(library) if matches!(library.node.op, Op::Conv(_)) => Some(library),
        _ => None,
    }
}

/// A training step of two convolutions with batch normalisation, ReLU and pooling in between.
fn network() -> Tensor {
    let device = lowered_device("panels", target());
    let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, device)?.evaluated()?.with_grad();
    let made = || -> crate::Result<Tensor> {
        let (x, w) = (zeros(&[8, 64, 16, 16], DType::BF16)?, zeros(&[64, 64, 3, 3], DType::BF16)?);
        let (weight, bias) = (zeros(&[64], DType::F32)?, zeros(&[64], DType::F32)?);
        let loss = {
            let y = x.conv2d(&w, None, [1, 1], [1, 1], [1, 1], 1)?;
            let y = y.batch_norm(None, None, Some(&weight), Some(&bias), true, 1e-5)?.relu()?;
            let y = y.max_pool2d([3, 3], Some([2, 2]), [1, 1], [1, 1], false)?;
            y.conv2d(&w, None, [1, 1], [1, 1], [1, 1], 1)?.to_dtype(DType::F32)?.square()?.sum(&[], false)?
        };
        let one = Tensor::full(&[], 1.0, DType::F32, device)?;
        let gradients = loss.vector_jacobian_product(&one, &[&w, &weight, &bias], false)?;
        let sums = gradients.iter().map(|g| g.to_dtype(DType::F32)?.sum(&[], false));
        sums.into_iter().try_fold(loss.detach()?, |sum, next| sum.add(&next?))
    };
    made().unwrap()
}

#[test]
fn convolutions_read_and_store_channels_last() {
    let plan = explain(&network()).unwrap().unwrap();
    let convolutions: Vec<&Library> =
        plan.steps.iter().filter_map(|planned| is_conv(&planned.step)).collect();
    let kind = |library: &&Library| match library.node.op {
        Op::Conv(Conv(kind, _)) => kind,
        _ => unreachable!(),
    };
    let kinds: Vec<ConvKind> = convolutions.iter().map(kind).collect();
    assert_eq!(kinds.iter().filter(|kind| **kind == ConvKind::Forward).count(), 2);
    assert_eq!(kinds.iter().filter(|kind| **kind == ConvKind::FilterGradient).count(), 2);
    for library in convolutions {
        assert!(library.operands.iter().all(|operand| operand.layout.strides[1] == 1), "{library:?}");
        let step = Step::Library(library.clone());
        assert!(lower(&step, &target()).unwrap().launches[0].kernel.has_panels(), "{library:?}");
    }
}

#[test]
fn only_operands_from_outside_are_permuted() {
    let plan = explain(&network()).unwrap().unwrap();
    let copies = plan.steps.iter().filter_map(|planned| planned.step.fused()).filter(|fused| {
        // A kernel that only loads and stores, and not in one order.
        let [only] = fused.instructions.as_slice() else { return false };
        matches!(&only.operation, FusedOp::Load { index, .. } if *index != fused.stores[0].index)
    });
    // The image and the filter.
    assert_eq!(copies.count(), 2);
}

/// Of a normalisation the input is stored, in 16 bits, and nothing that follows from it and from the statistics. The
/// sums of its gradient are computed together.
#[test]
fn normalisations_store_their_input_only() {
    let plan = explain(&network()).unwrap().unwrap();
    let images = 8 * 64 * 16 * 16;
    let stored = plan.steps.iter().flat_map(|step| &step.parameters).filter(|parameter| parameter.written);
    assert_eq!(stored.map(|parameter| parameter.bytes).max(), Some(2 * images));
    let sums = |step: &Step| -> usize {
        let fused = step.fused().filter(|fused| fused.column_count() == 8 * 16 * 16);
        let all = fused.iter().flat_map(|fused| &fused.instructions);
        all.filter(|instruction| matches!(instruction.operation, FusedOp::Reduce(..))).count()
    };
    let sums: Vec<usize> =
        plan.steps.iter().map(|step| sums(&step.step)).filter(|&count| count > 0).collect();
    assert_eq!(sums, [2, 2]);
}

/// A batch is read once for its mean and its variance, also if running statistics follow from them.
#[test]
fn statistics_share_their_sums() {
    let made = || -> crate::Result<[Tensor; 3]> {
        let device = lowered_device("panels", target());
        let zeros = |shape: &[usize], dtype| Tensor::zeros(shape, dtype, device)?.evaluated();
        let (x, w) = (zeros(&[32, 64, 16, 16], DType::BF16)?, zeros(&[64, 64, 3, 3], DType::BF16)?);
        let y = x.conv2d(&w, None, [1, 1], [1, 1], [1, 1], 1)?;
        let running = zeros(&[64], DType::F32)?;
        let (mean, variance) = y.running_statistics(&running, &running, 0.1)?;
        let normal = y.batch_norm(None, None, None, None, true, 1e-5)?.relu()?;
        let sum = normal
            .conv2d(&w, None, [1, 1], [1, 1], [1, 1], 1)?
            .to_dtype(DType::F32)?
            .sum(&[0, 2, 3], false)?;
        Ok([sum, mean, variance])
    };
    let held = made().unwrap();
    let plan = explain(&held[0]).unwrap().unwrap();
    let sums =
        plan.steps.iter().filter_map(|step| step.step.fused()).filter(|f| f.column_count() == 32 * 16 * 16);
    // Sums that wait for no other one are computed in one pass.
    let count = |fused: &Fusion| {
        let mut waits = vec![false; fused.instructions.len()];
        let mut count = 0;
        for (at, Instruction { operation, .. }) in fused.instructions.iter().enumerate() {
            waits[at] = operation.operands().iter().any(|&operand| waits[operand as usize]);
            if matches!(operation, FusedOp::Reduce(..)) {
                count += usize::from(!waits[at]);
                waits[at] = true;
            }
        }
        count
    };
    // The last one is the sum of the second convolution.
    assert_eq!(sums.map(count).collect::<Vec<_>>(), [2, 1]);
}

/// Of two convolutions whose results are added, one adds them and the other stores its own channels last.
#[test]
fn results_that_are_added_are_stored_channels_last() {
    let made = || -> crate::Result<Vec<Tensor>> {
        let device = lowered_device("panels", target());
        let zeros = |shape: &[usize]| Tensor::zeros(shape, DType::BF16, device)?.evaluated()?.with_grad();
        let (x, first, second) = (zeros(&[8, 64, 16, 16])?, zeros(&[64, 64, 1, 1])?, zeros(&[64, 64, 1, 1])?);
        let loss = {
            let rectified = x.relu()?;
            let conv = |w: &Tensor, stride| rectified.conv2d(w, None, [stride; 2], [0, 0], [1, 1], 1);
            let loss = |y: Tensor| y.to_dtype(DType::F32)?.square()?.sum(&[], false);
            loss(conv(&first, 1)?)?.add(&loss(conv(&second, 2)?)?)?
        };
        let one = Tensor::full(&[], 1.0, DType::F32, device)?;
        loss.vector_jacobian_product(&one, &[&x], false)
    };
    let plan = explain(&made().unwrap()[0]).unwrap().unwrap();
    let gradients: Vec<&Library> = (plan.steps.iter())
        .filter_map(|step| is_conv(&step.step))
        .filter(|library| matches!(&library.node.op, Op::Conv(Conv(ConvKind::InputGradient, _))))
        .collect();
    assert_eq!(gradients.len(), 2);
    assert!(gradients.iter().all(|library| library.epilogue.is_some()), "{plan}");
}

/// Sums of all elements run in the usual order of axes, as they do if the images are computed before.
#[test]
fn the_order_of_sums_stays() {
    let plan = explain(&network()).unwrap().unwrap();
    let all = 8 * 64 * 8 * 8;
    let mut sums = plan.steps.iter().filter_map(|step| step.step.fused()).filter(|f| f.column_count() == all);
    let fused = sums.next().expect("the loss");
    let FusedOp::Load { index, .. } = &fused.instructions[0].operation else { panic!("{fused}") };
    let ranges = fused.rows.len() + fused.columns.len();
    let (_, strides) = index.strides(ranges).expect("a strided load");
    assert_eq!(strides[ranges - 3..], [1, 8 * 64, 64], "channels, height, width");
}

/// A kernel with few rows that reduces nothing, such as a normalisation whose sums another kernel needs too, computes
/// what belongs to a row once and then all elements at once.
#[test]
fn few_rows_keep_all_processors_busy() {
    let ranges = Ranges([64, 4096].into_iter().collect());
    let (row, column) = (Index::range(0, &ranges), Index::range(1, &ranges));
    let element = column.scale(64).add(&row);
    let load = |parameter, index: &Index| FusedOp::Load {
        parameter,
        index: index.clone(),
        mask: None,
        fill: Scalar::Float(0.0),
    };
    let operations = [
        (load(0, &element), true),
        (load(1, &row), false),
        (FusedOp::Unary(Unary::Rsqrt, 1), false),
        (FusedOp::Binary(Binary::Mul, 0, 2), true),
    ];
    let instruction =
        |(operation, per_column): (FusedOp, bool)| Instruction { operation, dtype: DType::F32, per_column };
    let parameter = |written| Parameter { dtype: DType::F32, written };
    let store = |parameter, value, index: &Index, replaces| Store {
        parameter,
        value,
        index: index.clone(),
        replaces,
    };
    for replaces in [None, Some(1)] {
        let fused = Fusion {
            rows: [64].into_iter().collect(),
            columns: [4096].into_iter().collect(),
            instructions: operations.clone().map(instruction).into(),
            stores: vec![store(2, 3, &element, None), store(3, 2, &row, replaces)],
            parameters: [false, false, true, true].map(parameter).into(),
        };
        let launches = lower(&Step::Fused(fused), &target()).unwrap().launches;
        let sizes: Vec<(&str, usize)> = launches
            .iter()
            .map(|launch| (launch.kernel.name.as_str(), launch.kernel.grid().iter().product()))
            .collect();
        // A row's value may be stored over what the elements need only after them.
        let expected = [("elementwise", 1), ("elementwise", 256), ("elementwise", 1)];
        assert_eq!(sizes, expected[..2 + usize::from(replaces.is_some())]);
    }
}
