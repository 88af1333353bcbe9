//! A GPU as the engine uses it: its compiler, its memory, and the features that its kernels may use.

use std::{ops::Range, sync::Arc};

use phynexus::{
    DType, Error, Result,
    gpu::{Addresses, Staging, Submission},
    kernel::{check::Limits, lower::Target},
};

use crate::{
    compile::Compiler,
    context::{Attribute, Context},
    library::{Handle, hip},
    matrices::matrix_units,
};

/// A GPU.
pub(crate) struct HipGpu {
    pub(crate) context: Arc<Context>,
    pub(crate) compiler: Compiler,
    pub(crate) source_compiler: Compiler,
    pub(crate) target: Target,
    pub(crate) architecture: String,
    pub(crate) staging: Arc<Staging<Context>>,
}

/// A block of the runtime's memory.
pub(crate) struct Block {
    address: Handle,
    bytes: usize,
    context: Arc<Context>,
}

// SAFETY: the address is used only through the runtime.
unsafe impl Send for Block {}
// SAFETY: as above.
unsafe impl Sync for Block {}

impl Block {
    /// A block of `bytes` bytes; `None` if memory does not suffice.
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> Option<Block> {
        let address = context.allocate(bytes)?;
        Some(Block { address, bytes, context: context.clone() })
    }

    pub(crate) fn address(&self) -> Handle {
        self.address
    }

    /// The addresses of so many bytes at an offset.
    pub(crate) fn range(&self, offset: usize, bytes: usize) -> Range<u64> {
        let start = (self.address.addr() + offset) as u64;
        start..start + bytes as u64
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // The runtime waits, too, but not with the time limit of collectives. After a failure they have been aborted.
        let _ = self.context.collectives.watch_all(&*self.context);
        // What collectives still use is not freed before; after a failure it stays allocated.
        if self.context.before_write(self.range(0, self.bytes)).is_ok() {
            // SAFETY: the address came from the same context and is the only reference.
            unsafe { self.context.free(self.address) };
        }
    }
}

impl HipGpu {
    /// Opens the GPU with this number.
    pub(crate) fn new(number: usize) -> Result<HipGpu> {
        let name = format!("hip:{number}");
        let error = |message: String| Error::Device { device: name.clone(), message };
        let hip = hip().map_err(error)?;
        let context = Arc::new(Context::new(hip, number)?);
        let unknown = || error("the runtime does not report the GPU's architecture".to_owned());
        let architecture = context.architecture().ok_or_else(unknown)?;
        let compiler = Compiler::new(hip, &architecture);
        let source_compiler = Compiler::of_sources(hip, &architecture);
        let target = target(&name, &architecture, |attribute| context.attribute(attribute));
        let staging = Staging::new(context.clone(), &name);
        Ok(HipGpu { context, compiler, source_compiler, target, architecture, staging })
    }
}

/// The buffer addresses of a launch.
pub(crate) fn addresses(submission: &Submission<'_, HipGpu>) -> Addresses {
    let address = |(block, start): &(&Block, i64)| (block.address as u64).wrapping_add_signed(*start);
    submission.arguments.iter().map(address).collect()
}

/// The features that kernels of a GPU with this architecture and these attributes may use. Limits that the runtime does
/// not report default to those of every GPU.
pub(crate) fn target(
    name: &str,
    architecture: &str,
    attribute: impl Fn(Attribute) -> Option<usize>,
) -> Target {
    /// A launch counts all its invocations in 32 bits.
    const GROUPS: usize = (1 << 22) - 1;
    let figure = |what, otherwise| attribute(what).unwrap_or(otherwise);
    let limits = Limits {
        device: name.to_owned(),
        // Kernel parameters take at most 4 KB.
        bindings: 500,
        shared_bytes: figure(Attribute::MaxSharedMemoryPerBlock, 64 << 10),
        block: [
            figure(Attribute::MaxBlockX, 1024),
            figure(Attribute::MaxBlockY, 1024),
            figure(Attribute::MaxBlockZ, 1024),
        ],
        block_size: figure(Attribute::MaxThreadsPerBlock, 1024),
        grid: [
            figure(Attribute::MaxGridX, GROUPS).min(GROUPS),
            figure(Attribute::MaxGridY, 0xffff).min(0xffff),
            figure(Attribute::MaxGridZ, 0xffff).min(0xffff),
        ],
        subgroup: attribute(Attribute::WarpSize),
        dtypes: DType::ALL.to_vec(),
        matrices: matrix_units(architecture),
        quads: false,
        async_copies: false,
        meeting_groups: 0,
    };
    Target { limits, vector_bytes: 16, processors: figure(Attribute::MultiprocessorCount, 16), sums: 64 }
}
