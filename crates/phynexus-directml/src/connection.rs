//! An open GPU: its objects, its errors, and what happens when it is removed.

use std::{
    mem,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering},
    },
};

use phynexus::{Error, Result};
use windows::{
    Win32::{
        AI::MachineLearning::DirectML::{IDMLCommandRecorder, IDMLDevice1},
        Foundation::{E_OUTOFMEMORY, HANDLE},
        Graphics::{
            Direct3D12::{
                D3D12_COMMAND_LIST_TYPE_COMPUTE, D3D12_COMMAND_QUEUE_DESC,
                D3D12_COMMAND_QUEUE_FLAG_DISABLE_GPU_TIMEOUT, D3D12_COMMAND_QUEUE_FLAG_NONE,
                D3D12_FENCE_FLAG_NONE, ID3D12CommandQueue, ID3D12Device, ID3D12Device5, ID3D12Fence,
                ID3D12RootSignature,
            },
            Dxgi::{
                DXGI_ERROR_DEVICE_HUNG, DXGI_ERROR_DEVICE_REMOVED, DXGI_ERROR_DEVICE_RESET,
                DXGI_ERROR_DRIVER_INTERNAL_ERROR, DXGI_ERROR_INVALID_CALL,
            },
        },
    },
    core::{HRESULT, IUnknown_Vtbl, Interface},
};

use crate::{
    adapters::Found,
    debug::Messages,
    descriptors::Descriptors,
    libraries::Libraries,
    lists::{Dropped, State},
    object::{BUFFERS, Held, Holder, Mapped},
    slabs::Slabs,
};

/// What the fence has after the device was removed.
const REMOVED: u64 = u64::MAX;

/// An open device.
pub(crate) struct Connection {
    pub(crate) name: String,
    /// No two connections of this process have the same one.
    pub(crate) number: u64,
    parts: Held<Arc<Parts>>,
    pub(crate) state: Mutex<State>,
    /// The fence's value after everything so far.
    pub(crate) latest: AtomicU64,
    pub(crate) dropped: Mutex<Vec<(u64, Dropped)>>,
    /// What has objects of the device.
    holders: Mutex<Vec<Weak<dyn Holder>>>,
    /// The reason why the device was removed.
    pub(crate) removal: OnceLock<String>,
    /// True if a test wants the device to be removed.
    is_test: AtomicBool,
    /// Memory of small blocks.
    pub(crate) slabs: Slabs,
    /// Host memory that the device reads and writes.
    pub(crate) mapped: Mapped,
    /// Bytes of all buffers.
    pub(crate) bytes: Arc<AtomicU64>,
    /// Bytes of the routines' memory.
    pub(crate) routine_bytes: AtomicUsize,
}

/// The objects of a device.
pub(crate) struct Parts {
    pub(crate) device: ID3D12Device,
    pub(crate) queue: ID3D12CommandQueue,
    /// Counts the submissions that the device has finished.
    pub(crate) fence: ID3D12Fence,
    pub(crate) descriptors: Arc<Descriptors>,
    /// The root signatures of kernels, by their number of buffers.
    pub(crate) signatures: [OnceLock<ID3D12RootSignature>; BUFFERS + 1],
    directml: OnceLock<DirectMl>,
    messages: Messages,
}

/// DirectML on the device.
pub(crate) struct DirectMl {
    pub(crate) device: IDMLDevice1,
    /// Records one command at a time for each list.
    pub(crate) recorder: IDMLCommandRecorder,
}

impl Parts {
    pub(crate) fn completed(&self) -> u64 {
        // SAFETY: the call has no preconditions.
        unsafe { self.fence.GetCompletedValue() }
    }
}

// SAFETY: the devices, queues and fences of Direct3D and DirectML may be used from any thread.
unsafe impl Send for Parts {}
// SAFETY: as above.
unsafe impl Sync for Parts {}

/// The connections of this process.
fn connections() -> MutexGuard<'static, Vec<Weak<Connection>>> {
    static ALL: Mutex<Vec<Weak<Connection>>> = Mutex::new(Vec::new());
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes a device, as a failing GPU or its driver would. Returns false if the device is not open. For tests.
#[doc(hidden)]
pub fn remove_device(name: &str) -> bool {
    let all: Vec<Arc<Connection>> = connections().iter().filter_map(Weak::upgrade).collect();
    let open = all.iter().filter(|connection| connection.name == name && !connection.is_removed());
    open.filter(|connection| connection.remove()).count() > 0
}

/// References that others had to a removed device when it was dropped last.
static LEFT: AtomicU32 = AtomicU32::new(0);

/// Returns how many references others had to the last removed device. For tests.
#[doc(hidden)]
pub fn references_left() -> u32 {
    LEFT.load(Ordering::Relaxed)
}

