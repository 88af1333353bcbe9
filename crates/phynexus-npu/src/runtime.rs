//! What a runtime implements.

use std::{collections::HashMap, fmt, path::PathBuf, sync::Arc};

use neurenix_onnx::edit::{Network, ValueType};
use phynexus::{Tensor, device::DeviceNature};

use crate::Result;

/// What a device is, as far as its runtime says.
#[derive(Clone, Debug, PartialEq)]
pub struct Properties {
    /// The vendor, such as `Qualcomm`.
    pub vendor: String,
    /// The model or the kind of unit, such as `Hexagon HTP`.
    pub model: String,
    /// The runtime, such as `ONNX Runtime, QNN`.
    pub runtime: String,
    /// Its version.
    pub version: String,
    /// The architecture that it compiles for, such as `v73`.
    pub architecture: Option<String>,
    /// Memory in bytes.
    pub memory: Option<u64>,
    /// Hardware, an emulator, or the host's CPU.
    pub nature: DeviceNature,
}

/// What a search for one kind of runtime found.
#[derive(Debug, Default)]
pub struct Found {
    /// The devices, each as a runtime that compiles for it.
    pub runtimes: Vec<Arc<dyn Runtime>>,
    /// What was not found or cannot be used: the kind, such as `QNN`, and the reason with the remedy.
    pub missing: Vec<(String, String)>,
}

/// Whether a runtime takes a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Accepts {
    /// As far as is known.
    Yes,
    /// Not, for this reason.
    No(String),
}

/// How a network is compiled.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Whether a node that the device does not take, or a part that fails there, is an error instead of work for the
    /// CPU.
    pub strict: bool,
    /// The names of nodes that run on the CPU although the device may take them.
    pub cpu_nodes: Vec<String>,
    /// Prefers low power to speed, where the runtime has the choice.
    pub low_power: bool,
    /// The most bytes for the values between nodes. Weights are not counted.
    pub memory_limit: Option<u64>,
    /// Prefers little memory to speed: runtimes allocate what is needed, without a reserve.
    pub save_memory: bool,
    /// Where compiled networks are kept, such as in [`cache_folder`](crate::cache_folder); `None` keeps none.
    pub cache: Option<PathBuf>,
}

/// Where a node ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// On the device, as its runtime reports.
    Device,
    /// On the CPU, for this reason.
    Cpu(String),
}

/// A node and where it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// The node's name.
    pub node: String,
    /// Its operator.
    pub operator: String,
    /// Where it runs.
    pub place: Place,
}

/// A device that takes whole graphs.
pub trait Runtime: Send + Sync + fmt::Debug {
    /// What it is.
    fn properties(&self) -> &Properties;

    /// Whether it takes this node, as far as is known before compiling; `types` has all values of the network.
    fn accepts(&self, network: &Network, node: usize, types: &HashMap<String, ValueType>) -> Accepts;

    /// Compiles a network of fixed shapes.
    ///
    /// # Errors
    /// If the runtime refuses it; with [`Options::strict`], also if it would leave a node to a CPU.
    fn compile(&self, network: &Network, options: &Options) -> Result<Box<dyn Program>>;
}

/// A network that a runtime compiled.
pub trait Program: Send + fmt::Debug {
    /// Computes the outputs, in the order of the network's, from inputs in the order of the network's. Tensors are on
    /// the CPU.
    ///
    /// # Errors
    /// If the runtime fails.
    fn run(&mut self, inputs: &[Tensor]) -> Result<Vec<Tensor>>;

    /// Where each node runs, as the runtime itself reports. Nodes that it merged into others may be missing.
    fn placement(&self) -> &[Placed];

    /// The bytes that it uses, if the runtime says.
    fn memory(&self) -> Option<u64>;
}

/// A network that was compiled for a device that is not here.
#[derive(Clone, Debug)]
pub struct CompiledFile {
    /// The file for the device.
    pub path: PathBuf,
    /// Where each node runs, as the compiler reports.
    pub placement: Vec<Placed>,
    /// The memory that it needs.
    pub memory: FileMemory,
    /// The cycles of a run that the compiler expects; `None` if it does not say.
    pub cycles: Option<u64>,
}

/// The memory that a compiled network needs, in bytes; 0 where a device lacks such memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FileMemory {
    /// On the chip.
    pub sram: u64,
    /// Beside the chip.
    pub dram: u64,
    /// Flash, on and off the chip: the weights and the commands.
    pub flash: u64,
}

/// The bytes of a value.
pub(crate) fn bytes(value: &ValueType) -> u64 {
    let extents = value.shape.iter().map(|&extent| extent as u64);
    extents.fold(value.element.bits() as u64, u64::saturating_mul).div_ceil(8)
}
