//! Implements the engine's device trait on top of a driver.

use std::{
    any::Any,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
};

use smallvec::SmallVec;

use super::{
    Driver,
    clock::Clock,
    custom::{self, CustomModules, CustomStep},
    family::Relation,
    heap::Heap,
    modules::{Modules, compiled_kernels},
    routine::{RoutineStep, is_collective},
    sequence::GpuSequence,
    spill::{GpuMemory, Spilling, hold, pin, pin_foreign, read_on_host},
    step::{GpuStep, Resources},
};
use crate::{
    DType, Error, Result,
    device::{
        Backend, Buffer, Copied, DeviceInfo, Exchange, Executable, HostRead, MemoryStatistics, Peaks,
        Sequence, Support,
    },
    host_memory, interrupt,
    kernel::{
        lower::{Target, attention_reads},
        step::Step,
    },
    op::custom::CustomKernel,
    op::{Composite, Op, TensorType, Unary, composite::AttentionGradient, ir::IrNode},
    pool::Pool,
    shape::Layout,
};

/// A GPU as a device of the engine.
pub struct Gpu<D: Driver>(Resources<D>);

impl<D: Driver> Gpu<D> {
    /// Wraps an initialised driver.
    pub fn new(driver: D) -> Gpu<D> {
        let pool = Pool::from_environment(driver.name());
        let heap = Arc::new(Heap { driver, pool, clock: Clock::new(), spilling: Spilling::new() });
        Gpu(Resources { heap, modules: Arc::new(Modules::new()), custom: Arc::new(CustomModules::new()) })
    }

    pub(super) fn driver(&self) -> &D {
        &self.0.heap.driver
    }

    pub(super) fn heap(&self) -> &Arc<Heap<D>> {
        &self.0.heap
    }

    /// Whether a step may have this composite as its operation.
    fn lowers_composite(&self, op: &Op, operands: &[TensorType]) -> bool {
        // Of what bodies consist of, a language may lack exponentials of some type.
        let refuses = |dtype| self.driver().refuses(&Op::Unary(Unary::Exp), &[dtype]).is_some();
        self.driver().target().lowers_composite(op, operands)
            && !operands.iter().any(|operand| operand.dtype().is_float() && refuses(operand.dtype()))
    }

    /// Compiles a step of a plan, or one by itself.
    fn compiled(&self, step: &Step, relation: Option<Relation>) -> Result<Arc<dyn Executable>> {
        match custom::call(step) {
            Some((library, call)) => Ok(Arc::new(CustomStep::new(self.0.clone(), library, call)?)),
            None => match RoutineStep::new(self.0.clone(), step, relation)? {
                Some(routine) => Ok(Arc::new(routine)),
                None => Ok(Arc::new(GpuStep::new(self.0.clone(), step, relation)?)),
            },
        }
    }

    /// Compiles steps that need no other processes, in any order.
    fn compile_kernels(&self, steps: &[&Step], relation: Relation) -> Vec<Result<Arc<dyn Executable>>> {
        let compile = |step: &Step| self.compiled(step, Some(relation));
        // For known kernels, starting threads takes longer than the work, so they start after the first compilation.
        let before = compiled_kernels();
        let mut all: Vec<Result<Arc<dyn Executable>>> = Vec::with_capacity(steps.len());
        while all.len() < steps.len() && compiled_kernels() == before {
            all.push(interrupt::check().and_then(|()| compile(steps[all.len()])));
        }
        let steps = &steps[all.len()..];
        if steps.is_empty() {
            return all;
        }
        let threads = thread::available_parallelism().map_or(1, NonZero::get).min(steps.len());
        // Compile times vary widely, so each thread takes the next unclaimed step.
        let next = AtomicUsize::new(0);
        let ended = AtomicBool::new(false);
        let work = || {
            let take = || {
                let at = next.fetch_add(1, Ordering::Relaxed);
                let made = |step: &&Step| match ended.load(Ordering::Relaxed) {
                    true => Err(Error::Interrupted),
                    false => compile(step),
                };
                steps.get(at).map(|step| (at, made(step)))
            };
            std::iter::from_fn(take).collect::<Vec<_>>()
        };
        let missing = || Err(Error::internal("gpu", "a compiler thread panicked"));
        let first = all.len();
        all.extend(steps.iter().map(|_| missing()));
        thread::scope(|scope| {
            let worker = |_| thread::Builder::new().spawn_scoped(scope, work).ok();
            let workers: Vec<_> = (0..threads).map_while(worker).collect();
            // If the system refuses to start threads, compile on this one.
            let own = if workers.is_empty() { work() } else { Vec::new() };
            if interrupt::is_watched() {
                let done = || workers.iter().all(|worker| worker.is_finished());
                ended.store(interrupt::wait_until(&done).is_err(), Ordering::Relaxed);
            }
            let theirs = workers.into_iter().flat_map(|worker| worker.join().unwrap_or_default());
            for (at, result) in theirs.chain(own) {
                all[first + at] = result;
            }
        });
        all
    }
}

