//! Vendors' compilers, which LiteRT's program `apply_plugin_main` runs.

use std::{
    ffi::OsStr,
    path::{Path, PathBuf},
    time::Duration,
};

use phynexus::device::DeviceNature;

use super::ffi::{Setup, accelerator};
use crate::{
    Error, Result, cache,
    tool::{self, Folder},
};

/// How long a vendor's compiler may take for a network.
pub(super) const LIMIT: Duration = Duration::from_secs(600);
/// The name of the file that it writes.
const COMPILED: &str = "compiled.tflite";

/// A vendor whose compiler plugs into LiteRT.
pub(super) struct Vendor {
    /// The folder of its libraries.
    pub(super) folder: &'static str,
    /// LiteRT's name of it, and the chip to compile for: LiteRT does not say which one a machine has.
    manufacturer: &'static str,
    pub(super) chip: &'static str,
    pub(super) name: &'static str,
    pub(super) model: &'static str,
    /// Whether results of 16 bits wrap around instead of saturating.
    pub(super) wraps_words: bool,
    /// Where to get what is missing.
    pub(super) remedy: &'static str,
}

pub(super) const VENDORS: [Vendor; 5] = [
    Vendor {
        folder: "intel_openvino",
        manufacturer: "IntelOpenVINO",
        chip: "LNL",
        name: "Intel",
        model: "NPU",
        // Found with OpenVINO 2026.3, on its CPU.
        wraps_words: true,
        remedy: "needs an Intel NPU with its driver, and `openvino` of the version that the plug-in was built for",
    },
    Vendor {
        folder: "mediatek",
        manufacturer: "MediaTek",
        chip: "MT6991",
        name: "MediaTek",
        model: "APU",
        wraps_words: false,
        remedy: "needs the NeuroPilot SDK with libneuron_adapter.so, from neuropilot.mediatek.com",
    },
    Vendor {
        folder: "samsung",
        manufacturer: "Samsung",
        chip: "E9965",
        name: "Samsung",
        model: "Exynos NPU",
        wraps_words: false,
        remedy: "needs Exynos AI LiteCore, from soc-developer.semiconductor.samsung.com",
    },
    Vendor {
        folder: "google_tensor",
        manufacturer: "Google",
        chip: "Tensor_G5",
        name: "Google",
        model: "Tensor TPU",
        wraps_words: false,
        remedy: "needs the Google Tensor SDK, from ai.google.dev/edge/litert",
    },
    Vendor {
        folder: "qualcomm",
        manufacturer: "Qualcomm",
        chip: "SM8750",
        name: "Qualcomm",
        model: "Hexagon HTP",
        wraps_words: false,
        remedy: "needs the QAIRT SDK, from qpm.qualcomm.com; the runtime ONNX Runtime with QNN needs less",
    },
];

/// A vendor's compiler.
#[derive(Clone, Debug)]
pub(super) struct Plugin {
    program: PathBuf,
    arguments: Vec<String>,
    /// Names, sizes and times of the libraries that compile.
    stamp: String,
}

/// What a vendor's device needs, in the order of preference; or what is missing.
pub(super) fn plugins(
    package: &Path,
    vendor: &Vendor,
) -> std::result::Result<Vec<(Setup, Plugin, DeviceNature)>, String> {
    let folder = package.join("vendors").join(vendor.folder);
    let compiler = folder.join("compiler");
    if !compiler.is_dir() {
        return Err(format!("there is no compiler plug-in in {}", compiler.display()));
    }
    let program = package.join("tools").join(format!("apply_plugin_main{}", std::env::consts::EXE_SUFFIX));
    if !program.is_file() {
        return Err(format!("{} is missing", program.display()));
    }
    let dispatch = Some(folder.join("dispatch")).filter(|folder| folder.is_dir());
    let setup = Setup { accelerators: accelerator::NPU | accelerator::CPU, dispatch };
    let arguments = vec![
        "--cmd=apply".to_owned(),
        format!("--soc_manufacturer={}", vendor.manufacturer),
        format!("--soc_model={}", vendor.chip),
        format!("--libs={}", compiler.display()),
    ];
    // Intel's plug-in compiles with the libraries of the Python package beside it.
    let openvino = package.parent().unwrap_or(package).join("openvino").join("libs");
    let libraries = [&compiler, &openvino].map(|folder| cache::stamp(folder));
    let plugin = Plugin { program, arguments, stamp: libraries.join("\n") };
    let mut plugins = vec![(setup.clone(), plugin.clone(), DeviceNature::Hardware)];
    if vendor.folder == "intel_openvino" {
        // The same path with OpenVINO's CPU device.
        let mut arguments = plugin.arguments;
        arguments.push("--intel_openvino_graph_backends=cpu".to_owned());
        plugins.push((setup, Plugin { arguments, ..plugin }, DeviceNature::HostCpu));
    }
    Ok(plugins)
}

