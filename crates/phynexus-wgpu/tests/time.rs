//! Profiles on the devices of this machine that support timestamps, such as lavapipe. There is one profiler per
//! process.

use std::{
    sync::{Mutex, PoisonError},
    time::Instant,
};

use phynexus::{
    DType, Device, Tensor,
    profile::{Clock, Detail, Profiler, Track},
};

static ALONE: Mutex<()> = Mutex::new(());

fn has_clock(device: &Device) -> bool {
    device.info().model.contains("llvmpipe")
}

#[test]
fn kernels_are_timed_by_the_device() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    phynexus_wgpu::register();
    for device in phynexus::device::devices().into_iter().filter(has_clock) {
        let ones = |side: usize| Tensor::full(&[side, side], 1.0, DType::F32, device).unwrap();
        let (small, large) = (ones(1), ones(256));
        let product = || large.matmul(&large).unwrap().to_vec::<f32>().unwrap();
        assert!(product().iter().all(|&x| x == 256.0));
        let profiler = Profiler::start(Detail::Timeline).unwrap();
        // More timestamps than the device can have in flight.
        let mut x = small.clone();
        for _ in 0..2500 {
            x = (&x + &small).unwrap();
            x.evaluate().unwrap();
        }
        assert_eq!(x.to_vec::<f32>().unwrap(), [2501.0]);
        product();
        let profile = profiler.finish().unwrap();
        let rows: Vec<_> = profile.kernels().filter(|row| row.device == device.name()).collect();
        assert_eq!(rows.iter().map(|row| row.count).sum::<u64>(), 2501);
        assert!(rows.iter().all(|row| row.clock == Clock::Device));
        let products = rows.iter().filter(|row| row.operations > 1 << 20);
        assert_eq!(products.map(|row| row.count).sum::<u64>(), 1, "{rows:?}");
        let events: Vec<_> = profile
            .events
            .iter()
            .filter(|e| e.track == Track::Kernels && *e.device == *device.name())
            .collect();
        assert_eq!(events.len(), 2501);
        assert!(events.windows(2).all(|pair| pair[0].start + pair[0].time <= pair[1].start));
    }
}

#[test]
fn copies_are_timed_by_the_device() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    phynexus_wgpu::register();
    for device in phynexus::device::devices().into_iter().filter(has_clock) {
        let values = vec![1.5f32; 1 << 20];
        let begun = Instant::now();
        let profiler = Profiler::start(Detail::Timeline).unwrap();
        for _ in 0..3 {
            let x = Tensor::from_slice(&values, &[values.len()], device).unwrap();
            assert_eq!(x.to_vec::<f32>().unwrap(), values);
        }
        let profile = profiler.finish().unwrap();
        let run = begun.elapsed();
        for name in ["copy to the device", "copy from the device"] {
            let row = profile.rows.iter().find(|row| row.device == device.name() && row.name == name);
            let row = row.unwrap_or_else(|| panic!("{name}"));
            assert_eq!((row.count, row.bytes, row.clock), (3, 3 * (4 << 20), Clock::Device));
            let events: Vec<_> =
                profile.events.iter().filter(|e| *e.device == *device.name() && *e.name == *name).collect();
            assert_eq!(events.len(), 3, "{events:?}");
            assert!(
                events.windows(2).all(|pair| pair[0].start + pair[0].time <= pair[1].start),
                "{events:?}"
            );
            assert!(events.iter().all(|event| event.start + event.time <= run), "{run:?} {events:?}");
        }
    }
}
