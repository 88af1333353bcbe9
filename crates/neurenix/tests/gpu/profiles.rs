//! The profile of a known computation.

use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use phynexus::{
    DType, Device, Result, Tensor,
    profile::{Clock, Detail, PeakOrigin, Phase, Profile, Profiler, Track},
};
use serde_json::Value;

use crate::driver::{KERNEL_TIME, device};

/// A process has only one profiler.
pub(crate) fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A step's name, bytes and operations.
type Explained = (String, u64, u64);

/// Profiles `runs` runs of a product with a fused function and a sum over its rows. Returns the plan's steps as
/// explained.
fn profiled(device: Device, detail: Detail, runs: usize) -> Result<(Profile, Vec<Explained>)> {
    let a = Tensor::from_slice(&[0.5f32; 12], &[3, 4], device)?;
    let b = Tensor::from_slice(&[0.25f32; 20], &[4, 5], device)?;
    let result = || a.matmul(&b)?.exp()?.softmax(-1);
    let plan = result()?.explain()?.expect("pending work");
    let explained = plan
        .summaries()
        .into_iter()
        .map(|s| (format!("{} {}", s.name, s.detail), (s.bytes_read + s.bytes_written) as u64, s.operations));
    let explained = explained.collect();
    let profiler = Profiler::start(detail)?;
    for _ in 0..runs {
        let values = result()?.to_vec::<f32>()?;
        assert!(values.iter().all(|x| (x - 0.2).abs() < 1e-5));
    }
    Ok((profiler.finish()?, explained))
}

fn check_rows(profile: &Profile, device: &str, runs: u64, explained: &[Explained], clock: Clock) {
    let rows: Vec<_> = profile.kernels().filter(|row| row.device == device).collect();
    assert_eq!(rows.len(), explained.len());
    for (name, bytes, operations) in explained {
        let row = rows.iter().find(|row| row.name == *name).expect(name);
        assert_eq!((row.count, row.bytes, row.operations), (runs, runs * bytes, runs * operations));
        assert_eq!(row.clock, clock);
        assert!(row.least <= row.mean() && row.mean() <= row.most && row.most <= row.time);
    }
}

#[test]
fn counts_and_bytes_are_those_of_the_plan() -> Result<()> {
    let _alone = alone();
    for (number, (has_clock, detail, clock)) in [
        (true, Detail::Timeline, Clock::Device),
        (false, Detail::Timeline, Clock::Host),
        (true, Detail::Counts, Clock::Host),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("counted:{number}");
        let (device, _) = device(&name, has_clock);
        let (profile, explained) = profiled(device, detail, 3)?;
        assert!(explained.len() > 1, "{explained:?}");
        check_rows(&profile, &name, 3, &explained, clock);
        assert_eq!(profile.events.is_empty(), detail == Detail::Counts);
    }
    // On the CPU too.
    let (profile, explained) = profiled(Device::find("cpu")?, Detail::Timeline, 2)?;
    check_rows(&profile, "cpu", 2, &explained, Clock::Host);
    Ok(())
}

#[test]
fn the_devices_clock_is_told() -> Result<()> {
    let _alone = alone();
    let (device, control) = device("clock:0", true);
    let before = control.launches.load(std::sync::atomic::Ordering::SeqCst);
    let (profile, _) = profiled(device, Detail::Timeline, 4)?;
    let launches = control.launches.load(std::sync::atomic::Ordering::SeqCst) - before;
    let kernels: Vec<_> =
        profile.events.iter().filter(|e| e.track == Track::Kernels && &*e.device == "clock:0").collect();
    assert_eq!(kernels.len() as u64, launches);
    assert!(kernels.iter().all(|e| e.time == Duration::from_nanos(KERNEL_TIME) && !e.detail.is_empty()));
    // One after the other.
    assert!(kernels.windows(2).all(|pair| pair[0].start + pair[0].time <= pair[1].start));
    // Other tests' devices are in the profile too.
    let rows = || profile.rows.iter().filter(|row| row.device == "clock:0");
    let total: Duration = rows().filter(|row| row.track == Track::Kernels).map(|row| row.time).sum();
    assert_eq!(total, Duration::from_nanos(launches * KERNEL_TIME));
    // A result of 15 floats is read four times; the driver copies a byte a nanosecond.
    let read = rows().find(|row| row.name == "copy from the device").expect("transfers");
    assert_eq!((read.count, read.bytes, read.clock), (4, 4 * 60, Clock::Device));
    assert_eq!(read.time, Duration::from_nanos(4 * 60));
    assert!((read.bytes_per_second().unwrap() - 1e9).abs() < 1.0);
    // The roofline: one byte and two operations per nanosecond.
    let row = rows().find(|row| row.track == Track::Kernels).expect("kernels");
    let least = (row.bytes as f64).max(row.operations as f64 / 2.0);
    let share = row.roofline(&profile.peaks(row)).expect("known peaks");
    assert!((share - least / row.time.as_nanos() as f64).abs() < 1e-9);
    let told = profile.devices.iter().find(|d| d.device == device).expect("the device");
    assert_eq!(told.origin, PeakOrigin::Specification);
    Ok(())
}

