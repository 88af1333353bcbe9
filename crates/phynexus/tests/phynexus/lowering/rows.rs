//! Rows by index: updates that target few rows, and the steps that look for indices out of range.

use std::sync::atomic::{AtomicUsize, Ordering};

use phynexus::kernel::step::{Library, Operand, Step};
use phynexus::{
    DType, Device, Result, Tensor,
    kernel::{
        loops::AxisKind,
        lower::{Source, Target, lower},
    },
    op::{Combine, IndexRange, Op, Scatter, ScatterMode, ir::IrNode},
    oracle::{
        OracleArray,
        generate::{Case, CaseLeaf, Choice, Distribution, random_array},
        lowered_device,
    },
    schedule::{capture::Captured, explain},
    shape::Layout,
    tensor::IndexSpec,
};

use super::{
    cases::{big, narrow, tiny},
    check_all,
};

/// Most updates target one row, like those of padding; the others target a few rows.
fn skewed(rows: usize, width: usize, count: usize, mode: ScatterMode, dtype: DType) -> Case {
    let mut choice = Choice::new(count as u64);
    let mut case = Case::new(format!("{mode:?} of {count} rows in {rows} of {width} {dtype}"));
    let row = |i: usize| if i % 7 < 4 { 1 % rows } else { i * i % rows };
    let index: Vec<u8> = (0..count).flat_map(|i| (row(i) as i32 - rows as i32).to_le_bytes()).collect();
    let index = OracleArray::from_bytes(&index, DType::I32, &[count]).unwrap();
    let mut random = |shape: &[usize]| random_array(&mut choice, Distribution::Tame, dtype, shape);
    let (table, updates) = (random(&[rows, width]), random(&[count, width]));
    let table = case.leaf(CaseLeaf::contiguous(table));
    let index = case.leaf(CaseLeaf::contiguous(index));
    let updates = case.leaf(CaseLeaf::contiguous(updates));
    let op = Op::Scatter(Scatter(mode, IndexRange::Unknown));
    let id = case.ir.push(op, dtype, [rows, width].as_slice().into(), [table, index, updates]);
    case.ir.outputs.push(id);
    case
}

#[test]
fn many_updates_of_few_rows() {
    use Combine::{Max, Prod, Sum};
    let mut cases = Vec::new();
    // Long enough that the totals of runs are combined in runs again.
    check_all([skewed(1, 1, 5300, ScatterMode::Combine(Sum), DType::F32)], &[narrow()]);
    for (rows, width, count) in [(2, 3, 700), (50, 2, 500), (3, 1, 161), (2, 2, 128)] {
        cases.push(skewed(rows, width, count, ScatterMode::Combine(Sum), DType::F32));
    }
    for (combine, dtype) in [(Sum, DType::F16), (Sum, DType::I8), (Max, DType::F64), (Prod, DType::U16)] {
        cases.push(skewed(5, 2, 400, ScatterMode::Combine(combine), dtype));
    }
    cases.push(skewed(5, 2, 400, ScatterMode::Set, DType::BF16));
    check_all(cases, &[tiny(), narrow()]);
}

/// Checks the number of iterations of the longest loop of an invocation.
#[test]
fn no_invocation_combines_many_updates() {
    for (rows, width, count) in [(2, 64, 100_000), (2, 1, 1_000_000), (50_000, 8, 100_000)] {
        let operand = |dtype, shape: &[usize]| Operand { dtype, layout: Layout::contiguous(shape) };
        let node = IrNode {
            op: Op::Scatter(Scatter(ScatterMode::Combine(Combine::Sum), IndexRange::Known)),
            dtype: DType::F32,
            shape: [rows, width].as_slice().into(),
            inputs: Default::default(),
        };
        let operands = vec![
            operand(DType::F32, &[rows, width]),
            operand(DType::I64, &[count]),
            operand(DType::F32, &[count, width]),
        ];
        let lowered = lower(&Step::Library(Library { node, operands, epilogue: None }), &big()).unwrap();
        let axes = lowered.launches.iter().flat_map(|launch| &launch.kernel.axes);
        let longest = axes.filter(|axis| axis.kind == AxisKind::Serial).map(|axis| axis.extent).max();
        assert!(longest.is_some_and(|longest| longest <= 128), "{longest:?}");
    }
}

fn device(name: &str) -> (Device, Target) {
    (lowered_device(name, narrow()), narrow())
}

/// The number of pending steps of a tensor that may find an index out of range.
fn looking(tensor: &Tensor, target: &Target) -> usize {
    let Some(plan) = explain(tensor).unwrap() else { return 0 };
    let looks = |step: &Step| {
        let lowered = lower(step, target).unwrap();
        let mut arguments = lowered.launches.iter().flat_map(|launch| &launch.arguments);
        arguments.any(|argument| argument.source == Source::Status)
    };
    plan.steps.iter().filter(|planned| looks(&planned.step)).count()
}

/// The numbers of steps of an embedding and of its gradient that look for indices out of range.
fn looking_for_embedding(index: &Tensor, target: &Target) -> Result<(usize, usize)> {
    let weight = Tensor::ones(&[10, 4], DType::F32, index.device())?.with_grad()?;
    let found = index.embedding(&weight, Some(0))?;
    let forward = looking(&found, target);
    let loss = found.square()?.sum(&[], false)?;
    let gradient = loss.leaf_gradients()?.take(&weight).expect("the loss depends on the weight");
    drop(found);
    Ok((forward, looking(&gradient, target)))
}

