//! What DirectML's operators compute, and that they do.

#![cfg(windows)]

use std::sync::{Mutex, PoisonError};

use phynexus::{DType, Device, Result, Tensor, oracle::reference_device};
use phynexus_directml::{dispatched_routines, round_halves};

/// Numbers in no regular order, some of them negative. Sums of products of a few hundred of them are exact.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|at| (at * 7919 % 1009 % 61) as f32 / 8.0 - 3.0).collect()
}

fn tensor(shape: &[usize], device: Device) -> Result<Tensor> {
    Tensor::from_slice(&numbers(shape.iter().product()), shape, device)
}

/// The results of a computation on the device, with at least so many steps computed by DirectML, and by the definitions
/// of its operations. One at a time: steps are counted for the whole process.
fn routines(least: u64, compute: impl Fn(Device) -> Result<Tensor>) -> [Vec<f32>; 2] {
    static TURN: Mutex<()> = Mutex::new(());
    let _turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    phynexus_directml::register();
    let before = dispatched_routines();
    let results = [Device::find("directml:0").unwrap(), reference_device()].map(|device| {
        let result = compute(device).unwrap();
        assert_eq!(result.device(), device);
        result.to_dtype(DType::F32).unwrap().to_vec::<f32>().unwrap()
    });
    let count = dispatched_routines() - before;
    assert!(count >= least, "{count} of {least} steps were computed by DirectML");
    results
}

#[test]
fn directml_computes_products_and_their_epilogues() {
    for (m, k, n) in [(2, 3, 4), (33, 70, 41), (64, 64, 64)] {
        let [own, expected] = routines(1, |device| {
            let a = Tensor::from_slice(&numbers(m * k), &[m, k], device)?;
            let b = Tensor::from_slice(&numbers(k * n), &[k, n], device)?;
            a.matmul(&b)
        });
        assert_eq!(own, expected);
    }
    // Several products, transposed factors, and a bias.
    let [own, expected] = routines(1, |device| {
        let a = Tensor::from_slice(&numbers(3 * 17 * 20), &[3, 20, 17], device)?.transpose(1, 2)?;
        let b = Tensor::from_slice(&numbers(3 * 20 * 9), &[3, 9, 20], device)?.transpose(1, 2)?;
        a.matmul(&b)?.add(&Tensor::from_slice(&numbers(9), &[9], device)?)?.abs()
    });
    assert_eq!(own, expected);
}

#[test]
fn directml_computes_convolutions() {
    for stride in [1, 2] {
        let [own, expected] = routines(1, |device| {
            let x = Tensor::from_slice(&numbers(2 * 4 * 9 * 11), &[2, 4, 9, 11], device)?;
            let w = Tensor::from_slice(&numbers(6 * 2 * 3 * 3), &[6, 2, 3, 3], device)?;
            x.conv2d(&w, None, [stride; 2], [1; 2], [1; 2], 2)
        });
        assert_eq!(own, expected);
    }
    // An image with 3 channels.
    let [own, expected] = routines(1, |device| {
        let image = Tensor::from_slice(&numbers(3 * 32 * 32), &[1, 3, 32, 32], device)?;
        let w = Tensor::from_slice(&numbers(16 * 3 * 3 * 3), &[16, 3, 3, 3], device)?;
        image.conv2d(&w, None, [1; 2], [1; 2], [1; 2], 1)
    });
    assert_eq!(own, expected);
}

#[test]
fn directml_computes_elementwise_kernels() {
    let [own, expected] = routines(1, |device| {
        let mut values = numbers(64 * 100);
        values[..6].copy_from_slice(&[f32::NAN, f32::INFINITY, f32::NEG_INFINITY, -0.0, 1e-40, 3e38]);
        let x = Tensor::from_slice(&values, &[64, 100], device)?;
        let y = Tensor::from_slice(&numbers(100), &[100], device)?;
        let sum = x.add(&y)?.mul(&x)?.sub(&y)?.abs()?.sqrt()?;
        let chosen = sum.lt(&x)?.where_(&x.floor()?, &sum)?;
        // The kernel would otherwise store the result over one of its operands.
        chosen.to_vec::<f32>()?;
        Ok(chosen)
    });
    let differ =
        own.iter().zip(&expected).filter(|(a, b)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan()));
    let differ: Vec<_> = differ.take(10).collect();
    assert!(differ.is_empty(), "{differ:?}");
}

