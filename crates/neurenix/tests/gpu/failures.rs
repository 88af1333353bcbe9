//! Recoverable failures: the state that they leave, and the retries.

use std::{
    sync::{Arc, atomic::Ordering},
    thread,
    time::Duration,
};

use phynexus::{
    DType, Device, Error, Result, Tensor,
    profile::{Detail, Profiler, Track},
    schedule::capture::Captured,
    tensor::Generator,
};

use crate::driver::{Control, KERNEL_TIME, device};

fn numbers(count: usize, device: Device) -> Result<Tensor> {
    let values: Vec<f32> = (0..count).map(|i| (i % 7) as f32 - 3.0).collect();
    Tensor::from_slice(&values, &[count], device)
}

#[test]
fn a_failure_while_a_kernel_is_loaded_is_no_refusal() -> Result<()> {
    let (device, control) = device("loading:0", true);
    let x = numbers(64, device)?;
    control.failing_compilation.store(1, Ordering::SeqCst);
    let error = x.square()?.to_vec::<f32>().unwrap_err();
    assert!(matches!(&error, Error::Device { message, .. } if message.contains("loading")), "{error}");
    // The next attempt runs on the device.
    let plan = x.square()?.explain()?.expect("pending work").to_string();
    assert!(!plan.contains("on cpu"), "{plan}");
    let before = control.launches.load(Ordering::SeqCst);
    assert_eq!(x.square()?.to_vec::<f32>()?[..3], [9.0, 4.0, 1.0]);
    assert_eq!(control.launches.load(Ordering::SeqCst), before + 1);
    Ok(())
}

#[test]
fn a_failure_to_load_another_variant_is_not_kept() -> Result<()> {
    let (device, control) = device("loading:1", true);
    let x = numbers(4097, device)?;
    let first = |start: usize| x.narrow(0, start, 4096)?.square()?.to_vec::<f32>();
    assert_eq!(first(0)?[..3], [9.0, 4.0, 1.0]);
    // From the second element on, data is not aligned for vectors of four.
    control.failing_compilation.store(1, Ordering::SeqCst);
    let error = first(1).unwrap_err();
    assert!(matches!(error, Error::Device { .. }), "{error}");
    assert_eq!(first(1)?[..3], [4.0, 1.0, 0.0]);
    Ok(())
}

#[test]
fn what_the_pool_caches_makes_room_for_machine_code() -> Result<()> {
    let (device, control) = device("loading:2", true);
    let x = numbers(64, device)?;
    drop(numbers(1 << 14, device)?);
    assert!(device.memory().cached >= 1 << 16);
    control.room_for_code.store(1 << 12, Ordering::SeqCst);
    assert_eq!(x.square()?.to_vec::<f32>()?[..3], [9.0, 4.0, 1.0]);
    assert!(device.memory().reserved < 1 << 12);
    let held = numbers(1 << 14, device)?;
    let error = x.exp()?.to_vec::<f32>().unwrap_err();
    assert!(
        matches!(error, Error::OutOfMemory { requested: 4096, in_use, .. } if in_use > 1 << 16),
        "{error}"
    );
    drop(held);
    assert_eq!(x.exp()?.to_vec::<f32>()?[3], 1.0);
    Ok(())
}

/// Doubles in place, then sums in parts, which takes temporary memory.
fn doubled(given: &[Tensor], _: &[Tensor]) -> Result<Vec<Tensor>> {
    let doubled = given[0].mul_scalar(2)?;
    let sums = doubled.cumsum(1)?;
    let products = doubled.matmul(&doubled.t()?)?;
    let parts = doubled.mul(&doubled.flip(&[1])?)?.sum(&[1], false)?;
    Ok(vec![doubled, sums, products, parts])
}

