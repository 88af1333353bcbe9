//! Host overhead of a repeated step. The tensors have one or two elements, so kernel time is negligible.
//!
//! A step records its operations, traverses them, looks up their plan and launches its kernels. The first workload only
//! records. The last ones compute with a number that stays or changes.

use neurenix::phynexus::{Device, Tensor};

use super::workloads::{Step, Workload, random, workload};

/// Length of the operation chains.
const CHAIN: usize = 1000;
/// Matrix products of the last workload, each followed by two elementwise operations.
const PRODUCTS: usize = 100;

pub(super) fn all() -> Vec<Workload> {
    let chain = |x: &Tensor| {
        let mut y = x.clone();
        for _ in 0..CHAIN {
            y = y.add(x)?;
        }
        neurenix::Result::Ok(y)
    };
    let recorded = workload("host: record 1000 sums", move |d| {
        let x = random(&[1], d)?;
        Ok(Box::new(move || chain(&x).map(drop)) as Step)
    });
    let one_kernel = workload("host: 1000 sums", move |d| {
        let x = random(&[1], d)?;
        Ok(Box::new(move || Ok(chain(&x)?.evaluate()?)) as Step)
    });
    let many_kernels = workload("host: 100 products, sums, tanh", |d| {
        // Two elements: a product over one element becomes a multiplication and fuses.
        let [x, w, b] = [random(&[1, 2], d)?, random(&[2, 2], d)?, random(&[1, 2], d)?];
        Ok(Box::new(move || {
            let mut y = x.clone();
            for _ in 0..PRODUCTS {
                y = y.matmul(&w)?.add(&b)?.tanh()?;
            }
            Ok(y.evaluate()?)
        }) as Step)
    });
    let scaled = |n: usize, changes: bool| {
        let number = if changes { "another k each time" } else { "one k" };
        workload(format!("(x * k + x).exp() {n}, {number}"), move |d| number_that(changes, n, d))
    };
    let counted = |workload: Workload, operations| Workload { operations: Some(operations), ..workload };
    let host = [counted(recorded, CHAIN), counted(one_kernel, CHAIN), counted(many_kernels, 3 * PRODUCTS)];
    let numbers = [1 << 10, 1 << 20].map(|n| [scaled(n, false), scaled(n, true)]);
    host.into_iter().chain(numbers.into_iter().flatten()).collect()
}

/// A number that is built into the plan, or one that the plan reads because it has changed before.
fn number_that(changes: bool, n: usize, device: Device) -> neurenix::Result<Step> {
    // Two shapes of as many elements, so that the two workloads have plans of their own.
    let shape = if changes { vec![n, 1] } else { vec![n] };
    let x = random(&shape, device)?;
    let mut k = 0.3;
    Ok(Box::new(move || {
        k += if changes { 1e-6 } else { 0.0 };
        Ok(x.mul_scalar(k)?.add(&x)?.exp()?.evaluate()?)
    }))
}
