//! Copies: asynchronous ones to the host, from device to device, in parts.

use std::sync::atomic::Ordering;

use phynexus::{
    Device, Error, Result, Tensor,
    profile::{Detail, Profiler, Track},
    schedule::capture::Captured,
};

use crate::driver::{PINNED, device};

/// More than three parts of a copy through the host, but not a multiple.
const LARGE: usize = 13_000_001;

fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i % 251) as u8).collect()
}

#[test]
fn a_reading_has_the_elements_as_they_were() -> Result<()> {
    // While a profiler runs, copies are synchronous.
    let _alone = crate::profiles::alone();
    let (device, control) = device("reading:0", true);
    control.slow.store(true, Ordering::SeqCst);
    let mut given = vec![Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3], device)?];
    let readings = [given[0].to_vec_async::<f32>()?, given[0].flip(&[0])?.to_vec_async()?];
    let sum = given[0].sum(&[], false)?.to_vec_async::<f32>()?;
    assert!(readings.iter().chain([&sum]).all(|reading| !reading.is_done()));
    assert_eq!(control.begun.load(Ordering::SeqCst), 3);
    // The memory of the first is overwritten; that of the others is freed and reused.
    let step =
        Captured::new(|given: &[Tensor], _: &[Tensor]| -> Result<Vec<Tensor>> { Ok(vec![given[0].neg()?]) });
    let negated = step.call(&mut given, &[])?;
    let others = [1, 2, 3].map(|_| Tensor::full(&[3], 9.0, phynexus::DType::F32, device)?.evaluated());
    assert_eq!(negated[0].to_vec::<f32>()?, [-1.0, -2.0, -3.0]);
    control.slow.store(false, Ordering::SeqCst);
    assert!(sum.is_done());
    let [plain, flipped] = readings;
    assert_eq!((plain.wait()?, flipped.wait()?), (vec![1.0, 2.0, 3.0], vec![3.0, 2.0, 1.0]));
    assert_eq!(sum.wait()?, [6.0]);
    drop(others);
    Ok(())
}

#[test]
fn a_reading_is_typed_and_tells_failures() -> Result<()> {
    let _alone = crate::profiles::alone();
    let (device, control) = device("reading:1", true);
    let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], device)?;
    assert!(matches!(x.to_vec_async::<f64>(), Err(Error::DType { .. })));
    drop(x.to_vec_async::<f32>()?);
    let reading = x.exp()?.to_vec_async::<f32>()?;
    control.lost.store(true, Ordering::SeqCst);
    assert!(matches!(reading.wait(), Err(Error::Device { .. })));
    assert!(matches!(x.to_vec_async::<f32>(), Err(Error::Device { .. })));
    // Empty tensors, and the CPU's.
    control.lost.store(false, Ordering::SeqCst);
    let empty = Tensor::from_slice(&[] as &[f32], &[0], device)?;
    assert!(empty.to_vec_async::<f32>()?.wait()?.is_empty());
    let x = Tensor::from_slice(&[1i64, 2], &[2], Device::find("cpu")?)?;
    let reading = x.neg()?.to_vec_async::<i64>()?;
    assert!(reading.is_done());
    assert_eq!(reading.wait()?, [-1, -2]);
    Ok(())
}

#[test]
fn devices_of_one_family_copy_without_the_host() -> Result<()> {
    let ((a, control_a), (b, control_b)) = (device("near:0", true), device("near:1", true));
    let data = bytes(LARGE);
    let x = Tensor::from_slice(&data, &[LARGE], a)?;
    let host_copies = || [&control_a, &control_b].map(|control| control.copies.load(Ordering::SeqCst));
    let before = host_copies();
    let y = x.to_device(b)?.evaluated()?;
    // A slice that starts inside memory, and one that must be made contiguous first.
    let part = x.narrow(0, 7, 1000)?.to_device(b)?.evaluated()?;
    let reversed = x.narrow(0, 0, 9)?.flip(&[0])?.to_device(b)?.evaluated()?;
    assert_eq!(host_copies(), before);
    assert_eq!(control_b.peer_copies.load(Ordering::SeqCst), 3);
    assert!(y.to_vec::<u8>()? == data);
    assert_eq!(part.to_vec::<u8>()?, data[7..1007]);
    assert_eq!(reversed.to_vec::<u8>()?, [8, 7, 6, 5, 4, 3, 2, 1, 0]);
    // If a device is lost, the copy returns the error.
    control_a.lost.store(true, Ordering::SeqCst);
    assert!(matches!(x.to_device(b)?.evaluated(), Err(Error::Device { .. })));
    assert!(y.to_vec::<u8>()? == data);
    Ok(())
}

#[test]
fn devices_of_different_families_copy_through_the_host_in_parts() -> Result<()> {
    let _alone = crate::profiles::alone();
    let ((a, control_a), (b, control_b)) = (device("far:0", true), device("away:0", true));
    let cpu = Device::find("cpu")?;
    let data = bytes(LARGE);
    let x = Tensor::from_slice(&data, &[LARGE], a)?;
    for target in [b, cpu] {
        let before = control_a.begun.load(Ordering::SeqCst);
        let y = x.to_device(target)?.evaluated()?;
        assert_eq!(control_a.begun.load(Ordering::SeqCst) - before, 4);
        assert!(y.to_vec::<u8>()? == data);
    }
    assert_eq!(control_b.peer_copies.load(Ordering::SeqCst), 0);
    let from_cpu = Tensor::from_slice(&data, &[LARGE], cpu)?.to_device(b)?;
    assert!(from_cpu.to_vec::<u8>()? == data);
    assert_eq!(a.memory().pinned, PINNED);
    assert_eq!(cpu.memory().pinned, 0);
    Ok(())
}

#[test]
fn a_profile_tells_copies_between_devices() -> Result<()> {
    let _alone = crate::profiles::alone();
    let ((a, _), (b, _)) = (device("told:0", true), device("told:1", true));
    let x = Tensor::from_slice(&[1.0f32; 100], &[100], a)?;
    let profiler = Profiler::start(Detail::Timeline)?;
    let y = x.to_device(b)?.evaluated()?;
    assert_eq!(y.to_vec_async::<f32>()?.wait()?, [1.0; 100]);
    let profile = profiler.finish()?;
    let row = |name: &str| {
        let mut rows = profile.rows.iter().filter(|row| row.device == "told:1" && row.name == name);
        rows.next().map(|row| (row.track, row.count, row.bytes))
    };
    assert_eq!(row("copy between devices"), Some((Track::Transfers, 1, 400)));
    assert_eq!(row("copy from the device"), Some((Track::Transfers, 1, 400)));
    Ok(())
}
