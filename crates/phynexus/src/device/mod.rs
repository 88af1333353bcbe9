//! Devices: the trait that a device crate implements, the registry, and memory statistics.

mod end;
mod exchange;
mod registry;
mod statistics;

use std::{any::Any, fmt, sync::Arc};

pub use end::{finish, finish_within};
pub use exchange::Exchange;
pub use registry::{
    Missing, devices, find, missing, register, register_aliases, register_missing, register_not_built,
};
pub use statistics::MemoryStatistics;

use crate::{
    Error, Result, host_memory,
    kernel::{lower::Target, step::Step},
    op::{Op, TensorType, custom::CustomKernel, ir::IrNode},
    shape::Layout,
};

/// What a device physically is, so that reports do not overstate it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceNature {
    /// The processor that this program runs on.
    HostCpu,
    /// An accelerator.
    Hardware,
    /// Software that behaves like an accelerator (lavapipe, PoCL, an NPU emulator).
    Emulator,
}

/// A device's description. Figures that cannot be read are `None`.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// The device name: `cpu`, `cuda:0`.
    pub name: String,
    /// The vendor's model name.
    pub model: String,
    /// Host processor, hardware or emulator.
    pub nature: DeviceNature,
    /// Cores, multiprocessors or compute units.
    pub compute_units: Option<usize>,
    /// Memory in bytes.
    pub total_memory: Option<u64>,
    /// Instruction sets and features in use, as the device names them.
    pub features: Vec<String>,
}

/// A device's peak rates per second. Unknown figures are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peaks {
    /// Bytes moved between the device and its memory.
    pub bytes: Option<f64>,
    /// `float32` operations without matrix instructions. A multiply-add counts as two.
    pub operations: Option<f64>,
}

/// How a device runs an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// As part of a fused kernel.
    Fused,
    /// As a separate step, by a routine on whole buffers.
    Routine,
    /// By expanding the composite into its body.
    Body,
    /// Not at all, for this reason. The operation then runs on the CPU; see [`crate::schedule::placement`].
    Unsupported(String),
}

impl Support {
    /// Returns the support of a device that has kernels for elementwise operations and reductions, and routines for
    /// everything else.
    pub fn usual(op: &Op) -> Support {
        match op {
            Op::Composite(_) => Support::Body,
            Op::Constant(_)
            | Op::Buffer
            | Op::Iota(_)
            | Op::Reshape
            | Op::Permute(_)
            | Op::Expand
            | Op::Pad(_)
            | Op::Slice(_)
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Where
            | Op::Cast
            | Op::Bitcast
            | Op::Reduce(_)
            | Op::Contiguous
            | Op::Copy => Support::Fused,
            Op::Cat(_)
            | Op::RandomBits
            | Op::ArgReduce(_)
            | Op::Scan(_)
            | Op::Gather(_)
            | Op::Scatter(_)
            | Op::ArgSort(_)
            | Op::SearchSorted(_)
            | Op::Dot
            | Op::Conv(_)
            | Op::Pool(_)
            | Op::Collective(_)
            | Op::Custom(_) => Support::Routine,
        }
    }
}

/// Memory on a device, freed on drop.
pub trait Memory: Send + Sync + Any {
    /// Size in bytes.
    fn size(&self) -> usize;
    /// The address, if the host can access the memory.
    fn host_pointer(&self) -> Option<*mut u8>;
    /// Lets the device crate that made the memory downcast it.
    fn as_any(&self) -> &dyn Any;
}

/// A shared handle to device memory.
#[derive(Clone)]
pub struct Buffer(pub Arc<dyn Memory>);

impl Buffer {
    /// Size in bytes.
    pub fn size(&self) -> usize {
        self.0.size()
    }
    /// Returns whether both are the same memory.
    pub fn is_same(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.size())
    }
}

/// A buffer bound to a step's parameter.
#[derive(Clone, Debug)]
pub struct Binding {
    /// The memory.
    pub buffer: Buffer,
    /// The byte offset of the first element.
    pub offset: usize,
}

