//! A batch size for each device. `cargo run --release -p rnn --example batch_size`

use rnn::{GpuDevice, GpuDeviceType, GpuManager};

fn batch_size(device: &GpuDevice) -> usize {
    match device.device_type {
        GpuDeviceType::Cuda if device.total_memory > 8 * 1024 * 1024 * 1024 => 256,
        GpuDeviceType::Cuda => 128,
        GpuDeviceType::OpenCL => 64,
        _ => 32,
    }
}

fn main() {
    for device in GpuManager::new().devices() {
        println!("{}: batches of {}", device.name, batch_size(device));
    }
    for (family, reason) in GpuManager::missing() {
        println!("no {family}: {reason}");
    }
}
