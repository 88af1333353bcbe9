//! What GPUs of all families share: a device crate gives a [`Driver`], [`Gpu`] makes of it a device of the engine.
//!
//! A driver allocates blocks of memory, copies to and from them, compiles one kernel and launches it, all in the order of
//! one queue. What lies above is the same everywhere and is here: the pool of blocks, a step's launches with their
//! temporaries, kernels that were compiled before, indices out of range, and machine code kept on disk.
//!
//! | file | subject |
//! |---|---|
//! | `device` | [`Gpu`]: the engine's trait, on a driver |
//! | `memory` | blocks in use, and places in them |
//! | `staging` | copies through pinned memory of the host |
//! | `spill` | tensors' memory, on the device or, where that is full, on the host |
//! | `step` | a compiled step: its launches, what is bound to them |
//! | `sequence` | steps that are submitted together |
//! | `repeated` | launches that are repeated, as graphs of a driver's |
//! | `clock` | when the device did what, for profiles |
//! | `modules` | kernels compiled before |
//! | `compile` | refusals and failures of compilers |
//! | `custom` | kernels written by users |
//! | `exchange` | memory and queues for other libraries |
//! | `cache` | machine code on disk |
//! | `recorder` | a device that notes kernels instead of running them |

mod cache;
mod clock;
mod compile;
mod custom;
mod device;
mod exchange;
mod memory;
mod modules;
mod recorder;
mod repeated;
mod sequence;
mod spill;
mod staging;
mod step;

pub use cache::{DiskCache, may_include};
pub use compile::NotCompiled;
pub use device::Gpu;
pub use exchange::Handles;
pub use recorder::{Recorded, recorder};
pub use repeated::{Addresses, LaunchGraph, Repeated};
pub use staging::{Medium, Staging};

use smallvec::SmallVec;

use crate::{
    DType, Error, Result, Scalar,
    device::{DeviceInfo, HostRead, Peaks},
    kernel::{loops::Kernel, lower::Target},
    op::custom::{CustomKernel, Source, SourceLanguage},
    op::{Op, ir::IrNode},
    shape::Layout,
};

/// A block of a driver's and the byte in it at which an argument begins. Where only later elements are accessed, that may
/// be before the block: below 0.
pub type Place<'a, B> = (&'a B, i64);

/// Whether a device is done with something.
pub type Progress<'a> = Box<dyn Fn() -> bool + 'a>;

/// A kernel to be launched with its buffers.
pub struct Submission<'a, D: Driver> {
    /// The kernel's machine code.
    pub module: &'a D::Module,
    /// The kernel.
    pub kernel: &'a Kernel,
    /// What its buffer parameters are bound to, in order.
    pub arguments: SmallVec<[Place<'a, D::Block>; 8]>,
}

/// A launch of a kernel written by a user.
pub struct SourceLaunch<'a, B> {
    /// The kernel: its parameters and the size of a group.
    pub kernel: &'a CustomKernel,
    /// Groups along each axis, none of them 0.
    pub groups: [usize; 3],
    /// One a parameter, in order.
    pub arguments: &'a [SourceArgument<'a, B>],
}

/// An argument of a kernel written by a user.
pub enum SourceArgument<'a, B> {
    /// A tensor.
    Buffer {
        /// The block.
        block: &'a B,
        /// Where in it the tensor begins, in bytes: a multiple of [`Driver::binding_alignment`].
        start: usize,
        /// Bytes of the tensor; there may be none.
        bytes: usize,
        /// True if the kernel writes it.
        written: bool,
    },
    /// A number.
    Scalar {
        /// Its type.
        dtype: DType,
        /// Its value, which the type holds.
        value: Scalar,
    },
}

