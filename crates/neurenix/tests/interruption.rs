//! A wait for a device is ended from outside; what the device computes stays right.

use phynexus::{Device, Error, Tensor, device::devices, interrupt::watch};

const SIDE: usize = 1024;

/// A square matrix of one number.
fn matrix(value: f32, device: Device) -> Tensor {
    Tensor::from_slice(&vec![value; SIDE * SIDE], &[SIDE, SIDE], device).unwrap()
}

/// The devices that work while the host goes on.
fn with_queues() -> Vec<Device> {
    neurenix::register_all();
    devices().into_iter().filter(|device| device.name() != "cpu").collect()
}

/// Whether something that waits for a device which has much to do is ended.
fn is_ended(device: Device, wait: impl Fn(&Tensor) -> Result<(), Error>) -> bool {
    let factor = matrix(1.0 / SIDE as f32, device);
    let mut product = matrix(1.0, device);
    // As many products as make the wait long enough. Doubling keeps the test short where the host is slow, too.
    let is_ended = (0..13).any(|exponent| {
        for _ in 0..1 << exponent {
            product = product.matmul(&factor).unwrap();
            product.evaluate().unwrap();
        }
        let _watch = watch(|| true);
        matches!(wait(&product), Err(Error::Interrupted))
    });
    // What is not ended waits to the end.
    let watch = watch(|| false);
    device.synchronize().unwrap();
    drop(watch);
    assert_eq!(product.to_vec::<f32>().unwrap(), vec![1.0; SIDE * SIDE], "{device}");
    is_ended
}

#[test]
fn a_wait_for_a_device_is_ended() {
    for device in with_queues() {
        assert!(is_ended(device, |_| device.synchronize()), "{device}");
    }
}

#[test]
fn a_wait_for_what_a_device_computes_is_ended() {
    for device in with_queues() {
        assert!(is_ended(device, |product| product.to_vec::<f32>().map(drop)), "{device}");
    }
}

#[test]
fn a_write_that_waits_for_a_device_is_ended() {
    let numbers = vec![2.0f32; SIDE * SIDE];
    // Others do not wait with it.
    for device in with_queues().into_iter().filter(|device| device.name().starts_with("opencl")) {
        let write = || Tensor::from_slice(&numbers, &[SIDE, SIDE], device);
        assert!(is_ended(device, |_| write().map(drop)), "{device}");
        assert_eq!(write().unwrap().to_vec::<f32>().unwrap(), numbers, "{device}");
    }
}
