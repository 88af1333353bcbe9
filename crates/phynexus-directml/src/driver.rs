//! DirectML's GPUs as drivers of the engine's GPU layer.

use std::sync::{
    PoisonError,
    atomic::{AtomicBool, Ordering},
};

use phynexus::{
    DType, Result,
    device::{DeviceInfo, HostRead, register_missing},
    gpu::{BlockAddress, Driver, Gpu, NotCompiled, Progress, Submission},
    kernel::{
        loops::Kernel,
        lower::Target,
        print::{Variable, WgslArithmetic, print_wgsl, print_wgsl_variable, wgsl_refuses},
        step::Step,
    },
    op::Op,
};

use crate::{
    adapters::{adapters, available_memory, describe},
    compile::{accept, compile},
    connection::Connection,
    gpu::{DirectMl, Module, Open, work},
    graph::Graph,
    libraries::Libraries,
    library,
    memory::Block,
    recording::Recording,
    routine::Routine,
    times::Mark,
};

static ROUND_HALVES: AtomicBool = AtomicBool::new(false);

/// For tests: whether DirectML computes in `float16` on devices without 16-bit arithmetic too.
#[doc(hidden)]
pub fn round_halves(always: bool) {
    ROUND_HALVES.store(always, Ordering::Relaxed);
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
        let WgslArithmetic { divisions, subnormals } = self.found.arithmetic;
        let is_exact = |graph: &Graph| {
            (half || !graph.rounds_to_half())
                && (divisions || !graph.divides())
                && (subnormals || !graph.chooses())
        };
        let Some(graph) = library::graph(step).filter(is_exact) else { return Ok(None) };
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
        match self.known_again()? {
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
