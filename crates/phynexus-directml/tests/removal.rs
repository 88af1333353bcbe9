//! Devices that are removed while tensors and plans use them.

#![cfg(windows)]

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use phynexus::{Device, Error, Result, Tensor};
use phynexus_directml::{references_left, remove_device};

/// Numbers whose products of a few hundred are exact.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|at| (at * 7919 % 1009 % 61) as f32 / 8.0 - 3.0).collect()
}

/// A product and an elementwise step, which DirectML computes, and a scan and a sort, which kernels do.
fn compute(x: &Tensor) -> Result<Vec<f32>> {
    let product = x.matmul(&x.transpose(0, 1)?)?;
    let sum = product.abs()?.sqrt()?.cumsum(1)?;
    let sorted = sum.sort(1, false)?.0;
    sorted.add(&product)?.to_vec::<f32>()
}

fn is_removal(error: &Error) -> bool {
    matches!(error, Error::Device { device, message }
        if device == "directml:0" && message.contains("removed: a test asked for it"))
}

/// Kernels of several sizes, of which the later ones get their sizes as arguments.
fn vary(device: Device) -> Result<Vec<f32>> {
    let of = |rows: usize| {
        let x = Tensor::from_slice(&numbers(rows * 8), &[rows, 8], device)?;
        x.cumsum(0)?.sort(0, false)?.0.sum(&[1], false)?.to_vec::<f32>()
    };
    Ok([16, 24, 40, 56].map(of).into_iter().collect::<Result<Vec<_>>>()?.concat())
}

/// One test at a time: it removes the device of others.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn a_removed_device_is_opened_again() {
    let _turn = turn();
    phynexus_directml::register();
    let device = Device::find("directml:0").unwrap();
    let upload = || Tensor::from_slice(&numbers(64 * 70), &[64, 70], device);
    let expected = compute(&upload().unwrap()).unwrap();
    let varied = vary(device).unwrap();
    device.set_spilling(true).unwrap();
    for round in 0..3 {
        // Of several sizes: small blocks are parts of others.
        let lost: Vec<Tensor> = [1, 1000, 100_000]
            .map(|count| Tensor::from_slice(&numbers(count), &[count], device).unwrap())
            .into();
        let x = upload().unwrap();
        // The second run makes a list that repeats, the third uses it.
        for _ in 0..3 {
            assert_eq!(compute(&x).unwrap(), expected, "{round}");
        }
        let reading = x.to_vec_async::<f32>().unwrap();
        let before = device.memory();
        assert!(remove_device("directml:0"));
        // Whoever finds out gets the reason.
        let error = reading.wait().unwrap_err();
        assert!(is_removal(&error), "{error}");
        // The next use opens it. Plans, kernels and graphs are used again, and tensors are lost.
        let error = compute(&x).unwrap_err();
        assert!(is_removal(&error), "{error}");
        assert_eq!(compute(&upload().unwrap()).unwrap(), expected, "{round}");
        assert_eq!(vary(device).unwrap(), varied, "{round}");
        // Direct3D opens an adapter again only if nothing of the removed device is left.
        assert_eq!(references_left(), 0, "{round}");
        for tensor in lost.iter().chain([&x]) {
            let error = tensor.to_vec::<f32>().unwrap_err();
            assert!(is_removal(&error), "{error}");
            let error = tensor.add(tensor).unwrap().to_vec::<f32>().unwrap_err();
            assert!(is_removal(&error), "{error}");
        }
        assert!(device.memory().allocated <= before.allocated + 64);
        drop((lost, x));
        device.synchronize().unwrap();
        device.empty_cache();
        let now = device.memory();
        // Numbers of kernels are left.
        assert!(now.allocated <= 256 && now.cached == 0, "{round}: {now:?}");
    }
}

#[test]
fn threads_get_results_or_the_reason() {
    let _turn = turn();
    phynexus_directml::register();
    let device = Device::find("directml:0").unwrap();
    let run = || compute(&Tensor::from_slice(&numbers(64 * 70), &[64, 70], device)?);
    let expected = run().unwrap();
    let (ended, failed) = (AtomicBool::new(false), AtomicUsize::new(0));
    let work = || {
        while !ended.load(Ordering::Relaxed) {
            match run() {
                Ok(result) => assert_eq!(result, expected),
                Err(error) => {
                    assert!(is_removal(&error), "{error}");
                    failed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..3).map(|_| scope.spawn(work)).collect();
        for round in 1..6 {
            while !remove_device("directml:0") {
                thread::yield_now();
            }
            while failed.load(Ordering::Relaxed) < round && !threads.iter().any(|thread| thread.is_finished())
            {
                thread::yield_now();
            }
        }
        ended.store(true, Ordering::Relaxed);
    });
    assert_eq!(run().unwrap(), expected);
}