/// Makes every allocation of a call fail, one after the other. Donated operands must be unchanged.
fn fails_whole(device: Device, control: &Control) -> Result<()> {
    let step = Captured::new(doubled);
    let fresh = || -> Result<Vec<Tensor>> {
        Ok(vec![numbers(1 << 15, device)?.reshape(&[2, 1 << 14])?.evaluated()?])
    };
    step.call(&mut fresh()?, &[])?;
    let expected = fresh()?[0].to_vec::<f32>()?;
    let (mut given, mut points) = (fresh()?, 0);
    loop {
        device.empty_cache();
        control.failing_allocation.store(points + 1, Ordering::SeqCst);
        let result = step.call(&mut given, &[]);
        let fired = control.failing_allocation.swap(0, Ordering::SeqCst) == 0;
        control.heal();
        if !fired {
            let twice: Vec<f32> = expected.iter().map(|x| 2.0 * x).collect();
            assert_eq!(result?[0].to_vec::<f32>()?, twice);
            break;
        }
        points += 1;
        assert!(matches!(result, Err(Error::OutOfMemory { .. })));
        assert_eq!(given[0].to_vec::<f32>()?, expected, "at point {points}");
    }
    // The results besides the in-place one, and temporary memory.
    assert!(points > 3, "{points}");
    Ok(())
}

#[test]
fn all_memory_is_taken_before_a_store_in_place() -> Result<()> {
    let (device, control) = device("whole:3", true);
    fails_whole(device, &control)
}

#[test]
fn all_memory_is_taken_before_a_store_in_place_of_a_profiled_step_too() -> Result<()> {
    let _alone = crate::profiles::alone();
    let (device, control) = device("whole:4", true);
    let profiler = Profiler::start(Detail::Timeline)?;
    fails_whole(device, &control)?;
    profiler.finish()?;
    Ok(())
}

#[test]
fn a_replay_that_fails_draws_no_random_numbers() -> Result<()> {
    let (device, control) = device("drawing:0", true);
    let generator = Arc::new(Generator::new(5));
    let own = generator.clone();
    let step = Captured::new(move |_: &[Tensor], kept: &[Tensor]| -> Result<Vec<Tensor>> {
        Ok(vec![kept[0].add(&own.rand(&[64], DType::F32, kept[0].device())?)?])
    });
    let kept = [numbers(64, device)?];
    step.call(&mut Vec::new(), &kept)?;
    let before = generator.state();
    let mut points = 0;
    loop {
        device.empty_cache();
        control.failing_allocation.store(points + 1, Ordering::SeqCst);
        let result = step.call(&mut Vec::new(), &kept);
        let fired = control.failing_allocation.swap(0, Ordering::SeqCst) == 0;
        control.heal();
        if !fired {
            result?;
            break;
        }
        points += 1;
        assert!(result.is_err());
        assert_eq!(generator.state(), before, "at point {points}");
    }
    assert!(points >= 2 && generator.state() != before, "{points}");
    Ok(())
}

#[test]
fn the_times_of_two_threads_are_those_of_their_kernels() -> Result<()> {
    const RUNS: u64 = 150;
    let _alone = crate::profiles::alone();
    let (device, control) = device("threads:0", true);
    let both = [numbers(64, device)?, numbers(64, device)?];
    for _ in 0..3 {
        let before = control.launches.load(Ordering::SeqCst);
        let profiler = Profiler::start(Detail::Timeline)?;
        thread::scope(|scope| {
            let threads: Vec<_> = both
                .iter()
                .map(|x| scope.spawn(|| (0..RUNS).try_for_each(|_| x.exp()?.cumsum(0)?.evaluate())))
                .collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("a thread that does not panic"))
        })?;
        let profile = profiler.finish()?;
        let launches = control.launches.load(Ordering::SeqCst) - before;
        let kernels: Vec<_> = profile
            .events
            .iter()
            .filter(|event| event.track == Track::Kernels && &*event.device == "threads:0")
            .collect();
        assert_eq!(kernels.len() as u64, launches);
        assert!(kernels.iter().all(|event| event.time == Duration::from_nanos(KERNEL_TIME)));
        assert!(kernels.windows(2).all(|pair| pair[0].start + pair[0].time <= pair[1].start));
        let rows: Vec<_> = profile.kernels().filter(|row| row.device == "threads:0").collect();
        let total: Duration = rows.iter().map(|row| row.time).sum();
        assert_eq!(total, Duration::from_nanos(launches * KERNEL_TIME));
        assert!(rows.iter().all(|row| row.most.as_nanos() % u128::from(KERNEL_TIME) == 0));
        // Every run of a step takes the same time.
        assert!(rows.iter().all(|row| row.least == row.most), "{rows:?}");
    }
    Ok(())
}
