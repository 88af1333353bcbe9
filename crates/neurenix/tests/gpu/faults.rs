//! Faults of a device: errors are typed, nothing else is damaged, and recoverable work is retried.

use std::sync::{Arc, Mutex, PoisonError, atomic::Ordering};

use phynexus::{
    DType, Device, Error, Result, Tensor,
    device::finish,
    profile::{Detail, Profiler},
    schedule::placement::on_fallback,
    tensor::Reduction,
};

use crate::{
    driver::{Control, TOTAL, device},
    training::{Training, undisturbed},
};

/// Makes each allocation of the third step fail, one after the other. Then the step succeeds.
fn fail_everywhere(device: Device, control: &Control, expected: &[Vec<f32>]) -> neurenix::Result<()> {
    let mut training = Training::new(device)?;
    training.step()?;
    training.step()?;
    let witness = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3], device)?;
    let before = training.values()?;
    let mut points = 0;
    loop {
        // An empty pool asks the driver for everything.
        device.empty_cache();
        let held = device.memory();
        control.failing_allocation.store(points + 1, Ordering::SeqCst);
        let result = training.step();
        let fired = control.failing_allocation.swap(0, Ordering::SeqCst) == 0;
        control.heal();
        if !fired {
            result?;
            break;
        }
        points += 1;
        let error = result.expect_err("a step without memory");
        assert!(matches!(error, neurenix::Error::Engine(Error::OutOfMemory { .. })), "{error}");
        let told = error.to_string();
        assert!(told.contains(device.name()) && told.contains(&TOTAL.to_string()), "{told}");
        device.empty_cache();
        let now = device.memory();
        assert_eq!((now.allocated, now.cached), (held.allocated, 0), "at point {points}");
        assert_eq!(witness.to_vec::<f32>()?, [1.0, 2.0, 3.0]);
        assert_eq!(training.values()?, before, "at point {points}");
        assert_eq!(training.optimizer.steps(), 2);
    }
    assert!(points > 5, "{points}");
    assert_eq!(training.values()?, expected);
    Ok(())
}

#[test]
fn an_allocation_may_fail_anywhere_in_a_step() -> neurenix::Result<()> {
    let expected = undisturbed("whole:0", 3)?;
    let (device, control) = device("scarce:0", true);
    fail_everywhere(device, &control, &expected)
}

/// Then steps are submitted one by one.
#[test]
fn an_allocation_may_fail_anywhere_in_a_profiled_step() -> neurenix::Result<()> {
    let _alone = crate::profiles::alone();
    let expected = undisturbed("whole:1", 3)?;
    let (device, control) = device("scarce:1", true);
    let profiler = Profiler::start(Detail::Timeline)?;
    fail_everywhere(device, &control, &expected)?;
    profiler.finish()?;
    Ok(())
}

#[test]
fn memory_that_comes_back_later_is_waited_for() -> Result<()> {
    let (device, control) = device("deferred:0", true);
    control.deferred.store(true, Ordering::SeqCst);
    control.capacity.store(9 << 10, Ordering::SeqCst);
    for _ in 0..4 {
        let x = Tensor::zeros(&[2048], DType::F32, device)?.evaluated()?;
        assert_eq!(x.to_vec::<f32>()?, [0.0; 2048]);
        // The next request has another size, which the cached block does not serve.
        drop(x);
        drop(Tensor::zeros(&[1500], DType::F32, device)?.evaluated()?);
    }
    let error = Tensor::zeros(&[4096], DType::F32, device)?.evaluated().unwrap_err();
    assert!(matches!(error, Error::OutOfMemory { requested: 16384, .. }), "{error}");
    assert!(error.to_string().contains("bytes free"), "{error}");
    Ok(())
}

#[test]
fn a_lost_device_is_an_error_and_the_others_go_on() -> neurenix::Result<()> {
    let (other, _) = device("survivor:0", true);
    let cpu = Device::find("cpu")?;
    let kept = [other, cpu].map(|d| Tensor::from_slice(&[4.0f32, 9.0], &[2], d));
    let mut losses = 0;
    for at in [1, 2, 5, 9] {
        let (device, control) = device(&format!("lost:{at}"), true);
        let mut training = Training::new(device)?;
        training.step()?;
        control.losing_launch.store(at, Ordering::SeqCst);
        let Err(error) = training.step() else { continue };
        losses += 1;
        let is_typed = |error: &Error| matches!(error, Error::Device { device: d, message } if d == device.name() && message.contains("lost"));
        assert!(matches!(&error, neurenix::Error::Engine(e) if is_typed(e)), "{error}");
        // Every use of it is an error, and nothing waits forever.
        for error in [
            training.inputs.to_vec::<f32>().unwrap_err(),
            device.synchronize().unwrap_err(),
            Tensor::zeros(&[3], DType::F32, device)?.add_scalar(1)?.to_vec::<f32>().unwrap_err(),
            training.inputs.to_device(cpu)?.to_vec::<f32>().unwrap_err(),
        ] {
            assert!(is_typed(&error), "{error}");
        }
        for tensor in &kept {
            let tensor = tensor.as_ref().map_err(Clone::clone)?;
            assert_eq!(tensor.sqrt()?.to_vec::<f32>()?, [2.0, 3.0]);
        }
        assert!(Training::new(other)?.step()?.is_finite());
    }
    assert!(losses >= 2, "{losses}");
    Ok(())
}