#[test]
fn the_trace_is_json_with_a_track_for_everything() -> Result<()> {
    let _alone = alone();
    let (device, _) = device("trace:0", true);
    let (profile, explained) = profiled(device, Detail::Timeline, 2)?;
    let trace: Value = serde_json::from_str(&profile.chrome_trace()).expect("valid JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let named = |kind: &str, name: &str| {
        events.iter().find(|e| e["ph"] == "M" && e["name"] == kind && e["args"]["name"] == name).cloned()
    };
    let process = named("process_name", "trace:0").expect("the device's process")["pid"].clone();
    assert!(named("process_name", "host").is_some());
    let tracks: Vec<&str> = events
        .iter()
        .filter(|e| e["ph"] == "M" && e["name"] == "thread_name" && e["pid"] == process)
        .filter_map(|e| e["args"]["name"].as_str())
        .collect();
    assert_eq!(tracks.len(), 2, "{tracks:?}");
    assert!(tracks.contains(&"kernels") && tracks.contains(&"transfers"), "{tracks:?}");
    let complete: Vec<&Value> = events.iter().filter(|e| e["ph"] == "X").collect();
    assert_eq!(complete.len(), profile.events.len());
    assert!(complete.iter().all(|e| e["ts"].as_f64() >= Some(0.0) && e["dur"].as_f64() >= Some(0.0)));
    let counters: Vec<&Value> = events.iter().filter(|e| e["ph"] == "C" && e["pid"] == process).collect();
    assert!(counters.iter().any(|e| e["args"]["allocated"].as_u64() > Some(0)));
    for phase in [Phase::Recording, Phase::Evaluating, Phase::Submitting, Phase::Waiting] {
        assert!(complete.iter().any(|e| e["name"] == phase.name()), "{phase:?}");
        assert!(profile.host.iter().any(|row| row.phase == phase && row.count > 0), "{phase:?}");
    }
    let table = profile.to_string();
    assert!(explained.iter().all(|(name, ..)| table.contains(name)), "{table}");
    assert!(table.contains("copy from the device"), "{table}");
    Ok(())
}

#[test]
fn planning_and_compiling_are_told_when_they_happen() -> Result<()> {
    let _alone = alone();
    let (device, _) = device("planned:0", true);
    let x = Tensor::from_slice(&[1.0f32, 2.0, 3.0], &[3], device)?;
    let profiler = Profiler::start(Detail::Timeline)?;
    x.log()?.sum(&[], false)?.item::<f32>()?;
    let profile = profiler.finish()?;
    let count = |phase| profile.host.iter().find(|row| row.phase == phase).map_or(0, |row| row.count);
    assert!(count(Phase::Planning) >= 1 && count(Phase::Compiling) >= 1, "{:?}", profile.host);
    Ok(())
}

#[test]
fn there_is_one_profiler_and_its_end_is_its_end() -> Result<()> {
    let _alone = alone();
    let (device, _) = device("single:0", true);
    let first = Profiler::start(Detail::Counts)?;
    let refused = Profiler::start(Detail::Counts).unwrap_err();
    assert!(refused.to_string().contains("another profiler is running"), "{refused}");
    drop(first);
    let (profile, _) = profiled(device, Detail::Timeline, 1)?;
    assert!(profile.kernels().any(|row| row.device == "single:0"));
    // Work that ran without a profiler is not in the next profile.
    let x = Tensor::full(&[4], 2.0, DType::F32, device)?.evaluated()?;
    x.sqrt()?.to_vec::<f32>()?;
    let empty = Profiler::start(Detail::Timeline)?.finish()?;
    assert!(!empty.kernels().any(|row| row.device == "single:0"));
    Ok(())
}

#[test]
fn peaks_that_nobody_tells_are_measured() -> Result<()> {
    let _alone = alone();
    neurenix::register_all();
    let (mut profile, _) = profiled(Device::find("cpu")?, Detail::Timeline, 1)?;
    let row = profile.kernels().find(|row| row.device == "cpu").expect("kernels").clone();
    assert_eq!(row.roofline(&profile.peaks(&row)), None);
    profile.measure_peaks()?;
    let peaks = profile.peaks(&row);
    assert!(peaks.bytes.is_some_and(|b| b > 1e8) && peaks.operations.is_some_and(|o| o > 1e8), "{peaks:?}");
    assert!(row.roofline(&peaks).is_some_and(|share| share > 0.0));
    assert!(profile.to_string().contains("as measured"));
    Ok(())
}
