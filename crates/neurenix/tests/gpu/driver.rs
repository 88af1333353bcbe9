//! A driver that interprets kernels on the host and fails on request.

use std::sync::{
    Arc, Mutex, MutexGuard,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use phynexus::{
    DType, Device, Error, Result, Scalar,
    device::{DeviceInfo, DeviceNature, HostRead, Peaks, register},
    dtype::{read_scalars, scalar_bytes},
    gpu::{BlockAddress, Driver, Gpu, NotCompiled, Submission},
    kernel::{check::Limits, loops::Kernel, lower::Target},
    oracle::interpret::interpret,
};

/// The settings of the driver, and counters of what it did.
#[derive(Default)]
pub(crate) struct Control {
    /// Allocations fail after this many more; 0 is off, 1 means the next one.
    pub(crate) failing_allocation: AtomicU64,
    /// Launches fail after this many more.
    pub(crate) failing_launch: AtomicU64,
    /// The device is lost after this many more launches.
    pub(crate) losing_launch: AtomicU64,
    /// Every call fails.
    pub(crate) lost: AtomicBool,
    /// Blocks whose memory is freed only after a wait for the device.
    pub(crate) deferred: AtomicBool,
    /// Loading a kernel fails after this many more.
    pub(crate) failing_compilation: AtomicU64,
    /// If more bytes than this are in use, there is no memory for machine code; 0 is off.
    pub(crate) room_for_code: AtomicU64,
    /// Bytes of memory; 0 means unlimited.
    pub(crate) capacity: AtomicU64,
    pub(crate) used: AtomicU64,
    pub(crate) blocks: AtomicU64,
    pub(crate) launches: AtomicU64,
    pub(crate) copies: AtomicU64,
    /// Copies from another of these devices; both must have the same name but for the number.
    pub(crate) peer_copies: AtomicU64,
    /// The number of copies to the host, and whether they take forever unless waited for.
    pub(crate) begun: AtomicU64,
    pub(crate) slow: AtomicBool,
    /// The number of waits for the device.
    pub(crate) waits: AtomicU64,
    /// Kernels whose name contains this fail to compile.
    pub(crate) refused: Mutex<Option<&'static str>>,
    /// The time that mark() reports, in nanoseconds.
    time: AtomicU64,
    waiting: AtomicU64,
}

/// The time of every kernel in nanoseconds, by the driver's clock.
pub(crate) const KERNEL_TIME: u64 = 1000;
/// The bytes of host memory for copies that the driver reports.
pub(crate) const PINNED: usize = 4096;
/// The device memory that the driver reports.
pub(crate) const TOTAL: u64 = 1 << 30;

impl Control {
    fn device_error<T>(&self, name: &str, message: &str) -> Result<T> {
        Err(Error::Device { device: name.to_owned(), message: message.to_owned() })
    }

    /// Counts down; true when it reaches 0.
    fn fires(counter: &AtomicU64) -> bool {
        let old = counter.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        old == Ok(1)
    }

    /// Clears all failures.
    pub(crate) fn heal(&self) {
        let counters = [
            &self.failing_allocation,
            &self.failing_launch,
            &self.losing_launch,
            &self.failing_compilation,
            &self.room_for_code,
            &self.capacity,
        ];
        counters.iter().for_each(|counter| counter.store(0, Ordering::SeqCst));
        self.lost.store(false, Ordering::SeqCst);
        *self.refused.lock().unwrap() = None;
    }
}

pub(crate) struct Simulated {
    name: String,
    target: Target,
    control: Arc<Control>,
    has_clock: bool,
}

pub(crate) struct Block {
    bytes: Mutex<Vec<u8>>,
    length: u64,
    control: Arc<Control>,
}

impl Drop for Block {
    fn drop(&mut self) {
        let control = &self.control;
        control.blocks.fetch_sub(1, Ordering::SeqCst);
        match control.deferred.load(Ordering::SeqCst) {
            true => control.waiting.fetch_add(self.length, Ordering::SeqCst),
            false => control.used.fetch_sub(self.length, Ordering::SeqCst),
        };
    }
}

/// Registers a device of this name; returns it with its settings.
pub(crate) fn device(name: &str, has_clock: bool) -> (Device, Arc<Control>) {
    neurenix::register_all();
    let control = Arc::new(Control::default());
    let limits = Limits {
        device: name.to_owned(),
        bindings: 64,
        shared_bytes: 48 << 10,
        block: [128, 128, 4],
        block_size: 128,
        grid: [65535; 3],
        subgroup: Some(8),
        dtypes: DType::ALL.to_vec(),
        matrices: Vec::new(),
        quads: false,
        async_copies: false,
        meeting_groups: 0,
    };
    let target = Target { limits, vector_bytes: 16, processors: 2, sums: 64 };
    let driver = Simulated { name: name.to_owned(), target, control: control.clone(), has_clock };
    (register(Box::new(Gpu::new(driver))), control)
}

/// A copy to the host of the contents at the time it was started.
struct UnderWay {
    name: String,
    control: Arc<Control>,
    bytes: Vec<u8>,
}

impl HostRead for UnderWay {
    fn is_done(&self) -> bool {
        !self.control.slow.load(Ordering::SeqCst)
    }

    fn finish(self: Box<Self>, take: &mut dyn FnMut(&[u8]) -> Result<()>) -> Result<()> {
        match self.control.lost.load(Ordering::SeqCst) {
            true => self.control.device_error(&self.name, "the device was lost"),
            false => take(&self.bytes),
        }
    }
}

impl Simulated {
    fn check(&self) -> Result<()> {
        match self.control.lost.load(Ordering::SeqCst) {
            true => self.control.device_error(&self.name, "the device was lost"),
            false => Ok(()),
        }
    }
}

fn locked(block: &Block) -> MutexGuard<'_, Vec<u8>> {
    block.bytes.lock().unwrap()
}