#[test]
fn a_failed_launch_is_an_error_and_the_next_may_succeed() -> Result<()> {
    let (device, control) = device("stumbling:0", true);
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2], device)?;
    let before = device.memory().allocated;
    for at in 1..=2 {
        control.failing_launch.store(at, Ordering::SeqCst);
        let result = x.matmul(&x)?.cumsum(0)?.to_vec::<f32>();
        let error = result.expect_err("a launch that fails");
        assert!(
            matches!(&error, Error::Device { message, .. } if message.contains("too many resources")),
            "{error}"
        );
        assert_eq!(device.memory().allocated, before);
        assert_eq!(x.to_vec::<f32>()?, [1.0, 2.0, 3.0, 4.0]);
    }
    control.heal();
    assert_eq!(x.matmul(&x)?.cumsum(0)?.to_vec::<f32>()?, [7.0, 10.0, 22.0, 32.0]);
    Ok(())
}

/// One test with a callback, which is process-wide.
#[test]
fn a_kernel_that_does_not_compile_is_planned_on_the_cpu() -> neurenix::Result<()> {
    let expected = undisturbed("whole:2", 2)?;
    let told: Arc<Mutex<Vec<String>>> = Arc::default();
    let notes = told.clone();
    on_fallback(Some(Arc::new(move |placement| {
        if placement.wanted == "picky:1" {
            let mut notes = notes.lock().unwrap_or_else(PoisonError::into_inner);
            notes.push(format!("{} on {}: {}", placement.step, placement.device, placement.reason));
        }
    })));
    let (device, control) = device("picky:1", true);
    *control.refused.lock().unwrap_or_else(PoisonError::into_inner) = Some("");
    let mut training = Training::new(device)?;
    training.step()?;
    training.step()?;
    on_fallback(None);
    let told = told.lock().unwrap_or_else(PoisonError::into_inner).join("\n");
    for part in ["dot on cpu: ", "gather on cpu: ", "elementwise", "syntax error in line 1"] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert_eq!(control.launches.load(Ordering::SeqCst), 0);
    for (found, expected) in training.values()?.iter().zip(&expected) {
        assert!(found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5), "{found:?} {expected:?}");
    }
    let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], device)?;
    let plan = x.exp()?.explain()?.expect("pending work");
    assert!(plan.to_string().contains("on cpu: ") && plan.to_string().contains("syntax error"), "{plan}");
    Ok(())
}

#[test]
fn tensors_on_different_devices_name_both_and_the_remedy() -> Result<()> {
    let (device, _) = device("apart:0", true);
    let a = Tensor::from_slice(&[1.0f32, 2.0], &[2], device)?;
    let b = Tensor::from_slice(&[1.0f32, 2.0], &[2], Device::find("cpu")?)?;
    let errors = [
        a.add(&b).unwrap_err(),
        a.mse_loss(&b, Reduction::Mean).unwrap_err(),
        Tensor::cat(&[&a, &b], 0).unwrap_err(),
        a.reshape(&[1, 2])?.matmul(&b.reshape(&[2, 1])?).unwrap_err(),
    ];
    for error in &errors {
        let told = error.to_string();
        assert!(matches!(error, Error::DeviceMismatch { .. }), "{told}");
        assert!(["apart:0", "cpu", "to_device"].iter().all(|part| told.contains(part)), "{told}");
    }
    assert_eq!(a.add(&b.to_device(device)?)?.to_vec::<f32>()?, [2.0, 4.0]);
    Ok(())
}

#[test]
fn unknown_devices_are_told_with_those_there_are() {
    neurenix::register_all();
    let (named, _) = device("named:0", true);
    for name in ["", "apart:7", "named:x", "named:1", "nonsense", "gpu:77"] {
        let error = Device::find(name).unwrap_err();
        let told = error.to_string();
        assert!(matches!(error, Error::UnknownDevice { .. }), "{told}");
        assert!(told.contains("found here: ") && !told.contains("did you mean"), "{told}");
    }
    let rules = [("gpu:77", "such as \"cuda:0\""), ("named:-1", "devices are counted from 0")];
    for (name, rule) in rules {
        let told = Device::find(name).unwrap_err().to_string();
        assert!(told.contains(rule) && !told.contains("did you mean"), "{told}");
    }
    // As in PyTorch; the printed form has only the name.
    for (name, expected) in [("cpu:0", Device::find("cpu").unwrap()), ("named", named)] {
        let found = Device::find(name).unwrap();
        assert_eq!((found, found.name()), (expected, expected.name()));
    }
    for name in ["NAMED:0", "Named", "named0", "named-0", " named:0", "named 00"] {
        let told = Device::find(name).unwrap_err().to_string();
        assert!(told.contains("did you mean \"named:0\"? found here: "), "{told}");
    }
    for (name, meant) in [("CPU", "cpu"), ("host", "cpu"), ("nvidia:1", "cuda:1"), ("rocm", "hip:0")] {
        let told = Device::find(name).unwrap_err().to_string();
        assert!(
            told.contains(&format!("did you mean {meant:?}?")) && told.contains("found here: "),
            "{told}"
        );
    }
}

#[test]
fn the_end_waits_for_every_device_and_tells_nothing() {
    let (_, lost) = device("ending:0", true);
    let (_, sound) = device("ending:1", true);
    lost.lost.store(true, Ordering::SeqCst);
    finish();
    assert_eq!([&lost, &sound].map(|control| control.waits.load(Ordering::SeqCst)), [1, 1]);
}
