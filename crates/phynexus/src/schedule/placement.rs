//! Where steps run: on their device, or, where that refuses, on the CPU, with the reason.
//!
//! A step that a device has no kernel for is planned on the CPU: its operands are copied to the host, computed there,
//! and its results copied back. Nothing of this is silent: the plan, reports and a callback tell the step and the reason,
//! and in strict mode it is an error.

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

use crate::kernel::step::{Library, Step};
use crate::{
    DType, Error, Result,
    device::{self, Binding, Device, DeviceNature, Executable, Prepared, Support},
    host_memory,
    kernel::{
        fused::{Fused, Operation},
        index::Ranges,
    },
    shape::Layout,
};

/// A step that runs elsewhere than on the device it was meant for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// What it is.
    pub step: String,
    /// The device it was meant for.
    pub wanted: String,
    /// The device on which it runs.
    pub device: String,
    /// Why.
    pub reason: String,
}

type Callback = Arc<dyn Fn(&Placement) + Send + Sync>;

static STRICT: AtomicBool = AtomicBool::new(false);
static CALLBACK: Mutex<Option<Callback>> = Mutex::new(None);

thread_local! {
    /// The steps of this thread that ran elsewhere, while somebody wants to know.
    static OBSERVED: RefCell<Option<Vec<Placement>>> = const { RefCell::new(None) };
}

/// Does some work, and tells which of the steps that this thread ran meanwhile ran elsewhere than on their device.
pub fn observe<T>(work: impl FnOnce() -> T) -> (T, Vec<Placement>) {
    let outer = OBSERVED.replace(Some(Vec::new()));
    let result = work();
    (result, OBSERVED.replace(outer).unwrap_or_default())
}

/// Notes that a step ran elsewhere.
pub(super) fn note(placement: &Placement) {
    OBSERVED.with_borrow_mut(|observed| observed.iter_mut().for_each(|all| all.push(placement.clone())));
}

/// With `true`, a step that its device refuses is an error; with `false`, as at the start, it is planned on the CPU.
/// Plans made before are not used across a change.
pub fn set_strict(strict: bool) {
    STRICT.store(strict, Ordering::Release);
}

/// True in strict mode.
pub fn is_strict() -> bool {
    STRICT.load(Ordering::Acquire)
}

/// Calls `callback` for every step that is planned elsewhere than on its device, once for each plan; `None` ends it. Of a plan
/// that is run it is called behind that, on the thread that asked for the result, and may read tensors.
pub fn on_fallback(callback: Option<Callback>) {
    let old = std::mem::replace(&mut *CALLBACK.lock().unwrap_or_else(PoisonError::into_inner), callback);
    drop(old);
}

/// Calls the callback for the steps of a new plan that are planned elsewhere. Nothing may be claimed: the callback may read
/// what the plan computes, which would wait for the claim.
pub(super) fn tell(plan: &Plan) {
    let callback = CALLBACK.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some(callback) = callback else { return };
    for placement in plan.steps.iter().filter_map(|step| step.placement.as_ref()) {
        callback(placement);
    }
}

/// The step ready to run: on its device if the attempt to compile it there succeeded, or, if the device refused, on the
/// CPU.
pub(super) fn place(
    device: Device,
    step: &Step,
    parameters: &[PlannedParameter],
    attempt: Result<Arc<dyn Executable>>,
) -> Result<(Arc<dyn Executable>, Option<Placement>)> {
    let reason = match attempt {
        Ok(executable) => return Ok((executable, None)),
        Err(Error::Unsupported { message, .. }) => message,
        // A failure is not a refusal: the next attempt may succeed, and nothing of this one is kept.
        Err(error) => return Err(error),
    };
    let error = |message: String| Error::Unsupported { device: device.name().to_owned(), message };
    let hosts = device::devices().into_iter().filter(|d| d.info().nature == DeviceNature::HostCpu);
    let Some(host) = hosts.into_iter().find(|&host| host != device) else {
        return Err(error(format!("{} is not supported: {reason}", step.name())));
    };
    if device.info().nature == DeviceNature::HostCpu || is_strict() {
        let mode = if is_strict() { " (strict mode: nothing is done on another device)" } else { "" };
        return Err(error(format!("{} is not supported: {reason}{mode}", step.name())));
    }
    let nor =
        |other: String| error(format!("{} is not supported: {reason}; nor on {host}: {other}", step.name()));
    if let Step::Library(library) = step {
        let dtypes: SmallVec<[DType; 4]> = library.operands.iter().map(|operand| operand.dtype).collect();
        if let Support::Unsupported(other) = host.backend().support(&library.node, &dtypes) {
            return Err(nor(other));
        }
    }
    let inner = host.backend().compile(step).map_err(|other| nor(other.to_string()))?;
    let placement = Placement {
        step: step.name(),
        wanted: device.name().to_owned(),
        device: host.name().to_owned(),
        reason,
    };
    let transfers = parameters
        .iter()
        .zip(extents(step))
        .map(|(parameter, extent)| Transfer { written: parameter.written, extent })
        .collect();
    Ok((Arc::new(HostStep { device, host, inner, transfers }), Some(placement)))
}