impl Driver for Simulated {
    type Block = Block;
    type Module = ();
    type Recording = ();
    type Mark = u64;

    fn name(&self) -> &str {
        &self.name
    }

    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: self.name.clone(),
            model: "an interpreter".to_owned(),
            nature: DeviceNature::Emulator,
            compute_units: None,
            total_memory: Some(TOTAL),
            features: Vec::new(),
        }
    }

    fn target(&self) -> &Target {
        &self.target
    }

    fn available_memory(&self) -> Option<u64> {
        Some(TOTAL - self.control.used.load(Ordering::SeqCst))
    }

    fn allocate(&self, bytes: usize) -> Option<Block> {
        let control = &self.control;
        let failed = Control::fires(&control.failing_allocation);
        // A pool asks twice, so a failure lasts until it is cleared.
        if failed {
            control.capacity.store(1, Ordering::SeqCst);
        }
        let capacity = control.capacity.load(Ordering::SeqCst);
        let used = control.used.load(Ordering::SeqCst);
        if self.check().is_err() || capacity > 0 && used + bytes as u64 > capacity {
            return None;
        }
        control.used.fetch_add(bytes as u64, Ordering::SeqCst);
        control.blocks.fetch_add(1, Ordering::SeqCst);
        let contents = Mutex::new(vec![0xA5; bytes]);
        Some(Block { bytes: contents, length: bytes as u64, control: control.clone() })
    }

    fn write(&self, block: &Block, offset: usize, bytes: &[u8]) -> Result<()> {
        self.check()?;
        self.control.copies.fetch_add(1, Ordering::SeqCst);
        self.control.time.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        locked(block)[offset..offset + bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&self, block: &Block, offset: usize, bytes: &mut [u8]) -> Result<()> {
        self.check()?;
        self.control.copies.fetch_add(1, Ordering::SeqCst);
        self.control.time.fetch_add(bytes.len() as u64, Ordering::SeqCst);
        bytes.copy_from_slice(&locked(block)[offset..offset + bytes.len()]);
        Ok(())
    }

    fn begin_read(&self, block: &Block, offset: usize, bytes: usize) -> Result<Option<Box<dyn HostRead>>> {
        let mut copy = vec![0; bytes];
        self.read(block, offset, &mut copy)?;
        self.control.begun.fetch_add(1, Ordering::SeqCst);
        Ok(Some(Box::new(UnderWay { name: self.name.clone(), control: self.control.clone(), bytes: copy })))
    }

    fn copies_from(&self, device: &Simulated) -> bool {
        let kind = |name: &str| name.split(':').next().map(str::to_owned);
        kind(&self.name) == kind(&device.name)
    }

    fn copy_from(
        &self,
        target: &Block,
        device: &Simulated,
        source: &Block,
        offset: usize,
        bytes: usize,
    ) -> Result<()> {
        self.check()?;
        device.check()?;
        self.control.peer_copies.fetch_add(1, Ordering::SeqCst);
        let copy = locked(source)[offset..offset + bytes].to_vec();
        locked(target)[..bytes].copy_from_slice(&copy);
        Ok(())
    }

    fn pinned_memory(&self) -> usize {
        PINNED
    }

    fn compile(&self, kernel: &Kernel, _: &str) -> Result<(), NotCompiled> {
        self.check()?;
        let control = &self.control;
        if Control::fires(&control.failing_compilation) {
            return Ok(control.device_error(&self.name, "loading a kernel: unspecified launch failure")?);
        }
        let most = control.room_for_code.load(Ordering::SeqCst);
        if most > 0 && control.used.load(Ordering::SeqCst) > most {
            return Err(NotCompiled::out_of_memory(&self.name, 4096));
        }
        match *control.refused.lock().unwrap() {
            Some(refused) if kernel.name.contains(refused) => {
                Err(format!("kernel {}: syntax error in line 1", kernel.name).into())
            }
            _ => Ok(()),
        }
    }

    fn launch(&self, submission: &Submission<'_, Simulated>) -> Result<()> {
        self.check()?;
        let control = &self.control;
        control.launches.fetch_add(1, Ordering::SeqCst);
        if Control::fires(&control.failing_launch) {
            return control.device_error(&self.name, "launching a kernel: too many resources requested");
        }
        if Control::fires(&control.losing_launch) {
            control.lost.store(true, Ordering::SeqCst);
        }
        self.check()?;
        control.time.fetch_add(KERNEL_TIME, Ordering::SeqCst);
        let kernel = submission.kernel;
        let pairs = || kernel.buffers.iter().zip(&submission.arguments);
        let mut buffers: Vec<Vec<Scalar>> =
            pairs().map(|(parameter, place)| load(place, parameter.dtype, parameter.length)).collect();
        let before = buffers.clone();
        interpret(kernel, self.target.limits.subgroup.unwrap_or(1), &mut buffers, &[])?;
        for ((parameter, place), (old, new)) in pairs().zip(before.iter().zip(&buffers)) {
            if parameter.written {
                store(place, parameter.dtype, old, new);
            }
        }
        Ok(())
    }

    fn synchronize(&self) -> Result<()> {
        self.control.waits.fetch_add(1, Ordering::SeqCst);
        self.check()?;
        let waiting = self.control.waiting.swap(0, Ordering::SeqCst);
        self.control.used.fetch_sub(waiting, Ordering::SeqCst);
        Ok(())
    }

    fn mark(&self) -> Result<Option<u64>> {
        self.check()?;
        Ok(self.has_clock.then(|| self.control.time.load(Ordering::SeqCst)))
    }

    fn elapsed(&self, from: &u64, to: &u64) -> Result<f64> {
        self.check()?;
        Ok(to.wrapping_sub(*from) as i64 as f64)
    }

    fn peaks(&self) -> Peaks {
        // One byte and two operations per nanosecond.
        match self.has_clock {
            true => Peaks { bytes: Some(1e9), operations: Some(2e9) },
            false => Peaks::default(),
        }
    }
}

/// The elements from a position on. A parameter may extend past its memory where nothing is accessed.
fn load((block, start): &BlockAddress<'_, Block>, dtype: DType, length: usize) -> Vec<Scalar> {
    let memory = locked(block);
    let size = dtype.size();
    let element = |at: usize| {
        let first = usize::try_from(start + (at * size) as i64).ok();
        let bytes = first.and_then(|first| memory.get(first..first + size));
        read_scalars(bytes.unwrap_or(&[0xA5; 8][..size]), dtype)[0]
    };
    (0..length).map(element).collect()
}

/// Writes back what changed.
fn store((block, start): &BlockAddress<'_, Block>, dtype: DType, old: &[Scalar], new: &[Scalar]) {
    let mut memory = locked(block);
    for (at, (old, new)) in old.iter().zip(new).enumerate() {
        // Uninitialised memory may not hold a valid bool, but reads as one.
        if old != new || dtype == DType::Bool {
            let bytes = scalar_bytes(*new, dtype);
            let Ok(first) = usize::try_from(start + (at * dtype.size()) as i64) else { continue };
            if let Some(part) = memory.get_mut(first..first + bytes.len()) {
                part.copy_from_slice(&bytes);
            }
        }
    }
}
