//! Memory, order and repetition of steps.

#![cfg(windows)]

use std::{
    env,
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use phynexus::{
    DType, Device, Error, Result, Tensor,
    oracle::reference_device,
    profile::{Clock, Detail, Profiler, Track},
};
use phynexus_directml::{dispatched_routines, limit_memory, repeated_lists};

/// Numbers whose products of a few hundred are exact.
fn numbers(count: usize) -> Vec<f32> {
    (0..count).map(|at| (at * 7919 % 1009 % 61) as f32 / 8.0 - 3.0).collect()
}

/// The device, for one test at a time: its memory is measured and its steps are counted.
fn device() -> (Device, MutexGuard<'static, ()>) {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    phynexus_directml::register();
    (Device::find("directml:0").unwrap(), turn)
}

/// A small network in training.
struct Training {
    inputs: Tensor,
    targets: Tensor,
    weights: [Tensor; 2],
}

impl Training {
    fn new(device: Device) -> Result<Training> {
        let scaled = |shape: [usize; 2], by: f32| {
            let values: Vec<f32> = numbers(shape[0] * shape[1]).iter().map(|x| x * by).collect();
            Tensor::from_slice(&values, &shape, device)
        };
        Ok(Training {
            inputs: scaled([64, 32], 0.25)?,
            targets: scaled([64, 8], 0.125)?,
            weights: [scaled([32, 64], 0.0625)?, scaled([64, 8], 0.03125)?],
        })
    }

    fn step(&mut self) -> Result<f32> {
        let weights = [self.weights[0].with_grad()?, self.weights[1].with_grad()?];
        let scores = self.inputs.matmul(&weights[0])?.relu()?.matmul(&weights[1])?;
        let error = scores.sub(&self.targets)?;
        let loss = error.mul(&error)?.mean(&[], false)?;
        let gradients = loss.gradients(&[&weights[0], &weights[1]])?;
        for (weight, gradient) in self.weights.iter_mut().zip(&gradients) {
            *weight = weight.sub(&gradient.mul_scalar(0.125)?)?.detach()?;
        }
        let all = [&self.weights[0], &self.weights[1], &loss];
        Tensor::evaluate_all(&all)?;
        loss.item::<f32>()
    }
}

#[test]
fn a_thousand_steps_repeat_their_lists_in_the_same_memory() {
    let (device, _turn) = device();
    let mut expected = Training::new(reference_device()).unwrap();
    let mut training = Training::new(device).unwrap();
    let first = training.step().unwrap();
    assert!((first - expected.step().unwrap()).abs() <= 1e-5 * first);
    for _ in 0..19 {
        let (own, theirs) = (training.step().unwrap(), expected.step().unwrap());
        assert!((own - theirs).abs() <= 1e-4 * theirs, "{own} {theirs}");
    }
    let (routines, lists, before) = (dispatched_routines(), repeated_lists(), device.memory());
    let mut last = 0.0;
    for _ in 0..1000 {
        last = training.step().unwrap();
    }
    let after = device.memory();
    assert!(last < 0.5 * first, "{first} {last}");
    assert_eq!(
        (after.allocated, after.reserved, after.pinned),
        (before.allocated, before.reserved, before.pinned)
    );
    // The products of a step, forward and backward, are part of its list.
    let (routines, lists) = (dispatched_routines() - routines, repeated_lists() - lists);
    assert!(routines >= 3000, "{routines}");
    assert!((1000..5000).contains(&lists), "{lists}");
}

#[test]
fn small_tensors_share_buffers() {
    let (device, _turn) = device();
    device.empty_cache();
    let before = device.memory();
    let small: Vec<Tensor> = (0..2000u16)
        .map(|at| Tensor::from_slice(&[f32::from(at); 20], &[20], device).unwrap().evaluated().unwrap())
        .collect();
    let now = device.memory();
    assert_eq!(now.allocated - before.allocated, 2000 * 80);
    // Each would take 64 KiB of its own.
    assert!(now.reserved - before.reserved <= 4 << 20, "{before:?} {now:?}");
    for (tensor, at) in small.iter().zip(0u16..) {
        assert_eq!(tensor.to_vec::<f32>().unwrap(), [f32::from(at); 20]);
    }
    drop(small);
    device.empty_cache();
    let now = device.memory();
    assert_eq!((now.allocated, now.cached), (before.allocated, 0));
    assert!(now.reserved <= before.reserved, "{before:?} {now:?}");
}

#[test]
fn the_memory_limit_is_kept_with_a_typed_error() {
    let (device, _turn) = device();
    let kept = Tensor::from_slice(&numbers(1000), &[1000], device).unwrap().evaluated().unwrap();
    let limit = device.memory().allocated + (1 << 20);
    device.set_memory_limit(Some(limit));
    let large = || Tensor::full(&[1 << 20], 1.5, DType::F32, device)?.evaluated();
    let error = large().map(drop).unwrap_err();
    match &error {
        Error::OutOfMemory { device, requested, limit: told, .. } => {
            assert_eq!((device.as_str(), *requested, *told), ("directml:0", 4 << 20, limit));
        }
        other => panic!("{other}"),
    }
    assert!(device.memory().allocated <= limit);
    let mut small = Vec::new();
    while let Ok(tensor) = Tensor::full(&[1 << 12], 2.5, DType::F32, device).and_then(|x| x.evaluated()) {
        assert!(device.memory().allocated <= limit);
        small.push(tensor);
    }
    assert!((60..=64).contains(&small.len()), "{}", small.len());
    drop(small);
    device.set_memory_limit(None);
    assert_eq!(large().unwrap().to_vec::<f32>().unwrap()[..3], [1.5; 3]);
    assert_eq!(kept.to_vec::<f32>().unwrap(), numbers(1000));
}

/// Lifts the limit when it is dropped, also if the test fails.
struct Scarce;

impl Scarce {
    fn new(bytes: u64) -> Scarce {
        limit_memory(Some(bytes));
        Scarce
    }
}

impl Drop for Scarce {
    fn drop(&mut self) {
        limit_memory(None);
    }
}

#[test]
fn memory_that_the_device_lacks_is_a_typed_error() {
    let (device, _turn) = device();
    assert!(device.memory().available.is_none_or(|bytes| bytes > 0));
    device.empty_cache();
    let part = |value: f32| Tensor::full(&[1 << 20], value, DType::F32, device)?.evaluated();
    // Keeps a buffer of small blocks: what the kernels need besides comes from it.
    let _small = Tensor::from_slice(&[1f32], &[1], device).unwrap().evaluated().unwrap();
    let reserved = device.memory().reserved as u64;
    let scarce = Scarce::new(reserved + (18 << 20));
    let kept: Vec<Tensor> = (0..3u8).map(|at| part(at.into()).unwrap()).collect();
    // What is cached is freed for other sizes.
    let other = Tensor::full(&[(1 << 20) - (1 << 17)], 9.0, DType::F32, device).unwrap().evaluated().unwrap();
    drop(other);
    kept.first().unwrap().to_vec::<f32>().unwrap();
    let last = part(3.0).unwrap();
    let error = part(4.0).map(drop).unwrap_err();
    assert!(
        matches!(&error, Error::OutOfMemory { device, requested, .. }
            if device == "directml:0" && *requested == 4 << 20),
        "{error}"
    );
    for (tensor, value) in kept.iter().chain([&last]).zip(0u8..) {
        assert!(tensor.to_vec::<f32>().unwrap().iter().all(|&x| x == f32::from(value)));
    }
    drop(scarce);
    assert_eq!(part(4.0).unwrap().to_vec::<f32>().unwrap()[0], 4.0);
}

#[test]
fn tensors_are_spilled_when_the_device_is_full() {
    let (device, _turn) = device();
    device.empty_cache();
    device.set_spilling(true).unwrap();
    let _scarce = Scarce::new(device.memory().reserved as u64 + (18 << 20));
    let part = |value: f32| Tensor::full(&[1 << 20], value, DType::F32, device)?.evaluated();
    let kept: Vec<Tensor> = (0..10u8).map(|at| part(at.into()).unwrap()).collect();
    let now = device.memory();
    assert!((5..10).contains(&now.spilled_tensors), "{now:?}");
    for (tensor, value) in kept.iter().zip(0u8..) {
        assert!(tensor.to_vec::<f32>().unwrap().iter().all(|&x| x == f32::from(value)));
    }
    drop(kept);
    device.set_spilling(false).unwrap();
    assert_eq!(device.memory().spilled_tensors, 0);
}

#[test]
fn threads_share_routines_and_lists() {
    let (device, _turn) = device();
    let work = |number: usize| -> Result<()> {
        let numbers = |count: usize| (0..count).map(|at| (at * 7 % 11) as f32 - 5.0).collect::<Vec<f32>>();
        for round in 0..30 {
            let size = 8 + 8 * (number + round % 3);
            let [own, expected] = [device, reference_device()].map(|device| {
                let a = Tensor::from_slice(&numbers(size * 16), &[size, 16], device)?;
                let b = Tensor::from_slice(&numbers(16 * 8), &[16, 8], device)?;
                let product = a.matmul(&b)?;
                product.relu()?.matmul(&b.transpose(0, 1)?)?.sum(&[1], false)?.to_vec::<f32>()
            });
            assert_eq!(own?, expected?, "thread {number}");
        }
        Ok(())
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|number| scope.spawn(move || work(number % 2))).collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
    });
}

