//! Graphs of a million nodes are built, evaluated, differentiated and dropped without recursion, and pending work is
//! bounded.

use phynexus::{DType, Error, Tensor, no_grad, oracle::reference_device};

const ADDITIONS: usize = 1_000_000;

#[test]
fn a_million_additions_are_differentiated() {
    let x = Tensor::from_slice(&[0.25f64], &[], reference_device()).unwrap().with_grad().unwrap();
    let mut sum = x.clone();
    for _ in 0..ADDITIONS {
        sum = sum.add(&x).unwrap();
    }
    sum.backward().unwrap();
    assert_eq!(sum.item::<f64>().unwrap(), 0.25 * (ADDITIONS + 1) as f64);
    assert_eq!(x.grad().unwrap().item::<f64>().unwrap(), (ADDITIONS + 1) as f64);
}

#[test]
fn a_million_additions_without_gradients() {
    let _guard = no_grad();
    let x = Tensor::from_slice(&[0.25f64], &[], reference_device()).unwrap();
    let mut sum = x.clone();
    for _ in 0..ADDITIONS {
        sum = sum.add_scalar(0.25).unwrap();
    }
    assert_eq!(sum.item::<f64>().unwrap(), 0.25 * (ADDITIONS + 1) as f64);
}

/// More operations than may be pending.
fn record_many(x: &Tensor) {
    for _ in 0..40_000 {
        x.add_scalar(0.5).unwrap();
    }
}

#[test]
fn what_is_held_is_computed_when_many_operations_were_recorded() {
    let x = Tensor::from_slice(&[0.25f64, 1.0], &[2], reference_device()).unwrap();
    let held = x.square().unwrap();
    assert!(!held.is_evaluated());
    record_many(&x);
    assert!(held.is_evaluated());
    assert_eq!(held.to_vec::<f64>().unwrap(), [0.0625, 1.0]);
}

#[test]
fn an_error_of_pending_work_is_that_of_its_reader() {
    let device = reference_device();
    let x = Tensor::from_slice(&[0.25f64, 1.0], &[2], device).unwrap();
    // The index's values are unknown until it is computed.
    let seven = x.narrow(0, 0, 1).unwrap().mul_scalar(28).unwrap();
    let index = seven.to_dtype(DType::I64).unwrap();
    let outside = x.take(&index, None).unwrap();
    let held = x.square().unwrap();
    record_many(&x);
    assert!(held.is_evaluated() && !outside.is_evaluated());
    assert!(matches!(outside.to_vec::<f64>(), Err(Error::Index { .. } | Error::SomeIndex { .. })));
}

#[test]
fn memory_that_only_pending_work_keeps_is_freed() {
    let device = reference_device();
    let mut sum = Tensor::zeros(&[], DType::F64, device).unwrap();
    let mut first = None;
    for _ in 0..8 {
        let batch = Tensor::from_slice(&vec![0.5f64; 1 << 14], &[1 << 14], device).unwrap();
        sum = sum.add(&batch.sum(&[], false).unwrap()).unwrap();
        first.get_or_insert_with(|| sum.clone());
    }
    // Eight batches of 128 KiB.
    assert!(first.unwrap().is_evaluated());
    assert_eq!(sum.item::<f64>().unwrap(), 8.0 * 8192.0);
}
