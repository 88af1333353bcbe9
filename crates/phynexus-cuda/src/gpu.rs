//! A GPU as the engine uses it: its compiler, its memory, and the features that its kernels may use.

use std::{ops::Range, sync::Arc};

use cudarc::driver::sys::{CUdevice_attribute as Attribute, CUdeviceptr};
use phynexus::{
    DType,
    gpu::Staging,
    kernel::{check::Limits, lower::Target},
};

use crate::{
    compile::Compiler,
    context::{Context, capability},
    products::matrix_units,
    versions::{Nvrtc, Version},
};

/// A GPU.
pub(crate) struct Cuda {
    pub(crate) context: Arc<Context>,
    pub(crate) compiler: Compiler,
    pub(crate) target: Target,
    pub(crate) staging: Arc<Staging<Context>>,
}

/// A block of the driver's memory.
pub(crate) struct Block {
    address: CUdeviceptr,
    bytes: usize,
    context: Arc<Context>,
}

impl Block {
    /// A block of `bytes` bytes; `None` if memory does not suffice.
    pub(crate) fn new(context: &Arc<Context>, bytes: usize) -> Option<Block> {
        let address = context.allocate(bytes)?;
        Some(Block { address, bytes, context: context.clone() })
    }

    pub(crate) fn address(&self) -> CUdeviceptr {
        self.address
    }

    /// The addresses of so many bytes at an offset.
    pub(crate) fn range(&self, offset: usize, bytes: usize) -> Range<u64> {
        let start = self.address + offset as u64;
        start..start + bytes as u64
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        // SAFETY: the address came from the same context and is the only reference; this stream waits for other streams
        // that used it.
        unsafe { self.context.free(self.range(0, self.bytes)) };
    }
}

impl Cuda {
    /// Opens the GPU with this number, if this driver and compiler support it.
    pub(crate) fn new(number: usize, driver: Version, nvrtc: &Nvrtc) -> Result<Cuda, String> {
        // Checked before the GPU is opened, because that allocates memory on it.
        let (major, minor) = capability(number)?;
        if let Some(reason) = nvrtc.refusal(10 * major + minor, Some(driver)) {
            return Err(reason);
        }
        let context = Arc::new(Context::new(number).map_err(|error| error.to_string())?);
        // Hopper's matrix units need code for exactly this architecture.
        let panels = (major, minor) == (9, 0);
        let suffix = if panels { "a" } else { "" };
        let compiler = Compiler::new(&format!("sm_{major}{minor}{suffix}"), nvrtc.version);
        let target = target(&context.name, major, panels, |attribute| context.attribute(attribute));
        let staging = Staging::new(context.clone(), &context.name);
        Ok(Cuda { context, compiler, target, staging })
    }
}

/// The features that kernels of this GPU may use. Limits that the driver does not report default to those of every GPU.
/// `panels` tells whether code is compiled for `sm_90a`, which has products of panels.
pub(crate) fn target(
    name: &str,
    major: usize,
    panels: bool,
    attribute: impl Fn(Attribute) -> Option<usize>,
) -> Target {
    let figure = |what, otherwise| attribute(what).unwrap_or(otherwise);
    let processors = figure(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16);
    let can_meet = attribute(Attribute::CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH) == Some(1);
    let limits = Limits {
        device: name.to_owned(),
        // Kernel parameters take at most 4 KB.
        bindings: 500,
        shared_bytes: figure(Attribute::CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 48 << 10),
        block: [
            figure(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024),
            figure(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024),
            figure(Attribute::CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64),
        ],
        block_size: figure(Attribute::CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024),
        grid: [
            figure(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 0x7fff_ffff),
            figure(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 0xffff),
            figure(Attribute::CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 0xffff),
        ],
        subgroup: attribute(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        dtypes: DType::ALL.to_vec(),
        matrices: matrix_units(major, panels),
        quads: major >= 8,
        async_copies: major >= 8,
        // Any group fits a processor.
        meeting_groups: if can_meet { processors } else { 0 },
    };
    Target { limits, vector_bytes: 16, processors, sums: 64 }
}
