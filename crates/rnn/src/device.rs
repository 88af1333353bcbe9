//! The choice of a device.

use neurenix::phynexus::Device;

use crate::Result;

/// The device of this name, or the default: that of `RNN_GPU_DEVICE`, else a GPU if there is one, else the CPU. The
/// name `cpu` avoids a search for GPUs.
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

/// Why an interface to devices or a compiler is missing. If this program was built without it, names the feature to
/// enable.
pub(crate) fn explained(family: &str, reason: String) -> String {
    let (feature, is_on) = match family {
        "cuda" => ("cuda", cfg!(feature = "cuda")),
        "hip" | "rocm" => ("rocm", cfg!(feature = "rocm")),
        "directml" => ("directml", cfg!(feature = "directml")),
        "opencl" => ("opencl", cfg!(feature = "opencl")),
        "vulkan" | "metal" | "dx12" | "wgsl" => ("gpu", cfg!(feature = "gpu")),
        _ => return reason,
    };
    match is_on || !reason.starts_with("this program was built without") {
        true => reason,
        false => format!("this program was built without it: enable the feature {feature} of the crate rnn"),
    }
}
