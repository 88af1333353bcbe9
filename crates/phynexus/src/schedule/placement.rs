//! Decides where steps run: on their device, or on the CPU if the device refuses.
//!
//! If a device has no kernel for a step, its operands are copied to the host, the CPU computes it, and its results are
//! copied back. This is never silent. The plan, reports and a callback name the step and the reason. In strict mode it
//! is an error.

use std::{
    cell::RefCell,
    ops::Range,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use super::plan::{Plan, PlannedParameter};
use smallvec::SmallVec;

use crate::kernel::step::{Library, Operand, Step};
use crate::{
    Error, Result,
    device::{self, Binding, Device, DeviceNature, Executable, Prepared, Support},
    host_memory,
    kernel::{
        fused::{FusedOp, Fusion},
        index::Ranges,
    },
    op::TensorType,
    shape::Layout,
};

/// A step that runs on a device other than the requested one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// The step's name.
    pub step: String,
    /// The requested device.
    pub wanted: String,
    /// The device on which it runs.
    pub device: String,
    /// Why the requested device refused it.
    pub reason: String,
}

type Callback = Arc<dyn Fn(&Placement) + Send + Sync>;

static STRICT: AtomicBool = AtomicBool::new(false);
static CALLBACK: Mutex<Option<Callback>> = Mutex::new(None);

thread_local! {
    /// Steps of this thread that ran on another device, while [`observe`] collects them.
    static OBSERVED: RefCell<Option<Vec<Placement>>> = const { RefCell::new(None) };
}

/// Runs `work` and returns its result, and the steps that this thread ran meanwhile on a device other than the
/// requested one.
pub fn observe<T>(work: impl FnOnce() -> T) -> (T, Vec<Placement>) {
    let outer = OBSERVED.replace(Some(Vec::new()));
    let result = work();
    (result, OBSERVED.replace(outer).unwrap_or_default())
}

/// Records that a step ran on another device.
pub(super) fn note(placement: &Placement) {
    OBSERVED.with_borrow_mut(|observed| observed.iter_mut().for_each(|all| all.push(placement.clone())));
}

/// With `true`, a step that its device refuses is an error. With `false`, the default, it runs on the CPU. Plans made
/// before a change are not reused after it.
pub fn set_strict(strict: bool) {
    STRICT.store(strict, Ordering::Release);
}

/// Returns whether strict mode is on.
pub fn is_strict() -> bool {
    STRICT.load(Ordering::Acquire)
}

/// Sets a callback for every step planned on a device other than the requested one; `None` removes it. It is called
/// once per plan. If the plan is also run, the callback follows the run, on the thread that asked for the result. It
/// may read tensors.
pub fn on_fallback(callback: Option<Callback>) {
    let old = std::mem::replace(&mut *CALLBACK.lock().unwrap_or_else(PoisonError::into_inner), callback);
    drop(old);
}

/// Calls the callback for the fallback steps of a new plan. The caller must hold no claim. The callback may read what
/// the plan computes, which would wait for that claim.
pub(super) fn tell(plan: &Plan) {
    tell_all(plan.steps.iter().filter_map(|step| step.placement.as_ref()));
}

/// Calls the callback. The caller must hold no claim, as for [`tell`].
pub(super) fn tell_all<'a>(placements: impl Iterator<Item = &'a Placement>) {
    let callback = CALLBACK.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(callback) = callback else { return };
    placements.for_each(|placement| callback(placement));
}

/// Returns the device that computes for `device`: the CPU, unless that is the same.
pub(super) fn host_for(device: Device) -> Option<Device> {
    let mut hosts = device::devices().into_iter().filter(|d| d.info().nature == DeviceNature::HostCpu);
    hosts.find(|&host| host != device)
}

