//! Recovery: the CPU computes a graph after its device failed to.
//!
//! A plan takes all memory first and overwrites leaves last, so until then a failure leaves everything it reads as it
//! was. The leaves are then copied to the host, and the CPU computes the same graph. The results become memory of the
//! device; if it has no room, they stay in host memory until it has. A node gets its data once, from the device or from
//! the CPU, so no update is applied twice. Like a refused step, this is reported, and strict mode excludes it.
//!
//! Recovery is off by default: a program that sees the failure can use a smaller batch, or save its work.

use std::{
    cell::Cell,
    sync::atomic::{AtomicBool, Ordering},
};

use super::{
    placement::{self, Placement},
    plan::Plan,
    ruined,
    walk::Pending,
};
use crate::{
    Error, Result,
    device::{Buffer, Device, DeviceNature, Storage},
    host_memory,
    op::Op,
    shape::Layout,
};

static ON: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// Whether this thread is within [`recovering`].
    static WITHIN: Cell<bool> = const { Cell::new(false) };
}

/// The names of at most this many steps are reported.
const NAMED: usize = 4;

/// With `true`, the CPU computes what a device fails to compute: because it is out of memory, was lost, or fails to
/// compile or launch a kernel. This needs the tensors that the computation reads, so a lost device can only be helped
/// if they are in host memory. If the CPU cannot help either, the error is that of the device. With `false`, the
/// default, every failure is an error. The setting applies to the whole process; recordings of
/// [`capture`](super::capture) do not recover.
pub fn set_recovery(on: bool) {
    ON.store(on, Ordering::Relaxed);
}

/// Returns whether computations of this thread recover.
pub fn is_recovery() -> bool {
    ON.load(Ordering::Relaxed) || WITHIN.get()
}

/// Runs `work`, and recovers what this thread computes meanwhile, as [`set_recovery`] does for the whole process.
pub fn recovering<T>(work: impl FnOnce() -> T) -> T {
    struct Before(bool);
    impl Drop for Before {
        fn drop(&mut self) {
            WITHIN.set(self.0);
        }
    }
    let _before = Before(WITHIN.replace(true));
    work()
}

/// Returns whether the CPU may take over after this error of the device.
pub(super) fn applies(device: Device, error: &Error) -> bool {
    let is_failure =
        matches!(error, Error::OutOfMemory { .. } | Error::Device { .. } | Error::Unsupported { .. });
    is_failure && is_recovery() && !placement::is_strict() && device.info().nature != DeviceNature::HostCpu
}

/// Copies bytes from the host to new memory of the device. With recovery on, the memory is on the host if the device
/// cannot take it.
pub(crate) fn upload(device: Device, bytes: &[u8]) -> Result<Buffer> {
    let backend = device.backend();
    let uploaded = backend.allocate(bytes.len()).and_then(|buffer| {
        backend.write(&buffer, 0, bytes)?;
        Ok(buffer)
    });
    uploaded.or_else(|error| {
        if !applies(device, &error) {
            return Err(error);
        }
        let copy = host_memory::bytes_of(bytes)?;
        backend.host_buffer(copy).map_err(|_| error)
    })
}

/// Copies a tensor's data to another device, through the host. Of its memory, only the part with elements is copied.
fn moved(data: &Storage, size: usize, from: Device, to: Device) -> Result<Storage> {
    let extent = data.layout.extent();
    let first = data.layout.offset.saturating_add_signed(extent.start);
    let mut bytes = host_memory::filled(0, extent.len().saturating_mul(size))?;
    if !bytes.is_empty() {
        from.backend().read(&data.buffer, first * size, &mut bytes)?;
    }
    let layout = Layout { offset: extent.start.unsigned_abs(), ..data.layout.clone() };
    Ok(Storage { buffer: upload(to, &bytes)?, layout })
}

impl Pending {
    fn has_collectives(&self) -> bool {
        self.nodes.iter().any(|node| matches!(node.signature.op, Op::Collective(_)))
    }

    /// Computes the results on the CPU after the device failed with this error and before it overwrote anything.
    /// Returns the results, as memory of the device, and what is reported.
    pub(super) fn recover(&self, error: Error) -> Result<(Vec<Storage>, Placement)> {
        let device = self.device();
        let host = match placement::host_for(device) {
            // The other ranks do not compute a collective again.
            Some(host) if applies(device, &error) && !self.has_collectives() => host,
            _ => return Err(error),
        };
        let compute = || {
            ruined::check(&self.leaves.iter().collect::<Vec<_>>())?;
            let (plan, _) = self.plan(host)?;
            let slots = plan.slots.upload(&self.numbers, host)?;
            let sizes = &plan.leaf_element_sizes[slots.len()..];
            let copies = self.leaves.iter().zip(sizes).map(|(leaf, &size)| moved(leaf, size, device, host));
            let copies: Vec<Storage> = copies.collect::<Result<_>>()?;
            let leaves: Vec<&Storage> = slots.iter().chain(&copies).collect();
            let results = plan.run(&leaves, &|_| true, &Cell::new(false))?;
            let moved_back = |(&output, data): (&u32, &Storage)| {
                moved(data, self.nodes[output as usize].signature.dtype.size(), host, device)
            };
            let results = self.outputs.iter().zip(&results).map(moved_back).collect::<Result<_>>()?;
            Ok((results, names(&plan)))
        };
        match compute() {
            Ok((results, step)) => {
                let (wanted, reason) = (device.name().to_owned(), error.to_string());
                let placement = Placement { step, wanted, device: host.name().to_owned(), reason };
                placement::note(&placement);
                Ok((results, placement))
            }
            Err(Error::Interrupted) => Err(Error::Interrupted),
            Err(_) => Err(error),
        }
    }
}

/// The names of a plan's steps.
fn names(plan: &Plan) -> String {
    let mut names: Vec<String> = plan.steps.iter().take(NAMED).map(|step| step.step.name()).collect();
    if let more @ 1.. = plan.steps.len().saturating_sub(NAMED) {
        names.push(format!("{more} more"));
    }
    names.join(", ")
}
