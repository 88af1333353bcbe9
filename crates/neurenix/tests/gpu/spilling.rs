//! Tensors that move to host memory when the device is full.

use std::{sync::atomic::Ordering, thread};

use phynexus::{DType, Device, Error, Result, Tensor};

use crate::driver::device;

/// Elements of a tensor: 16 KiB.
const LENGTH: usize = 4096;
const BYTES: u64 = 4 * LENGTH as u64;

fn filled(value: f32, device: Device) -> Result<Tensor> {
    Tensor::from_slice(&[value; LENGTH], &[LENGTH], device)
}

fn is_filled(tensor: &Tensor, value: f32) -> Result<bool> {
    Ok(tensor.to_vec::<f32>()?.iter().all(|&x| x == value))
}

#[test]
fn a_full_device_is_an_error_unless_spilling_is_on() -> Result<()> {
    let (device, control) = device("spilling:0", true);
    control.capacity.store(4 * BYTES, Ordering::SeqCst);
    let fixed = [filled(1.0, device)?, filled(2.0, device)?];
    let more = [filled(3.0, device)?, filled(4.0, device)?];
    assert!(matches!(filled(5.0, device), Err(Error::OutOfMemory { .. })));
    drop(more);

    device.set_spilling(true)?;
    let tensors: Vec<Tensor> = (0..8).map(|i| filled(i as f32, device)).collect::<Result<_>>()?;
    let figures = device.memory();
    assert_eq!((figures.spilled_tensors, figures.spilled_bytes), (6, 6 * BYTES as usize));
    assert!(figures.spills >= 6 && control.used.load(Ordering::SeqCst) <= 4 * BYTES);
    for (value, tensor) in tensors.iter().enumerate() {
        assert!(is_filled(tensor, value as f32)?, "{value}");
    }
    // Tensors made before it was switched on stayed.
    assert!(is_filled(&fixed[0], 1.0)? && is_filled(&fixed[1], 2.0)?);
    drop(fixed);
    // Operands come back, and results find memory.
    assert!(is_filled(&tensors[3].add(&tensors[7])?, 10.0)?);
    // If one plan's tensors do not fit together, it is an error, and nothing is lost.
    let all: Vec<&Tensor> = tensors.iter().collect();
    let error = Tensor::cat(&all, 0)?.evaluate().unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { .. }), "{error}");
    for (value, tensor) in tensors.iter().enumerate() {
        assert!(is_filled(tensor, value as f32)?, "{value}");
    }
    // After it is switched off, spilled tensors still come back if there is memory.
    device.set_spilling(false)?;
    control.capacity.store(0, Ordering::SeqCst);
    for (value, tensor) in tensors.iter().enumerate() {
        assert!(is_filled(tensor, value as f32)?, "{value}");
    }
    drop(tensors);
    let figures = device.memory();
    assert_eq!((figures.allocated, figures.spilled_tensors, figures.spilled_bytes), (0, 0, 0));
    Ok(())
}

#[test]
fn what_was_used_longest_ago_goes_first() -> Result<()> {
    let (device, control) = device("spilling:1", true);
    control.capacity.store(3 * BYTES, Ordering::SeqCst);
    device.set_spilling(true)?;
    let (a, b, c) = (filled(1.0, device)?, filled(2.0, device)?, filled(3.0, device)?);
    assert!(is_filled(&a, 1.0)?);
    let d = filled(4.0, device)?;
    assert_eq!(device.memory().spilled_tensors, 1);
    let copies = |tensor: &Tensor, value| -> Result<u64> {
        let before = control.copies.load(Ordering::SeqCst);
        assert!(is_filled(tensor, value)?);
        Ok(control.copies.load(Ordering::SeqCst) - before)
    };
    // Tensors on the device are read; the one on the host must replace another first.
    assert_eq!([copies(&a, 1.0)?, copies(&c, 3.0)?, copies(&d, 4.0)?], [1, 1, 1]);
    assert_eq!(copies(&b, 2.0)?, 3);
    Ok(())
}

#[test]
fn a_limit_is_kept_by_spilling_too() -> Result<()> {
    let (device, _) = device("spilling:2", true);
    device.set_spilling(true)?;
    device.set_memory_limit(Some(2 * BYTES as usize));
    let tensors: Vec<Tensor> = (0..5).map(|i| filled(i as f32, device)).collect::<Result<_>>()?;
    let figures = device.memory();
    assert!(figures.allocated <= 2 * BYTES as usize && figures.spilled_tensors >= 3);
    for (value, tensor) in tensors.iter().enumerate() {
        assert!(is_filled(tensor, value as f32)?, "{value}");
    }
    Ok(())
}

#[test]
fn threads_share_a_full_device() -> Result<()> {
    let (device, control) = device("spilling:3", true);
    device.set_spilling(true)?;
    // Each thread needs three tensors at once; together they hold twice the device's memory.
    control.capacity.store(14 * BYTES, Ordering::SeqCst);
    let work = |thread: usize| -> Result<()> {
        let own: Vec<Tensor> =
            (0..7).map(|i| filled((10 * thread + i) as f32, device)).collect::<Result<_>>()?;
        for round in 0..12 {
            let (i, j) = (round % 7, (3 * round + 1) % 7);
            let sum = own[i].add(&own[j])?;
            assert!(is_filled(&sum, (20 * thread + i + j) as f32)?);
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|number| scope.spawn(move || work(number))).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("a thread that does not panic"))
    })?;
    assert!(device.memory().spills > 0);
    Ok(())
}

#[test]
fn a_copy_that_fails_loses_nothing() -> Result<()> {
    let (device, control) = device("spilling:4", true);
    device.set_spilling(true)?;
    control.capacity.store(2 * BYTES, Ordering::SeqCst);
    let (a, b) = (filled(1.0, device)?, filled(2.0, device)?);
    control.lost.store(true, Ordering::SeqCst);
    assert!(matches!(filled(3.0, device), Err(Error::Device { .. })));
    control.lost.store(false, Ordering::SeqCst);
    assert!(is_filled(&a, 1.0)? && is_filled(&b, 2.0)?);
    assert!(Tensor::zeros(&[4], DType::F32, Device::find("cpu")?)?.device().set_spilling(true).is_err());
    Ok(())
}
