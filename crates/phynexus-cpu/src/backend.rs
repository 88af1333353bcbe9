//! The engine's trait for the CPU.

use std::sync::{Arc, OnceLock};

use phynexus::{
    DType, Device, Result,
    device::{
        Backend, Binding, Buffer, DeviceInfo, DeviceNature, Executable, MemoryStatistics, Support,
        register_aliases,
    },
    kernel::step::Step,
    op::{Op, TensorType, ir::IrNode},
    pool::Pool,
};
use smallvec::SmallVec;

use crate::{
    device::{Block, HostMemory, NAME, part},
    fused::{FusedKernel, chain},
    library, system_memory,
    vector::InstructionSet,
    working_memory,
};

/// Registers the CPU. Further calls are cheap and return the same device.
pub fn register() -> Device {
    static DEVICE: OnceLock<Device> = OnceLock::new();
    *DEVICE.get_or_init(|| {
        register_aliases(NAME, &["host"]);
        phynexus::device::register(Box::new(Cpu { pool: Arc::new(Pool::new(NAME)) }))
    })
}

/// The host CPU with the system's memory.
struct Cpu {
    pool: Arc<Pool<Block>>,
}

impl Backend for Cpu {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: NAME.to_owned(),
            model: model().unwrap_or_else(|| std::env::consts::ARCH.to_owned()),
            nature: DeviceNature::HostCpu,
            compute_units: std::thread::available_parallelism().ok().map(|n| n.get()),
            total_memory: system_memory::total(),
            features: InstructionSet::available().into_iter().map(|set| set.name().to_owned()).collect(),
        }
    }

    fn name(&self) -> &str {
        NAME
    }

    fn support(&self, node: &IrNode, operands: &[TensorType]) -> Support {
        let operands: SmallVec<[DType; 4]> = operands.iter().map(TensorType::dtype).collect();
        let operands = operands.as_slice();
        match &node.op {
            Op::Unary(op) => meaning(operands, |dtype| op.accepts(dtype), op.name()),
            Op::Binary(op) => meaning(operands, |dtype| op.accepts(dtype), op.name()),
            Op::Composite(composite) if chain(composite).is_some() => {
                meaning(operands, DType::is_float, composite.name())
            }
            op => match Support::usual(op) {
                Support::Fused => Support::Fused,
                _ => library::support(node, operands),
            },
        }
    }

    fn reads_layout(&self, node: &IrNode, operand: usize, layout: &phynexus::shape::Layout) -> bool {
        library::reads_strides(node, operand, layout)
    }

    fn in_place(&self, node: &IrNode) -> Option<usize> {
        matches!(node.op, Op::Scatter(_)).then_some(0)
    }

    fn epilogue(&self, node: &IrNode) -> bool {
        library::epilogue(node)
    }

    fn compile(&self, step: &Step) -> Result<Arc<dyn Executable>> {
        match step {
            Step::Fused(kernel) => Ok(Arc::new(FusedStep(vec![FusedKernel::new(kernel)?]))),
            Step::Batch(kernels) => {
                Ok(Arc::new(FusedStep(kernels.iter().map(FusedKernel::new).collect::<Result<_>>()?)))
            }
            Step::Library(step) => library::compile(step),
        }
    }

    fn allocate(&self, bytes: usize) -> Result<Buffer> {
        let block = self.pool.allocate(bytes, Block::new)?;
        Ok(Buffer(Arc::new(HostMemory::new(block, bytes, self.pool.clone()))))
    }

    fn write(&self, target: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        let pointer = part(target, offset, bytes.len())?;
        // SAFETY: the part lies within the buffer, and the plan's owner has exclusive access while it writes.
        unsafe { bytes.as_ptr().copy_to(pointer, bytes.len()) };
        Ok(())
    }

    fn read(&self, source: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let pointer = part(source, offset, bytes.len())?;
        // SAFETY: the part lies within the buffer, and steps have finished when they return.
        unsafe { pointer.copy_to(bytes.as_mut_ptr(), bytes.len()) };
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        // Steps run synchronously on the caller's thread.
        Ok(())
    }

    fn memory(&self) -> MemoryStatistics {
        let statistics = self.pool.statistics();
        MemoryStatistics {
            reserved: statistics.reserved.saturating_add(working_memory::bytes()),
            available: system_memory::available(),
            total: system_memory::total(),
            ..statistics
        }
    }

    fn batch_limit(&self) -> usize {
        usize::MAX
    }

    fn reset_peak_memory(&self) {
        self.pool.reset_peak();
    }

    fn set_memory_limit(&self, limit: Option<usize>) {
        self.pool.set_limit(limit);
    }

    fn empty_cache(&self) {
        self.pool.empty_cache();
    }
}