impl<D: Driver> Backend for Gpu<D> {
    fn info(&self) -> DeviceInfo {
        self.driver().info()
    }

    fn name(&self) -> &str {
        self.driver().name()
    }

    fn target(&self) -> Option<&Target> {
        Some(self.driver().target())
    }

    fn support(&self, node: &IrNode, operands: &[TensorType]) -> Support {
        // Other operations without a kernel are refused when their step is compiled.
        match node.op {
            ref op if self.lowers_composite(op, operands) => Support::Routine,
            Op::Custom(ref call) => match custom::source_of(self.driver(), call.kernel()) {
                Ok(_) => Support::Routine,
                Err(error) => Support::Unsupported(error.to_string()),
            },
            ref op => {
                let dtypes: SmallVec<[DType; 4]> = operands.iter().map(TensorType::dtype).collect();
                match self.driver().refuses(op, &dtypes) {
                    Some(reason) => Support::Unsupported(reason),
                    None => Support::usual(op),
                }
            }
        }
    }

    fn reads_layout(&self, node: &IrNode, operand: usize, layout: &Layout) -> bool {
        match &node.op {
            Op::Composite(Composite::Attention(of) | Composite::AttentionGradient(AttentionGradient(of))) => {
                attention_reads(of, operand, layout)
            }
            _ => self.driver().reads_layout(node, operand, layout),
        }
    }

    fn prepare_custom(&self, kernel: &CustomKernel, groups: [usize; 3]) -> Result<()> {
        match custom::source_of(self.driver(), kernel) {
            Ok(_) => {
                custom::check_launch(self.driver(), kernel, groups)?;
                self.0.custom.get(&self.0.heap, kernel).map(drop)
            }
            // The launch then falls back to the CPU, with this reason.
            Err(_) if kernel.has_cpu_function() => Ok(()),
            Err(error) => Err(error),
        }
    }

    fn compile(&self, step: &Step) -> Result<Arc<dyn Executable>> {
        self.compiled(step, None)
    }

    fn compile_all(&self, steps: &[&Step], family: u64) -> Vec<Result<Arc<dyn Executable>>> {
        let relation = self.0.modules.families.begin(family);
        // Drivers make what collectives need together with the other ranks, in the same order.
        let mut collectives = Vec::new();
        for step in steps.iter().filter(|step| is_collective(step)) {
            // After a failure, the other ranks do not come.
            let failed = collectives.last().and_then(|last: &Result<_>| last.as_ref().err());
            let failed = failed.filter(|error| !matches!(error, Error::Unsupported { .. })).cloned();
            collectives.push(failed.map_or_else(|| self.compiled(step, Some(relation)), Err));
        }
        let mut collectives = collectives.into_iter();
        let others: Vec<&Step> = steps.iter().copied().filter(|step| !is_collective(step)).collect();
        let mut others = self.compile_kernels(&others, relation).into_iter();
        let missing = || Err(Error::internal("gpu", "a step was not compiled"));
        let compiled = |step: &&Step| match is_collective(step) {
            true => collectives.next().unwrap_or_else(missing),
            false => others.next().unwrap_or_else(missing),
        };
        steps.iter().map(compiled).collect()
    }

