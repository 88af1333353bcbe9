//! wgpu's GPUs as drivers of the engine's GPU layer.

use std::sync::{Mutex, OnceLock, PoisonError};

use phynexus::{
    DType, Error, Result,
    custom::{CustomKernel, Source, SourceLanguage},
    device::{DeviceInfo, DeviceNature, register_missing},
    gpu::{Driver, Gpu, NotCompiled, Progress, SourceLaunch, Submission},
    kernel::{
        loops::Kernel,
        lower::Target,
        print::{Variable, print_wgsl, print_wgsl_variable, wgsl_refuses},
    },
    op::Op,
};
use smallvec::SmallVec;
use wgpu::{
    Backend, Backends, BindGroupDescriptor, BindGroupEntry, BindingResource, Buffer, BufferBinding,
    BufferSize, Features,
};

use crate::{
    adapter::{Found, NEEDED, adapters, describe},
    compile::{accept, compile},
    connection::{AT_ONCE, Connection, Launch},
    exit,
    language::{MSL, SPIR_V, WGSL},
    memory::memory,
    pipelines::{Pipeline, Pipelines},
    quiet::quietly,
    source,
    times::{Mark, Times},
};

/// The APIs in discovery order, their device names, and the reason if none is found.
const APIS: [(Backend, &str, &str); 3] = [
    (
        Backend::Vulkan,
        "vulkan",
        "the Vulkan loader reports no device (Linux: libvulkan1 and the GPU's driver)",
    ),
    (Backend::Metal, "metal", "Metal is only available on Apple systems"),
    (Backend::Dx12, "dx12", "DirectX 12 is only available on Windows"),
];

/// Registers every GPU that the APIs report, or the reasons why there are none.
pub(crate) fn register() {
    let found = quietly(|| adapters(Backends::VULKAN | Backends::METAL | Backends::DX12));
    for (backend, kind, reason) in APIS {
        let own = || found.iter().filter(|adapter| adapter.get_info().backend == backend);
        if own().next().is_none() {
            register_missing(kind, reason);
        }
        for (number, adapter) in own().enumerate() {
            let name = format!("{kind}:{number}");
            if adapter.features().contains(NEEDED) {
                let driver = Wgpu::new(describe(adapter, name));
                phynexus::device::register(Box::new(Gpu::new(driver)));
            } else {
                register_missing(name, "its driver does not support immediates (push constants)");
            }
        }
    }
}

/// An open GPU.
struct Open {
    connection: Connection,
    pipelines: Pipelines,
    /// `None` if the device does not support timestamps.
    times: Option<Times>,
}

impl Open {
    fn new(found: &Found) -> Result<Open> {
        let connection = Connection::new(found)?;
        let (pipelines, times) = (Pipelines::new(found), Times::new(&connection));
        if found.info.nature == DeviceNature::Emulator {
            exit::guard(&connection);
        }
        Ok(Open { connection, pipelines, times })
    }
}

/// A GPU, opened on first use.
pub(crate) struct Wgpu {
    found: Found,
    open: OnceLock<Open>,
    /// Held while opening.
    opening: Mutex<()>,
}

impl Wgpu {
    pub(crate) fn new(found: Found) -> Wgpu {
        Wgpu { found, open: OnceLock::new(), opening: Mutex::new(()) }
    }

    fn open(&self) -> Result<&Open> {
        if let Some(open) = self.open.get() {
            return Ok(open);
        }
        // One thread at a time. A failure is not cached: the next attempt may succeed.
        let _turn = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        match self.open.get() {
            Some(open) => Ok(open),
            None => {
                let opened = Open::new(&self.found)?;
                Ok(self.open.get_or_init(|| opened))
            }
        }
    }

    fn connection(&self) -> Result<&Connection> {
        Ok(&self.open()?.connection)
    }
}

impl Driver for Wgpu {
    type Block = Buffer;
    type Module = Pipeline;
    type Recording = ();
    type Mark = Mark;

    fn name(&self) -> &str {
        &self.found.info.name
    }

    fn info(&self) -> DeviceInfo {
        self.found.info.clone()
    }

    fn target(&self) -> &Target {
        &self.found.target
    }

    fn refuses(&self, op: &Op, operands: &[DType]) -> Option<String> {
        wgsl_refuses(op, operands)
    }

    fn available_memory(&self) -> Option<u64> {
        memory(&self.found.adapter).available
    }

    fn allocate(&self, bytes: usize) -> Option<Buffer> {
        self.connection().ok()?.allocate(bytes)
    }

