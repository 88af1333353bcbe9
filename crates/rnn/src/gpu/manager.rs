//! The machine's devices.

use std::collections::HashMap;

use neurenix::phynexus::{Device, device, device::DeviceNature};
use serde::{Deserialize, Serialize};

use super::{ByteCount, GpuContext};
use crate::{NetworkError, Result, device::explained};

/// The family that a device is reached through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum GpuDeviceType {
    /// NVIDIA's, through CUDA.
    Cuda,
    /// Any through OpenCL.
    OpenCL,
    /// AMD's, through HIP.
    ROCm,
    /// Apple's, through Metal.
    Metal,
    /// Any through Vulkan.
    Vulkan,
    /// Any through DirectX 12.
    DirectX12,
    /// The CPU.
    Generic,
}

impl GpuDeviceType {
    /// From the engine's name of a device: `cuda:0`.
    fn of(name: &str) -> GpuDeviceType {
        match name.split(':').next().unwrap_or(name) {
            "cuda" => GpuDeviceType::Cuda,
            "opencl" => GpuDeviceType::OpenCL,
            "hip" => GpuDeviceType::ROCm,
            "metal" => GpuDeviceType::Metal,
            "vulkan" => GpuDeviceType::Vulkan,
            "dx12" => GpuDeviceType::DirectX12,
            _ => GpuDeviceType::Generic,
        }
    }
}

/// A device, by what its driver tells. A figure that it does not tell is absent, or 0 bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GpuDevice {
    /// Its number, for [`GpuManager::create_context`].
    pub id: usize,
    /// The model as the vendor names it.
    pub name: String,
    /// The engine's name, for [`NetworkBuilder::device`](crate::NetworkBuilder::device) and `RNN_GPU_DEVICE`: `cuda:0`.
    pub engine_name: String,
    /// Its memory; 0 if the driver does not tell.
    pub total_memory: ByteCount,
    /// The memory that nobody has; 0 if the driver does not tell.
    pub available_memory: ByteCount,
    /// NVIDIA's figure of what its hardware can do; absent for others.
    pub compute_capability: Option<(u32, u32)>,
    /// Multiprocessors, compute units or cores.
    pub multiprocessor_count: Option<usize>,
    /// Invocations of a group of a kernel, at most; absent for the CPU.
    pub max_threads_per_block: Option<usize>,
    /// The family.
    pub device_type: GpuDeviceType,
    /// What the driver says besides: versions, instruction sets.
    pub features: Vec<String>,
    /// True for software that behaves like a GPU, which is never chosen by itself.
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

    /// True if it is there, as all that [`GpuManager::devices`] lists are: a description may come from elsewhere.
    pub fn is_available(&self) -> bool {
        self.engine().is_ok()
    }

    /// The engine's device.
    pub(crate) fn engine(&self) -> Result<Device> {
        Ok(Device::find(&self.engine_name)?)
    }
}

/// Knows the devices of this machine, and holds a context for each one asked for.
pub struct GpuManager {
    devices: Vec<GpuDevice>,
    /// Whether the first one is the default; it is not if `RNN_GPU_DEVICE` names one that is not there.
    has_default: bool,
    contexts: HashMap<usize, GpuContext>,
}

impl Default for GpuManager {
    fn default() -> GpuManager {
        GpuManager::new()
    }
}

impl GpuManager {
    /// Looks for devices. The CPU is always there; numbers begin at 0 with the default device.
    pub fn new() -> GpuManager {
        neurenix::register_all();
        let mut found = device::devices();
        let best = Device::default_device().ok();
        // GPUs before the CPU, software devices last: numbers stay as they are from run to run.
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

    /// All devices, never none.
    pub fn devices(&self) -> &[GpuDevice] {
        &self.devices
    }

    /// The device that networks compute on by themselves: a GPU if there is one (that of `RNN_GPU_DEVICE`), else the CPU.
    /// None only if that variable names a device that is not there.
    pub fn default_device(&self) -> Option<GpuDevice> {
        self.devices.first().filter(|_| self.has_default).cloned()
    }

    /// The context of a device, made when it is first asked for.
    ///
    /// # Errors
    /// If there is no such device.
    pub fn create_context(&mut self, device_id: usize) -> Result<&mut GpuContext> {
        let count = self.devices.len();
        let Some(device) = self.devices.get(device_id) else {
            let reason = format!("there are devices 0 to {}: see devices()", count.saturating_sub(1));
            return Err(NetworkError::invalid_parameter("device id", device_id, reason));
        };
        let engine = device.engine()?;
        Ok(self.contexts.entry(device_id).or_insert_with(|| GpuContext::new(device_id, engine)))
    }

    /// True if there is a GPU, other than software that behaves like one.
    pub fn is_gpu_available() -> bool {
        neurenix::register_all();
        device::devices().iter().any(|device| device.info().nature == DeviceNature::Hardware)
    }

    /// True if there is a GPU of NVIDIA's with CUDA.
    pub fn is_cuda_available() -> bool {
        neurenix::register_all();
        device::devices().iter().any(|device| GpuDeviceType::of(device.name()) == GpuDeviceType::Cuda)
    }

    /// Why families of devices are not there: the family and the reason.
    pub fn missing() -> Vec<(String, String)> {
        neurenix::register_all();
        let told = |device::Missing { kind, reason }| {
            let reason = explained(&kind, reason);
            (kind, reason)
        };
        device::missing().into_iter().map(told).collect()
    }
}
