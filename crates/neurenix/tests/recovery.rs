//! What a device fails to compute, the CPU computes if recovery is on. One program, because strict mode, the setting and
//! the callback are process-wide.

#[path = "gpu/driver.rs"]
mod driver;
#[path = "gpu/training.rs"]
mod training;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, atomic::Ordering};

use phynexus::{
    DType, Device, Error, Result, Tensor,
    schedule::{
        placement::{Placement, observe, on_fallback, set_strict},
        recovery::{is_recovery, recovering, set_recovery},
    },
    tensor::Generator,
};

use driver::{Control, device};
use training::{Training, undisturbed};

static TURN: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The result of `work` with recovery, and what was reported.
fn recovered<T>(work: impl FnOnce() -> T) -> (T, Vec<Placement>) {
    observe(|| recovering(work))
}

fn is_close(found: &[Vec<f32>], expected: &[Vec<f32>]) -> bool {
    found.len() == expected.len()
        && found.iter().zip(expected).all(|(found, expected)| {
            found.len() == expected.len() && found.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-5)
        })
}

fn fails_next(control: &Control, kind: usize) {
    let counters = [&control.failing_allocation, &control.failing_launch, &control.failing_compilation];
    counters[kind].store(1, Ordering::SeqCst);
}

#[test]
fn a_training_step_survives_a_full_device_and_updates_once() -> neurenix::Result<()> {
    let _alone = alone();
    let expected = undisturbed("whole:0", 3)?;
    let (device, control) = device("full:0", true);
    let mut points = 0;
    loop {
        let mut training = Training::new(device)?;
        training.step()?;
        training.step()?;
        device.empty_cache();
        control.failing_allocation.store(points + 1, Ordering::SeqCst);
        let (result, told) = recovered(|| training.step());
        let fired = control.failing_allocation.swap(0, Ordering::SeqCst) == 0;
        // The device is still full: results are in host memory and are read there.
        result?;
        let values = training.values()?;
        assert!(is_close(&values, &expected), "at point {points}: {values:?}, not {expected:?}");
        assert_eq!(training.optimizer.steps(), 3);
        control.heal();
        if !fired {
            assert!(told.is_empty());
            break;
        }
        points += 1;
        assert!(told.iter().all(|p| (&*p.wanted, &*p.device) == ("full:0", "cpu")), "{told:?}");
        assert!(told.iter().any(|p| p.reason.contains("out of memory")), "{told:?}");
        // With room, training continues on the device.
        let launches = control.launches.load(Ordering::SeqCst);
        training.step()?;
        assert!(control.launches.load(Ordering::SeqCst) > launches);
        assert_eq!(device.memory().spilled_tensors, 0);
    }
    assert!(points > 5, "{points}");
    Ok(())
}

#[test]
fn a_step_that_has_begun_to_overwrite_is_not_repeated() -> neurenix::Result<()> {
    let _alone = alone();
    let expected = undisturbed("whole:1", 3)?;
    let (device, control) = device("begun:0", true);
    let mut errors = 0;
    for launch in 1.. {
        let mut training = Training::new(device)?;
        training.step()?;
        training.step()?;
        control.failing_launch.store(launch, Ordering::SeqCst);
        let (result, told) = recovered(|| training.step());
        let fired = control.failing_launch.swap(0, Ordering::SeqCst) == 0;
        match result {
            Ok(_) => {
                assert!(is_close(&training.values()?, &expected), "at launch {launch}");
                assert_eq!(told.is_empty(), !fired);
            }
            Err(error) => {
                errors += 1;
                assert!(told.is_empty() && error.to_string().contains("too many resources"), "{error}");
                // What was overwritten in part is neither read nor updated again.
                let lost = training.values().map(drop).unwrap_err().to_string();
                assert!(lost.contains("failed while it overwrote"), "{lost}");
                assert!(training.step().is_err());
            }
        }
        if !fired {
            break;
        }
    }
    assert!(errors > 0);
    Ok(())
}

#[test]
fn each_kind_of_failure_is_recovered_reported_and_over() -> Result<()> {
    let _alone = alone();
    let (device, control) = device("kinds:0", true);
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0, 4.0], &[2, 2], device)?;
    let compute = |x: &Tensor| x.matmul(x)?.cumsum(0)?.exp()?.log()?.to_vec::<f32>();
    let expected = [[7.0f32, 10.0, 22.0, 32.0]];
    for (kind, reason) in ["out of memory", "too many resources", "loading a kernel"].into_iter().enumerate()
    {
        // Another shape needs new kernels.
        let other = Tensor::ones(&[kind + 3, kind + 3], DType::F32, device)?.evaluated()?;
        device.empty_cache();
        fails_next(&control, kind);
        let (result, told) = recovered(|| compute(&other));
        control.heal();
        let (n, size) = (kind as f32 + 3.0, kind + 3);
        let sums: Vec<f32> = (0..size * size).map(|at| n * (at / size + 1) as f32).collect();
        assert!(is_close(&[result?], &[sums]), "{reason}");
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(told[0].reason.contains(reason) && told[0].step.contains("dot"), "{told:?}");

        // Without a failure the device computes.
        let (result, told) = recovered(|| compute(&x));
        assert!(told.is_empty() && is_close(&[result?], &[expected[0].to_vec()]));
    }
    Ok(())
}

