//! wgpu's GPUs as drivers of the engine's GPU layer.

use std::sync::{Mutex, OnceLock, PoisonError};

use phynexus::{
    DType, Error, Result,
    custom::{CustomKernel, Source, SourceLanguage},
    device::DeviceInfo,
    gpu::{Driver, NotCompiled, Progress, SourceLaunch, Submission},
    kernel::{loops::Kernel, lower::Target, print::wgsl_refuses},
    op::Op,
};
use smallvec::SmallVec;
use wgpu::{
    Backend, BindGroupDescriptor, BindGroupEntry, BindingResource, Buffer, BufferBinding, BufferSize,
    Features,
};

use crate::{
    adapter::Found,
    compile::{Pipeline, compile},
    connection::{AT_ONCE, Connection, Launch},
    memory::memory,
    source,
    times::Mark,
};

/// A GPU, opened on first use.
pub(crate) struct Wgpu {
    found: Found,
    connection: OnceLock<Connection>,
    /// Held while opening.
    opening: Mutex<()>,
}

impl Wgpu {
    pub(crate) fn new(found: Found) -> Wgpu {
        Wgpu { found, connection: OnceLock::new(), opening: Mutex::new(()) }
    }

    fn connection(&self) -> Result<&Connection> {
        if let Some(connection) = self.connection.get() {
            return Ok(connection);
        }
        // One thread at a time. A failure is not cached: the next attempt may succeed.
        let _turn = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        match self.connection.get() {
            Some(connection) => Ok(connection),
            None => {
                let opened = Connection::new(&self.found)?;
                Ok(self.connection.get_or_init(|| opened))
            }
        }
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

    fn compile(&self, kernel: &Kernel) -> Result<Pipeline, NotCompiled> {
        compile(&self.found, self.connection()?, kernel)
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
        let connection = self.connection()?;
        connection.times().map(|times| times.mark(connection)).transpose()
    }

    fn submit(&self) -> Result<()> {
        self.connection()?.submit_pending()
    }

    fn elapsed(&self, from: &Mark, to: &Mark) -> Result<f64> {
        let connection = self.connection()?;
        match connection.times() {
            Some(times) => times.elapsed(connection, from, to),
            None => Err(Error::internal("gpu", format!("{} does not support timestamps", self.name()))),
        }
    }

    fn source_languages(&self) -> &'static [SourceLanguage] {
        let metal = self.found.adapter.get_info().backend == Backend::Metal;
        match metal && self.found.features.contains(Features::PASSTHROUGH_SHADERS) {
            true => &[SourceLanguage::Msl, SourceLanguage::SpirV, SourceLanguage::Wgsl],
            false => &[SourceLanguage::SpirV, SourceLanguage::Wgsl],
        }
    }

    fn compile_source(&self, kernel: &CustomKernel, source: &Source) -> Result<Pipeline, NotCompiled> {
        source::compile(self.connection()?, kernel, source)
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
        match self.connection.get() {
            Some(connection) => Ok(Some(Box::new(connection.progress()?))),
            None => Ok(None),
        }
    }

    fn synchronize(&self) -> Result<()> {
        match self.connection.get() {
            Some(connection) => connection.synchronize(),
            None => Ok(()),
        }
    }
}
