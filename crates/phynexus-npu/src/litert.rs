//! LiteRT, Google's runtime of TensorFlow Lite files, with the compilers of NPU vendors that plug into it.
//!
//! The library is that of the Python package `ai-edge-litert` 2.3. The package's program `apply_plugin_main` loads a
//! vendor's plug-in, which compiles the parts of a file that its NPU takes; LiteRT computes the rest on the CPU. The
//! operators of the file that the program writes say which: a node whose operator is still there runs on the CPU.

mod ffi;
mod plugin;

use std::{
    collections::{HashMap, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use neurenix_onnx::{
    Element,
    edit::{self, Network, ValueType},
    proto::{GraphProto, ModelProto, OperatorSetIdProto},
};
use phynexus::{Tensor, device::DeviceNature};

use self::{
    ffi::{Compiled, Functions, Setup, accelerator},
    plugin::{LIMIT, Plugin, VENDORS, Vendor, plugins},
};
use crate::{
    Accepts, Error, Found, Options, Place, Placed, Program, Properties, Result, Runtime, Search, cache,
    library::Known,
    tflite::{self, Code, Dialect, File, Port},
    tool::SEARCH_LIMIT,
};

/// The version whose C functions this module calls; others may differ in their arguments.
const VERSION: &str = "2.3.";

/// LiteRT on one kind of device.
#[derive(Clone, Debug)]
pub struct LiteRt {
    functions: Functions,
    properties: Properties,
    setup: Setup,
    plugin: Option<Plugin>,
    dialect: Dialect,
}

/// The devices of LiteRT that `search` finds.
///
/// A vendor's device counts only if its plug-in compiles a small network for it.
pub fn find(search: &Search) -> Found {
    let mut found = Found::default();
    let packages: Vec<PathBuf> = (search.folders().iter())
        .flat_map(|folder| [folder.join("ai_edge_litert"), folder.clone()])
        .filter(|package| library(package).is_file())
        .collect();
    if packages.is_empty() {
        let remedy = "not found; install it with `pip install ai-edge-litert==2.3.0`".to_owned();
        found.missing.push(("LiteRT".to_owned(), remedy));
        return found;
    }
    let mut refused: Vec<Vec<String>> = VENDORS.iter().map(|_| Vec::new()).collect();
    let mut taken: HashSet<(usize, i32)> = HashSet::new();
    for package in packages {
        let (functions, version) = match load(&package) {
            Ok(loaded) => loaded,
            Err(reason) => {
                found.missing.push(("LiteRT".to_owned(), reason));
                continue;
            }
        };
        if taken.insert((usize::MAX, 0)) {
            found.runtimes.push(Arc::new(LiteRt::on_cpu(functions, &version)));
        }
        for (at, vendor) in VENDORS.iter().enumerate() {
            let plugins = match plugins(&package, vendor) {
                Ok(plugins) => plugins,
                Err(reason) => {
                    refused[at].push(reason);
                    continue;
                }
            };
            for (rank, (setup, plugin, nature)) in plugins.into_iter().enumerate() {
                let device = LiteRt::of_vendor(functions, &version, vendor, (setup, plugin), nature);
                let is_new = !taken.contains(&(at, rank as i32));
                match is_new.then(|| device.try_out()) {
                    Some(Ok(())) => {
                        taken.insert((at, rank as i32));
                        found.runtimes.push(Arc::new(device));
                    }
                    Some(Err(error)) if nature == DeviceNature::Hardware => {
                        refused[at].push(error);
                    }
                    _ => {}
                }
            }
        }
    }
    for (at, vendor) in VENDORS.iter().enumerate() {
        if !taken.contains(&(at, 0)) {
            let reason = refused[at].last().map_or("", String::as_str);
            let kind = format!("LiteRT, {} {}", vendor.name, vendor.model);
            found.missing.push((kind, format!("{reason}; {}", vendor.remedy)));
        }
    }
    found
}

fn library(package: &Path) -> PathBuf {
    package.join(format!("{}LiteRt{}", std::env::consts::DLL_PREFIX, std::env::consts::DLL_SUFFIX))
}

/// The functions of a package's library and its version, or what is wrong.
fn load(package: &Path) -> std::result::Result<(Functions, String), String> {
    let parent = package.parent().unwrap_or(package);
    let names = fs::read_dir(parent).into_iter().flatten().flatten();
    let version = names
        .filter_map(|entry| {
            let name = entry.file_name().to_string_lossy().into_owned();
            Some(name.strip_prefix("ai_edge_litert-")?.strip_suffix(".dist-info")?.to_owned())
        })
        .next();
    let version = version.ok_or_else(|| {
        format!(
            "{} is not part of an installed Python package, so its version is not known",
            package.display()
        )
    })?;
    if !version.starts_with(VERSION) {
        return Err(format!(
            "version {version} is installed, {VERSION}x is needed: `pip install ai-edge-litert==2.3.0`"
        ));
    }
    Ok((Functions::load(&library(package))?, version))
}

impl LiteRt {
    fn on_cpu(functions: Functions, version: &str) -> LiteRt {
        LiteRt {
            functions,
            properties: Properties {
                vendor: "Google".to_owned(),
                model: "CPU".to_owned(),
                runtime: "LiteRT".to_owned(),
                version: version.to_owned(),
                architecture: None,
                memory: None,
                nature: DeviceNature::HostCpu,
            },
            setup: Setup { accelerators: accelerator::CPU, ..Default::default() },
            plugin: None,
            dialect: Dialect::default(),
        }
    }

    fn of_vendor(
        functions: Functions,
        version: &str,
        vendor: &Vendor,
        (setup, plugin): (Setup, Plugin),
        nature: DeviceNature,
    ) -> LiteRt {
        let is_host = nature == DeviceNature::HostCpu;
        LiteRt {
            functions,
            properties: Properties {
                vendor: vendor.name.to_owned(),
                model: if is_host { "CPU".to_owned() } else { vendor.model.to_owned() },
                runtime: format!("LiteRT, {}", vendor.folder),
                version: version.to_owned(),
                architecture: (!is_host).then(|| vendor.chip.to_owned()),
                memory: None,
                nature,
            },
            setup,
            plugin: Some(plugin),
            dialect: Dialect { real_words: vendor.wraps_words, ..Dialect::default() },
        }
    }

    /// Compiles a small network, all of it for the device; in each process, this is done once.
    fn try_out(&self) -> std::result::Result<(), String> {
        static KNOWN: Known<()> = Known::new();
        let key = self.plugin.as_ref().map_or(String::new(), Plugin::key);
        KNOWN.get(key, || self.try_small())
    }

    fn try_small(&self) -> Result<()> {
        let program = self.compiled(&small()?, None, SEARCH_LIMIT)?;
        match program.placement.iter().all(|placed| placed.place == Place::Device) {
            true => Ok(()),
            false => Err(Error::Runtime {
                runtime: self.properties.runtime.clone(),
                message: "the plug-in does not compile a small product for its device".to_owned(),
            }),
        }
    }

    /// A file, loaded; before that, a vendor's compiler compiles it, unless the cache has the result.
    fn loaded(&self, file: &File, cache: Option<&Path>, limit: Duration) -> Result<Compiled> {
        let ports = (&file.inputs[..], &file.outputs[..]);
        let load = |bytes: Vec<u8>| Compiled::new(self.functions, bytes, ports, &self.setup);
        let Some(plugin) = &self.plugin else { return load(file.bytes.clone()) };
        let plugin_key = plugin.key();
        let version = self.properties.version.as_bytes();
        let key = cache::key(&[b"litert".as_slice(), version, plugin_key.as_bytes(), &file.bytes]);
        // An entry that does not load, such as one for another version of the driver, is written again.
        let known = cache.and_then(|folder| cache::read(folder, &key));
        if let Some(compiled) = known.and_then(|known| load(known).ok()) {
            return Ok(compiled);
        }
        let bytes = plugin.apply(&file.bytes, limit)?;
        let compiled = load(bytes.clone())?;
        if let Some(folder) = cache {
            cache::write(folder, &key, &bytes);
        }
        Ok(compiled)
    }

    /// Compiles a network; a vendor's compiler may take as long as `limit`.
    fn compiled(&self, network: &Network, cache: Option<&Path>, limit: Duration) -> Result<LiteRtProgram> {
        let file = tflite::write_with(network, &tflite::value_types(network)?, self.dialect)?;
        let compiled = self.loaded(&file, cache, limit)?;
        // Operators of the schema run on the CPU, a vendor's are custom ones.
        let left: HashSet<String> = match &self.plugin {
            None => HashSet::new(),
            Some(_) => {
                let left = compiled.left()?.into_iter();
                left.filter(|left| Code::of_number(left.code).is_some()).map(|left| left.output).collect()
            }
        };
        let placement = tflite::placed(&file, network, |operator| match left.contains(&operator.output) {
            true => Place::Cpu(format!("the vendor's compiler did not take {}", operator.operator)),
            false => Place::Device,
        });
        let buffers = compiled.buffer_bytes()? as u64;
        Ok(LiteRtProgram { compiled, inputs: file.inputs, outputs: file.outputs, placement, buffers })
    }
}

impl Runtime for LiteRt {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn accepts(&self, network: &Network, node: usize, types: &HashMap<String, ValueType>) -> Accepts {
        tflite::accepts(network, node, types, self.dialect, |_| Accepts::Yes)
    }

    /// LiteRT has no limit of memory and no choice of power: [`Options::memory_limit`] counts the inputs and outputs,
    /// and [`Options::low_power`] has no effect.
    fn compile(&self, network: &Network, options: &Options) -> Result<Box<dyn Program>> {
        let program = self.compiled(network, options.cache.as_deref(), LIMIT)?;
        if let Some(limit) = options.memory_limit.filter(|limit| program.buffers > *limit) {
            let needed = program.buffers;
            return Err(Error::Invalid(format!(
                "inputs and outputs need {needed} bytes, the limit is {limit}"
            )));
        }
        let on_cpu = program.placement.iter().find_map(|placed| match &placed.place {
            Place::Cpu(reason) => Some(format!("{} ({}): {reason}", placed.node, placed.operator)),
            Place::Device => None,
        });
        match on_cpu.filter(|_| options.strict) {
            Some(split) => Err(Error::Invalid(format!("strict: {split}"))),
            None => Ok(Box::new(program)),
        }
    }
}

/// A network that LiteRT compiled.
#[derive(Debug)]
struct LiteRtProgram {
    compiled: Compiled,
    inputs: Vec<Port>,
    outputs: Vec<Port>,
    placement: Vec<Placed>,
    /// The bytes of the inputs and outputs.
    buffers: u64,
}

impl Program for LiteRtProgram {
    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        let ports = &self.inputs;
        if inputs.len() != ports.len() {
            let (expected, given) = (ports.len(), inputs.len());
            return Err(Error::Invalid(format!("expected {expected} inputs, got {given}")));
        }
        let bytes: Vec<Vec<u8>> =
            ports.iter().zip(inputs).map(|(port, input)| port.encode(input)).collect::<Result<_>>()?;
        let outputs = self.compiled.run(&bytes)?;
        self.outputs.iter().zip(&outputs).map(|(port, bytes)| port.decode(bytes)).collect()
    }

    fn placement(&self) -> &[Placed] {
        &self.placement
    }

    /// LiteRT does not say.
    fn memory(&self) -> Option<u64> {
        None
    }
}

/// A product of 8 bits: what every NPU takes.
pub(crate) fn small() -> Result<Network> {
    let extents = 16;
    let graph = GraphProto {
        name: "small".to_owned(),
        input: vec![edit::info("x", Element::Int8, &[1, extents])],
        output: vec![edit::info("y", Element::Int8, &[1, extents])],
        ..Default::default()
    };
    let opset = OperatorSetIdProto { domain: String::new(), version: 21 };
    let proto =
        ModelProto { ir_version: 10, graph: Some(graph), opset_import: vec![opset], ..Default::default() };
    let mut network = Network::new(proto)?;
    let weights: Vec<i64> = (0..extents * extents).map(|at| at as i64 % 7 - 3).collect();
    network.store(edit::integers("w", Element::Int8, &[extents, extents], &weights));
    network.store(edit::integers("zero", Element::Int8, &[], &[0]));
    network.store(edit::floats("scale", &[], &[0.05]));
    let nodes = [
        ("DequantizeLinear", "x_real", vec!["x", "scale", "zero"]),
        ("DequantizeLinear", "w_real", vec!["w", "scale", "zero"]),
        ("MatMul", "product", vec!["x_real", "w_real"]),
        ("QuantizeLinear", "y", vec!["product", "scale", "zero"]),
    ];
    for (operator, output, inputs) in nodes {
        network.graph.node.push(edit::node(operator, output, &inputs, &[output], vec![]));
    }
    Ok(network)
}
