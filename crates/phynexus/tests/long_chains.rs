//! Graphs of a million nodes: built, evaluated, differentiated and dropped without recursion.

use phynexus::{Tensor, no_grad, oracle::reference_device};

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
