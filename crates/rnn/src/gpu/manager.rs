//! The devices of this machine.

use std::collections::HashMap;

use neurenix::phynexus::{Device, device, device::DeviceNature};
use serde::{Deserialize, Serialize};

use super::{ByteCount, GpuContext};
use crate::{NetworkError, Result, device::explained};

/// The interface through which a device is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum GpuDeviceType {
    /// NVIDIA GPUs, through CUDA.
    Cuda,
    /// OpenCL devices.
    OpenCL,
    /// AMD GPUs, through HIP.
    ROCm,
    /// Apple GPUs, through Metal.
    Metal,
    /// Vulkan devices.
    Vulkan,
    /// DirectX 12 devices.
    DirectX12,
    /// Windows GPUs through DirectML.
    DirectML,
    /// The CPU.
    Generic,
}

impl GpuDeviceType {
    /// The type of a device by its name in the engine, such as `cuda:0`.
    fn of(name: &str) -> GpuDeviceType {
        match name.split(':').next().unwrap_or(name) {
            "cuda" => GpuDeviceType::Cuda,
            "opencl" => GpuDeviceType::OpenCL,
            "hip" => GpuDeviceType::ROCm,
            "metal" => GpuDeviceType::Metal,
            "vulkan" => GpuDeviceType::Vulkan,
            "dx12" => GpuDeviceType::DirectX12,
            "directml" => GpuDeviceType::DirectML,
            _ => GpuDeviceType::Generic,
        }
    }
}

/// A device, as its driver reports it. Values that the driver does not report are absent, or 0 bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuDevice {
    /// The device's number, for [`GpuManager::create_context`].
    pub id: usize,
    /// The vendor's name of the model.
    pub name: String,
    /// The name in the engine, such as `cuda:0`, for [`NetworkBuilder::device`](crate::NetworkBuilder::device) and
    /// `RNN_GPU_DEVICE`.
    pub engine_name: String,
    /// The device's memory; 0 if the driver does not report it.
    pub total_memory: ByteCount,
    /// The free memory; 0 if the driver does not report it.
    pub available_memory: ByteCount,
    /// The compute capability of NVIDIA GPUs; absent for others.
    pub compute_capability: Option<(u32, u32)>,
    /// The number of multiprocessors, compute units or cores.
    pub multiprocessor_count: Option<usize>,
    /// The maximum number of invocations in a group; absent for the CPU.
    pub max_threads_per_block: Option<usize>,
    /// The interface.
    pub device_type: GpuDeviceType,
    /// Other information from the driver: versions, instruction sets.
    pub features: Vec<String>,
    /// True for software emulators of GPUs, which are never chosen by default.
    pub is_emulated: bool,
}

impl GpuDevice {
    fn of(id: usize, device: Device) -> GpuDevice {
        let (info, memory) = (device.info(), device.memory());
        let total = info.total_memory.or(memory.total).unwrap_or(0);
        let version = info.features.iter().find_map(|feature| feature.strip_prefix("compute capability "));
        let compute_capability = version.and_then(|version| {
            let (major, minor) = version.split_once('.')?;
            Some((major.parse().ok()?, minor.parse().ok()?))
        });
        GpuDevice {
            id,
            name: info.model,
            engine_name: device.name().to_owned(),
            total_memory: ByteCount(total),
            available_memory: ByteCount(memory.available.unwrap_or(0)),
            compute_capability,
            multiprocessor_count: info.compute_units,
            max_threads_per_block: device.backend().target().map(|target| target.limits.block_size),
            device_type: GpuDeviceType::of(device.name()),
            features: info.features,
            is_emulated: info.nature == DeviceNature::Emulator,
        }
    }

    /// True if the device exists on this machine. That is so for all devices of [`GpuManager::devices`].
    pub fn is_available(&self) -> bool {
        self.engine().is_ok()
    }

    /// The engine's device.
    pub(crate) fn engine(&self) -> Result<Device> {
        Ok(Device::find(&self.engine_name)?)
    }
}

/// Lists the devices of this machine, and holds their contexts.
pub struct GpuManager {
    devices: Vec<GpuDevice>,
    /// False if `RNN_GPU_DEVICE` names a missing device. Otherwise the first device is the default.
    has_default: bool,
    contexts: HashMap<usize, GpuContext>,
}

impl Default for GpuManager {
    fn default() -> GpuManager {
        GpuManager::new()
    }
}

impl GpuManager {
    /// Finds all devices, with the CPU among them. Number 0 is the default device.
    pub fn new() -> GpuManager {
        neurenix::register_all();
        let mut found = device::devices();
        let best = Device::default_device().ok();
        // A fixed order: GPUs before the CPU, emulators last.
        let rank = |device: &Device| match device.info().nature {
            _ if Some(*device) == best => 0,
            DeviceNature::Hardware => 1,
            DeviceNature::HostCpu => 2,
            DeviceNature::Emulator => 3,
        };
        found.sort_by_key(rank);
        let devices = found.into_iter().enumerate().map(|(id, device)| GpuDevice::of(id, device)).collect();
        GpuManager { devices, has_default: best.is_some(), contexts: HashMap::new() }
    }

    /// All devices.
    pub fn devices(&self) -> &[GpuDevice] {
        &self.devices
    }

    /// The default device of networks: that of `RNN_GPU_DEVICE`, else a GPU if there is one, else the CPU. `None` only
    /// if that variable names a missing device.
    pub fn default_device(&self) -> Option<GpuDevice> {
        self.devices.first().filter(|_| self.has_default).cloned()
    }

    /// The context of a device. The first call creates it.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn create_context(&mut self, device_id: usize) -> Result<&mut GpuContext> {
        let count = self.devices.len();
        let Some(device) = self.devices.get(device_id) else {
            let reason = format!("use a device from 0 to {}: see devices()", count.saturating_sub(1));
            return Err(NetworkError::invalid_parameter("device id", device_id, reason));
        };
        let engine = device.engine()?;
        Ok(self.contexts.entry(device_id).or_insert_with(|| GpuContext::new(device_id, engine)))
    }

    /// True if there is a GPU; emulators do not count.
    pub fn is_gpu_available() -> bool {
        neurenix::register_all();
        device::devices().iter().any(|device| device.info().nature == DeviceNature::Hardware)
    }

    /// True if there is an NVIDIA GPU with CUDA.
    pub fn is_cuda_available() -> bool {
        neurenix::register_all();
        device::devices().iter().any(|device| GpuDeviceType::of(device.name()) == GpuDeviceType::Cuda)
    }

    /// The interfaces without a device on this machine, each with the reason.
    pub fn missing() -> Vec<(String, String)> {
        neurenix::register_all();
        let told = |device::Missing { kind, reason }| {
            let reason = explained(&kind, reason);
            (kind, reason)
        };
        device::missing().into_iter().map(told).collect()
    }
}