/// A parameter of a step on the host: the bytes that the step touches, counted from the binding's address.
struct Transfer {
    written: bool,
    extent: Range<i64>,
}

/// A step of a device that the CPU does.
struct HostStep {
    device: Device,
    host: Device,
    inner: Arc<dyn Executable>,
    transfers: Vec<Transfer>,
}

/// The host's memory for one run of a step.
struct HostMemory {
    bindings: Vec<Binding>,
    inner: Prepared,
}

impl HostStep {
    /// The bytes of a binding's buffer that the step touches.
    fn range(binding: &Binding, transfer: &Transfer) -> Range<usize> {
        let place =
            |byte: i64| binding.offset.saturating_add_signed(byte as isize).min(binding.buffer.size());
        place(transfer.extent.start)..place(transfer.extent.end)
    }
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
            let buffer = host.allocate(range.len())?;
            own.push(Binding { buffer, offset: binding.offset - range.start.min(binding.offset) });
        }
        let inner = self.inner.prepare(&own)?;
        Ok(Some(Box::new(HostMemory { bindings: own, inner })))
    }

    fn run_prepared(&self, bindings: &[Binding], prepared: Prepared) -> Result<()> {
        let (device, host) = (self.device.backend(), self.host.backend());
        let HostMemory { bindings: own, inner } = *prepared
            .and_then(|memory| memory.downcast::<HostMemory>().ok())
            .ok_or_else(|| Error::internal("placement", "a step that was not prepared"))?;
        let moved = || bindings.iter().zip(&self.transfers).zip(&own);
        for ((binding, transfer), own) in moved() {
            let range = HostStep::range(binding, transfer);
            if !transfer.written && !range.is_empty() {
                let mut bytes = host_memory::filled(0, range.len())?;
                device.read(&binding.buffer, range.start, &mut bytes)?;
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

/// The bytes each of a step's parameters touches, counted from its first element.
fn extents(step: &Step) -> Vec<Range<i64>> {
    match step {
        Step::Fused(kernel) => fused_extents(kernel),
        Step::Batch(kernels) => kernels.iter().flat_map(fused_extents).collect(),
        Step::Library(library) => library_extents(library),
    }
}

fn fused_extents(kernel: &Fused) -> Vec<Range<i64>> {
    let ranges = Ranges(kernel.rows.iter().chain(&kernel.columns).copied().collect());
    let mut extents = vec![0..0; kernel.parameters.len()];
    let mut touch = |parameter: u16, (low, high): (i64, i64)| {
        let extent: &mut Range<i64> = &mut extents[usize::from(parameter)];
        *extent = extent.start.min(low)..extent.end.max(high.saturating_add(1));
    };
    for instruction in &kernel.instructions {
        if let Operation::Load { parameter, index, .. } = &instruction.operation {
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
    let operand = |layout: &Layout, size: usize| {
        if layout.shape.contains(&0) {
            return 0..0;
        }
        let (mut low, mut high) = (0i64, 0i64);
        for (&extent, &stride) in layout.shape.iter().zip(&layout.strides) {
            let last = (extent as i64 - 1) * stride as i64;
            if last < 0 { low += last } else { high += last }
        }
        low * size as i64..(high + 1) * size as i64
    };
    let operands = library.operands.iter().map(|o| operand(&o.layout, o.dtype.size()));
    match &library.epilogue {
        None => operands.chain(std::iter::once(0..library.node.bytes() as i64)).collect(),
        // Parameter 0 is the operation's result, which is not bound.
        Some(epilogue) => operands.chain(fused_extents(epilogue).into_iter().skip(1)).collect(),
    }
}