/// Returns the executable step: compiled for its device if `attempt` succeeded, or for the CPU if the device refused.
pub(super) fn place(
    device: Device,
    step: &Step,
    parameters: &[PlannedParameter],
    attempt: Result<Arc<dyn Executable>>,
) -> Result<(Arc<dyn Executable>, Option<Placement>)> {
    let reason = match attempt {
        Ok(executable) => return Ok((executable, None)),
        Err(Error::Unsupported { message, .. }) => message,
        // A failure is not a refusal. The next attempt may succeed, so nothing of this one is kept.
        Err(error) => return Err(error),
    };
    let error = |message: String| Error::Unsupported { device: device.name().to_owned(), message };
    let Some(host) = host_for(device) else {
        return Err(error(format!("{} is not supported: {reason}", step.name())));
    };
    if device.info().nature == DeviceNature::HostCpu || is_strict() {
        let mode = if is_strict() { " (strict mode: no fallback to another device)" } else { "" };
        return Err(error(format!("{} is not supported: {reason}{mode}", step.name())));
    }
    let nor =
        |other: String| error(format!("{} is not supported: {reason}; nor on {host}: {other}", step.name()));
    let mut hosted = step.clone();
    let mut packed: Vec<Option<Operand>> = vec![None; parameters.len()];
    if let Step::Library(library) = &mut hosted {
        let types: SmallVec<[TensorType; 4]> = library.operands.iter().map(Operand::tensor_type).collect();
        let support = host.backend().support(&library.node, &types);
        drop(types);
        if let Support::Unsupported(other) = support {
            return Err(nor(other));
        }
        for (at, operand) in library.operands.iter_mut().enumerate() {
            let is_read = || host.backend().reads_layout(&library.node, at, &operand.layout);
            if !operand.layout.is_contiguous() && !is_read() {
                packed[at] = Some(operand.clone());
                operand.layout = Layout::contiguous(&operand.layout.shape);
            }
        }
    }
    let inner = host.backend().compile(&hosted).map_err(|other| nor(other.to_string()))?;
    let placement = Placement {
        step: step.name(),
        wanted: device.name().to_owned(),
        device: host.name().to_owned(),
        reason,
    };
    let transfers = parameters
        .iter()
        .zip(extents(step))
        .zip(packed)
        .map(|((parameter, extent), packed)| Transfer { written: parameter.written, extent, packed })
        .collect();
    Ok((Arc::new(HostStep { device, host, inner, transfers }), Some(placement)))
}

/// A parameter of a step on the host: the bytes that the step touches, relative to the binding's address.
struct Transfer {
    written: bool,
    extent: Range<i64>,
    /// The operand's layout on the device, if the host cannot read it and gets the elements in row-major order.
    packed: Option<Operand>,
}

impl Operand {
    fn bytes(&self) -> usize {
        self.layout.len() * self.dtype.size()
    }

    /// Returns the elements in row-major order. `bytes[first]` is the first byte of the first element.
    fn packed(&self, bytes: &[u8], first: usize) -> Result<Vec<u8>> {
        let size = self.dtype.size();
        let mut rows = host_memory::room(self.bytes())?;
        for element in 0..self.layout.len() {
            let (mut rest, mut steps) = (element, 0);
            for (&extent, &stride) in self.layout.shape.iter().zip(&self.layout.strides).rev() {
                steps += (rest % extent) as isize * stride;
                rest /= extent;
            }
            let at = first.saturating_add_signed(steps * size as isize);
            rows.extend_from_slice(&bytes[at..at + size]);
        }
        Ok(rows)
    }
}

/// A step that the CPU runs on behalf of another device.
struct HostStep {
    device: Device,
    host: Device,
    inner: Arc<dyn Executable>,
    transfers: Vec<Transfer>,
}

/// Host memory for one run of a step.
struct HostOperands {
    bindings: Vec<Binding>,
    inner: Prepared,
}

impl HostStep {
    /// Returns the range of the binding's buffer, in bytes, that the step touches.
    fn range(binding: &Binding, transfer: &Transfer) -> Range<usize> {
        let clamped =
            |byte: i64| binding.offset.saturating_add_signed(byte as isize).min(binding.buffer.size());
        clamped(transfer.extent.start)..clamped(transfer.extent.end)
    }
}

/// Returns the position, in the range of its buffer, of a binding's first byte.
fn first(binding: &Binding, range: &Range<usize>) -> usize {
    binding.offset - range.start.min(binding.offset)
}

impl Executable for HostStep {
    fn run(&self, bindings: &[Binding]) -> Result<()> {
        self.run_prepared(bindings, self.prepare(bindings)?)
    }

