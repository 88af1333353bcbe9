//! Which device computes.

use neurenix::phynexus::Device;

use crate::Result;

/// The device of this name; without one, the best real one: a GPU if there is one (that of `RNN_GPU_DEVICE`), else the CPU.
///
/// Asking for the CPU looks for no GPU.
pub(crate) fn find(name: Option<&str>) -> Result<Device> {
    match name {
        Some("cpu") => {
            neurenix::register_cpu();
            Ok(Device::find("cpu")?)
        }
        Some(name) => {
            neurenix::register_all();
            Ok(Device::find(name)?)
        }
        None => {
            neurenix::register_all();
            Ok(Device::default_device()?)
        }
    }
}

/// The CPU.
pub(crate) fn cpu() -> Result<Device> {
    find(Some("cpu"))
}
