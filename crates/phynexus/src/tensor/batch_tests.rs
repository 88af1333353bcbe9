//! Batches of every operation against the operation on each example.

use super::batch::Randomness;
use crate::{
    DType, Error, Result, Tensor,
    op::{Op, Sample, samples},
    oracle::{
        generate::{Choice, Distribution, random_operand},
        reference_device,
    },
    shape::element_count,
};

const EXAMPLES: usize = 2;

fn numbers(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().to_vec::<f64>().unwrap()
}

fn stacked(parts: &[Tensor]) -> Tensor {
    let parts: Vec<Tensor> = parts.iter().map(|part| part.unsqueeze(0).unwrap()).collect();
    Tensor::cat(&parts.iter().collect::<Vec<_>>(), 0).unwrap()
}

/// The dtype in which a sample is tested here.
fn tested(sample: &Sample) -> Option<DType> {
    let dtypes = sample.tested_dtypes();
    dtypes.contains(&DType::F32).then_some(DType::F32).or(dtypes.first().copied())
}

/// Compares a batch in which these operands differ from example to example.
fn check(sample: &Sample, dtype: DType, differs: &[bool]) {
    let (result, shape) = sample.result(dtype).unwrap();
    let mut choice = Choice::new(5);
    let mut operand = |place: usize| {
        let array = random_operand(&mut choice, &sample.operands[place], dtype, Distribution::Tame);
        Tensor::from_bytes(&array.to_bytes(), array.dtype, &array.shape, reference_device()).unwrap()
    };
    let operands: Vec<Vec<Tensor>> = (0..differs.len())
        .map(|place| (0..if differs[place] { EXAMPLES } else { 1 }).map(|_| operand(place)).collect())
        .collect();
    let record = |operands: &[&Tensor]| Tensor::record(sample.op.clone(), result, shape.clone(), operands);
    let batches: Vec<Tensor> = operands.iter().filter(|o| o.len() > 1).map(|o| stacked(o)).collect();
    let of_one = |examples: &[Tensor]| -> Result<Vec<Tensor>> {
        let mut examples = examples.iter();
        let own = operands.iter().map(|o| if o.len() > 1 { examples.next().unwrap() } else { &o[0] });
        Ok(vec![record(&own.collect::<Vec<_>>())?])
    };
    let all = Tensor::vmap(&batches.iter().collect::<Vec<_>>(), EXAMPLES, Randomness::Same, of_one)
        .unwrap()
        .remove(0);
    // A composite need not depend on each of its operands.
    let is_primitive = !matches!(sample.op, Op::Composite(_));
    assert!(all.is_batched || !is_primitive && !differs.iter().all(|&one| one), "{}", sample.op.name());
    let extents = if all.is_batched { &[EXAMPLES][..] } else { &[] };
    let extents = [extents, shape.as_slice()].concat();
    assert_eq!((all.tensor.shape(), all.tensor.dtype()), (&extents[..], result), "{}", sample.op.name());
    for example in 0..EXAMPLES {
        let own: Vec<&Tensor> = operands.iter().map(|o| o.get(example).unwrap_or(&o[0])).collect();
        let expected = numbers(&record(&own).unwrap());
        let found = match all.is_batched {
            true => numbers(&all.tensor.narrow(0, example, 1).unwrap()),
            false => numbers(&all.tensor),
        };
        for (a, b) in found.iter().zip(&expected) {
            let same = a == b || a.is_nan() && b.is_nan() || (a - b).abs() <= 1e-5 * (1.0 + b.abs());
            assert!(same, "{} ({sample}) {differs:?}: {found:?} instead of {expected:?}", sample.op.name());
        }
    }
}

#[test]
fn batches_of_all_operations_are_what_each_example_gives() {
    for sample in samples() {
        let count = sample.operands.len();
        let small = sample.operands.iter().all(|operand| element_count(&operand.shape) <= 200);
        let Some(dtype) = tested(&sample).filter(|_| small && count > 0) else { continue };
        if !sample.result(dtype).is_ok_and(|(_, shape)| element_count(&shape) <= 400) {
            continue;
        }
        check(&sample, dtype, &vec![true; count]);
        for place in (0..count).filter(|_| count > 1) {
            check(&sample, dtype, &(0..count).map(|other| other == place).collect::<Vec<_>>());
        }
    }
}

