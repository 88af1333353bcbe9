//! The part of the engine that all GPU families share. A device crate provides a [`Driver`], and [`Gpu`] turns it into
//! a device of the engine.
//!
//! A driver allocates blocks of memory, copies to and from them, compiles kernels and launches them, all in the order
//! of one queue. Everything above that is shared and lives here: the pool of blocks, the launches and temporaries of a
//! step, caches of compiled kernels in memory and on disk, and checks for out-of-range indices.
//!
//! | file | subject |
//! |---|---|
//! | `device` | [`Gpu`]: the device trait on top of a driver |
//! | `heap` | blocks in use, and offsets in them |
//! | `staging` | copies through pinned host memory |
//! | `spill` | tensor memory on the device, spilled to the host when the device is full |
//! | `step` | a compiled step: its launches and their bindings |
//! | `routine` | a step that a routine of the vendor computes |
//! | `sequence` | steps that are submitted together |
//! | `repeated` | repeated launches as driver graphs |
//! | `clock` | device timing for profiles |
//! | `modules` | compiled kernels shared between steps |
//! | `family` | kernels shared between plans that differ in sizes only |
//! | `compile` | compilation failures and retries |
//! | `custom` | user-written kernels |
//! | `exchange` | memory and queues for other libraries |
//! | `cache` | machine code on disk |
//! | `recorder` | a device that records kernels instead of running them |

mod cache;
mod clock;
mod compile;
mod custom;
mod device;
mod exchange;
mod family;
mod heap;
mod modules;
mod recorder;
mod repeated;
mod routine;
mod sequence;
mod spill;
mod staging;
mod step;
#[cfg(test)]
mod tests;

pub use cache::{DiskCache, may_include};
pub use compile::NotCompiled;
pub use device::Gpu;
pub use exchange::Handles;
pub use modules::compiled_kernels;
pub use recorder::{Recorded, recorder};
pub use repeated::{Addresses, LaunchGraph, Repeated};
pub use staging::{Medium, Staging};

use smallvec::SmallVec;

use crate::{
    DType, Error, Result, Scalar,
    device::{DeviceInfo, HostRead, Peaks},
    kernel::{loops::Kernel, lower::Target, print::Variable, step::Step},
    op::custom::{CustomKernel, Source, SourceLanguage},
    op::{Op, ir::IrNode},
    shape::Layout,
};

/// A block, and the byte offset in it at which an argument begins. The offset may be negative if only elements inside
/// the block are accessed.
pub type BlockAddress<'a, B> = (&'a B, i64);

/// A function that returns whether the device has finished something.
pub type Progress<'a> = Box<dyn Fn() -> bool + 'a>;

/// A kernel to launch, with its buffers.
pub struct Submission<'a, D: Driver> {
    /// The kernel's machine code.
    pub module: &'a D::Module,
    /// The kernel.
    pub kernel: &'a Kernel,
    /// The bindings of its buffer parameters, in order.
    pub arguments: SmallVec<[BlockAddress<'a, D::Block>; 8]>,
    /// True for a routine of the vendor. The kernel then only has its name, and the arguments are those of the step,
    /// followed by the [memory](Driver::routine_memory) for the run.
    pub is_routine: bool,
}

/// A launch of a user-written kernel.
pub struct SourceLaunch<'a, B> {
    /// The kernel, with its parameters and group size.
    pub kernel: &'a CustomKernel,
    /// The number of groups along each axis, never 0.
    pub groups: [usize; 3],
    /// One argument per parameter, in order.
    pub arguments: &'a [SourceArgument<'a, B>],
}

/// An argument of a user-written kernel.
pub enum SourceArgument<'a, B> {
    /// A tensor.
    Buffer {
        /// The block.
        block: &'a B,
        /// The byte offset of the tensor in the block: a multiple of [`Driver::binding_alignment`].
        start: usize,
        /// Bytes of the tensor; may be 0.
        bytes: usize,
        /// True if the kernel writes it.
        written: bool,
    },
    /// A number.
    Scalar {
        /// The parameter's type.
        dtype: DType,
        /// The value, representable in `dtype`.
        value: Scalar,
    },
}