/// What a code of [`Connection::sound`] means.
fn reason(code: HRESULT) -> String {
    let known = match code {
        DXGI_ERROR_DEVICE_HUNG => "a command did not finish in time (DXGI_ERROR_DEVICE_HUNG)",
        DXGI_ERROR_DEVICE_REMOVED => {
            "the GPU was disconnected or its driver was updated (DXGI_ERROR_DEVICE_REMOVED)"
        }
        DXGI_ERROR_DEVICE_RESET => "a command was not well formed (DXGI_ERROR_DEVICE_RESET)",
        DXGI_ERROR_DRIVER_INTERNAL_ERROR => "the driver failed (DXGI_ERROR_DRIVER_INTERNAL_ERROR)",
        DXGI_ERROR_INVALID_CALL => "a call was wrong (DXGI_ERROR_INVALID_CALL)",
        E_OUTOFMEMORY => "memory did not suffice (E_OUTOFMEMORY)",
        HRESULT(number) => return format!("the reason has the number {number:#010x}"),
    };
    known.to_owned()
}

/// Drops a reference, and returns how many others have.
fn released(device: ID3D12Device) -> u32 {
    let device = device.into_raw();
    // SAFETY: the object begins with the address of its functions, and the reference is not used any more.
    unsafe { ((**device.cast::<*const IUnknown_Vtbl>()).Release)(device) }
}

impl Connection {
    pub(crate) fn new(libraries: &Libraries, found: &Found) -> Result<Arc<Connection>> {
        let name = found.info.name.clone();
        let failed = |error: windows::core::Error| Error::Device {
            device: name.clone(),
            message: format!("opening the device: {error}"),
        };
        let device: ID3D12Device = found.open(libraries).map_err(failed)?;
        // A list may take longer than the two seconds after which Windows removes the device.
        let queue = |flags| {
            let description = D3D12_COMMAND_QUEUE_DESC {
                Type: D3D12_COMMAND_LIST_TYPE_COMPUTE,
                Flags: flags,
                ..Default::default()
            };
            // SAFETY: the description is valid during the call.
            unsafe { device.CreateCommandQueue(&description) }
        };
        let queue = queue(D3D12_COMMAND_QUEUE_FLAG_DISABLE_GPU_TIMEOUT)
            .or_else(|_| queue(D3D12_COMMAND_QUEUE_FLAG_NONE))
            .map_err(failed)?;
        // SAFETY: the call has no preconditions.
        let fence = unsafe { device.CreateFence(0, D3D12_FENCE_FLAG_NONE) }.map_err(failed)?;
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let parts = Parts {
            messages: Messages::of(&device),
            device,
            queue,
            fence,
            descriptors: Arc::default(),
            signatures: [const { OnceLock::new() }; BUFFERS + 1],
            directml: OnceLock::new(),
        };
        let connection = Arc::new(Connection {
            name,
            number: NEXT.fetch_add(1, Ordering::Relaxed),
            parts: Held::new(Arc::new(parts)),
            state: Mutex::default(),
            latest: AtomicU64::new(0),
            dropped: Mutex::default(),
            holders: Mutex::default(),
            removal: OnceLock::new(),
            is_test: AtomicBool::new(false),
            slabs: Slabs::default(),
            mapped: Mapped::default(),
            bytes: Arc::default(),
            routine_bytes: AtomicUsize::new(0),
        });
        let mut all = connections();
        all.retain(|other| other.strong_count() > 0);
        all.push(Arc::downgrade(&connection));
        Ok(connection)
    }

    /// The device's objects, unless it was removed.
    pub(crate) fn parts(&self) -> Result<Arc<Parts>> {
        self.parts.get().ok_or_else(|| self.lost())
    }

