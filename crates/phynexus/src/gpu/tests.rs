//! Routines and lost blocks, on a driver that computes nothing.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use super::{BlockAddress, Driver, Gpu, NotCompiled, Submission};
use crate::{
    DType, Device, Error, Result, Tensor,
    device::{DeviceInfo, DeviceNature},
    distributed::{Group, threads},
    kernel::{
        check::Limits,
        loops::Kernel,
        lower::Target,
        print::{Variable, WgslArithmetic, print_wgsl_variable},
        step::Step,
    },
    op::{CollectiveKind, Combine, Loss, Op},
};

/// Bytes of memory that a routine needs.
const MEMORY: usize = 100;

/// The bytes of a launch's buffers, and whether it is a routine.
type Launched = (Vec<usize>, bool);

/// What the driver was asked for, and how it answers.
#[derive(Default)]
struct Control {
    /// How often the device was removed.
    removals: AtomicUsize,
    refuses_bindings: AtomicBool,
    refuses_collectives: AtomicBool,
    /// The launches of each submission: the bytes of their buffers, and whether they are routines.
    launches: Mutex<Vec<Vec<Launched>>>,
    blocks: AtomicUsize,
}

impl Control {
    /// The submissions since the last call.
    fn take(&self) -> Vec<Vec<Launched>> {
        std::mem::take(&mut *self.launches.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

struct Noting {
    target: Target,
    control: Arc<Control>,
}

/// Memory of a device that was removed so often before.
struct Block {
    bytes: usize,
    removals: usize,
    control: Arc<Control>,
}

impl Drop for Block {
    fn drop(&mut self) {
        self.control.blocks.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Noting {
    fn check(&self, block: &Block) -> Result<()> {
        match self.is_lost(block) {
            true => Err(Error::Device { device: self.name().to_owned(), message: "removed".to_owned() }),
            false => Ok(()),
        }
    }

    fn note(&self, submissions: &[Submission<'_, Noting>]) -> Result<()> {
        let bytes = |submission: &Submission<'_, Noting>| {
            submission.arguments.iter().try_for_each(|(block, _)| self.check(block))?;
            let bytes = submission.arguments.iter().map(|(block, _)| block.bytes).collect();
            Ok((bytes, submission.is_routine))
        };
        let all = submissions.iter().map(bytes).collect::<Result<Vec<_>>>()?;
        self.control.launches.lock().unwrap_or_else(PoisonError::into_inner).push(all);
        Ok(())
    }
}

impl Driver for Noting {
    type Block = Block;
    type Module = ();
    type Recording = ();
    type Mark = ();

    fn name(&self) -> &str {
        &self.target.limits.device
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: self.name().to_owned(),
            model: String::new(),
            nature: DeviceNature::Emulator,
            compute_units: None,
            total_memory: None,
            features: Vec::new(),
        }
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn available_memory(&self) -> Option<u64> {
        None
    }

    fn allocate(&self, bytes: usize) -> Option<Block> {
        self.control.blocks.fetch_add(1, Ordering::Relaxed);
        let removals = self.control.removals.load(Ordering::Relaxed);
        Some(Block { bytes, removals, control: self.control.clone() })
    }

    fn is_lost(&self, block: &Block) -> bool {
        block.removals < self.control.removals.load(Ordering::Relaxed)
    }

    fn own_memory(&self) -> usize {
        1000
    }

    fn write(&self, block: &Block, _: usize, _: &[u8]) -> Result<()> {
        self.check(block)
    }

    fn read(&self, block: &Block, _: usize, bytes: &mut [u8]) -> Result<()> {
        bytes.fill(0);
        self.check(block)
    }

    fn print_variable(&self, kernel: &Kernel) -> Option<Variable> {
        print_wgsl_variable(kernel, WgslArithmetic { divisions: true, subnormals: true }).ok()
    }

    fn compile(&self, _: &Kernel, _: &str) -> Result<(), NotCompiled> {
        Ok(())
    }

    fn launch(&self, submission: &Submission<'_, Noting>) -> Result<()> {
        self.note(std::slice::from_ref(submission))
    }

    fn launch_all(&self, submissions: &[Submission<'_, Noting>], _: &()) -> Result<()> {
        self.note(submissions)
    }

    fn compile_routine(&self, step: &Step) -> Result<Option<()>> {
        let is_collective = matches!(step.routine(), Some(Op::Collective(_)));
        if is_collective && self.control.refuses_collectives.load(Ordering::Relaxed) {
            let message = "the library was not found".to_owned();
            return Err(Error::Unsupported { device: self.name().to_owned(), message });
        }
        Ok(matches!(step, Step::Library(_)).then_some(()))
    }

    fn routine_memory(&self, (): &()) -> usize {
        MEMORY
    }

    fn takes(&self, (): &(), arguments: &[BlockAddress<'_, Block>]) -> bool {
        assert!(!arguments.is_empty());
        !self.control.refuses_bindings.load(Ordering::Relaxed)
    }

    fn synchronize(&self) -> Result<()> {
        Ok(())
    }
}

fn device() -> (Device, Arc<Control>) {
    let limits = Limits {
        device: "noting:0".to_owned(),
        bindings: 20,
        shared_bytes: 32 << 10,
        block: [1024, 1024, 64],
        block_size: 1024,
        grid: [65535; 3],
        subgroup: None,
        dtypes: DType::ALL.into(),
        matrices: Vec::new(),
        quads: false,
        async_copies: false,
        meeting_groups: 0,
    };
    let control = Arc::new(Control::default());
    let target = Target { limits, vector_bytes: 16, processors: 4, sums: 64 };
    let driver = Noting { target, control: control.clone() };
    (Device(Box::leak(Box::new(Gpu::new(driver)))), control)
}

/// Two products, and a step between them, for which there is no routine.
fn compute(x: &Tensor) -> Result<()> {
    x.matmul(x)?.softmax(-1)?.matmul(x)?.evaluate()
}

#[test]
fn routines_are_submitted_with_the_kernels_around_them() {
    let (device, control) = device();
    let x = Tensor::from_slice(&[1.0f32; 64], &[8, 8], device).unwrap();
    compute(&x).unwrap();
    let submissions = control.take();
    let [launches] = &submissions[..] else { panic!("{submissions:?}") };
    let routines: Vec<_> = launches.iter().filter(|(_, is_routine)| *is_routine).collect();
    assert!(routines.len() == 2 && launches.len() > 2, "{launches:?}");
    // Two factors, the result, and memory.
    assert!(routines.iter().all(|(bytes, _)| bytes.len() == 4 && bytes[3] >= MEMORY), "{routines:?}");
    // The memory is the pool's.
    assert_eq!(device.memory().allocated, 256);
    assert!(device.memory().reserved >= 1000 + 256 + MEMORY);
    // Kernels compute what a routine cannot take.
    control.refuses_bindings.store(true, Ordering::Relaxed);
    compute(&x).unwrap();
    let launches: Vec<_> = control.take().into_iter().flatten().collect();
    assert!(launches.len() > 2 && launches.iter().all(|(_, is_routine)| !is_routine), "{launches:?}");
}

/// A driver may run them beside what follows.
#[test]
fn collectives_are_submitted_alone_and_a_refusal_says_why() {
    let (device, control) = device();
    let group = Group::open(threads(1, Duration::from_secs(1)).remove(0));
    let sum = CollectiveKind::AllReduce(Combine::Sum, Loss::Summed);
    let x = Tensor::from_slice(&[1.0f32; 64], &[8, 8], device).unwrap();
    let compute = || x.matmul(&x)?.collective(sum, &group)?.matmul(&x)?.evaluate();
    compute().unwrap();
    let submissions: Vec<Vec<usize>> = control
        .take()
        .iter()
        .map(|launches| launches.iter().map(|(bytes, _)| bytes.len()).collect())
        .collect();
    assert_eq!(submissions, [[4], [3], [4]]);
    control.refuses_collectives.store(true, Ordering::Relaxed);
    // Another operand, so that the plan is new.
    let refused = x.collective(sum, &group).and_then(|y| y.evaluate()).unwrap_err().to_string();
    assert!(refused.contains("all_reduce") && refused.contains("the library was not found"), "{refused}");
    group.close();
}

#[test]
fn blocks_of_a_removed_device_are_not_used_again() {
    let (device, control) = device();
    let upload = || Tensor::from_slice(&[1.0f32; 64], &[8, 8], device);
    let lost = upload().unwrap();
    compute(&lost).unwrap();
    drop(upload().unwrap());
    let before = device.memory();
    assert!(before.cached > 0);
    control.removals.fetch_add(1, Ordering::Relaxed);
    assert!(matches!(compute(&lost), Err(Error::Device { .. })));
    // The plan is used again, with other memory.
    compute(&upload().unwrap()).unwrap();
    assert!(matches!(lost.to_vec::<f32>(), Err(Error::Device { .. })));
    drop(lost);
    device.empty_cache();
    let now = device.memory();
    assert_eq!((now.allocated, now.cached, now.reserved), (0, 0, 1000));
    assert_eq!(control.blocks.load(Ordering::Relaxed), 0);
}

/// The numbers of a kernel that serves several sizes are in a block.
#[test]
fn numbers_of_kernels_are_written_again() {
    let (device, control) = device();
    let sum = |size: usize| Tensor::ones(&[size, 3], DType::F32, device)?.cumsum(0)?.evaluate();
    let sizes = [5, 7, 9, 11];
    sizes.into_iter().for_each(|size| sum(size).unwrap());
    let numbers = device.memory().allocated;
    assert!(numbers > 0, "no kernel has numbers in a block");
    control.removals.fetch_add(1, Ordering::Relaxed);
    control.take();
    sizes.into_iter().for_each(|size| sum(size).unwrap());
    assert!(!control.take().is_empty());
    assert!(device.memory().allocated > numbers);
}
