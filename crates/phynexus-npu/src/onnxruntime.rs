//! ONNX Runtime with plug-in providers: QNN, OpenVINO and any other that is installed; CoreML where it is built in.

mod arena;
mod environment;
mod provider;
mod session;
mod tensors;

use std::sync::Arc;

use crate::{Found, Runtime, Search};

/// The kind in messages.
const KIND: &str = "ONNX Runtime";

/// The NPUs that ONNX Runtime's providers offer, their emulators, and the host's CPU where a provider computes on it.
pub(crate) fn find(search: &Search) -> Found {
    let environment = match environment::get(search) {
        Ok(environment) => environment,
        Err(reason) => return Found { runtimes: Vec::new(), missing: vec![(KIND.to_owned(), reason)] },
    };
    let mut missing = environment.register(search);
    let mut runtimes: Vec<Arc<dyn Runtime>> = Vec::new();
    for provider in provider::all(environment) {
        match provider {
            Ok(provider) => runtimes.push(Arc::new(session::Compiler::new(environment, provider))),
            Err(reason) => missing.push(reason),
        }
    }
    // A provider may have several devices, of which one can be used.
    missing.retain(|(kind, _)| !runtimes.iter().any(|runtime| runtime.properties().runtime == *kind));
    let is_there = |name: &str| runtimes.iter().any(|runtime| runtime.properties().runtime.contains(name));
    let known = [("QNN", "onnxruntime-qnn", "Qualcomm"), ("OpenVINO", "onnxruntime-ep-openvino", "Intel")];
    for (name, package, vendor) in known {
        if !is_there(name) && !missing.iter().any(|(kind, _)| kind.contains(name)) {
            let reason = format!(
                "the plug-in for {vendor}'s NPUs was not found; install the Python package {package} and name its \
                 site-packages folder in RNN_NPU_PATH"
            );
            missing.push((format!("{KIND}, {name}"), reason));
        }
    }
    Found { runtimes, missing }
}
