//! The devices of providers, and what their providers are told.

use std::{
    ffi::{CStr, CString, c_char},
    path::PathBuf,
    ptr,
};

use ort::{AsPointer, device::Device as OrtDevice, memory::DeviceType, session::builder::SessionBuilder};
use phynexus::device::DeviceNature;

use super::{KIND, environment::Environment};
use crate::{Options, Properties, cache};

/// What the names of providers end in.
pub(super) const SUFFIX: &str = "ExecutionProvider";
pub(super) const QNN: &str = "QNNExecutionProvider";
pub(super) const OPENVINO: &str = "OpenVINOExecutionProvider";
const CORE_ML: &str = "CoreMLExecutionProvider";

/// The SoC that the HTP emulator stands for: Qualcomm's number of the SM8750, with Hexagon v79 and 8 MiB of VTCM.
/// Without a SoC, the emulator has no FP16 and too little memory for some operators.
const EMULATED_SOC: [(&str, &str); 2] = [("soc_model", "69"), ("vtcm_mb", "8")];
const EMULATED_ARCHITECTURE: &str = "v79";

/// A device of a provider.
#[derive(Clone, Debug)]
pub(super) struct Provider {
    /// The provider's name.
    pub(super) name: String,
    /// Which of the provider's devices in the environment; `None` for a provider that is built in.
    device: Option<usize>,
    /// The folder of the plug-in.
    folder: Option<PathBuf>,
    /// Changes when the plug-in or its compiler are replaced: versions of compilers are not told.
    pub(super) stamp: String,
    pub(super) properties: Properties,
}

/// A provider's name without [`SUFFIX`].
pub(super) fn short(name: &str) -> &str {
    name.strip_suffix(SUFFIX).unwrap_or(name)
}

/// The devices of all providers that compute on NPUs or emulate them, or compile networks for the host's CPU. An error
/// is a device that cannot be used, with the reason.
pub(super) fn all(environment: &Environment) -> Vec<Result<Provider, (String, String)>> {
    let mut counts: Vec<(String, usize)> = Vec::new();
    let mut found = Vec::new();
    for device in environment.ort.devices() {
        let Ok(name) = device.ep() else { continue };
        let at = match counts.iter_mut().find(|(known, _)| known == name) {
            Some((_, count)) => {
                *count += 1;
                *count
            }
            None => {
                counts.push((name.to_owned(), 0));
                0
            }
        };
        // ONNX Runtime's own provider runs nodes one by one on the CPU, as the engine does.
        if name != "CPUExecutionProvider" && device.hardware_device().ty() != DeviceType::GPU {
            found.push(describe(environment, &device, name, at));
        }
    }
    found.extend(core_ml(environment).map(Ok));
    found
}

/// A device of a plug-in.
fn describe(
    environment: &Environment,
    device: &OrtDevice<'_>,
    name: &str,
    at: usize,
) -> Result<Provider, (String, String)> {
    // SAFETY: the function returns pairs that belong to the device, or null.
    let pairs = unsafe { (ort::api().EpDevice_EpMetadata)(device.ptr()) };
    let folder =
        value(pairs, c"library_path").and_then(|path| PathBuf::from(path).parent().map(PathBuf::from));
    let version = match value(pairs, c"version") {
        Some(own) => format!("{}, plug-in {own}", environment.version),
        None => environment.version.clone(),
    };
    let short = short(name).to_owned();
    let hardware = device.hardware_device();
    let is_npu = hardware.ty() == DeviceType::NPU;
    let nature = match (is_npu, name) {
        (true, _) => DeviceNature::Hardware,
        (false, QNN) => without_npu().map_err(|reason| (format!("{KIND}, {short}"), reason.to_owned()))?,
        (false, _) => DeviceNature::HostCpu,
    };
    let vendor = if name == QNN { "Qualcomm" } else { hardware.vendor().unwrap_or_default() };
    let model = match (name, nature) {
        (QNN, DeviceNature::Emulator) => "Hexagon HTP, emulator".to_owned(),
        (QNN, _) => "Hexagon HTP".to_owned(),
        (_, DeviceNature::Hardware) => format!("NPU {:04x}", hardware.id()),
        _ => "CPU of this machine".to_owned(),
    };
    let is_emulated = nature == DeviceNature::Emulator && name == QNN;
    let properties = Properties {
        vendor: vendor.to_owned(),
        model,
        runtime: format!("{KIND}, {short}"),
        version,
        architecture: is_emulated.then(|| EMULATED_ARCHITECTURE.to_owned()),
        memory: None,
        nature,
    };
    let stamp = folder.as_deref().map(cache::stamp).unwrap_or_default();
    Ok(Provider { name: name.to_owned(), device: Some(at), folder, stamp, properties })
}

/// What QNN computes with where ONNX Runtime sees no NPU: on x86, its libraries emulate one; elsewhere, they need the
/// DSP's driver.
fn without_npu() -> Result<DeviceNature, &'static str> {
    if cfg!(any(target_arch = "x86", target_arch = "x86_64")) {
        return Ok(DeviceNature::Emulator);
    }
    let drivers =
        ["/dev/fastrpc-cdsp", "/dev/fastrpc-cdsp-secure", "/dev/adsprpc-smd", "/dev/adsprpc-smd-secure"];
    match drivers.iter().any(|driver| PathBuf::from(driver).exists()) {
        true => Ok(DeviceNature::Hardware),
        false => Err("this machine has no Hexagon processor, or its driver (FastRPC) is not installed"),
    }
}