#[test]
fn without_recovery_and_in_strict_mode_failures_are_errors() -> Result<()> {
    let _alone = alone();
    let (device, control) = device("strict:0", true);
    let x = Tensor::from_slice(&[1.0f32, 2.0], &[2], device)?;
    let compute = || {
        device.empty_cache();
        fails_next(&control, 0);
        let result = x.square()?.to_vec::<f32>();
        control.heal();
        result
    };
    assert!(matches!(compute(), Err(Error::OutOfMemory { .. })));
    set_recovery(true);
    assert!(is_recovery() && compute()? == [1.0, 4.0]);
    set_strict(true);
    let strict = [compute(), recovering(compute)];
    set_strict(false);
    set_recovery(false);
    assert!(strict.iter().all(|result| matches!(result, Err(Error::OutOfMemory { .. }))));
    assert!(!is_recovery() && recovering(is_recovery) && !is_recovery());
    // Nothing was lost.
    assert_eq!(x.square()?.to_vec::<f32>()?, [1.0, 4.0]);
    Ok(())
}

#[test]
fn a_lost_device_is_helped_if_the_host_has_the_operands() -> Result<()> {
    let _alone = alone();
    let (device, control) = device("gone:0", true);
    let before = Tensor::from_slice(&[1.0f32, 2.0], &[2], device)?;
    let kept = Tensor::from_slice(&[3.0f32, 5.0], &[2], Device::find("cpu")?)?;
    control.losing_launch.store(1, Ordering::SeqCst);
    // Its operand is lost with the device, so the error is the device's.
    let (result, told) = recovered(|| before.square()?.to_vec::<f32>());
    assert!(matches!(&result, Err(Error::Device { message, .. }) if message.contains("lost")), "{result:?}");
    assert!(told.is_empty());
    let (result, told) = recovered(|| -> Result<_> {
        let sum =
            kept.to_device(device)?.add(&Tensor::from_slice(&[1.0f32, 1.0], &[2], device)?)?.evaluated()?;
        // What was computed so is in host memory, and can be used again.
        Ok((sum.to_vec::<f32>()?, sum.mul_scalar(2)?.to_device(kept.device())?.to_vec::<f32>()?))
    });
    assert_eq!(result?, (vec![4.0, 6.0], vec![8.0, 12.0]));
    assert!(told.len() == 2 && told.iter().all(|p| p.wanted == "gone:0" && p.device == "cpu"), "{told:?}");
    Ok(())
}

/// Views of all kinds as operands and results, empty tensors, random numbers, several results.
#[test]
fn results_are_those_of_the_device_whatever_the_layout() -> Result<()> {
    let _alone = alone();
    let compute = |device: Device, prepare: &dyn Fn()| -> Result<Vec<Vec<f32>>> {
        let g = Generator::new(3);
        let a = g.randn(&[6, 5], DType::F32, device)?.evaluated()?;
        let turned = a.flip(&[0, 1])?.narrow(0, 1, 4)?.evaluated()?;
        let mask = a.gt(&a.t()?.reshape(&[6, 5])?)?.evaluated()?;
        let empty = a.narrow(0, 0, 0)?.evaluated()?;
        prepare();
        let results = [
            turned.t()?.add_scalar(1)?,
            a.t()?.narrow(1, 0, 4)?.matmul(&turned)?,
            g.rand(&[3, 4], DType::F32, device)?.add(&turned.narrow(0, 0, 3)?.narrow(1, 0, 4)?)?,
            mask.where_(&a, &a.neg()?)?,
            empty.exp()?,
            a.sum(&[0], false)?,
        ];
        Tensor::evaluate_all(&results.iter().collect::<Vec<_>>())?;
        results.iter().map(Tensor::to_vec).collect()
    };
    let (device, control) = device("views:0", true);
    let expected = compute(device, &|| ())?;
    for kind in 0..2 {
        let (found, told) = recovered(|| {
            compute(device, &|| {
                device.empty_cache();
                fails_next(&control, kind);
            })
        });
        control.heal();
        assert!(!told.is_empty());
        assert!(is_close(&found?, &expected));
    }
    Ok(())
}

#[test]
fn what_the_cpu_cannot_compute_is_the_error_of_the_device() -> Result<()> {
    let _alone = alone();
    let (device, control) = device("helpless:0", true);
    let x = Tensor::ones(&[3], DType::F32, device)?.evaluated()?;
    let bad = x.gather(0, &Tensor::from_slice(&[7.0f32], &[1], device)?.to_dtype(DType::I64)?)?;
    device.empty_cache();
    fails_next(&control, 0);
    let (result, told) = recovered(|| bad.to_vec::<f32>());
    control.heal();
    assert!(matches!(result, Err(Error::OutOfMemory { .. })) && told.is_empty(), "{result:?}");
    // The mistake itself is not a failure of the device.
    let (result, told) = recovered(|| bad.to_vec::<f32>());
    assert!(!matches!(result, Ok(_) | Err(Error::OutOfMemory { .. })) && told.is_empty(), "{result:?}");
    Ok(())
}

#[test]
fn the_callback_follows_the_computation_and_may_read_it() -> Result<()> {
    let _alone = alone();
    let (device, control) = device("told:0", true);
    let x = Tensor::from_slice(&[1.0f32, 3.0], &[2], device)?;
    let y = x.square()?;
    type Told = (Placement, Vec<f32>);
    let told: Arc<Mutex<Vec<Told>>> = Arc::default();
    let (notes, own) = (told.clone(), y.clone());
    on_fallback(Some(Arc::new(move |placement| {
        notes.lock().unwrap().push((placement.clone(), own.to_vec::<f32>().unwrap()));
    })));
    device.empty_cache();
    fails_next(&control, 1);
    let result = recovering(|| y.evaluate());
    on_fallback(None);
    result?;
    let told = told.lock().unwrap();
    assert!(told.len() == 1 && told[0].1 == [1.0, 9.0] && told[0].0.step == "elementwise", "{told:?}");
    Ok(())
}