    pub(crate) fn directml<'a>(&self, parts: &'a Parts) -> Result<&'a DirectMl> {
        if let Some(open) = parts.directml.get() {
            return Ok(open);
        }
        let failed = |error| self.error("opening DirectML", &error);
        let libraries =
            Libraries::get().map_err(|message| Error::Device { device: self.name.clone(), message })?;
        let device: IDMLDevice1 = libraries.directml(&parts.device).map_err(failed)?;
        // SAFETY: the call has no preconditions.
        let recorder = unsafe { device.CreateCommandRecorder() }.map_err(failed)?;
        Ok(parts.directml.get_or_init(|| DirectMl { device, recorder }))
    }

    /// The error of a call, with the reason if the device was removed.
    pub(crate) fn error(&self, doing: &str, error: &windows::core::Error) -> Error {
        self.tell();
        match self.sound() {
            Err(Error::Device { device, message }) => {
                Error::Device { device, message: format!("{doing}: {message}") }
            }
            _ if error.code() == E_OUTOFMEMORY => self.no_room(doing, 0),
            _ => Error::Device { device: self.name.clone(), message: format!("{doing}: {error}") },
        }
    }

    pub(crate) fn no_room(&self, doing: &str, bytes: usize) -> Error {
        Error::OutOfMemory {
            device: self.name.clone(),
            requested: bytes,
            in_use: 0,
            limit: usize::MAX,
            hint: format!("{doing}: use a smaller batch, or drop tensors that are no longer needed"),
        }
    }

    /// Prints what the debug layers have to say.
    pub(crate) fn tell(&self) {
        if let Some(parts) = self.parts.get() {
            parts.messages.tell(&self.name);
        }
    }

    /// Returns the reason if the device was removed: no result can be trusted then.
    pub(crate) fn sound(&self) -> Result<()> {
        let Some(parts) = self.parts.get() else { return Err(self.lost()) };
        if self.is_test.load(Ordering::Acquire) {
            self.removal.get_or_init(|| "a test asked for it".to_owned());
        }
        if self.removal.get().is_none() {
            // SAFETY: the call has no preconditions.
            match unsafe { parts.device.GetDeviceRemovedReason() } {
                Ok(()) => return Ok(()),
                Err(error) => drop(self.removal.get_or_init(|| reason(error.code()))),
            }
        }
        Err(self.lost())
    }

    /// The error of everything that uses a removed device.
    pub(crate) fn lost(&self) -> Error {
        let reason = self.removal.get().map_or("", String::as_str);
        Error::Device { device: self.name.clone(), message: format!("the device was removed: {reason}") }
    }

    /// Whether a call has found out that the device was removed.
    pub(crate) fn is_removed(&self) -> bool {
        self.removal.get().is_some()
    }

    /// Whether the objects of the removed device were dropped.
    pub(crate) fn is_released(&self) -> bool {
        self.is_removed() && self.parts.get().is_none()
    }

    /// Registers what has objects of the device. They are dropped when it was removed.
    pub(crate) fn holds<H: Holder + 'static>(&self, holder: &Arc<H>) -> Result<()> {
        let weak: Weak<H> = Arc::downgrade(holder);
        let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
        if holders.len() == holders.capacity() {
            holders.retain(|holder| holder.strong_count() > 0);
        }
        holders.push(weak);
        drop(holders);
        if !self.is_released() {
            return Ok(());
        }
        // In the meantime.
        holder.release();
        Err(self.lost())
    }

    /// Waits for a device that a test removed: unlike others, it may still compute.
    pub(crate) fn settle(&self) {
        if let Some(parts) = self.parts.get().filter(|_| self.is_test.load(Ordering::Acquire)) {
            let submitted = self.state().submitted;
            // SAFETY: as in `wait_for`. If the call fails, nothing is computed any more.
            let _ = unsafe { parts.fence.SetEventOnCompletion(submitted, HANDLE::default()) };
        }
    }

    /// Drops all objects of a removed device.
    pub(crate) fn release(&self) {
        let Some(parts) = self.parts.take() else { return };
        drop(mem::take(&mut *self.state()));
        drop(mem::take(&mut *self.dropped.lock().unwrap_or_else(PoisonError::into_inner)));
        let holders = mem::take(&mut *self.holders.lock().unwrap_or_else(PoisonError::into_inner));
        holders.iter().filter_map(Weak::upgrade).for_each(|holder| holder.release());
        self.slabs.clear();
        let device = parts.device.clone();
        drop(parts);
        LEFT.store(released(device), Ordering::Relaxed);
    }

    fn remove(&self) -> bool {
        let Some(parts) = self.parts.get() else { return false };
        self.is_test.store(true, Ordering::Release);
        if let Ok(device) = parts.device.cast::<ID3D12Device5>() {
            // Wine does nothing here.
            // SAFETY: the call has no preconditions.
            unsafe { device.RemoveDevice() };
        }
        self.settle();
        true
    }

    /// Whether the device has finished a submission, or was removed.
    pub(crate) fn has_finished(&self, value: u64) -> bool {
        self.parts.get().is_none_or(|parts| parts.completed() >= value)
    }

    /// Waits for a submission.
    pub(crate) fn wait_for(&self, value: u64) -> Result<()> {
        let parts = self.parts()?;
        while parts.completed() < value {
            // SAFETY: without an event, the call returns once the fence has the value; under Wine at once if another
            // thread waits for the same.
            unsafe { parts.fence.SetEventOnCompletion(value, HANDLE::default()) }
                .map_err(|error| self.error("waiting for the device", &error))?;
            if parts.completed() < value {
                self.sound()?;
                std::thread::yield_now();
            }
        }
        self.tell();
        let completed = parts.completed();
        let is_test = self.is_test.load(Ordering::Acquire);
        if is_test || completed == REMOVED || completed < value { self.sound() } else { Ok(()) }
    }

    /// Waits until all work has finished.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.wait_for(self.flush()?)?;
        self.free_finished();
        Ok(())
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // If the device does not respond, what it uses is kept.
        if self.synchronize().is_err() && self.sound().is_ok() {
            mem::forget(mem::take(&mut *self.state()));
        }
    }
}

// SAFETY: what `Held` has may be used from any thread; lists and their memory are only used by the thread that has the
// lock of the state.
unsafe impl Send for Connection {}
// SAFETY: as above.
unsafe impl Sync for Connection {}