#[test]
fn indices_that_are_known_to_be_in_range_are_not_looked_at() -> Result<()> {
    let (d, target) = device("indices");
    let ints = |values: &[i64]| Tensor::from_slice(values, &[values.len()], d);
    let host = ints(&[3, -10, 9, 3, 0, 1])?;
    let logits = Tensor::from_slice(&[0.5f32; 40], &[4, 10], d)?;
    let known = [
        host.clone(),
        host.reshape(&[2, 3])?.t()?,
        host.slice(0, Some(1), None, 2)?,
        host.to_dtype(DType::I32)?.to_dtype(DType::I16)?,
        Tensor::cat(&[&host, &ints(&[5, 5])?, &ints(&[])?], 0)?,
        host.take(&ints(&[0, 2])?, None)?,
        host.add_scalar(4)?.remainder_scalar(10)?,
        host.t()?.reshape(&[6, 1])?.contiguous()?,
        Tensor::arange(2, 10, 3, DType::I64, d)?,
        Tensor::randint(-2, 10, &[7], DType::I32, d)?,
        Tensor::randperm(10, d)?.narrow(0, 2, 5)?,
        logits.argmax(Some(1), false)?,
        logits.gt_scalar(0)?.to_dtype(DType::U8)?,
        logits.topk(3, 1, true)?.1,
    ];
    for (number, index) in known.iter().enumerate() {
        assert_eq!(looking_for_embedding(index, &target)?, (0, 0), "{number}");
        index.evaluate()?;
        assert_eq!(looking_for_embedding(index, &target)?, (0, 0), "{number}, computed");
    }
    let computed = Tensor::from_slice(&[3.0f32, 9.0], &[2], d)?.to_dtype(DType::I64)?;
    let beyond = ints(&[3, 10, 9])?.slice(0, Some(0), Some(1), 1)?;
    let wrapped = ints(&[3, 130])?.to_dtype(DType::I8)?;
    for index in [computed, beyond, wrapped, host.add_scalar(1)?, host.mul_scalar(i64::MAX)?] {
        assert_eq!(looking_for_embedding(&index, &target)?, (1, 2));
    }
    Ok(())
}

#[test]
fn positions_made_of_known_indices_are_not_looked_at() -> Result<()> {
    let (d, target) = device("positions");
    let index = Tensor::from_slice(&[1i64, -8, 7, 0], &[2, 2], d)?;
    let column = index.slice(1, None, Some(1), 1)?;
    let specs = [&index, &column].map(|index| IndexSpec::Tensor(index.clone()));
    type Function<'a> = &'a dyn Fn(&Tensor) -> Result<Tensor>;
    let functions: [Function<'_>; 5] = [
        &|plane| plane.gather(1, &index),
        &|plane| plane.scatter_add(0, &index, &index.to_dtype(DType::F32)?),
        &|plane| plane.index(&specs),
        &|plane| Ok(plane.sort(1, false)?.0),
        &|plane| plane.reshape(&[1, 1, 8, 8])?.max_pool2d([2, 2], None, [0, 0], [1, 1], false),
    ];
    for (number, function) in functions.into_iter().enumerate() {
        let x = Tensor::from_slice(&[0.5f32; 64], &[8, 8], d)?.with_grad()?;
        let result = function(&x)?;
        let forward = looking(&result, &target);
        let loss = result.square()?.sum(&[], false)?;
        let gradient = loss.leaf_gradients()?.take(&x).expect("the loss depends on x");
        drop(result);
        assert_eq!((forward, looking(&gradient, &target)), (0, 0), "{number}");
    }
    Ok(())
}

#[test]
fn indices_out_of_range_are_errors_wherever_they_are_found() -> Result<()> {
    let (d, _) = device("refusals");
    let weight = Tensor::ones(&[10, 4], DType::F32, d)?;
    let host = Tensor::from_slice(&[3i64, 10, 9], &[3], d)?;
    assert!(host.embedding(&weight, None).is_err());
    // For a part of the indices only bounds are known, so it cannot be refused before it is computed.
    assert!(host.narrow(0, 0, 1)?.embedding(&weight, None)?.to_vec::<f32>().is_ok());
    assert!(host.narrow(0, 1, 2)?.embedding(&weight, None)?.to_vec::<f32>().is_err());
    Ok(())
}

/// A recording relies on the known bounds of its indices and is not used for indices without them.
#[test]
fn captured_functions_look_at_indices_that_are_not_known() -> Result<()> {
    let (d, _) = device("captured");
    let weight = Tensor::from_slice(&[0f32, 1.0, 2.0, 3.0], &[4, 1], d)?;
    let recorded = AtomicUsize::new(0);
    let look_up = Captured::new(|_: &[Tensor], kept: &[Tensor]| -> Result<Vec<Tensor>> {
        recorded.fetch_add(1, Ordering::Relaxed);
        let index = Tensor::cat(&[&kept[0].narrow(0, 1, 1)?, &kept[0].to_dtype(DType::I32)?], 0)?;
        Ok(vec![index.embedding(&kept[1], None)?])
    });
    let call = |index: Tensor| look_up.call(&mut Vec::new(), &[index, weight.clone()])?[0].to_vec::<f32>();
    let ints = |values: [i64; 2]| Tensor::from_slice(&values, &[2], d);
    assert_eq!(call(ints([1, 2])?)?, [2.0, 1.0, 2.0]);
    assert_eq!(call(ints([0, 3])?)?, [3.0, 0.0, 3.0]);
    assert_eq!(call(ints([-4, 1])?)?, [1.0, 0.0, 1.0]);
    assert_eq!(recorded.load(Ordering::Relaxed), 1);
    assert!(call(ints([1, 4])?).is_err());
    let computed = Tensor::from_slice(&[2f32, 3.0], &[2], d)?.to_dtype(DType::I64)?;
    assert_eq!(call(computed)?, [3.0, 2.0, 3.0]);
    assert_eq!(recorded.load(Ordering::Relaxed), 2);
    Ok(())
}