/// A pending copy to the host. Dropping it cancels it.
pub trait HostRead: Send {
    /// Returns whether the copy has finished or failed.
    fn is_done(&self) -> bool;
    /// Waits for the bytes and passes them to `take`.
    ///
    /// # Errors
    /// Device errors of the copy or of earlier work, and errors of `take`.
    fn finish(self: Box<Self>, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
}

/// A finished copy.
pub(crate) struct Copied(pub(crate) Vec<u8>);

impl HostRead for Copied {
    fn is_done(&self) -> bool {
        true
    }
    fn finish(self: Box<Self>, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        take(&self.0)
    }
}

/// The resources that a run needs besides its bindings; `None` if it needs none.
pub type Prepared = Option<Box<dyn Any>>;

/// A compiled step.
pub trait Executable: Any + Send + Sync {
    /// Runs with `bindings` in the order of the step's parameters: inputs, then outputs. On a device with a queue, this
    /// returns once the work is submitted.
    fn run(&self, bindings: &[Binding]) -> Result<()>;
    /// Acquires the resources for a run with these bindings: memory, and kernels for their alignment. A plan prepares
    /// all of its steps before the first one stores anything.
    fn prepare(&self, bindings: &[Binding]) -> Result<Prepared> {
        let _ = bindings;
        Ok(None)
    }
    /// Runs with the resources that [`prepare`](Executable::prepare) acquired for these bindings.
    fn run_prepared(&self, bindings: &[Binding], prepared: Prepared) -> Result<()> {
        drop(prepared);
        self.run(bindings)
    }
    /// Returns how many numbers of its kernels, such as sizes, are arguments rather than built in.
    fn arguments(&self) -> usize {
        0
    }
}

/// Compiled steps submitted together. Their bindings are concatenated in step order.
pub trait Sequence: Send + Sync {
    /// Acquires the resources for a run with these bindings, like [`Executable::prepare`].
    fn prepare(&self, bindings: &[Binding]) -> Result<Prepared>;
    /// Runs with the resources that [`prepare`](Sequence::prepare) acquired for these bindings.
    fn run(&self, bindings: &[Binding], prepared: Prepared) -> Result<()>;
}

/// One device. Device crates implement this; all other code uses [`Device`].
pub trait Backend: Send + Sync {
    /// Returns the device's description.
    fn info(&self) -> DeviceInfo;
    /// The device name, as in [`DeviceInfo::name`].
    fn name(&self) -> &str;
    /// The features that its kernels can use, if they are generated from loop trees.
    fn target(&self) -> Option<&Target> {
        None
    }
    /// Returns how it runs this operation, given the operands' types.
    fn support(&self, node: &IrNode, operands: &[TensorType]) -> Support;
    /// Returns whether it can read this operand of a library operation in `layout`, which is not row-major. Otherwise
    /// the operand is copied first.
    fn reads_layout(&self, node: &IrNode, operand: usize, layout: &Layout) -> bool {
        let _ = (node, operand, layout);
        true
    }
    /// Returns the operand whose memory this library operation can store its result over. The operand is row-major and
    /// as large as the result, and no other operand shares its memory.
    fn in_place(&self, node: &IrNode) -> Option<usize> {
        let _ = node;
        None
    }
    /// Compiles a step.
    fn compile(&self, step: &Step) -> Result<Arc<dyn Executable>>;
    /// Compiles the steps of a plan, possibly in parallel. Results are in the order of the steps. Plans of one family
    /// are made for graphs of the same operations, so their steps may share machine code.
    fn compile_all(&self, steps: &[&Step], family: u64) -> Vec<Result<Arc<dyn Executable>>> {
        let _ = family;
        steps.iter().map(|step| self.compile(step)).collect()
    }
    /// Links a prefix of these steps, each given with its number of bindings, into one submission. Returns the number
    /// of linked steps and the submission, or `None` if the first step must run by itself.
    fn link(&self, steps: &[(Arc<dyn Executable>, usize)]) -> Option<(usize, Arc<dyn Sequence>)> {
        let _ = steps;
        None
    }
    /// Allocates at least `bytes` bytes with undefined contents.
    fn allocate(&self, bytes: usize) -> Result<Buffer>;
    /// Makes a buffer of this device in host memory, with these contents. It can be read at once, and moves to the
    /// device when a plan needs it there.
    ///
    /// # Errors
    /// [`Error::Unsupported`] if all buffers of the device are in its own memory.
    fn host_buffer(&self, bytes: Vec<u8>) -> Result<Buffer> {
        drop(bytes);
        let message = "it has no buffers in host memory".to_owned();
        Err(Error::Unsupported { device: self.name().to_owned(), message })
    }
    /// Copies from the host to the device.
    fn write(&self, target: &Buffer, offset: usize, bytes: &[u8]) -> Result<()>;
    /// Copies to the host. Waits for the work that produces the data.
    fn read(&self, source: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()>;
    /// Begins a copy to the host, ordered after all work submitted so far. A device that cannot copy asynchronously
    /// copies now.
    fn begin_read(&self, source: &Buffer, offset: usize, bytes: usize) -> Result<Box<dyn HostRead>> {
        let mut copy = host_memory::filled(0, bytes)?;
        self.read(source, offset, &mut copy)?;
        Ok(Box::new(Copied(copy)))
    }
    /// Copies from another device's memory to the beginning of a buffer, without going through the host. Returns false
    /// if that is not possible.
    fn copy_from(&self, target: &Buffer, source: &Buffer, offset: usize, bytes: usize) -> Result<bool> {
        let _ = (target, source, offset, bytes);
        Ok(false)
    }
    /// Waits until all submitted work has finished.
    fn synchronize(&self) -> Result<()>;
    /// Returns the statistics of its memory pool.
    fn memory(&self) -> MemoryStatistics;
    /// Resets the peak of the pool to the bytes now allocated.
    fn reset_peak_memory(&self);
    /// Refuses allocations that would exceed this many bytes in use. `None` lifts the limit.
    fn set_memory_limit(&self, limit: Option<usize>);
    /// Returns cached memory to the system.
    fn empty_cache(&self);
    /// Turns spilling on or off: while the device is full, the least recently used tensors move to host memory.
    ///
    /// # Errors
    /// [`Error::Argument`] if the device cannot spill tensors.
    fn set_spilling(&self, spilling: bool) -> Result<()> {
        match spilling {
            true => {
                Err(Error::argument("set_spilling", format!("{} does not support spilling", self.name())))
            }
            false => Ok(()),
        }
    }
    /// Brings spilled buffers back to the device. They stay resident while the returned value lives.
    fn hold(&self, buffers: &mut dyn Iterator<Item = &Buffer>) -> Result<Option<Box<dyn Any>>> {
        let _ = buffers;
        Ok(None)
    }
    /// Returns the hardware's peak rates, as it reports them.
    fn peaks(&self) -> Peaks {
        Peaks::default()
    }
    /// Returns whether it can run elementwise work on this library operation's result as part of the operation, as the
    /// step's [`epilogue`](crate::kernel::step::Library::epilogue).
    fn epilogue(&self, node: &IrNode) -> bool {
        let _ = node;
        false
    }
    /// Prepares a custom kernel for launches with this number of groups along each axis.
    ///
    /// # Errors
    /// [`Error::KernelSource`] if its source does not compile. [`Error::KernelLanguage`] if it has neither a source for
    /// the device nor a function for the CPU. [`Error::KernelArgument`] if the device does not support its group size
    /// or the number of groups.
    fn prepare_custom(&self, kernel: &CustomKernel, groups: [usize; 3]) -> Result<()> {
        let _ = groups;
        match kernel.has_cpu_function() {
            true => Ok(()),
            false => Err(kernel.no_source_for(self.name(), "a function for the CPU")),
        }
    }
    /// Returns the interface for other libraries to access the device's memory, or `None` if there is none.
    fn exchange(&self) -> Option<&dyn Exchange> {
        None
    }
    /// The maximum number of buffers of one kernel.
    fn binding_limit(&self) -> usize {
        64
    }
    /// The maximum total number of buffers of the kernels of a [`Step::Batch`].
    fn batch_limit(&self) -> usize {
        self.binding_limit()
    }
}

/// A handle to a device. It is small and `Copy`.
#[derive(Clone, Copy)]
pub struct Device(pub(crate) &'static dyn Backend);

impl Device {
    /// The device name: `cpu`, `cuda:0`.
    pub fn name(self) -> &'static str {
        self.0.name()
    }
    /// Returns the device's description.
    pub fn info(self) -> DeviceInfo {
        self.0.info()
    }
    /// Returns the statistics of its memory pool.
    pub fn memory(self) -> MemoryStatistics {
        self.0.memory()
    }
    /// Resets the peak of the pool to the bytes now allocated, to measure the peak of one part of a program.
    pub fn reset_peak_memory(self) {
        self.0.reset_peak_memory();
    }
    /// Refuses allocations that would exceed this many bytes in use. `None` lifts the limit.
    pub fn set_memory_limit(self, limit: Option<usize>) {
        self.0.set_memory_limit(limit);
    }
    /// Returns cached memory to the system.
    pub fn empty_cache(self) {
        self.0.empty_cache();
    }
    /// Turns spilling on or off. With `true`, when the device is full or its limit is reached, the least recently used
    /// tensors move to host memory. They move back when they are needed. With `false`, the default, a full device is an
    /// error. Only tensors made while spilling is on can move. [`MemoryStatistics`] reports the spilled tensors.
    ///
    /// # Errors
    /// [`Error::Argument`] if the device cannot spill tensors, such as the CPU.
    pub fn set_spilling(self, spilling: bool) -> Result<()> {
        self.0.set_spilling(spilling)
    }
    /// Waits until all submitted work has finished.
    pub fn synchronize(self) -> Result<()> {
        self.0.synchronize()
    }
    /// Finds a device by name: `Device::find("cpu")?`. A kind without a number means its first device: `cuda` is
    /// `cuda:0`. `cpu:0` is `cpu`.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] with a likely correction, the reason if that kind of device is missing, and the
    /// available devices.
    pub fn find(name: &str) -> Result<Device> {
        find(name)
    }
    /// Returns the device that new tensors use by default: the one that `RNN_GPU_DEVICE` selects by name or number,
    /// otherwise the first accelerator, otherwise the CPU. An emulator is used only if `RNN_GPU_DEVICE` names it.
    pub fn default_device() -> Result<Device> {
        registry::default_device()
    }
    /// A number that identifies this device within the process.
    pub(crate) fn identity(self) -> u64 {
        std::ptr::from_ref(self.0).cast::<()>().addr() as u64
    }
    /// Returns the trait object, for device crates and the scheduler.
    pub fn backend(self) -> &'static dyn Backend {
        self.0
    }
}

impl PartialEq for Device {
    fn eq(&self, other: &Device) -> bool {
        std::ptr::addr_eq(self.0, other.0)
    }
}
impl Eq for Device {}
impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A tensor's data: a buffer and the layout of the elements in it.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The memory.
    pub buffer: Buffer,
    /// The layout of the elements.
    pub layout: Layout,
}