/// What a GPU family provides: memory, copies and kernels, in the order of one queue.
///
/// Work submitted by one call is visible to all later calls, on any thread. A block that is dropped or reused may still
/// be in use by work submitted before.
pub trait Driver: Sized + Send + Sync + 'static {
    /// Device memory. Its address is a multiple of [`Driver::ALIGNMENT`]. It is freed on drop.
    type Block: Send + Sync;
    /// A kernel's machine code on the device.
    type Module: Send + Sync;
    /// State kept for launches that are submitted together repeatedly: [`Repeated`] if the family has graphs, otherwise
    /// `()`.
    type Recording: Default + Send + Sync;
    /// A point on the device's clock; `()` if the driver has none.
    type Mark: Send;

    /// The alignment of block addresses, in bytes.
    const ALIGNMENT: usize = 256;

    /// The device name: `cuda:0`.
    fn name(&self) -> &str;
    /// Returns the device's description.
    fn info(&self) -> DeviceInfo;
    /// Returns the features that kernels can use.
    fn target(&self) -> &Target;
    /// Returns the reason if the device's kernels cannot compute this elementwise operation on these operand types. The
    /// CPU then computes only that operation, and the operations that would be fused with it still run here.
    fn refuses(&self, op: &Op, operands: &[DType]) -> Option<String> {
        let _ = (op, operands);
        None
    }
    /// Free device memory in bytes, if the device reports it.
    fn available_memory(&self) -> Option<u64>;
    /// Allocates this many bytes with undefined contents. Returns `None` if there is no room.
    fn allocate(&self, bytes: usize) -> Option<Self::Block>;
    /// Copies from the host. The caller may change `bytes` as soon as the call returns.
    fn write(&self, block: &Self::Block, offset: usize, bytes: &[u8]) -> Result<()>;
    /// Returns whether a write of this many bytes waits for earlier work.
    fn write_waits(&self, bytes: usize) -> bool {
        let _ = bytes;
        false
    }
    /// Copies to the host, after everything submitted before.
    fn read(&self, block: &Self::Block, offset: usize, bytes: &mut [u8]) -> Result<()>;
    /// Begins a copy to the host, after everything submitted before. Returns `None` if the driver cannot do that, or
    /// not at present. The block may be dropped before the copy finishes.
    fn begin_read(
        &self,
        block: &Self::Block,
        offset: usize,
        bytes: usize,
    ) -> Result<Option<Box<dyn HostRead>>> {
        let _ = (block, offset, bytes);
        Ok(None)
    }
    /// Returns whether it can copy from another device of this family without going through the host.
    fn copies_from(&self, device: &Self) -> bool {
        let _ = device;
        false
    }
    /// Copies to the beginning of a block from a block of a device that it [can copy from](Driver::copies_from). The
    /// copy runs after everything submitted to that device before, and before everything submitted to it later.
    fn copy_from(
        &self,
        target: &Self::Block,
        device: &Self,
        source: &Self::Block,
        offset: usize,
        bytes: usize,
    ) -> Result<()> {
        let _ = (target, source, offset, bytes);
        let (own, other) = (self.name(), device.name());
        Err(Error::internal("gpu", format!("{own} cannot copy from {other}")))
    }
    /// Returns whether a block's contents are lost, because its device was removed and opened again. Such a block is
    /// not reused.
    fn is_lost(&self, block: &Self::Block) -> bool {
        let _ = block;
        false
    }
    /// Bytes of device memory that the driver uses for itself.
    fn own_memory(&self) -> usize {
        0
    }
    /// Bytes of pinned host memory used for copies.
    fn pinned_memory(&self) -> usize {
        0
    }
    /// Frees unused host and device memory that the driver caches.
    fn trim(&self) {}
    /// Refuses a kernel that the device cannot launch, whatever its source: kernels of other sizes may share its
    /// module.
    fn accept(&self, kernel: &Kernel) -> Result<(), NotCompiled> {
        let _ = kernel;
        Ok(())
    }
    /// Prints a checked kernel in the device's language. The default is for devices that need no source.
    ///
    /// # Errors
    /// A refusal if the language cannot express the kernel: the step then runs on the CPU.
    fn print(&self, kernel: &Kernel) -> Result<String, NotCompiled> {
        let _ = kernel;
        Ok(String::new())
    }
    /// Prints a kernel, the last buffer of which holds numbers. Returns `None` if the device's sources cannot have such
    /// numbers.
    fn print_variable(&self, kernel: &Kernel) -> Option<Variable> {
        let _ = kernel;
        None
    }
    /// Compiles a printed kernel, or loads its machine code from the disk. Several threads may call this at once.
    ///
    /// # Errors
    /// A refusal, with the compiler's messages: the step then runs on the CPU. A failure becomes an error of the plan.
    fn compile(&self, kernel: &Kernel, source: &str) -> Result<Self::Module, NotCompiled>;
    /// Submits a kernel. Every access of a checked kernel is inside its buffer's block. Each address has the alignment
    /// that wide accesses need, and at least an element's own alignment.
    fn launch(&self, submission: &Submission<'_, Self>) -> Result<()>;
    /// Submits kernels that run in order. Kernels may run concurrently if neither needs what the other writes. The same
    /// `recording` always comes with the same kernels, possibly with other buffers.
    fn launch_all(&self, submissions: &[Submission<'_, Self>], recording: &Self::Recording) -> Result<()> {
        let _ = recording;
        submissions.iter().try_for_each(|submission| self.launch(submission))
    }
    /// Compiles a whole step to a routine of the vendor's library. Returns `None` if the library has none for it,
    /// kernels are better, or an index may be out of range, which a routine cannot report. Several threads may call
    /// this at once, but those of a plan's collectives come one by one, in their order. [`Driver::launch`] launches
    /// routines, too; collectives only by themselves.
    ///
    /// # Errors
    /// Only failures: what the library refuses has no routine. [`Error::Unsupported`] with the reason if there are no
    /// kernels either, as for collectives: the step then runs on the CPU.
    fn compile_routine(&self, step: &Step) -> Result<Option<Self::Module>> {
        let _ = step;
        Ok(None)
    }
    /// Bytes of memory that a run of a routine needs for itself.
    fn routine_memory(&self, routine: &Self::Module) -> usize {
        let _ = routine;
        0
    }
    /// Returns whether a routine can take these bindings of its step. Otherwise, kernels compute the step.
    fn takes(&self, routine: &Self::Module, arguments: &[BlockAddress<'_, Self::Block>]) -> bool {
        let _ = (routine, arguments);
        false
    }
    /// Waits until everything submitted has finished.
    fn synchronize(&self) -> Result<()>;
    /// Returns a function that reports whether the device has finished (or failed) the work submitted so far. Returns
    /// `None` if the driver cannot tell; waiting for the device is then uninterruptible.
    fn progress(&self) -> Result<Option<Progress<'_>>> {
        Ok(None)
    }

    /// Submits a timestamp, taken when everything submitted before has finished. Returns `None` if the driver has no
    /// timestamps; profiles then use the host's clock. Examples are events of CUDA and HIP, markers of an OpenCL queue
    /// with profiling, and timestamp queries of WebGPU.
    fn mark(&self) -> Result<Option<Self::Mark>> {
        Ok(None)
    }
    /// Sends collected work, including marks, to the device at once. Does not wait.
    fn submit(&self) -> Result<()> {
        Ok(())
    }
    /// Returns the device time between two marks in nanoseconds, the second later than the first. Waits until the
    /// device has reached both. A profile's marks are at most seconds apart, so 32-bit floats of milliseconds are
    /// precise enough.
    ///
    /// # Errors
    /// [`Error::Internal`] if the driver has no marks.
    fn elapsed(&self, from: &Self::Mark, to: &Self::Mark) -> Result<f64> {
        let _ = (from, to);
        Err(Error::internal("gpu", format!("{} has no clock", self.name())))
    }
    /// Returns the hardware's peak rates, as far as the driver reports them.
    fn peaks(&self) -> Peaks {
        Peaks::default()
    }
    /// The source languages that the device accepts for custom kernels. If a kernel has several of them, the first in
    /// this list is used.
    fn source_languages(&self) -> &'static [SourceLanguage] {
        &[]
    }
    /// Compiles the source of a custom kernel, or loads its machine code from the disk, and finds its entry point.
    /// Checks the kernel's parameters and group size as far as the compiler reports them. Several threads may call this
    /// at once.
    ///
    /// # Errors
    /// A refusal, with the compiler's messages and the source's line numbers; or a failure.
    fn compile_source(&self, kernel: &CustomKernel, source: &Source) -> Result<Self::Module, NotCompiled> {
        let _ = (kernel, source);
        Err("the device takes no sources".to_owned().into())
    }
    /// Submits a custom kernel. Its author is responsible for its memory accesses.
    fn launch_source(&self, module: &Self::Module, launch: &SourceLaunch<'_, Self::Block>) -> Result<()> {
        let _ = (module, launch);
        Err(Error::internal("gpu", "a source was launched on a device that accepts no sources"))
    }
    /// The required alignment, in bytes, of a buffer passed to a custom kernel, in addition to the alignment of its
    /// element.
    fn binding_alignment(&self) -> usize {
        1
    }

    /// The size in bytes of the largest tensor that a custom kernel accepts.
    fn largest_binding(&self) -> usize {
        usize::MAX
    }

    /// Returns addresses and queues for other libraries, or `None` if they cannot use the device's memory.
    fn handles(&self) -> Option<&dyn Handles<Self::Block>> {
        None
    }

    /// Returns whether an operand of a library operation can be read in this layout. See
    /// [`Backend::reads_layout`](crate::device::Backend::reads_layout).
    fn reads_layout(&self, node: &IrNode, operand: usize, layout: &Layout) -> bool {
        let _ = operand;
        match node.op.exact() {
            Op::Dot => true,
            // Others are copied: neighbouring elements of a row should be neighbours in memory.
            Op::Conv(_) => layout.strides[1] == 1,
            _ => false,
        }
    }
}