/// What a family of GPUs gives: memory, copies and kernels, in the order of one queue.
///
/// Whatever is submitted by one call is seen by the calls after it, from whichever thread they come; a block that is
/// dropped or handed out again may still be used by work submitted before.
pub trait Driver: Sized + Send + Sync + 'static {
    /// Memory on the device. Its address is a multiple of [`Driver::ALIGNMENT`]; dropping it gives it back.
    type Block: Send + Sync;
    /// A kernel's machine code on the device.
    type Module: Send + Sync;
    /// What it keeps of launches that are submitted together again and again: [`Repeated`] if it has graphs, `()` if nothing.
    type Recording: Default + Send + Sync;
    /// A point of the device's own time; `()` for a driver that does not tell it.
    type Mark: Send;

    /// What the addresses of blocks are multiples of, in bytes.
    const ALIGNMENT: usize = 256;

    /// The device's name: `cuda:0`.
    fn name(&self) -> &str;
    /// What it says of itself.
    fn info(&self) -> DeviceInfo;
    /// What kernels can have.
    fn target(&self) -> &Target;
    /// Why its kernels do not compute this elementwise operation on operands of these types, if they do not. The CPU does it
    /// then, by itself, so that what would be fused with it is still computed here.
    fn refuses(&self, op: &Op, operands: &[DType]) -> Option<String> {
        let _ = (op, operands);
        None
    }
    /// Bytes of the device's memory that nobody has, if it tells.
    fn available_memory(&self) -> Option<u64>;
    /// So many bytes, contents undefined; nothing if there is no room.
    fn allocate(&self, bytes: usize) -> Option<Self::Block>;
    /// Copies from the host; the bytes may change as soon as the call returns.
    fn write(&self, block: &Self::Block, offset: usize, bytes: &[u8]) -> Result<()>;
    /// Whether a write of so many bytes waits for what was submitted before it.
    fn write_waits(&self, bytes: usize) -> bool {
        let _ = bytes;
        false
    }
    /// Copies to the host, after everything submitted before.
    fn read(&self, block: &Self::Block, offset: usize, bytes: &mut [u8]) -> Result<()>;
    /// Begins a copy to the host, after everything submitted before; nothing if the driver cannot, or not now. The block may
    /// be dropped meanwhile.
    fn begin_read(
        &self,
        block: &Self::Block,
        offset: usize,
        bytes: usize,
    ) -> Result<Option<Box<dyn HostRead>>> {
        let _ = (block, offset, bytes);
        Ok(None)
    }
    /// Whether it copies from another device of this family without the host's help.
    fn copies_from(&self, device: &Self) -> bool {
        let _ = device;
        false
    }
    /// Copies to the beginning of a block from a block of a device that it [copies from](Driver::copies_from), after
    /// everything submitted there before, and before everything submitted there later.
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
        Err(Error::internal("gpu", format!("{own} does not copy from {other}")))
    }
    /// Bytes of the host's memory that copies go through.
    fn pinned_memory(&self) -> usize {
        0
    }
    /// Gives back memory that nobody uses and that the driver keeps, of the host and of the device.
    fn trim(&self) {}
    /// Compiles a checked kernel, or takes its machine code from the disk. Called by several threads at once.
    ///
    /// # Errors
    /// A refusal, with the compiler's messages: the step is then planned on the CPU. A failure is the plan's.
    fn compile(&self, kernel: &Kernel) -> Result<Self::Module, NotCompiled>;
    /// Submits a kernel. Every access of a checked kernel lies within its buffer's block, and each place has the alignment
    /// that wide accesses need; an element's own alignment it has always.
    fn launch(&self, submission: &Submission<'_, Self>) -> Result<()>;
    /// Submits kernels that run one after another, or side by side where one does not need what the other writes. The
    /// same `recording` comes with the same kernels, perhaps with other buffers.
    fn launch_all(&self, submissions: &[Submission<'_, Self>], recording: &Self::Recording) -> Result<()> {
        let _ = recording;
        submissions.iter().try_for_each(|submission| self.launch(submission))
    }
    /// Waits until everything submitted has finished.
    fn synchronize(&self) -> Result<()>;
    /// Tells, whenever it is asked, whether the device is done with what was submitted so far (or has failed); nothing if
    /// the driver cannot tell: then a wait for the device is not interrupted.
    fn progress(&self) -> Result<Option<Progress<'_>>> {
        Ok(None)
    }

    /// Submits a note of the device's time, taken when everything submitted before has finished; nothing if the driver has
    /// no such thing: then a profile tells the host's times. Events of CUDA and HIP, markers of an OpenCL queue with
    /// profiling, timestamp queries of WebGPU are marks.
    fn mark(&self) -> Result<Option<Self::Mark>> {
        Ok(None)
    }
    /// Takes to the device at once what was submitted so far, marks among it, where the driver collects; it waits for nothing.
    fn submit(&self) -> Result<()> {
        Ok(())
    }
    /// The device's time between two marks in nanoseconds, the second later than the first; waits until the device has come
    /// so far. A profile asks for marks that are seconds apart at most, so 32-bit floats of milliseconds are exact enough.
    ///
    /// # Errors
    /// [`Error::Internal`] if the driver has no marks.
    fn elapsed(&self, from: &Self::Mark, to: &Self::Mark) -> Result<f64> {
        let _ = (from, to);
        Err(Error::internal("gpu", format!("{} does not tell its time", self.name())))
    }
    /// What the hardware can do at most, as far as the driver tells.
    fn peaks(&self) -> Peaks {
        Peaks::default()
    }
    /// The languages of the sources that users write for this device; of a kernel with several the first of these is taken.
    fn source_languages(&self) -> &'static [SourceLanguage] {
        &[]
    }
    /// Compiles the source of a custom kernel, or takes its machine code from the disk, and finds its entry point. It
    /// checks as much of the kernel's parameters and group size as the compiler tells. Called by several threads at once.
    ///
    /// # Errors
    /// A refusal, with the compiler's messages, whose lines are those of the source; or a failure.
    fn compile_source(&self, kernel: &CustomKernel, source: &Source) -> Result<Self::Module, NotCompiled> {
        let _ = (kernel, source);
        Err("the device takes no sources".to_owned().into())
    }
    /// Submits a custom kernel. What it accesses is its author's care.
    fn launch_source(&self, module: &Self::Module, launch: &SourceLaunch<'_, Self::Block>) -> Result<()> {
        let _ = (module, launch);
        Err(Error::internal("gpu", "a source's launch on a device that takes no sources"))
    }
    /// What the place of a buffer given to a custom kernel must be a multiple of, in bytes, besides its element's size.
    fn binding_alignment(&self) -> usize {
        1
    }

    /// Bytes of the largest tensor that a custom kernel can be given.
    fn largest_binding(&self) -> usize {
        usize::MAX
    }

    /// Addresses and queues for other libraries; nothing if they cannot use the device's memory.
    fn handles(&self) -> Option<&dyn Handles<Self::Block>> {
        None
    }

    /// Whether an operand of a library operation that lies like this is read as it is: see
    /// [`Backend::reads_layout`](crate::device::Backend::reads_layout).
    fn reads_layout(&self, node: &IrNode, operand: usize, layout: &Layout) -> bool {
        let _ = (operand, layout);
        *node.op.exact() == crate::op::Op::Dot
    }
}