/// Fused if the first operand's dtype supports the operation.
fn meaning(operands: &[DType], accepts: impl Fn(DType) -> bool, name: &str) -> Support {
    match operands.first() {
        Some(&dtype) if !accepts(dtype) => Support::Unsupported(format!("{name} does not support {dtype}")),
        _ => Support::Fused,
    }
}

/// A step of fused kernels.
struct FusedStep(Vec<FusedKernel>);

impl Executable for FusedStep {
    fn run(&self, bindings: &[Binding]) -> Result<()> {
        let mut addresses: SmallVec<[*mut u8; 16]> = SmallVec::new();
        let mut rest = bindings;
        for kernel in &self.0 {
            let (own, others) = rest.split_at(kernel.parameters().min(rest.len()));
            rest = others;
            for (parameter, binding) in own.iter().enumerate() {
                addresses.push(kernel.address(parameter, binding)?);
            }
        }
        // SAFETY: unmasked indices stay within the buffers, as checked. The scheduler guarantees the rest: masked
        // indices stay within them where the mask holds, outputs overlap inputs only at the index of the store, and
        // kernels of one step do not touch what another one stores.
        unsafe { FusedKernel::run_all(&self.0, &addresses) }
    }
}

/// The CPU model as reported by the system.
fn model() -> Option<String> {
    let text = std::fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|l| l.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::ALIGNMENT;

    #[test]
    fn memory_is_aligned_counted_and_reused() {
        let cpu = Cpu { pool: Arc::new(Pool::new(NAME)) };
        let buffer = cpu.allocate(1000).unwrap();
        let address = buffer.0.host_pointer().unwrap() as usize;
        assert_eq!(address % ALIGNMENT, 0);
        assert_eq!(cpu.memory().allocated, 1000);
        drop(buffer);
        assert_eq!(cpu.memory().allocated, 0);
        let again = cpu.allocate(1000).unwrap();
        assert_eq!(again.0.host_pointer().unwrap() as usize, address);
        assert!(cpu.allocate(0).unwrap().0.host_pointer().is_some());
    }

    #[test]
    fn copies_stay_within_buffers() {
        let cpu = Cpu { pool: Arc::new(Pool::new(NAME)) };
        let buffer = cpu.allocate(8).unwrap();
        cpu.write(&buffer, 2, &[1, 2, 3]).unwrap();
        let mut bytes = [0; 3];
        cpu.read(&buffer, 2, &mut bytes).unwrap();
        assert_eq!(bytes, [1, 2, 3]);
        assert!(cpu.write(&buffer, 6, &[0; 3]).is_err());
        assert!(cpu.read(&buffer, usize::MAX, &mut bytes).is_err());
    }

    /// A kernel over a reversed tensor: the first element of its parameter is the buffer's last.
    #[test]
    fn kernels_stay_within_buffers_on_both_sides() {
        use phynexus::{
            Scalar,
            kernel::{
                Ranges,
                fused::{FusedOp, Fusion, Instruction, Parameter, Store},
            },
        };
        let cpu = Cpu { pool: Arc::new(Pool::new(NAME)) };
        let index = phynexus::kernel::Index::range(0, &Ranges::of(&[8]));
        let load = FusedOp::Load { parameter: 0, index: index.scale(-1), mask: None, fill: Scalar::Int(0) };
        let parameter = |written| Parameter { dtype: DType::U8, written };
        let kernel = Fusion {
            rows: [8].as_slice().into(),
            instructions: vec![Instruction { operation: load, dtype: DType::U8, per_column: false }],
            stores: vec![Store { parameter: 1, value: 0, index, replaces: None }],
            parameters: vec![parameter(false), parameter(true)],
            ..Fusion::default()
        };
        let step = cpu.compile(&Step::Fused(kernel)).unwrap();
        let (from, to) = (cpu.allocate(8).unwrap(), cpu.allocate(8).unwrap());
        cpu.write(&from, 0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap();
        let run = |from_offset, to_offset| {
            let binding = |buffer: &Buffer, offset| Binding { buffer: buffer.clone(), offset };
            step.run(&[binding(&from, from_offset), binding(&to, to_offset)])
        };
        run(7, 0).unwrap();
        let mut bytes = [0; 8];
        cpu.read(&to, 0, &mut bytes).unwrap();
        assert_eq!(bytes, [8, 7, 6, 5, 4, 3, 2, 1]);
        assert!(run(6, 0).is_err() && run(0, 0).is_err() && run(8, 0).is_err() && run(7, 1).is_err());
    }

    #[test]
    fn figures_are_the_machines() {
        let info = register().info();
        assert_eq!((info.name.as_str(), info.nature), (NAME, DeviceNature::HostCpu));
        assert!(info.compute_units.is_some_and(|n| n > 0));
        assert!(info.total_memory.is_none_or(|bytes| bytes > 1 << 20));
    }
}
