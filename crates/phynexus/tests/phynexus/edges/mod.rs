//! Edge cases: limits that are refused, infinities, threads.

mod limits;
mod threads;
mod values;

use phynexus::{Device, Element, Tensor, oracle::reference_device};

fn device() -> Device {
    reference_device()
}

fn tensor<T: Element>(values: &[T], shape: &[usize]) -> Tensor {
    Tensor::from_slice(values, shape, device()).unwrap()
}

fn vector<T: Element>(values: &[T]) -> Tensor {
    tensor(values, &[values.len()])
}
