//! DirectML's GPUs as drivers of the engine's GPU layer.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use phynexus::{
    DType, Error, Result,
    device::{DeviceInfo, HostRead, register_missing},
    gpu::{BlockAddress, DiskCache, Driver, Gpu, NotCompiled, Progress, Staging, Submission},
    kernel::{
        loops::Kernel,
        lower::Target,
        print::{Variable, print_wgsl, print_wgsl_variable, wgsl_refuses},
        step::Step,
    },
    op::Op,
};
use smallvec::SmallVec;

use crate::{
    adapters::{Found, adapters, available_memory, describe},
    compile::{accept, compile, made},
    connection::Connection,
    graph::Graph,
    libraries::Libraries,
    library,
    memory::Block,
    object::Pipeline,
    queue::{What, Work},
    recording::Recording,
    routine::Routine,
    times::{Mark, Times},
};

static ROUND_HALVES: AtomicBool = AtomicBool::new(false);

/// For tests: whether DirectML computes in `float16` on devices without 16-bit arithmetic too.
#[doc(hidden)]
pub fn round_halves(always: bool) {
    ROUND_HALVES.store(always, Ordering::Relaxed);
}

/// What runs on the device.
pub(crate) enum Module {
    Kernel(Arc<Pipeline>),
    Routine(Arc<Routine>),
}

/// Registers every GPU that DXGI reports, or the reason why there is none.
pub(crate) fn register() {
    let found = Libraries::get().and_then(|libraries| {
        let found = adapters(libraries).map_err(|error| format!("DXGI cannot list the GPUs: {error}"))?;
        Ok((libraries, found))
    });
    let (libraries, found) = match found {
        Ok(found) => found,
        Err(reason) => return register_missing("directml", reason),
    };
    if found.is_empty() {
        return register_missing("directml", "DXGI reports no GPU");
    }
    for (number, (adapter, about)) in found.into_iter().enumerate() {
        let name = format!("directml:{number}");
        match describe(libraries, adapter, &about, name.clone()) {
            Ok(found) => {
                phynexus::device::register(Box::new(Gpu::new(DirectMl::new(libraries, found))));
            }
            Err(reason) => register_missing(name, reason),
        }
    }
}

/// An open GPU.
pub(crate) struct Open {
    pub(crate) connection: Arc<Connection>,
    staging: Arc<Staging<Connection>>,
    times: Times,
    cache: DiskCache,
    /// Compiled graphs; `None` if DirectML refuses one. Compiling takes so long that they are kept for the life of the
    /// device.
    routines: Mutex<HashMap<Graph, Option<Arc<Routine>>>>,
}

/// A GPU, opened on first use, and again if it was removed.
pub(crate) struct DirectMl {
    libraries: &'static Libraries,
    found: Found,
    open: Mutex<Option<Arc<Open>>>,
    /// Held while opening.
    opening: Mutex<()>,
}

// SAFETY: DXGI's adapters may be used from any thread.
unsafe impl Send for DirectMl {}
// SAFETY: as above.
unsafe impl Sync for DirectMl {}

