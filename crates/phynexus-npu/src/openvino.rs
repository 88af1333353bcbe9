//! OpenVINO, Intel's runtime: its NPU, and the host's CPU.
//!
//! The library is `libopenvino_c`, of the Python package `openvino` or of Intel's archive. It reads ONNX itself. A
//! device computes all of a network that it compiles; which device did, the property `EXECUTION_DEVICES` of the
//! compiled network says. `NPU` counts as found only if OpenVINO lists it among its available devices: other ways of
//! asking for it run on the CPU without a word.

mod ffi;
mod request;

use std::{collections::HashMap, path::PathBuf, sync::Arc};

use neurenix_onnx::{
    Element,
    edit::{self, Network, ValueType},
    proto::NodeProto,
};
use phynexus::{DType, Device, Tensor, device::DeviceNature};
use prost::Message;

pub use self::request::Profiled;
use self::{ffi::Core, request::Compiled};
use crate::{
    Accepts, Error, Found, Options, Place, Placed, Program, Properties, Result, Runtime, Search, cache,
    library::Known,
    runtime::bytes,
    tflite::{surrounded, value_types},
};

/// OpenVINO with one of its devices.
#[derive(Clone, Debug)]
pub struct OpenVino {
    core: Arc<Core>,
    device: String,
    properties: Properties,
}

/// The devices of OpenVINO that `search` finds: NPUs and the CPU.
pub fn find(search: &Search) -> Found {
    let mut found = Found::default();
    let (core, names) = match available(search) {
        Ok(available) => available,
        Err(reason) => {
            found.missing.push(("OpenVINO".to_owned(), reason));
            return found;
        }
    };
    for name in &names {
        if let Some(nature) = nature(name) {
            found.runtimes.push(Arc::new(OpenVino::new(Arc::clone(&core), name, nature)));
        }
    }
    if !names.iter().any(|name| name.starts_with("NPU")) {
        let remedy = "OpenVINO lists no device NPU; it needs an Intel Core Ultra or later, and the driver from \
                      github.com/intel/linux-npu-driver";
        found
            .missing
            .push(("OpenVINO, Intel NPU".to_owned(), format!("{remedy}; found: {}", names.join(", "))));
    }
    found
}

/// OpenVINO's core and the names of its devices, or what is missing.
fn available(search: &Search) -> std::result::Result<(Arc<Core>, Vec<String>), String> {
    let packages = ["openvino/libs", "runtime/lib/intel64", "runtime/lib/arm64"];
    let path = search
        .library(&packages, "openvino_c")
        .ok_or_else(|| "not found; install it with `pip install openvino`".to_owned())?;
    let core = load(path)?;
    let names = core.devices().map_err(|error| error.to_string())?;
    Ok((core, names))
}

/// What a device is; `None` for GPUs, which the engine reaches by itself.
fn nature(device: &str) -> Option<DeviceNature> {
    match device.split('.').next() {
        Some("NPU" | "MYRIAD" | "HDDL") => Some(DeviceNature::Hardware),
        Some("CPU") => Some(DeviceNature::HostCpu),
        _ => None,
    }
}

/// The core of the library at `path`, which is made once.
fn load(path: PathBuf) -> std::result::Result<Arc<Core>, String> {
    static CORES: Known<Arc<Core>> = Known::new();
    CORES.get(path.display().to_string(), || Core::load(&path).map(Arc::new).map_err(Error::Missing))
}

impl OpenVino {
    /// The device of this name in OpenVINO, such as `NPU` or `CPU`.
    ///
    /// # Errors
    /// [`Error::Missing`] if OpenVINO is not found or does not list the device.
    pub fn find(search: &Search, device: &str) -> Result<OpenVino> {
        let (core, names) =
            available(search).map_err(|reason| Error::Missing(format!("OpenVINO: {reason}")))?;
        let nature = nature(device).filter(|_| names.iter().any(|name| name == device));
        match nature {
            Some(nature) => Ok(OpenVino::new(core, device, nature)),
            None => {
                Err(Error::Missing(format!("OpenVINO has no device {device:?}; it has {}", names.join(", "))))
            }
        }
    }