#[test]
fn functions_nest_and_compose_with_gradients() {
    let device = reference_device();
    let x = Tensor::from_slice(&[1.0f64, 2.0, 3.0, 4.0, 5.0, 6.0], &[3, 2], device).unwrap();
    let y = Tensor::from_slice(&[10.0f64, 20.0, 30.0], &[3], device).unwrap();
    // All products of an element of x with one of y.
    let outer = Tensor::vmap(&[&x], 3, Randomness::Error, |rows| {
        let inner =
            Tensor::vmap(&[&y], 3, Randomness::Error, |each| Ok::<_, Error>(vec![rows[0].mul(&each[0])?]))?;
        Ok::<_, Error>(inner.into_iter().map(|result| result.tensor).collect())
    });
    let outer = outer.unwrap().remove(0).tensor;
    assert_eq!(outer.shape(), [3, 3, 2]);
    assert_eq!(numbers(&outer)[..6], [10.0, 20.0, 20.0, 40.0, 30.0, 60.0]);
    // Gradients within, and gradients of the whole.
    let within = Tensor::vmap(&[&x], 3, Randomness::Error, |rows| {
        let row = rows[0].as_variable()?;
        row.mul(&row)?.mul(&row)?.sum(&[], false)?.gradients(&[&row])
    });
    assert_eq!(numbers(&within.unwrap()[0].tensor), [3.0, 12.0, 27.0, 48.0, 75.0, 108.0]);
    let leaf = x.with_grad().unwrap();
    let sums = Tensor::vmap(&[&leaf], 3, Randomness::Error, |rows| {
        Ok::<_, Error>(vec![rows[0].mul(&rows[0])?.prod(&[], false)?])
    });
    let gradients = sums.unwrap()[0].tensor.sum(&[], false).unwrap().gradients(&[&leaf]).unwrap();
    assert_eq!(numbers(&gradients[0]), [8.0, 4.0, 96.0, 72.0, 360.0, 300.0]);
}

#[test]
fn values_cannot_be_read_and_examples_cannot_be_kept() {
    let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], reference_device()).unwrap();
    let read = Tensor::vmap(&[&x], 2, Randomness::Error, |rows| rows[0].item::<f32>().map(|_| Vec::new()));
    assert!(read.err().unwrap().to_string().contains("reads the value of a tensor"));
    let mut kept = None;
    let results = Tensor::vmap(&[&x], 2, Randomness::Error, |rows| {
        kept = Some(rows[0].exp()?);
        Ok::<_, Error>(vec![x.exp()?])
    });
    assert!(!results.unwrap()[0].is_batched);
    assert!(kept.unwrap().evaluate().unwrap_err().to_string().contains("and kept"));
    for wrong in [
        Tensor::vmap(&[&x], 3, Randomness::Error, |_| Ok::<_, Error>(Vec::new())),
        Tensor::vmap(&[&x.sum(&[], false).unwrap()], 2, Randomness::Error, |_| Ok(Vec::new())),
        Tensor::vmap(&[], 2, Randomness::Error, |_| Ok(Vec::new())),
    ] {
        assert!(wrong.is_err());
    }
}

#[test]
fn random_numbers_are_those_that_the_caller_chose() {
    let device = reference_device();
    let x = Tensor::zeros(&[3], DType::F32, device).unwrap();
    let generator = crate::tensor::Generator::new(7);
    let draw = |randomness| {
        Tensor::vmap(&[&x], 3, randomness, |rows| {
            Ok::<_, Error>(vec![rows[0].add(&generator.rand(&[], DType::F32, device)?)?])
        })
    };
    assert!(draw(Randomness::Error).is_err());
    let same = numbers(&draw(Randomness::Same).unwrap()[0].tensor);
    assert!(same[0] == same[1] && same[1] == same[2]);
    let different = numbers(&draw(Randomness::Different).unwrap()[0].tensor);
    assert!(different[0] != different[1] && different[1] != different[2]);
    // What follows is drawn after the numbers of all examples.
    assert!(!different.contains(&numbers(&generator.rand(&[], DType::F32, device).unwrap())[0]));
}

#[test]
fn indices_out_of_range_stay_errors() {
    let device = reference_device();
    let table = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2, 1], device).unwrap();
    let index = Tensor::from_slice(&[1i64, -1, 0, 2], &[2, 2], device).unwrap();
    // Computed, so that the device checks it.
    let index = index.add(&index.sub(&index).unwrap()).unwrap();
    let gather = |rows: &[Tensor]| {
        let op = Op::Gather(crate::op::Gather(crate::op::IndexRange::Unknown));
        Ok::<_, Error>(vec![Tensor::record(op, DType::F32, [2, 1].as_slice().into(), &[&rows[0], &rows[1]])?])
    };
    let results = Tensor::vmap(&[&table, &index], 2, Randomness::Error, gather).unwrap();
    assert!(matches!(results[0].tensor.evaluate(), Err(Error::Index { .. } | Error::SomeIndex { .. })));
}