impl DirectMl {
    fn new(libraries: &'static Libraries, found: Found) -> DirectMl {
        DirectMl { libraries, found, open: Mutex::default(), opening: Mutex::new(()) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Arc<Open>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The device, if it is open.
    fn known(&self) -> Option<Arc<Open>> {
        self.lock().clone()
    }

    fn intact(&self) -> Option<Arc<Open>> {
        self.known().filter(|open| !open.connection.is_removed())
    }

    pub(crate) fn open(&self) -> Result<Arc<Open>> {
        if let Some(open) = self.intact() {
            return Ok(open);
        }
        // One thread at a time. A failure is not cached: the next attempt may succeed.
        let _turn = self.opening.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(open) = self.intact() {
            return Ok(open);
        }
        let removed = self.lock().take();
        if let Some(removed) = removed {
            let connection = removed.connection.clone();
            connection.settle();
            drop(removed);
            connection.release();
        }
        let connection = Connection::new(self.libraries, &self.found)?;
        let staging = Staging::new(connection.clone(), self.name());
        let cache = DiskCache::new("directml", "RNN_DIRECTML_CACHE_PATH");
        let (times, routines) = (Times::default(), Mutex::default());
        let open = Arc::new(Open { connection, staging, times, cache, routines });
        *self.lock() = Some(open.clone());
        Ok(open)
    }

    fn connection(&self) -> Result<Arc<Connection>> {
        Ok(self.open()?.connection.clone())
    }

    /// No host memory can be pinned for a copy.
    fn no_room(&self, bytes: usize) -> Error {
        Error::OutOfMemory {
            device: self.name().to_owned(),
            requested: bytes,
            in_use: 0,
            limit: usize::MAX,
            hint: "there is no host memory that the device can access".to_owned(),
        }
    }
}

/// A launch as a command. One that is to be repeated uses no descriptors of others.
pub(crate) fn work<'a>(
    connection: &Arc<Connection>,
    submission: &Submission<'a, DirectMl>,
    is_repeated: bool,
) -> Result<Work<'a>> {
    submission.arguments.iter().try_for_each(|(block, _)| block.check(connection))?;
    let name = submission.kernel.name.as_str();
    let pipeline = match submission.module {
        Module::Kernel(pipeline) => pipeline,
        Module::Routine(routine) => {
            let what = routine.run(connection, &submission.arguments, is_repeated)?;
            return Ok(Work { name, what });
        }
    };
    let mut addresses = SmallVec::new();
    let mut starts = SmallVec::new();
    for (&(block, start), parameter) in submission.arguments.iter().zip(&submission.kernel.buffers) {
        // The start of an empty parameter is irrelevant.
        let alignment = DirectMl::ALIGNMENT as u64;
        let offset = u64::try_from(start).unwrap_or(0) / alignment * alignment;
        let offset = if offset < block.bytes { offset } else { 0 };
        starts.push(((start - offset as i64) / parameter.dtype.size() as i64) as i32);
        addresses.push(block.address() + offset);
    }
    // The zero that printed kernels expect.
    starts.push(0);
    let grid = submission.kernel.grid().map(|extent| extent as u32);
    let made = made(connection, pipeline)?;
    Ok(Work { name, what: What::Kernel { pipeline: pipeline.clone(), made, addresses, starts, grid } })
}