    fn new(core: Arc<Core>, device: &str, nature: DeviceNature) -> OpenVino {
        // Devices lack some properties.
        let property = |key: &str| core.property(device, key).ok().filter(|value| !value.is_empty());
        let name = property("FULL_DEVICE_NAME");
        let known = ["Intel", "AMD", "Ampere", "Apple"];
        let vendor = known.into_iter().find(|vendor| name.as_ref().is_some_and(|name| name.contains(vendor)));
        let vendor = if nature == DeviceNature::Hardware { Some("Intel") } else { vendor };
        let properties = Properties {
            vendor: vendor.unwrap_or("unknown").to_owned(),
            model: name.unwrap_or_else(|| device.to_owned()),
            runtime: format!("OpenVINO, {device}"),
            version: core.version().unwrap_or_default(),
            architecture: property("DEVICE_ARCHITECTURE"),
            memory: property("NPU_DEVICE_TOTAL_MEM_SIZE").and_then(|size| size.parse().ok()),
            nature,
        };
        OpenVino { core, device: device.to_owned(), properties }
    }

    fn compile_with(&self, network: &Network, properties: &[(&str, String)]) -> Result<Compiled> {
        let model = self.core.read(&saturated(network)?.to_proto().encode_to_vec())?;
        model.compile(&self.device, properties)
    }

    /// Compiles the network, runs it once with these inputs, and says which kernels ran, with their times.
    ///
    /// # Errors
    /// As for compiling and running.
    pub fn profile(&self, network: &Network, inputs: &[Tensor]) -> Result<Vec<Profiled>> {
        let mut compiled = self.compile_with(network, &[("PERF_COUNT", "YES".to_owned())])?;
        let names = input_names(network);
        give(&mut compiled, &names, inputs)?;
        compiled.infer()?;
        compiled.profile()
    }
}

impl Runtime for OpenVino {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn accepts(&self, network: &Network, node: usize, types: &HashMap<String, ValueType>) -> Accepts {
        let narrow = |value: &ValueType| !is_carried(value.element);
        let touched = network.graph.node.get(node).into_iter();
        let values = touched.flat_map(|node| node.input.iter().chain(&node.output));
        if let Some(value) = values.filter_map(|name| types.get(name)).find(|value| narrow(value)) {
            return Accepts::No(format!("values of type {:?} are not carried to OpenVINO", value.element));
        }
        // Reading is where OpenVINO says what it does not know.
        let read = surrounded(network, node, types)
            .and_then(|part| self.core.read(&part.to_proto().encode_to_vec()).map(drop));
        match read {
            Ok(()) => Accepts::Yes,
            Err(Error::Runtime { message, .. }) => Accepts::No(message),
            Err(error) => Accepts::No(error.to_string()),
        }
    }

    /// OpenVINO has no limit of memory and no choice of power: [`Options::memory_limit`] counts the inputs and outputs,
    /// and [`Options::low_power`] has no effect.
    fn compile(&self, network: &Network, options: &Options) -> Result<Box<dyn Program>> {
        let mut properties = vec![("PERFORMANCE_HINT", "LATENCY".to_owned())];
        if self.properties.nature == DeviceNature::HostCpu {
            // By default, a CPU that has bfloat16 computes real numbers with it, and products with weights of 8 bits
            // round their other factor to 8 bits, too.
            properties.push(("INFERENCE_PRECISION_HINT", "f32".to_owned()));
            properties.push(("DYNAMIC_QUANTIZATION_GROUP_SIZE", "0".to_owned()));
        }
        if let Some(cache) = &options.cache {
            properties.push(("CACHE_DIR", cache.display().to_string()));
        }
        let compiled = self.compile_with(network, &properties)?;
        if let Some(folder) = &options.cache {
            cache::trim_to_limit(folder);
        }
        let devices = compiled.property("EXECUTION_DEVICES")?;
        // Such as `CPU` and `(NPU)`.
        let ran = devices.trim_matches(['(', ')', ' ']).to_owned();
        let place = match ran == self.device {
            true => Place::Device,
            false => Place::Cpu(format!("OpenVINO says that {ran} executes it")),
        };
        if let (true, Place::Cpu(reason)) = (options.strict, &place) {
            return Err(Error::Invalid(format!("strict: {reason}, not {}", self.device)));
        }
        let placed = |node: &NodeProto| Placed {
            node: node.name.clone(),
            operator: node.op_type.clone(),
            place: place.clone(),
        };
        let types = value_types(network)?;
        let outputs = network.graph.output.iter().map(|output| {
            let value = types.get(&output.name).cloned();
            let value = value.filter(|value| is_carried(value.element)).ok_or_else(|| {
                Error::Invalid(format!("the output {:?} is of a type that is not carried", output.name))
            })?;
            Ok((output.name.clone(), value))
        });
        let outputs: Vec<(String, ValueType)> = outputs.collect::<Result<_>>()?;
        let inputs = input_names(network);
        let values = inputs.iter().filter_map(|name| types.get(name)).chain(outputs.iter().map(|(_, v)| v));
        let memory = values.fold(0u64, |sum, value| sum.saturating_add(bytes(value)));
        if let Some(limit) = options.memory_limit.filter(|limit| memory > *limit) {
            return Err(Error::Invalid(format!(
                "inputs and outputs need {memory} bytes, the limit is {limit}"
            )));
        }
        let placement = network.graph.node.iter().map(placed).collect();
        Ok(Box::new(OpenVinoProgram { compiled, inputs, outputs, placement }))
    }
}