    fn write(&self, block: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        self.connection()?.write(block, offset, bytes)
    }

    fn write_waits(&self, bytes: usize) -> bool {
        bytes > AT_ONCE
    }

    fn read(&self, block: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.connection()?.read(block, offset, bytes)
    }

    fn accept(&self, kernel: &Kernel) -> Result<(), NotCompiled> {
        accept(&self.found, &self.open()?.connection, kernel)
    }

    fn print(&self, kernel: &Kernel) -> Result<String, NotCompiled> {
        Ok(print_wgsl(kernel, self.found.arithmetic)?)
    }

    fn print_variable(&self, kernel: &Kernel) -> Option<Variable> {
        print_wgsl_variable(kernel, self.found.arithmetic).ok()
    }

    fn compile(&self, kernel: &Kernel, source: &str) -> Result<Pipeline, NotCompiled> {
        let open = self.open()?;
        compile(&self.found, &open.connection, &open.pipelines, kernel, source)
    }

    fn launch(&self, submission: &Submission<'_, Wgpu>) -> Result<()> {
        let connection = self.connection()?;
        let (alignment, most) = (connection.alignment as u64, connection.largest_binding);
        let mut starts: SmallVec<[u8; 64]> = SmallVec::new();
        let mut entries: SmallVec<[BindGroupEntry<'_>; 16]> = SmallVec::new();
        for (at, (&(buffer, start), parameter)) in
            submission.arguments.iter().zip(&submission.kernel.buffers).enumerate()
        {
            // The start of an empty parameter is irrelevant.
            let offset = u64::try_from(start).unwrap_or(0) / alignment * alignment;
            let offset = if offset < buffer.size() { offset } else { 0 };
            let first = (start - offset as i64) / parameter.dtype.size() as i64;
            starts.extend((first as i32).to_ne_bytes());
            let size = BufferSize::new((buffer.size() - offset).min(most));
            let resource = BindingResource::Buffer(BufferBinding { buffer, offset, size });
            entries.push(BindGroupEntry { binding: at as u32, resource });
        }
        // The zero that printed kernels expect.
        starts.extend([0; 4]);
        let module = submission.module;
        let bindings = connection.device().create_bind_group(&BindGroupDescriptor {
            label: None,
            layout: &module.layout,
            entries: &entries,
        });
        let grid = submission.kernel.grid().map(|extent| extent as u32);
        connection.launch(Launch { pipeline: module.pipeline.clone(), bindings, starts, grid })
    }

    fn mark(&self) -> Result<Option<Mark>> {
        let Open { connection, times, .. } = self.open()?;
        times.as_ref().map(|times| times.mark(connection)).transpose()
    }

    fn submit(&self) -> Result<()> {
        self.connection()?.submit_pending()
    }

    fn elapsed(&self, from: &Mark, to: &Mark) -> Result<f64> {
        let Open { connection, times, .. } = self.open()?;
        match times {
            Some(times) => times.elapsed(connection, from, to),
            None => Err(Error::internal("gpu", format!("{} does not support timestamps", self.name()))),
        }
    }

    fn source_languages(&self) -> &'static [SourceLanguage] {
        let metal = self.found.adapter.get_info().backend == Backend::Metal;
        match metal && self.found.features.contains(Features::PASSTHROUGH_SHADERS) {
            true => &[MSL, SPIR_V, WGSL],
            false => &[SPIR_V, WGSL],
        }
    }

    fn compile_source(&self, kernel: &CustomKernel, source: &Source) -> Result<Pipeline, NotCompiled> {
        let open = self.open()?;
        source::compile(&open.connection, &open.pipelines, kernel, source)
    }

    fn launch_source(&self, module: &Pipeline, launch: &SourceLaunch<'_, Buffer>) -> Result<()> {
        source::launch(self.connection()?, module, launch)
    }

    fn binding_alignment(&self) -> usize {
        self.found.adapter.limits().min_storage_buffer_offset_alignment as usize
    }

    fn largest_binding(&self) -> usize {
        usize::try_from(self.found.adapter.limits().max_storage_buffer_binding_size).unwrap_or(usize::MAX) / 4
            * 4
    }

    fn progress(&self) -> Result<Option<Progress<'_>>> {
        match self.open.get() {
            Some(open) => Ok(Some(Box::new(open.connection.progress()?))),
            None => Ok(None),
        }
    }

    fn synchronize(&self) -> Result<()> {
        match self.open.get() {
            Some(open) => open.connection.synchronize(),
            None => Ok(()),
        }
    }
}