#[test]
fn steps_and_copies_are_timed_by_the_device() {
    let (device, _turn) = device();
    let x = Tensor::from_slice(&numbers(256 * 256), &[256, 256], device).unwrap().evaluated().unwrap();
    let mut sum = Tensor::zeros(&[4], DType::F32, device).unwrap().evaluated().unwrap();
    let profiler = Profiler::start(Detail::Timeline).unwrap();
    // More timestamps than are read together.
    for _ in 0..600 {
        sum = sum.add_scalar(1.0).unwrap();
        sum.evaluate().unwrap();
    }
    let product = x.matmul(&x).unwrap().to_vec::<f32>().unwrap();
    let profile = profiler.finish().unwrap();
    assert_eq!(sum.to_vec::<f32>().unwrap(), [600.0; 4]);
    assert_eq!(product.len(), 1 << 16);
    let rows: Vec<_> = profile.kernels().filter(|row| row.device == device.name()).collect();
    assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 601);
    assert!(rows.iter().all(|row| row.clock == Clock::Device), "{rows:?}");
    let of_device = profile.events.iter().filter(|event| *event.device == *device.name());
    let events: Vec<_> = of_device.filter(|event| event.track == Track::Kernels).collect();
    assert_eq!(events.len(), 601);
    assert!(events.windows(2).all(|pair| pair[0].start + pair[0].time <= pair[1].start));
    let [small, large] = [0, 600].map(|at| events[at].time);
    assert!(large > small, "{small:?} {large:?}");
}

/// Runs in a process of its own: the variable is read once.
#[test]
fn debugging_shows_steps_and_layers() {
    const NAME: &str = "debugging_shows_steps_and_layers";
    if env::var_os("RNN_GPU_DEBUG").is_some() {
        let (device, _turn) = device();
        let x = Tensor::from_slice(&numbers(64 * 64), &[64, 64], device).unwrap();
        assert_eq!(x.matmul(&x).unwrap().to_vec::<f32>().unwrap().len(), 4096);
        return;
    }
    let run = |value: &str| {
        let mut child = Command::new(env::current_exe().unwrap());
        let child = child.args(["--exact", NAME, "--nocapture"]).env("RNN_GPU_DEBUG", value);
        let output = child.output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{text}");
        text
    };
    let text = run("1");
    assert!(text.contains("RNN_GPU_DEBUG directml:0 kernel dot"), "{text}");
    // Unless it is there, one line tells what is missing.
    assert!(text.lines().filter(|line| line.contains("debug layer is missing")).count() <= 1, "{text}");
    assert!(!run("0").contains("RNN_GPU_DEBUG"));
}
