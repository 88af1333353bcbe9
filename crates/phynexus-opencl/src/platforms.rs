//! Finds the devices of all installed platforms.

use opencl3::{
    device::{CL_DEVICE_TYPE_ALL, get_device_ids},
    platform::platform::{CL_PLATFORM_NAME, get_platform_data, get_platform_ids},
};

use crate::{
    figures::{Figures, text},
    object::Code,
};

/// The reasons when OpenCL's loader is missing or finds no platform.
const NO_LOADER: &str = match cfg!(windows) {
    true => "OpenCL's loader (OpenCL.dll) is not installed: install the driver of your device",
    false => {
        "OpenCL's loader is not installed: install the driver of your device, or the package ocl-icd-libopencl1 \
         (Debian, Ubuntu) or ocl-icd (Fedora, Arch)"
    }
};
const NO_PLATFORM: &str = match cfg!(windows) {
    true => "OpenCL's loader is installed, but no platform: install the OpenCL driver of your device",
    false => {
        "OpenCL's loader is installed, but no platform: install the OpenCL driver of your device, or pocl-opencl-icd \
         for the processor"
    }
};
/// Error codes: the bindings' for a missing loader, and the loader's for a missing platform.
const LOADER_MISSING: i32 = -2000;
const PLATFORM_MISSING: i32 = -1001;

/// Every device of every platform.
pub(crate) fn platforms() -> Result<Vec<Figures>, String> {
    let platforms = get_platform_ids().map_err(|code| match code {
        LOADER_MISSING => NO_LOADER.to_owned(),
        PLATFORM_MISSING => NO_PLATFORM.to_owned(),
        code => format!("OpenCL does not start: {}", Code(code)),
    })?;
    let mut found = Vec::new();
    for &platform in &platforms {
        let name = text(&get_platform_data(platform, CL_PLATFORM_NAME).unwrap_or_default());
        // A platform without a device reports an error.
        let devices = get_device_ids(platform, CL_DEVICE_TYPE_ALL).unwrap_or_default();
        found.extend(devices.into_iter().map(|device| Figures { device, platform: name.clone() }));
    }
    match (found.is_empty(), platforms.is_empty()) {
        (false, _) => Ok(found),
        (true, true) => Err(NO_PLATFORM.to_owned()),
        (true, false) => Err("no installed OpenCL platform has a device".to_owned()),
    }
}
