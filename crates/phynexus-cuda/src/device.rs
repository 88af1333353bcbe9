//! NVIDIA GPUs behind the engine's trait.

use std::sync::{Arc, Once};

use cudarc::driver::{result, sys::CUdevice_attribute as Attribute};
use phynexus::{
    DType, Result,
    device::{
        Backend, Buffer, DeviceInfo, DeviceNature, Executable, MemoryStatistics, Pool, Support,
        register_missing,
    },
    graph::{ir::IrNode, op::Op},
    kernel::{check::Limits, lower::Target},
    schedule::step::Step,
    shape::Layout,
};

use crate::{
    compile::Compiler,
    context::{Context, count},
    library,
    memory::{CudaMemory, address},
    step::{CudaStep, Resources, Status},
};

/// Registers every GPU that NVIDIA's driver shows, or the reason why there is none; once a process.
pub fn register() {
    static DONE: Once = Once::new();
    DONE.call_once(look);
}

fn look() {
    let found = library::open().and_then(|()| count());
    let number = match found {
        Ok(0) => return register_missing("cuda", "NVIDIA's driver is installed, but it shows no GPU"),
        Ok(number) => number,
        Err(reason) => return register_missing("cuda", reason),
    };
    for gpu in 0..number {
        match Cuda::new(gpu) {
            Ok(cuda) => drop(phynexus::device::register(Box::new(cuda))),
            Err(error) => register_missing(format!("cuda:{gpu}"), error.to_string()),
        }
    }
}

/// A GPU.
struct Cuda(Resources);

impl Cuda {
    fn new(number: usize) -> Result<Cuda> {
        let context = Arc::new(Context::new(number)?);
        let compiler = Arc::new(Compiler::new(context.capability()));
        let pool = Arc::new(Pool::new(context.name.clone()));
        let target = target(&context);
        let status = Arc::new(Status::new(&context, &pool)?);
        Ok(Cuda(Resources { context, compiler, pool, target, status }))
    }
}

/// What kernels of this GPU can have. Limits that the driver does not tell are those that every GPU has.
fn target(context: &Context) -> Target {
    let figure = |attribute, otherwise| context.attribute(attribute).unwrap_or(otherwise);
    let limits = Limits {
        device: context.name.clone(),
        // Parameters of a kernel are 4 KB at most.
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
        subgroup: context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_WARP_SIZE),
        dtypes: DType::ALL.to_vec(),
        matrices: Vec::new(),
    };
    let processors = figure(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16);
    Target { limits, vector_bytes: 16, processors }
}

impl Backend for Cuda {
    fn info(&self) -> DeviceInfo {
        let context = &self.0.context;
        let (major, minor) = context.capability();
        let mut features = vec![format!("compute capability {major}.{minor}")];
        features.extend(context.driver_version().map(|version| format!("driver for CUDA {version}")));
        DeviceInfo {
            name: context.name.clone(),
            model: context.model().unwrap_or_else(|| "NVIDIA GPU".to_owned()),
            nature: DeviceNature::Hardware,
            compute_units: context.attribute(Attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
            total_memory: context.total_memory(),
            features,
        }
    }

    fn name(&self) -> &str {
        &self.0.context.name
    }

    fn support(&self, node: &IrNode, _: &[DType]) -> Support {
        // What has no kernel is refused when its step is compiled.
        match node.op {
            Op::Composite(_) => Support::Body,
            _ => Support::Native,
        }
    }

    fn reads_layout(&self, node: &IrNode, _: usize, _: &Layout) -> bool {
        node.op == Op::Dot
    }

    fn compile(&self, step: &Step) -> Result<Arc<dyn Executable>> {
        Ok(Arc::new(CudaStep::new(self.0.clone(), step)?))
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        Ok(Buffer(Arc::new(CudaMemory::new(&self.0.context, &self.0.pool, bytes)?)))
    }

    fn write(&self, target: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        let context = &self.0.context;
        let address = address(context, target, offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        context.bind()?;
        // SAFETY: the part lies within the buffer. From pageable memory the driver has copied when the call returns.
        unsafe { result::memcpy_htod_async(address, bytes, context.stream()) }
            .map_err(|e| context.error("copying to the GPU", e))
    }

    fn read(&self, source: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let context = &self.0.context;
        let address = address(context, source, offset, bytes.len())?;
        if bytes.is_empty() {
            return Ok(());
        }
        context.bind()?;
        // SAFETY: the part lies within the buffer, and the bytes stay until the stream has been waited for.
        unsafe { result::memcpy_dtoh_async(bytes, address, context.stream()) }
            .map_err(|e| context.error("copying from the GPU", e))?;
        context.synchronize()
    }

    fn synchronize(&self) -> Result<()> {
        self.0.context.synchronize()
    }

    fn memory(&self) -> MemoryStatistics {
        self.0.pool.statistics()
    }

    fn reset_peak_memory(&self) {
        self.0.pool.reset_peak();
    }

    fn set_memory_limit(&self, limit: Option<usize>) {
        self.0.pool.set_limit(limit);
    }

    fn empty_cache(&self) {
        self.0.pool.empty_cache();
    }

    fn batch_limit(&self) -> usize {
        usize::MAX
    }
}