impl Plugin {
    /// What tells this compiler from others, and from other versions of itself.
    pub(super) fn key(&self) -> String {
        format!("{}\n{}\n{}", self.program.display(), self.arguments.join("\n"), self.stamp)
    }

    /// The file with the parts that the vendor's compiler takes compiled, if it ends within `limit`.
    pub(super) fn apply(&self, file: &[u8], limit: Duration) -> Result<Vec<u8>> {
        let folder = Folder::new()?;
        let input = folder.write("network.tflite", file)?;
        let model = format!("--model={}", input.display());
        let output = format!("--o={}", folder.path().join(COMPILED).display());
        let own = self.arguments.iter().map(String::as_str);
        let arguments: Vec<&OsStr> = own.chain([model.as_str(), output.as_str()]).map(OsStr::new).collect();
        let printed = tool::run(&self.program, &arguments, folder.path(), limit)?;
        // The program succeeds by its own account even if a plug-in cannot be loaded.
        match folder.read(COMPILED) {
            Ok(compiled) if printed.succeeded && !compiled.is_empty() => Ok(compiled),
            _ => Err(Error::Runtime {
                runtime: "LiteRT's compiler".to_owned(),
                message: errors(&format!("{}\n{}", printed.output, printed.errors)),
            }),
        }
    }
}

/// What LiteRT's log says of errors: the lines that begin so and those that continue them, without places in its source
/// as far as there is more.
fn errors(log: &str) -> String {
    const OTHERS: [&str; 4] = ["INFO", "WARNING", "VERBOSE", "["];
    let mut found: Vec<String> = Vec::new();
    let mut goes_on = false;
    for line in log.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let is_error = line.starts_with("ERROR") || line.starts_with('└');
        goes_on = is_error || (goes_on && !OTHERS.iter().any(|other| line.starts_with(other)));
        let text = line.rsplit("] ").next().unwrap_or(line).trim_start_matches(['└', ' ']);
        let is_place = text.starts_with("ERROR: [") || text.starts_with("Exception from");
        if goes_on && !is_place && !text.is_empty() && !found.iter().any(|known| known == text) {
            found.push(text.to_owned());
        }
    }
    let places = log.lines().filter(|line| line.starts_with("ERROR")).map(str::to_owned).next_back();
    match (found.is_empty(), places) {
        (false, _) => found.join("; "),
        (true, Some(place)) => place,
        (true, None) => "it wrote no file and gave no reason".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_the_lines_that_say_something() {
        let log = "INFO: [a.cc:1] Loading\nERROR: [p.cc:2] Exception in compilation: Exception from core.cpp:117:\n\
                   Cannot load library \"compiler.so\"\nERROR: [apply.cc:455] ERROR: [p.cc:504]\nINFO: [b.cc:3] End";
        let said = errors(log);
        assert!(said.contains("Cannot load library \"compiler.so\""), "{said}");
        assert!(!said.contains("Loading") && !said.contains("End") && !said.contains("apply.cc"), "{said}");
        assert_eq!(
            errors("ERROR: [apply.cc:455] ERROR: [plugin.cc:504]"),
            "ERROR: [apply.cc:455] ERROR: [plugin.cc:504]"
        );
        assert!(errors("INFO: [a.cc:1] fine").contains("no reason"));
    }
}