/// The inputs that are not stored.
fn input_names(network: &Network) -> Vec<String> {
    let inputs = network.graph.input.iter().filter(|input| network.stored(&input.name).is_none());
    inputs.map(|input| input.name.clone()).collect()
}

fn give(compiled: &mut Compiled, names: &[String], inputs: &[Tensor]) -> Result<()> {
    if names.len() != inputs.len() {
        return Err(Error::Invalid(format!("expected {} inputs, got {}", names.len(), inputs.len())));
    }
    names.iter().zip(inputs).try_for_each(|(name, input)| compiled.set(name, input))
}

/// Whether tensors of this type go in and out as they are.
fn is_carried(element: Element) -> bool {
    !element.is_narrow() && element.dtype().is_some()
}

/// The network with a `Clip` before each `QuantizeLinear` to 16 bits.
///
/// OpenVINO drops pairs that quantize to 16 bits and dequantize, and with them their saturation (2026.4).
fn saturated(network: &Network) -> Result<Network> {
    let mut changed = network.clone();
    let nodes = std::mem::take(&mut changed.graph.node);
    for mut node in nodes {
        if let Some((least, most)) = range(network, &node)? {
            let limits = [least, most].map(|limit| {
                let name = changed.fresh(&format!("{}_limit", node.name));
                changed.store(edit::floats(&name, &[], &[limit]));
                name
            });
            let clipped = changed.fresh(&format!("{}_clipped", node.name));
            if let Some(input) = node.input.first_mut() {
                let inputs = [input.as_str(), &limits[0], &limits[1]];
                changed.graph.node.push(edit::node("Clip", &clipped, &inputs, &[&clipped], vec![]));
                *input = clipped;
            }
        }
        changed.graph.node.push(node);
    }
    Ok(changed)
}

/// The real numbers that the 16 bits of a `QuantizeLinear` stand for; `None` for other nodes.
fn range(network: &Network, node: &NodeProto) -> Result<Option<(f32, f32)>> {
    if node.op_type != "QuantizeLinear" || network.opset() < 11 {
        return Ok(None);
    }
    let input = |position: usize| node.input.get(position).map(String::as_str).unwrap_or_default();
    let zero = network.value(input(2))?;
    let (least, most) = match zero.as_ref().and_then(|zero| zero.element()) {
        Some(Element::Uint16) => (0.0, f32::from(u16::MAX)),
        Some(Element::Int16) => (f32::from(i16::MIN), f32::from(i16::MAX)),
        _ => return Ok(None),
    };
    let Some((_, scales)) = network.floats(input(1))? else { return Ok(None) };
    let Some(zero) = zero else { return Ok(None) };
    let zeros = zero.tensor()?.to_dtype(DType::F32)?.to_vec::<f32>()?;
    match (&scales[..], &zeros[..]) {
        (&[scale], &[zero]) => Ok(Some(((least - zero) * scale, (most - zero) * scale))),
        _ => Ok(None),
    }
}

/// A network that OpenVINO compiled.
#[derive(Debug)]
struct OpenVinoProgram {
    compiled: Compiled,
    inputs: Vec<String>,
    outputs: Vec<(String, ValueType)>,
    placement: Vec<Placed>,
}

impl Program for OpenVinoProgram {
    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>> {
        give(&mut self.compiled, &self.inputs, inputs)?;
        self.compiled.infer()?;
        let device = Device::find("cpu")?;
        let mut outputs = Vec::new();
        for (name, value) in &self.outputs {
            let bytes = self.compiled.output(name)?;
            let dtype = value.element.dtype().unwrap_or(DType::F32);
            outputs.push(Tensor::from_bytes(&bytes, dtype, &value.shape, device)?);
        }
        Ok(outputs)
    }

    fn placement(&self) -> &[Placed] {
        &self.placement
    }

    /// OpenVINO does not say.
    fn memory(&self) -> Option<u64> {
        None
    }
}