    fn link(&self, steps: &[(Arc<dyn Executable>, usize)]) -> Option<(usize, Arc<dyn Sequence>)> {
        GpuSequence::of(&self.0.heap, steps)
    }

    fn epilogue(&self, node: &IrNode) -> bool {
        matches!(node.op.exact(), Op::Dot | Op::Conv(_))
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        Ok(Buffer(GpuMemory::new(&self.0.heap, bytes)?))
    }

    fn write(&self, target: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        let memory = pin(&self.0.heap, target)?;
        let (block, offset) = memory.slice(offset, bytes.len())?;
        if self.driver().write_waits(bytes.len()) {
            self.0.heap.wait_asking()?;
        }
        if bytes.is_empty() { Ok(()) } else { self.0.heap.write(block, offset, bytes) }
    }

    fn host_buffer(&self, bytes: Vec<u8>) -> Result<Buffer> {
        Ok(Buffer(GpuMemory::on_host(&self.0.heap, bytes)))
    }

    fn read(&self, source: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let memory = match pin(&self.0.heap, source) {
            Ok(memory) => memory,
            Err(error) => return read_on_host(&self.0.heap, source, offset, bytes).ok_or(error),
        };
        let (block, offset) = memory.slice(offset, bytes.len())?;
        if bytes.is_empty() { Ok(()) } else { self.0.heap.read(block, offset, bytes) }
    }

    fn begin_read(&self, source: &Buffer, offset: usize, bytes: usize) -> Result<Box<dyn HostRead>> {
        let memory = match pin(&self.0.heap, source) {
            Ok(memory) => memory,
            Err(error) => {
                let mut copy = host_memory::filled(0, bytes)?;
                read_on_host(&self.0.heap, source, offset, &mut copy).ok_or(error)?;
                return Ok(Box::new(Copied(copy)));
            }
        };
        let (block, offset) = memory.slice(offset, bytes)?;
        self.0.heap.begin_read(block, offset, bytes)
    }

    fn copy_from(&self, target: &Buffer, source: &Buffer, offset: usize, bytes: usize) -> Result<bool> {
        let Some((heap, source)) = pin_foreign::<D>(source)? else { return Ok(false) };
        let target = pin(&self.0.heap, target)?;
        let (source, offset) = source.slice(offset, bytes)?;
        self.0.heap.copy_from(target.slice(0, bytes)?.0, &heap, source, offset, bytes)
    }

    fn synchronize(&self) -> Result<()> {
        self.0.heap.synchronize()
    }

    fn memory(&self) -> MemoryStatistics {
        self.0.heap.statistics()
    }

    fn reset_peak_memory(&self) {
        self.0.heap.pool.reset_peak();
    }

    fn set_memory_limit(&self, limit: Option<usize>) {
        self.0.heap.pool.set_limit(limit);
    }

    fn empty_cache(&self) {
        self.0.heap.empty_cache();
    }

    fn set_spilling(&self, spilling: bool) -> Result<()> {
        self.0.heap.spilling.set(spilling);
        Ok(())
    }

    fn hold(&self, buffers: &mut dyn Iterator<Item = &Buffer>) -> Result<Option<Box<dyn Any>>> {
        hold(&self.0.heap, buffers)
    }

    fn exchange(&self) -> Option<&dyn Exchange> {
        self.driver().handles().map(|_| self as &dyn Exchange)
    }

    fn peaks(&self) -> Peaks {
        self.driver().peaks()
    }

    fn binding_limit(&self) -> usize {
        // Fused kernels get at most 64 buffers, even if the device supports more.
        self.driver().target().limits.bindings.min(64)
    }

    fn batch_limit(&self) -> usize {
        // A batch too large for one kernel is split into several.
        usize::MAX
    }
}