#[test]
fn equal_graphs_are_compiled_once_and_new_memory_is_bound() {
    let product = |value: f32| {
        routines(1, |device| {
            let a = Tensor::full(&[8, 8], value, DType::F32, device)?;
            a.matmul(&Tensor::from_slice(&numbers(64), &[8, 8], device)?)
        })
    };
    let mut kept = Vec::new();
    for value in 0..12u8 {
        let [own, expected] = product(f32::from(value));
        assert_eq!(own, expected);
        kept.push(
            Tensor::zeros(&[usize::from(value) + 1, 64], DType::F32, Device::find("directml:0").unwrap())
                .unwrap(),
        );
        kept.last().unwrap().to_vec::<f32>().unwrap();
    }
}

#[test]
fn directml_computes_gradients_of_convolutions() {
    for groups in [1, 2] {
        for gradient in 0..2 {
            let [own, expected] = routines(1, |device| {
                let x = tensor(&[2, 4, 9, 11], device)?.with_grad()?;
                let w = tensor(&[6, 4 / groups, 3, 2], device)?.with_grad()?;
                let y = x.conv2d(&w, None, [2, 1], [1, 0], [1, 2], groups)?;
                let weighted = y.mul(&tensor(y.shape(), device)?)?.sum(&[], false)?;
                Ok(weighted.gradients(&[&x, &w])?.swap_remove(gradient))
            });
            assert_eq!(own, expected, "{groups} groups, gradient {gradient}");
        }
    }
}

#[test]
fn directml_computes_rows_with_reductions() {
    let [own, expected] = routines(1, |device| {
        let x = tensor(&[50, 64], device)?;
        let greatest = x.max(&[1], true)?;
        x.sub(&greatest)?.abs()?.min(&[1], false)
    });
    assert_eq!(own, expected);
    let [own, expected] = routines(1, |device| {
        let mut values = numbers(20 * 30);
        values[70] = f32::NAN;
        values[110..140].fill(f32::NEG_INFINITY);
        Tensor::from_slice(&values, &[20, 30], device)?.max(&[1], false)
    });
    let bits = |values: Vec<f32>| values.into_iter().map(f32::to_bits).collect::<Vec<_>>();
    assert!(own[2].is_nan() && expected[2].is_nan());
    assert_eq!(
        (bits(own[..2].to_vec()), bits(own[3..].to_vec())),
        (bits(expected[..2].to_vec()), bits(expected[3..].to_vec()))
    );
}

#[test]
fn directml_computes_sums_along_an_axis_and_takes_rows() {
    let [own, expected] = routines(1, |device| tensor(&[6, 50], device)?.cumsum(1));
    assert_eq!(own, expected);
    let [own, expected] = routines(1, |device| {
        let rows = Tensor::from_slice(&[3i64, 0, -1, 3], &[4], device)?;
        tensor(&[5, 8], device)?.index_select(0, &rows.remainder_scalar(5)?)
    });
    assert_eq!(own, expected);
}

#[test]
fn directml_multiplies_integers() {
    let [own, expected] = routines(1, |device| {
        let bytes =
            |shape: &[usize], dtype| tensor(shape, device)?.mul_scalar(8.0)?.to_dtype(dtype)?.evaluated();
        bytes(&[7, 40], DType::I8)?.matmul_as(&bytes(&[40, 9], DType::I8)?, DType::I32)
    });
    assert_eq!(own, expected);
}

/// Under Wine no device has 16-bit arithmetic, and DirectML rounds towards zero there. Small whole numbers need no
/// rounding.
#[test]
fn directml_computes_halves() {
    round_halves(true);
    let half = |shape: &[usize], device| tensor(shape, device)?.floor()?.to_dtype(DType::F16)?.evaluated();
    let product = routines(1, |device| half(&[9, 20], device)?.matmul(&half(&[20, 7], device)?));
    let convolution = routines(1, |device| {
        half(&[2, 3, 8, 9], device)?.conv2d(&half(&[4, 3, 3, 3], device)?, None, [1; 2], [1; 2], [1; 2], 1)
    });
    let elementwise = routines(1, |device| {
        let x = half(&[30, 40], device)?;
        x.add(&x)?.mul(&half(&[40], device)?)?.sub(&x)
    });
    round_halves(false);
    for [own, expected] in [product, convolution, elementwise] {
        assert_eq!(own, expected);
    }
}