impl Driver for DirectMl {
    type Block = Block;
    type Module = Module;
    type Recording = Recording;
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
        available_memory(&self.found.adapter)
    }

    fn allocate(&self, bytes: usize) -> Option<Block> {
        Block::new(&self.connection().ok()?, bytes).ok()
    }

    fn is_lost(&self, block: &Block) -> bool {
        block.is_lost()
    }

    fn own_memory(&self) -> usize {
        let own = |connection: &Connection| {
            connection.routine_bytes.load(Ordering::Relaxed) + connection.slabs.rest() as usize
        };
        self.known().map_or(0, |open| own(&open.connection))
    }

    fn write(&self, block: &Block, offset: usize, bytes: &[u8]) -> Result<()> {
        let open = self.open()?;
        let Open { connection, staging, .. } = &*open;
        block.check(connection)?;
        let (target, start) = block.place()?;
        let done = staging.write(bytes, |part, at| {
            let (source, from) = connection.mapped.find(part)?;
            connection.copy((&target, start + (offset + at) as u64), (&source, from as u64), part.len())
        })?;
        if done == bytes.len() { Ok(()) } else { Err(self.no_room(bytes.len() - done)) }
    }

    fn read(&self, block: &Block, offset: usize, bytes: &mut [u8]) -> Result<()> {
        /// The size of a part in bytes.
        const PART: usize = 16 << 20;
        let mut from = offset;
        for part in bytes.chunks_mut(PART) {
            let read = self.begin_read(block, from, part.len())?.ok_or_else(|| self.no_room(part.len()))?;
            read.finish(&mut |pinned| {
                part.copy_from_slice(pinned);
                Ok(())
            })?;
            from += part.len();
        }
        Ok(())
    }

    fn begin_read(&self, block: &Block, offset: usize, bytes: usize) -> Result<Option<Box<dyn HostRead>>> {
        let open = self.open()?;
        let Open { connection, staging, .. } = &*open;
        block.check(connection)?;
        let (source, start) = block.place()?;
        staging.read(bytes, |pinned| {
            let (target, to) = connection.mapped.find(pinned)?;
            connection.copy((&target, to as u64), (&source, start + offset as u64), bytes)
        })
    }

    fn pinned_memory(&self) -> usize {
        self.known().map_or(0, |open| open.staging.bytes())
    }

    fn trim(&self) {
        if let Some(open) = self.known() {
            open.staging.trim();
            open.connection.trim();
        }
    }

    fn accept(&self, kernel: &Kernel) -> Result<(), NotCompiled> {
        accept(&self.found, kernel)
    }

    fn print(&self, kernel: &Kernel) -> Result<String, NotCompiled> {
        Ok(print_wgsl(kernel, self.found.arithmetic)?)
    }

    fn print_variable(&self, kernel: &Kernel) -> Option<Variable> {
        print_wgsl_variable(kernel, self.found.arithmetic).ok()
    }

    fn compile(&self, kernel: &Kernel, source: &str) -> Result<Module, NotCompiled> {
        let open = self.open()?;
        compile(&self.found, &open.connection, &open.cache, kernel, source).map(Module::Kernel)
    }

    fn launch(&self, submission: &Submission<'_, DirectMl>) -> Result<()> {
        let connection = self.connection()?;
        connection.add(&work(&connection, submission, false)?).map(drop)
    }

    fn launch_all(&self, submissions: &[Submission<'_, DirectMl>], recording: &Recording) -> Result<()> {
        recording.launch(self, submissions)
    }

    fn compile_routine(&self, step: &Step) -> Result<Option<Module>> {
        // Without 16-bit arithmetic, DirectML's shaders round towards zero.
        let half = self.found.half || ROUND_HALVES.load(Ordering::Relaxed);
        let divisions = self.found.arithmetic.divisions;
        let rounds_well =
            |graph: &Graph| (half || !graph.rounds_to_half()) && (divisions || !graph.divides());
        let Some(graph) = library::graph(step).filter(rounds_well) else { return Ok(None) };
        let open = self.open()?;
        let Open { connection, routines, .. } = &*open;
        let lock = || routines.lock().unwrap_or_else(PoisonError::into_inner);
        let known = lock().get(&graph).cloned();
        let routine = match known {
            Some(routine) => routine,
            None => {
                let made = Routine::new(connection, graph.clone())?;
                lock().entry(graph).or_insert(made).clone()
            }
        };
        Ok(routine.map(Module::Routine))
    }

    fn routine_memory(&self, routine: &Module) -> usize {
        match routine {
            Module::Routine(routine) => routine.memory(),
            Module::Kernel(_) => 0,
        }
    }

    fn takes(&self, routine: &Module, arguments: &[BlockAddress<'_, Block>]) -> bool {
        match routine {
            Module::Routine(routine) => routine.takes(arguments),
            Module::Kernel(_) => false,
        }
    }

    fn mark(&self) -> Result<Option<Mark>> {
        let open = self.open()?;
        open.times.mark(&open.connection).map(Some)
    }

    fn elapsed(&self, from: &Mark, to: &Mark) -> Result<f64> {
        let open = self.open()?;
        let read = |block: &Block, bytes: &mut [u8]| self.read(block, 0, bytes);
        open.times.elapsed(&open.connection, &read, from, to)
    }

    fn submit(&self) -> Result<()> {
        self.connection()?.flush().map(drop)
    }

    fn synchronize(&self) -> Result<()> {
        match self.known() {
            Some(open) => open.connection.synchronize(),
            None => Ok(()),
        }
    }

    fn progress(&self) -> Result<Option<Progress<'_>>> {
        let connection = self.connection()?;
        let last = connection.flush()?;
        Ok(Some(Box::new(move || connection.has_finished(last))))
    }
}
