//! Tests on the devices of this machine, if any. lavapipe suffices.

use std::sync::atomic::{AtomicBool, Ordering};

use phynexus::{
    DType, Device, Error, Result, Tensor,
    device::DeviceNature,
    interrupt::watch,
    oracle::{Comparison, compare, evaluate, generate::random_case},
    schedule::execute_ir,
};

fn found() -> Vec<Device> {
    phynexus_wgpu::register();
    phynexus::device::devices()
}

/// Features that WGSL lacks are refused with the reason.
fn is_refusal(error: &Error) -> bool {
    error.to_string().contains("WGSL has no")
}

#[test]
fn devices_are_named_under_their_api() {
    for device in found() {
        let info = device.info();
        let (api, number) = device.name().split_once(':').unwrap();
        assert!(["vulkan", "metal", "dx12"].contains(&api), "{info:?}");
        assert!(number.parse::<usize>().is_ok() && !info.model.is_empty(), "{info:?}");
        assert_ne!(info.nature, DeviceNature::HostCpu);
        if api == "vulkan" {
            let total = info.total_memory.unwrap();
            assert!(total > 0 && device.memory().available.is_none_or(|free| free <= total), "{info:?}");
        }
    }
    let reason = Device::find("vulkan:99").unwrap_err().to_string();
    assert!(reason.contains("vulkan:99"), "{reason}");
}

#[test]
fn random_graphs_agree_with_the_oracle() {
    for device in found() {
        for seed in 0..60 {
            let case = random_case(seed, 10);
            let run = || -> Result<Comparison> {
                let expected = evaluate(&case.ir, &case.values())?;
                let leaves =
                    case.leaves.iter().map(|leaf| leaf.upload(device)).collect::<Result<Vec<_>>>()?;
                let mut all = Comparison::default();
                for (expected, actual) in expected.iter().zip(&execute_ir(&case.ir, &leaves, device)?) {
                    all.merge(compare(expected, &actual.to_bytes()?, actual.dtype()));
                }
                Ok(all)
            };
            match run() {
                Ok(comparison) => assert!(comparison.passed(), "{device}: {case}\n{comparison}"),
                Err(error) => assert!(is_refusal(&error), "{device}: {case}\n{error}"),
            }
        }
    }
}

#[test]
fn parts_of_words_are_written_and_read() {
    for device in found() {
        let backend = device.backend();
        let buffer = backend.allocate(64).unwrap();
        let mut expected: Vec<u8> = (0..64).collect();
        backend.write(&buffer, 0, &expected).unwrap();
        for (offset, length) in [(0, 1), (3, 1), (1, 2), (5, 7), (8, 4), (30, 0), (61, 3), (17, 33)] {
            let bytes: Vec<u8> = (0..length).map(|i| 200 - offset as u8 - i as u8).collect();
            backend.write(&buffer, offset, &bytes).unwrap();
            expected[offset..offset + length].copy_from_slice(&bytes);
            let mut part = vec![0; length];
            backend.read(&buffer, offset, &mut part).unwrap();
            assert_eq!(part, bytes, "{length} bytes at {offset}");
        }
        let mut all = vec![0; 64];
        backend.read(&buffer, 0, &mut all).unwrap();
        assert_eq!(all, expected);
    }
}

/// Sets the flag when dropped.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn threads_read_while_others_wait_and_ask() {
    for device in found() {
        let backend = device.backend();
        let done = &AtomicBool::new(false);
        std::thread::scope(|scope| {
            // Also runs if something fails below.
            let _ended = Ended(done);
            // A thread that waits for the device also runs the callbacks of the others' copies.
            let waiting = scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    backend.synchronize().unwrap();
                }
            });
            // In an interruptible thread, the wait polls whether the work is done.
            let asking = scope.spawn(move || {
                let _watch = watch(|| false);
                while !done.load(Ordering::Relaxed) {
                    backend.synchronize().unwrap();
                }
            });
            let buffer = backend.allocate(64).unwrap();
            for step in 0..2000 {
                backend.write(&buffer, 0, &[step as u8; 64]).unwrap();
                let mut all = [0; 64];
                backend.read(&buffer, 0, &mut all).unwrap();
                assert_eq!(all, [step as u8; 64]);
            }
            done.store(true, Ordering::Relaxed);
            waiting.join().unwrap();
            asking.join().unwrap();
        });
    }
}

#[test]
fn long_chains_are_submitted_in_order() {
    for device in found() {
        let mut x = Tensor::zeros(&[5], DType::U8, device).unwrap();
        for step in 0..300u32 {
            x = x.add(&Tensor::full(&[5], f64::from(step % 3), DType::U8, device).unwrap()).unwrap();
            x.evaluate().unwrap();
        }
        assert_eq!(x.to_vec::<u8>().unwrap(), [(300 % 256) as u8; 5]);
    }
}

#[test]
fn signs_of_zero_are_kept() {
    for device in found() {
        let signs = |tensor: Tensor| -> Vec<bool> {
            tensor.to_vec::<f32>().unwrap().iter().map(|x| x.is_sign_negative()).collect()
        };
        // Drivers' compilers know these operands, and what a product or difference with 0 is for most numbers.
        let zero = Tensor::arange(0.0, 1.0, 1.0, DType::F32, device).unwrap();
        let x = Tensor::from_slice(&[-1.5f32], &[1], device).unwrap();
        assert_eq!(signs(zero.mul(&x).unwrap()), [true]);
        let y = Tensor::from_slice(&[0.0f32], &[1], device).unwrap();
        assert_eq!(signs(zero.sub(&y).unwrap()), [false]);
        // Every member of the team that shares a row must get the same zero.
        let rows = [-0.0f32, -1.0, -2.0, -3.0, 0.0, 0.0, -1.0, -2.0, -3.0, -0.0];
        let rows = Tensor::from_slice(&rows, &[2, 5], device).unwrap();
        let greatest = rows.max(&[1], true).unwrap().mul(&Tensor::ones_like(&rows).unwrap()).unwrap();
        assert_eq!(signs(greatest), [false; 10]);
        let least = rows.neg().unwrap().min(&[1], true).unwrap();
        assert_eq!(signs(least.mul(&Tensor::ones_like(&rows).unwrap()).unwrap()), [true; 10]);
    }
}

#[test]
fn what_is_too_large_is_an_error() {
    for device in found() {
        assert!(device.backend().allocate(1 << 50).is_err());
        // The device still works.
        let two = Tensor::full(&[3], 2.0, DType::F32, device).unwrap();
        assert_eq!((&two * 2.0).unwrap().to_vec::<f32>().unwrap(), [4.0; 3]);
    }
}