    fn prepare(&self, bindings: &[Binding]) -> Result<Prepared> {
        let host = self.host.backend();
        let mut own = Vec::with_capacity(bindings.len());
        for (binding, transfer) in bindings.iter().zip(&self.transfers) {
            let range = HostStep::range(binding, transfer);
            own.push(match &transfer.packed {
                Some(operand) => Binding { buffer: host.allocate(operand.bytes())?, offset: 0 },
                None => Binding { buffer: host.allocate(range.len())?, offset: first(binding, &range) },
            });
        }
        let inner = self.inner.prepare(&own)?;
        Ok(Some(Box::new(HostOperands { bindings: own, inner })))
    }

    fn run_prepared(&self, bindings: &[Binding], prepared: Prepared) -> Result<()> {
        let (device, host) = (self.device.backend(), self.host.backend());
        let HostOperands { bindings: own, inner } = *prepared
            .and_then(|memory| memory.downcast::<HostOperands>().ok())
            .ok_or_else(|| Error::internal("placement", "the step was not prepared"))?;
        let moved = || bindings.iter().zip(&self.transfers).zip(&own);
        for ((binding, transfer), own) in moved() {
            let range = HostStep::range(binding, transfer);
            if !transfer.written && !range.is_empty() {
                let mut bytes = host_memory::filled(0, range.len())?;
                device.read(&binding.buffer, range.start, &mut bytes)?;
                if let Some(operand) = &transfer.packed {
                    bytes = operand.packed(&bytes, first(binding, &range))?;
                }
                host.write(&own.buffer, 0, &bytes)?;
            }
        }
        self.inner.run_prepared(&own, inner)?;
        host.synchronize()?;
        for ((binding, transfer), own) in moved() {
            let range = HostStep::range(binding, transfer);
            if transfer.written && !range.is_empty() {
                let mut bytes = host_memory::filled(0, range.len())?;
                host.read(&own.buffer, 0, &mut bytes)?;
                device.write(&binding.buffer, range.start, &bytes)?;
            }
        }
        Ok(())
    }
}

/// Returns the bytes that each parameter of a step touches, relative to its first element.
fn extents(step: &Step) -> Vec<Range<i64>> {
    match step {
        Step::Fused(kernel) => fused_extents(kernel),
        Step::Batch(kernels) => kernels.iter().flat_map(fused_extents).collect(),
        Step::Library(library) => library_extents(library),
    }
}

fn fused_extents(kernel: &Fusion) -> Vec<Range<i64>> {
    let ranges = Ranges(kernel.rows.iter().chain(&kernel.columns).copied().collect());
    let mut extents = vec![0..0; kernel.parameters.len()];
    let mut touch = |parameter: u16, (low, high): (i64, i64)| {
        let extent: &mut Range<i64> = &mut extents[usize::from(parameter)];
        *extent = extent.start.min(low)..extent.end.max(high.saturating_add(1));
    };
    for instruction in &kernel.instructions {
        if let FusedOp::Load { parameter, index, .. } = &instruction.operation {
            touch(*parameter, index.bounds(&ranges));
        }
    }
    for store in &kernel.stores {
        touch(store.parameter, store.index.bounds(&ranges));
    }
    let sizes = kernel.parameters.iter().map(|p| p.dtype.size() as i64);
    extents
        .into_iter()
        .zip(sizes)
        .map(|(e, size)| e.start.saturating_mul(size)..e.end.saturating_mul(size))
        .collect()
}

fn library_extents(library: &Library) -> Vec<Range<i64>> {
    let operand = |operand: &Operand| {
        let (extent, size) = (operand.layout.extent(), operand.dtype.size() as i64);
        extent.start as i64 * size..extent.end as i64 * size
    };
    let operands = library.operands.iter().map(operand);
    match &library.epilogue {
        None => operands.chain(std::iter::once(0..library.node.bytes() as i64)).collect(),
        // Parameter 0 is the operation's result, which is not bound.
        Some(epilogue) => operands.chain(fused_extents(epilogue).into_iter().skip(1)).collect(),
    }
}
