//! Devices: the trait that a device crate implements, the registry, memory statistics.

mod end;
mod exchange;
mod memory;
mod registry;

use std::{any::Any, fmt, sync::Arc};

pub use end::{finish, finish_within};
pub use exchange::Exchange;
pub use memory::MemoryStatistics;
pub use registry::{Missing, devices, find, missing, register, register_aliases, register_missing};

use crate::{
    DType, Error, Result, host_memory,
    kernel::{lower::Target, step::Step},
    op::{Op, custom::CustomKernel, ir::IrNode},
    shape::Layout,
};

/// What a device is, so that reports never say more than is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceNature {
    /// The processor this program runs on.
    HostCpu,
    /// An accelerator.
    Hardware,
    /// Software that behaves like an accelerator (lavapipe, PoCL, an NPU's emulator).
    Emulator,
}

/// What a device says of itself. A figure that cannot be read is absent.
#[derive(Clone, Debug)]
pub struct DeviceInfo {
    /// The name the product uses: `cpu`, `cuda:0`.
    pub name: String,
    /// The model as the vendor names it.
    pub model: String,
    /// Host processor, hardware or emulator.
    pub nature: DeviceNature,
    /// Cores, multiprocessors or compute units.
    pub compute_units: Option<usize>,
    /// Memory in bytes.
    pub total_memory: Option<u64>,
    /// Instruction sets and features in use, in the device's own words.
    pub features: Vec<String>,
}

/// What a device can do at most in a second. A figure that nobody knows is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Peaks {
    /// Bytes between the device and its memory.
    pub bytes: Option<f64>,
    /// Operations on `float32`, a multiply-add counted as two, without matrix instructions.
    pub operations: Option<f64>,
}

/// How a device runs an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Support {
    /// As a part of a fused kernel.
    Fused,
    /// As a step of its own, by a routine that takes whole buffers.
    Routine,
    /// By the body of this composite.
    Body,
    /// It cannot, for this reason: the operation is planned on the CPU, see [`crate::schedule::placement`].
    Unsupported(String),
}

impl Support {
    /// How a device runs an operation that has kernels for expressions and reductions, and routines for everything else.
    pub fn usual(op: &Op) -> Support {
        match op {
            Op::Composite(_) => Support::Body,
            Op::Constant(_)
            | Op::Buffer
            | Op::Iota { .. }
            | Op::Reshape
            | Op::Permute(_)
            | Op::Expand
            | Op::Pad { .. }
            | Op::Slice { .. }
            | Op::Unary(_)
            | Op::Binary(_)
            | Op::Where
            | Op::Cast
            | Op::Bitcast
            | Op::Reduce { .. }
            | Op::Contiguous
            | Op::Copy => Support::Fused,
            Op::Cat { .. }
            | Op::RandomBits
            | Op::ArgReduce { .. }
            | Op::Scan { .. }
            | Op::Gather(_)
            | Op::Scatter(..)
            | Op::ArgSort { .. }
            | Op::SearchSorted { .. }
            | Op::Dot
            | Op::Conv(..)
            | Op::Pool(..)
            | Op::Custom(_) => Support::Routine,
        }
    }
}

/// Memory on a device. Dropping it gives it back.
pub trait Memory: Send + Sync + Any {
    /// Bytes.
    fn size(&self) -> usize;
    /// The address, where the host can reach it.
    fn host_pointer(&self) -> Option<*mut u8>;
    /// For the device crate that made it.
    fn as_any(&self) -> &dyn Any;
}

/// A shared handle to device memory.
#[derive(Clone)]
pub struct Buffer(pub Arc<dyn Memory>);

impl Buffer {
    /// Bytes.
    pub fn size(&self) -> usize {
        self.0.size()
    }
    /// True if both are the same memory.
    pub fn is_same(&self, other: &Buffer) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl fmt::Debug for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} bytes)", self.size())
    }
}

/// A buffer bound to a step's parameter: where its first element lies.
#[derive(Clone, Debug)]
pub struct Binding {
    /// The memory.
    pub buffer: Buffer,
    /// The first element's place, in bytes.
    pub offset: usize,
}

