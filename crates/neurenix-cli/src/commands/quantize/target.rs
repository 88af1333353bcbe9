//! What a quantized network is compiled for.

use std::{fs, path::Path};

use neurenix::{
    Error, Result,
    npu::{
        self, Compiled, CompiledFile, Device, Place, Placed, Search, compile_file, file_targets,
        is_file_target,
    },
    onnx::edit::Network,
    quantize::Sample,
};

use crate::report::PlacementRow;

/// What a network is compiled for.
pub(super) enum Target {
    /// A device of this machine.
    Device(Device),
    /// A device elsewhere, for which a file is written.
    File(String),
}

/// A compiled network: where its nodes run, and the file if one was written.
#[derive(Default)]
pub(super) struct Outcome {
    pub(super) placement: Vec<PlacementRow>,
    pub(super) file: Option<CompiledFile>,
}

impl Target {
    /// The target of this name. Devices of this machine need inputs, to be compared with the CPU.
    pub(super) fn find(name: &str, has_inputs: bool) -> Result<Target> {
        if is_file_target(name) {
            return Ok(Target::File(name.to_owned()));
        }
        let files = || format!("files can be compiled for {}", file_targets().join(", "));
        if !has_inputs {
            let message = format!(
                "{name} is compared with the CPU on typical inputs: give --calibrate FILE; {}",
                files()
            );
            return Err(Error::data("--device", message));
        }
        let device = Device::find(name, &Search::default())
            .map_err(|error| Error::data("--device", format!("{error}; {}", files())))?;
        Ok(Target::Device(device))
    }

    /// Compiles a network. A device of this machine runs all samples; for another, `file` is written.
    pub(super) fn compile(
        &self,
        network: &Network,
        samples: &[Sample],
        strict: bool,
        file: &Path,
    ) -> Result<Outcome> {
        match self {
            Target::Device(device) => {
                let cache = npu::cache_folder();
                let options = npu::Options { strict, cache, ..npu::Options::default() };
                let mut compiled = Compiled::compile(network, device, samples, &options)?;
                for sample in samples {
                    compiled.run(sample)?;
                }
                let placement = rows(&compiled.placement_report().nodes, device.name());
                Ok(Outcome { placement, file: None })
            }
            Target::File(name) => {
                let compiled = compile_file(name, network, file, &Search::default())?;
                let refused = |placed: &Placed| match &placed.place {
                    Place::Device => None,
                    Place::Cpu(reason) => Some(format!("{} ({}): {reason}", placed.node, placed.operator)),
                };
                let nodes: Vec<String> = compiled.placement.iter().filter_map(refused).collect();
                if strict && !nodes.is_empty() {
                    fs::remove_file(file).map_err(|error| Error::io("remove", file, error))?;
                    return Err(npu::Error::Refused { device: name.clone(), nodes }.into());
                }
                let placement = rows(&compiled.placement, name);
                Ok(Outcome { placement, file: Some(compiled) })
            }
        }
    }
}

fn rows(placement: &[Placed], device: &str) -> Vec<PlacementRow> {
    let row = |placed: &Placed| {
        let (device, reason) = match &placed.place {
            Place::Device => (device, ""),
            Place::Cpu(reason) => ("cpu", reason.as_str()),
        };
        PlacementRow {
            node: placed.node.clone(),
            operator: placed.operator.clone(),
            device: device.to_owned(),
            reason: reason.to_owned(),
        }
    };
    placement.iter().map(row).collect()
}