/// The provider that macOS builds of the library contain. It computes on the Neural Engine of Apple's own processors.
fn core_ml(environment: &Environment) -> Option<Provider> {
    let is_there = cfg!(all(target_os = "macos", target_arch = "aarch64")) && built_in(CORE_ML);
    let properties = || Properties {
        vendor: "Apple".to_owned(),
        model: "Neural Engine".to_owned(),
        runtime: format!("{KIND}, CoreML"),
        version: environment.version.clone(),
        architecture: None,
        memory: None,
        nature: DeviceNature::Hardware,
    };
    let provider = || Provider {
        name: CORE_ML.to_owned(),
        device: None,
        folder: None,
        stamp: String::new(),
        properties: properties(),
    };
    is_there.then(provider)
}

/// Whether the library itself contains a provider.
fn built_in(name: &str) -> bool {
    let (mut names, mut count) = (ptr::null_mut(), 0);
    // SAFETY: both pointers are valid for writing.
    let status = unsafe { (ort::api().GetAvailableProviders)(&mut names, &mut count) };
    // SAFETY: the status comes from the library and is not used again.
    if unsafe { ort::Error::result_from_status(status) }.is_err() {
        return false;
    }
    let is_it = |at: usize| {
        // SAFETY: the library wrote `count` strings that end in zero.
        unsafe { CStr::from_ptr(*names.add(at)) }.to_bytes() == name.as_bytes()
    };
    let found = (0..usize::try_from(count).unwrap_or_default()).any(is_it);
    // SAFETY: the list came from the matching function. Its status says nothing that could be acted on.
    let _ = unsafe { (ort::api().ReleaseAvailableProviders)(names, count) };
    found
}

/// The value of a key.
pub(super) fn value(pairs: *const ort::sys::OrtKeyValuePairs, key: &CStr) -> Option<String> {
    if pairs.is_null() {
        return None;
    }
    // SAFETY: the pairs and the key are valid; the result is null, or a string that belongs to the pairs.
    let found = unsafe { (ort::api().GetKeyValue)(pairs, key.as_ptr()) };
    // SAFETY: it is not null and ends in zero.
    (!found.is_null()).then(|| unsafe { CStr::from_ptr(found) }.to_string_lossy().into_owned())
}

impl Provider {
    /// What the provider is told for a network: `is_float` if the network has no quantized values.
    pub(super) fn options(&self, options: &Options, is_float: bool) -> Vec<(String, String)> {
        let mut all: Vec<(&str, String)> = Vec::new();
        match &*self.name {
            QNN => {
                let library =
                    format!("{}QnnHtp{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX);
                let path =
                    self.folder.as_ref().map_or(PathBuf::from(&library), |folder| folder.join(&library));
                all.push(("backend_path", path.to_string_lossy().into_owned()));
                let mode = if options.low_power { "low_power_saver" } else { "burst" };
                all.push(("htp_performance_mode", mode.to_owned()));
                if self.properties.nature == DeviceNature::Emulator {
                    all.extend(EMULATED_SOC.map(|(key, value)| (key, value.to_owned())));
                }
                if is_float {
                    all.push(("enable_htp_fp16_precision", "1".to_owned()));
                }
            }
            OPENVINO => {
                let kind = if self.properties.nature == DeviceNature::Hardware { "NPU" } else { "CPU" };
                all.push(("device_type", kind.to_owned()));
            }
            CORE_ML => {
                all.push(("ModelFormat", "MLProgram".to_owned()));
                all.push(("MLComputeUnits", "CPUAndNeuralEngine".to_owned()));
                all.push(("RequireStaticInputShapes", "1".to_owned()));
            }
            _ => {}
        }
        all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// Sessions of the builder use this device only.
    pub(super) fn select(
        &self,
        builder: SessionBuilder,
        environment: &Environment,
        options: &[(String, String)],
    ) -> ort::Result<SessionBuilder> {
        let Some(at) = self.device else { return self.append(builder, options) };
        let own = environment.ort.devices().filter(|device| device.ep().is_ok_and(|name| name == self.name));
        let prefixed: Vec<(String, String)> =
            options.iter().map(|(key, value)| (format!("{}.{key}", self.name), value.clone())).collect();
        Ok(builder.with_devices(own.skip(at).take(1), Some(&prefixed))?)
    }

    /// Appends a provider that is built in.
    fn append(
        &self,
        mut builder: SessionBuilder,
        options: &[(String, String)],
    ) -> ort::Result<SessionBuilder> {
        let text = |text: &str| CString::new(text).map_err(ort::Error::wrap);
        let name = text(short(&self.name))?;
        let keys: Vec<CString> = options.iter().map(|(key, _)| text(key)).collect::<ort::Result<_>>()?;
        let values: Vec<CString> =
            options.iter().map(|(_, value)| text(value)).collect::<ort::Result<_>>()?;
        let pointers = |all: &[CString]| all.iter().map(|text| text.as_ptr()).collect::<Vec<*const c_char>>();
        let (key_pointers, value_pointers) = (pointers(&keys), pointers(&values));
        let append = ort::api().SessionOptionsAppendExecutionProvider;
        // SAFETY: the options are the builder's own, and the strings outlive the call, which copies them.
        let status = unsafe {
            append(
                builder.ptr_mut(),
                name.as_ptr(),
                key_pointers.as_ptr(),
                value_pointers.as_ptr(),
                options.len(),
            )
        };
        // SAFETY: the status comes from the library and is not used again.
        unsafe { ort::Error::result_from_status(status) }?;
        Ok(builder)
    }
}
