//! Files for devices that are not here: what a vendor's compiler makes of a network, to be run elsewhere.

use std::path::Path;

use neurenix_onnx::{
    edit::Network,
    proto::{DimensionKind, TypeKind},
};

use crate::{
    CompiledFile, Error, Result, Search,
    vela::{Accelerator, Vela},
    vendors::edge_tpu,
};

/// The Edge TPU's name as a target.
const EDGE_TPU: &str = "edgetpu";

/// The names of the devices that [`compile_file`] compiles for: `ethos-u55-32` to `ethos-u85-2048`, with the number of
/// multipliers as the last part, and `edgetpu`.
pub fn file_targets() -> Vec<String> {
    let ethos = Accelerator::ALL.iter().map(|accelerator| accelerator.name());
    ethos.chain([EDGE_TPU.to_owned()]).collect()
}

/// Whether [`compile_file`] knows a device of this name. Its compiler need not be installed.
pub fn is_file_target(name: &str) -> bool {
    name == EDGE_TPU || Accelerator::of_name(name).is_some()
}

/// Compiles a network for a device that is not here, such as `ethos-u55-128`, and writes the file for it to `path`.
///
/// The network is quantized: to 8 bits, or for Ethos-U to 16 with weights of 8. Its shapes are fixed, but for the first
/// extent of an input: one that is not fixed becomes 1, because such devices compute one sample at a time.
///
/// # Errors
/// [`Error::Invalid`] if the target is not among [`file_targets`]; [`Error::Missing`] if its compiler is not installed.
/// If the network has no form in TFLite, if the compiler refuses it, if a file cannot be read or written.
pub fn compile_file(target: &str, network: &Network, path: &Path, search: &Search) -> Result<CompiledFile> {
    if !is_file_target(target) {
        let known = file_targets().join(", ");
        return Err(Error::Invalid(format!("there is no compiler for {target:?}; expected one of {known}")));
    }
    let mut network = network.clone();
    network.prune();
    network.sort()?;
    for port in &mut network.graph.input {
        let Some(TypeKind::Tensor(tensor)) = port.r#type.as_mut().and_then(|port| port.value.as_mut()) else {
            continue;
        };
        let first = tensor.shape.as_mut().and_then(|shape| shape.dim.first_mut());
        if let Some(first) = first.filter(|first| !matches!(first.value, Some(DimensionKind::Value(_)))) {
            first.value = Some(DimensionKind::Value(1));
        }
    }
    match Accelerator::of_name(target) {
        Some(accelerator) => Vela::find(search)?.compile(&network, accelerator, path),
        None => edge_tpu::compile(&network, search, path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_have_names_and_others_are_refused() {
        let targets = file_targets();
        assert_eq!(targets.len(), Accelerator::ALL.len() + 1);
        assert!(targets.iter().all(|target| is_file_target(target)));
        for known in ["ethos-u55-128", "ethos-u65-256", "ethos-u85-2048", "edgetpu"] {
            assert!(targets.iter().any(|target| target == known), "{known}");
        }
        for unknown in ["ethos-u55", "ethos-u55-100", "ethos-u65-128", "npu:0", "cpu", ""] {
            assert!(!is_file_target(unknown), "{unknown}");
        }
    }
}
