//! Vendors whose compilers and drivers must be installed by hand: how they are looked for, and what to get.
//!
//! None of these devices was reached while this was written; what is found here says that a vendor's software is there,
//! not that a network runs.

pub mod edge_tpu;

use crate::{
    Search,
    tool::{self, Folder, SEARCH_LIMIT},
};

/// A vendor's software, as a search found it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VendorStatus {
    /// The vendor and the device.
    pub vendor: &'static str,
    /// How networks get to the device.
    pub route: &'static str,
    /// The version or the place of what was found, or what is missing and where to get it.
    pub found: Result<String, String>,
}

/// What shows that a vendor's software is there.
enum Sign {
    /// A program, and the argument that makes it print its version; none if it has no such argument.
    Tool(&'static str, Option<&'static str>),
    /// A library, in these folders below one of the search, or in such a folder itself.
    Library(&'static [&'static str], &'static str),
    /// The operating system.
    System(&'static str),
}

struct Vendor {
    name: &'static str,
    route: &'static str,
    signs: &'static [Sign],
    /// Where to get what is missing.
    remedy: &'static str,
}

const VENDORS: [Vendor; 8] = [
    Vendor {
        name: "Intel Gaudi (Habana)",
        route: "Intel Gaudi's PyTorch bridge, on SynapseAI",
        signs: &[Sign::Tool("hl-smi", Some("--version")), Sign::Library(&["habanalabs"], "Synapse")],
        remedy: "install the Intel Gaudi software with its driver: docs.habana.ai",
    },
    Vendor {
        name: "Graphcore IPU",
        route: "PopART, which reads ONNX, on Poplar",
        signs: &[
            Sign::Tool("gc-info", Some("--version")),
            Sign::Library(&["poplar/lib"], "popart"),
            Sign::Library(&["poplar/lib"], "poplar"),
        ],
        remedy: "install the Poplar SDK, which also has a model of an IPU without hardware: docs.graphcore.ai",
    },
    Vendor {
        name: "Groq LPU",
        route: "GroqWare's compiler, which reads ONNX",
        signs: &[Sign::Tool("groq-compiler", Some("--version"))],
        remedy: "install GroqWare, which needs an account: support.groq.com",
    },
    Vendor {
        name: "Intel Movidius (MYRIAD)",
        route: "OpenVINO 2022 with its MYRIAD plug-in",
        signs: &[Sign::Library(&["openvino/libs", "runtime/lib/intel64"], "openvino_intel_myriad_plugin")],
        remedy: "install OpenVINO 2022.3 from Intel's archive (the Python packages lack the plug-in): \
                 storage.openvinotoolkit.org/repositories/openvino/packages/2022.3.2",
    },
    Vendor {
        name: "Google Edge TPU (Coral)",
        route: "a TFLite file of 8 bits, through edgetpu_compiler, with libedgetpu",
        signs: &[Sign::Tool("edgetpu_compiler", Some("--version")), Sign::Library(&[], "edgetpu")],
        remedy: "install edgetpu-compiler and libedgetpu1-std from Google's package archive: \
                 coral.ai/docs/edgetpu/compiler",
    },
    Vendor {
        name: "MediaTek APU",
        route: "LiteRT with MediaTek's plug-in, on NeuroPilot",
        signs: &[
            Sign::Tool("ncc-tflite", Some("--version")),
            Sign::Library(&[], "neuron_adapter"),
            Sign::Library(&[], "neuronusdk_adapter"),
        ],
        remedy: "install the NeuroPilot SDK: neuropilot.mediatek.com",
    },
    Vendor {
        name: "Samsung Exynos NPU",
        route: "LiteRT with Samsung's plug-in, on Exynos AI LiteCore",
        signs: &[Sign::Library(&[], "enn_public_api_cpp"), Sign::Library(&[], "enn_api")],
        remedy: "install Exynos AI LiteCore: soc-developer.semiconductor.samsung.com",
    },
    Vendor {
        name: "Apple Neural Engine",
        route: "ONNX Runtime's CoreML provider, on macOS",
        signs: &[Sign::System("macos")],
        remedy: "run on macOS, with `pip install onnxruntime`",
    },
];

/// What of each vendor's software `search` finds.
pub fn survey(search: &Search) -> Vec<VendorStatus> {
    let status = |vendor: &Vendor| {
        let found = vendor.signs.iter().find_map(|sign| sign.found(search));
        let missing = || {
            let signs: Vec<String> = vendor.signs.iter().map(Sign::name).collect();
            format!("not found: {}; {}", signs.join(", "), vendor.remedy)
        };
        VendorStatus { vendor: vendor.name, route: vendor.route, found: found.ok_or_else(missing) }
    };
    VENDORS.iter().map(status).collect()
}

impl Sign {
    fn name(&self) -> String {
        match self {
            Sign::Tool(name, _) => format!("the program {name}"),
            Sign::Library(_, stem) => format!("the library {stem}"),
            Sign::System(name) => format!("the system {name}"),
        }
    }

    /// The version, or the place if there is none.
    fn found(&self, search: &Search) -> Option<String> {
        match *self {
            Sign::System(name) => (std::env::consts::OS == name).then(|| name.to_owned()),
            Sign::Library(packages, stem) => {
                search.library(packages, stem).map(|path| path.display().to_string())
            }
            Sign::Tool(name, argument) => {
                let program = search.tool(name)?;
                let version = argument.and_then(|argument| {
                    let folder = Folder::new().ok()?;
                    let printed =
                        tool::run(&program, &[argument.as_ref()], folder.path(), SEARCH_LIMIT).ok()?;
                    let line = printed.output.lines().map(str::trim).find(|line| !line.is_empty())?;
                    printed.succeeded.then(|| line.to_owned())
                });
                Some(version.unwrap_or_else(|| program.display().to_string()))
            }
        }
    }
}

#[cfg(all(test, unix))]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt};

    use super::*;

    #[test]
    fn what_is_there_is_found_and_the_rest_names_its_remedy() {
        let root = tempfile::tempdir().unwrap();
        let tool = root.path().join("groq-compiler");
        fs::write(&tool, "#!/bin/sh\necho GroqWare 1.2.3\n").unwrap();
        fs::set_permissions(&tool, fs::Permissions::from_mode(0o755)).unwrap();
        let survey = survey(&Search::of(vec![root.path().to_owned()]));
        assert_eq!(survey.len(), VENDORS.len());
        let of = |name: &str| survey.iter().find(|status| status.vendor.contains(name)).unwrap();
        assert_eq!(of("Groq").found, Ok("GroqWare 1.2.3".to_owned()));
        for status in survey.iter().filter(|status| status.vendor != "Groq LPU") {
            if let Err(missing) = &status.found {
                assert!(missing.contains("not found: ") && missing.contains("; "), "{missing}");
            }
        }
        assert_eq!(of("Apple").found.is_ok(), cfg!(target_os = "macos"));
    }
}