/// A copy to the host that is under way. Dropping it gives it up.
pub trait HostRead: Send {
    /// True if the bytes are there, or the copy has failed.
    fn is_done(&self) -> bool;
    /// Waits for the bytes and gives them to `take`.
    ///
    /// # Errors
    /// The device's, of the copy or of the work before it; and those of `take`.
    fn finish(self: Box<Self>, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()>;
}

/// Bytes that are there already.
pub(crate) struct Copied(pub(crate) Vec<u8>);

impl HostRead for Copied {
    fn is_done(&self) -> bool {
        true
    }
    fn finish(self: Box<Self>, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        take(&self.0)
    }
}

/// What a run needs besides its bindings; nothing if it needs nothing.
pub type Prepared = Option<Box<dyn Any>>;

/// A compiled step.
pub trait Executable: Any + Send + Sync {
    /// Runs with `bindings` in the order of the step's parameters: inputs, then outputs. On a device with a queue it
    /// returns once the work is submitted.
    fn run(&self, bindings: &[Binding]) -> Result<()>;
    /// Takes what a run with these bindings needs: memory, and kernels for data that lies like theirs. A plan does so for
    /// all of its steps before the first one stores anything.
    fn prepare(&self, bindings: &[Binding]) -> Result<Prepared> {
        let _ = bindings;
        Ok(None)
    }
    /// Runs with what [`prepare`](Executable::prepare) took for these bindings.
    fn run_prepared(&self, bindings: &[Binding], prepared: Prepared) -> Result<()> {
        drop(prepared);
        self.run(bindings)
    }
}

/// Compiled steps that are submitted as one. Bindings are those of all steps, one step's after the other's.
pub trait Sequence: Send + Sync {
    /// Takes what a run with these bindings needs, as [`Executable::prepare`] does.
    fn prepare(&self, bindings: &[Binding]) -> Result<Prepared>;
    /// Runs with what [`prepare`](Sequence::prepare) took for these bindings.
    fn run(&self, bindings: &[Binding], prepared: Prepared) -> Result<()>;
}

/// One device. Implemented by a device crate; everybody else holds a [`Device`].
pub trait Backend: Send + Sync {
    /// What it is.
    fn info(&self) -> DeviceInfo;
    /// Its name, as in [`DeviceInfo::name`].
    fn name(&self) -> &str;
    /// What its kernels can have, if they are made of loop trees.
    fn target(&self) -> Option<&Target> {
        None
    }
    /// How it runs this operation, given its operands' types.
    fn support(&self, node: &IrNode, operands: &[DType]) -> Support;
    /// Whether it reads an operand of a library operation that lies like this, not row-major; else the operand is copied
    /// first.
    fn reads_layout(&self, node: &IrNode, operand: usize, layout: &Layout) -> bool {
        let _ = (node, operand, layout);
        true
    }
    /// Makes a step ready to run.
    fn compile(&self, step: &Step) -> Result<Arc<dyn Executable>>;
    /// Makes steps ready to run, perhaps side by side; the results are in their order.
    fn compile_all(&self, steps: &[&Step]) -> Vec<Result<Arc<dyn Executable>>> {
        steps.iter().map(|step| self.compile(step)).collect()
    }
    /// The first of these steps, each with the number of its bindings, as one submission, and how many they are; `None`
    /// if the first one must be run by itself.
    fn link(&self, steps: &[(Arc<dyn Executable>, usize)]) -> Option<(usize, Arc<dyn Sequence>)> {
        let _ = steps;
        None
    }
    /// Memory of at least `bytes` bytes, contents undefined.
    fn allocate(&self, bytes: usize) -> Result<Buffer>;
    /// Copies from the host.
    fn write(&self, target: &Buffer, offset: usize, bytes: &[u8]) -> Result<()>;
    /// Copies to the host; waits for the work that produces the data.
    fn read(&self, source: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()>;
    /// Begins a copy to the host, of the data as everything submitted before makes it. Where the device cannot copy while
    /// the host goes on, it is made now.
    fn begin_read(&self, source: &Buffer, offset: usize, bytes: usize) -> Result<Box<dyn HostRead>> {
        let mut copy = host_memory::filled(0, bytes)?;
        self.read(source, offset, &mut copy)?;
        Ok(Box::new(Copied(copy)))
    }
    /// Copies from another device's memory to the beginning of a buffer, without the host. False if it cannot.
    fn copy_from(&self, target: &Buffer, source: &Buffer, offset: usize, bytes: usize) -> Result<bool> {
        let _ = (target, source, offset, bytes);
        Ok(false)
    }
    /// Waits until everything submitted has finished.
    fn synchronize(&self) -> Result<()>;
    /// What its memory pool holds.
    fn memory(&self) -> MemoryStatistics;
    /// Counts the pool's peak anew, from what is allocated now.
    fn reset_peak_memory(&self);
    /// Refuses allocations beyond this many bytes in use; `None` lifts the limit.
    fn set_memory_limit(&self, limit: Option<usize>);
    /// Gives cached memory back to the system.
    fn empty_cache(&self);
    /// Whether tensors used longest ago are moved to the host's memory where the device is full.
    ///
    /// # Errors
    /// [`Error::Argument`] if the device has no memory of its own.
    fn set_spilling(&self, spilling: bool) -> Result<()> {
        match spilling {
            true => Err(Error::argument("set_spilling", format!("{} does not move tensors", self.name()))),
            false => Ok(()),
        }
    }
    /// Brings back what was moved to the host of these buffers; they stay as long as the result does.
    fn hold(&self, buffers: &mut dyn Iterator<Item = &Buffer>) -> Result<Option<Box<dyn Any>>> {
        let _ = buffers;
        Ok(None)
    }
    /// What the hardware can do at most, by its own figures.
    fn peaks(&self) -> Peaks {
        Peaks::default()
    }
    /// Whether it runs elementwise work on this library operation's result together with the operation, as the step's
    /// [`epilogue`](crate::kernel::step::Library::epilogue).
    fn epilogue(&self, node: &IrNode) -> bool {
        let _ = node;
        false
    }
    /// Makes a custom kernel ready, for launches of so many groups along each axis.
    ///
    /// # Errors
    /// [`Error::KernelSource`] if its source does not compile, [`Error::KernelLanguage`] if it has none for the device and
    /// no function for the CPU, [`Error::KernelArgument`] if the device cannot launch groups of its size or so many.
    fn prepare_custom(&self, kernel: &CustomKernel, groups: [usize; 3]) -> Result<()> {
        let _ = groups;
        match kernel.has_cpu_function() {
            true => Ok(()),
            false => Err(kernel.no_source_for(self.name(), "a function for the CPU")),
        }
    }
    /// How other libraries reach the device's memory; nothing if they cannot.
    fn exchange(&self) -> Option<&dyn Exchange> {
        None
    }
    /// The greatest number of buffers one kernel can take.
    fn binding_limit(&self) -> usize {
        64
    }
    /// The greatest number of buffers that the kernels of a [`Step::Batch`] can take together.
    fn batch_limit(&self) -> usize {
        self.binding_limit()
    }
}

/// A handle to a device: small, copied freely.
#[derive(Clone, Copy)]
pub struct Device(pub(crate) &'static dyn Backend);

impl Device {
    /// Its name: `cpu`, `cuda:0`.
    pub fn name(self) -> &'static str {
        self.0.name()
    }
    /// What it says of itself.
    pub fn info(self) -> DeviceInfo {
        self.0.info()
    }
    /// What its memory pool holds.
    pub fn memory(self) -> MemoryStatistics {
        self.0.memory()
    }
    /// Counts the pool's peak anew, from what is allocated now: what a part of a program needs at most.
    pub fn reset_peak_memory(self) {
        self.0.reset_peak_memory();
    }
    /// Refuses allocations beyond this many bytes in use; `None` lifts the limit.
    pub fn set_memory_limit(self, limit: Option<usize>) {
        self.0.set_memory_limit(limit);
    }
    /// Gives cached memory back to the system.
    pub fn empty_cache(self) {
        self.0.empty_cache();
    }
    /// With `true`, tensors used longest ago are moved to the host's memory where the device is full, or its limit is
    /// reached, and come back when they are needed; with `false`, as at the start, a full device is an error. Only tensors
    /// made while it is on are moved. [`MemoryStatistics`] tells what was.
    ///
    /// # Errors
    /// [`Error::Argument`] if the device has no memory of its own, as the CPU.
    pub fn set_spilling(self, spilling: bool) -> Result<()> {
        self.0.set_spilling(spilling)
    }
    /// Waits until everything submitted has finished.
    pub fn synchronize(self) -> Result<()> {
        self.0.synchronize()
    }
    /// The device of this name, as `Device::find("cpu")?`. A kind alone is its first device, as `cuda` is `cuda:0`, and
    /// `cpu:0` is `cpu`.
    ///
    /// # Errors
    /// [`Error::UnknownDevice`] with what was probably meant, why a kind of device is missing, and the devices there are.
    pub fn find(name: &str) -> Result<Device> {
        find(name)
    }
    /// The device that new tensors are made on unless another is named: an accelerator if there is one (the one that
    /// `RNN_GPU_DEVICE` says, by name or number), else the CPU. An emulator is never chosen.
    pub fn default_device() -> Result<Device> {
        registry::default_device()
    }
    /// A number that tells this device from the others of this process.
    pub(crate) fn identity(self) -> u64 {
        std::ptr::from_ref(self.0).cast::<()>().addr() as u64
    }
    /// The trait behind the handle, for device crates and the scheduler.
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

/// A tensor's data: memory and where the elements lie in it.
#[derive(Clone, Debug)]
pub struct Storage {
    /// The memory.
    pub buffer: Buffer,
    /// Where the elements lie.
    pub layout: Layout,
}
