//! An open GPU: its queue, command lists and errors.

use std::{
    any::Any,
    collections::VecDeque,
    mem::ManuallyDrop,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use phynexus::{Error, Result};
use windows::{
    Win32::{
        AI::MachineLearning::DirectML::{
            IDMLBindingTable, IDMLCommandRecorder, IDMLDevice1, IDMLDispatchable,
        },
        Foundation::{E_OUTOFMEMORY, HANDLE},
        Graphics::Direct3D12::{
            D3D12_COMMAND_LIST_TYPE_COMPUTE, D3D12_COMMAND_QUEUE_DESC, D3D12_FENCE_FLAG_NONE,
            D3D12_RESOURCE_BARRIER, D3D12_RESOURCE_BARRIER_0, D3D12_RESOURCE_BARRIER_TYPE_UAV,
            D3D12_RESOURCE_UAV_BARRIER, ID3D12CommandAllocator, ID3D12CommandList, ID3D12CommandQueue,
            ID3D12DescriptorHeap, ID3D12Device, ID3D12Fence, ID3D12GraphicsCommandList, ID3D12Resource,
            ID3D12RootSignature,
        },
    },
    core::Interface,
};

use crate::{
    adapters::Found,
    libraries::Libraries,
    object::{BUFFERS, Mapped, Pipeline},
};

/// Maximum number of launches per command list.
const TOGETHER: usize = 64;
/// What the fence has after the device was removed.
const REMOVED: u64 = u64::MAX;

/// An open device.
pub(crate) struct Connection {
    name: String,
    device: ID3D12Device,
    queue: ID3D12CommandQueue,
    /// Counts the submissions that the device has finished.
    fence: ID3D12Fence,
    state: Mutex<State>,
    directml: OnceLock<DirectMl>,
    /// The root signatures of kernels, by their number of buffers.
    pub(crate) signatures: [OnceLock<ID3D12RootSignature>; BUFFERS + 1],
    /// Host memory that the device reads and writes.
    pub(crate) mapped: Mapped,
}

#[derive(Default)]
struct State {
    /// Launches that are not submitted yet.
    open: Option<Recording>,
    /// The fence's value after everything submitted.
    submitted: u64,
    /// What the device has yet to finish, and the fence's value after it.
    flying: VecDeque<(u64, Recording)>,
    spare: Vec<Commands>,
    /// Memory that is freed once the fence has the value.
    dropped: Vec<(u64, ID3D12Resource)>,
}

/// A command list with its memory.
struct Commands {
    allocator: ID3D12CommandAllocator,
    list: ID3D12GraphicsCommandList,
}

/// A list and what it uses: Direct3D does not keep it.
struct Recording {
    commands: Commands,
    kept: Vec<Kept>,
}

/// What a command uses until the device has finished it, unless its caller keeps that.
type Kept = Option<Arc<dyn Any + Send + Sync>>;

/// DirectML on the device.
struct DirectMl {
    device: IDMLDevice1,
    /// Used by the thread that has the lock of the state.
    recorder: IDMLCommandRecorder,
}

impl Connection {
    pub(crate) fn new(libraries: &Libraries, found: &Found) -> Result<Connection> {
        let name = found.info.name.clone();
        let failed = |error: windows::core::Error| Error::Device {
            device: name.clone(),
            message: format!("opening the device: {error}"),
        };
        let device: ID3D12Device = libraries.device(&found.adapter).map_err(failed)?;
        let description =
            D3D12_COMMAND_QUEUE_DESC { Type: D3D12_COMMAND_LIST_TYPE_COMPUTE, ..Default::default() };
        // SAFETY: the description is valid during the call.
        let queue = unsafe { device.CreateCommandQueue(&description) }.map_err(failed)?;
        // SAFETY: the call has no preconditions.
        let fence = unsafe { device.CreateFence(0, D3D12_FENCE_FLAG_NONE) }.map_err(failed)?;
        Ok(Connection {
            name: name.clone(),
            device,
            queue,
            fence,
            state: Mutex::default(),
            directml: OnceLock::new(),
            signatures: [const { OnceLock::new() }; BUFFERS + 1],
            mapped: Mapped::default(),
        })
    }

    pub(crate) fn device(&self) -> &ID3D12Device {
        &self.device
    }

    fn open_directml(&self) -> Result<&DirectMl> {
        if let Some(open) = self.directml.get() {
            return Ok(open);
        }
        let failed = |error| self.error("opening DirectML", &error);
        let libraries =
            Libraries::get().map_err(|message| Error::Device { device: self.name.clone(), message })?;
        let device: IDMLDevice1 = libraries.directml(&self.device).map_err(failed)?;
        // SAFETY: the call has no preconditions.
        let recorder = unsafe { device.CreateCommandRecorder() }.map_err(failed)?;
        Ok(self.directml.get_or_init(|| DirectMl { device, recorder }))
    }

    pub(crate) fn directml(&self) -> Result<&IDMLDevice1> {
        Ok(&self.open_directml()?.device)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The error of a call, with the reason if the device was removed.
    pub(crate) fn error(&self, doing: &str, error: &windows::core::Error) -> Error {
        if error.code() == E_OUTOFMEMORY {
            return self.no_room(doing, 0);
        }
        let removed = self.sound().err().map_or(String::new(), |reason| format!("; {reason}"));
        Error::Device { device: self.name.clone(), message: format!("{doing}: {error}{removed}") }
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

    /// Returns the reason if the device was removed: no result can be trusted then.
    pub(crate) fn sound(&self) -> Result<()> {
        // SAFETY: the call has no preconditions.
        unsafe { self.device.GetDeviceRemovedReason() }.map_err(|reason| Error::Device {
            device: self.name.clone(),
            message: format!("the device was removed: {reason}"),
        })
    }

    fn completed(&self) -> u64 {
        // SAFETY: the call has no preconditions.
        unsafe { self.fence.GetCompletedValue() }
    }

    fn begin(&self, state: &mut State) -> Result<Recording> {
        let failed = |error| self.error("beginning a command list", &error);
        let commands = match state.spare.pop() {
            Some(commands) => {
                // SAFETY: the device has finished the commands in this memory.
                unsafe {
                    commands.allocator.Reset().and_then(|()| commands.list.Reset(&commands.allocator, None))
                }
                .map_err(failed)?;
                commands
            }
            None => {
                let kind = D3D12_COMMAND_LIST_TYPE_COMPUTE;
                // SAFETY: the calls have no preconditions.
                let allocator: ID3D12CommandAllocator =
                    unsafe { self.device.CreateCommandAllocator(kind) }.map_err(failed)?;
                // SAFETY: the allocator is new.
                let list = unsafe { self.device.CreateCommandList(0, kind, &allocator, None) };
                Commands { allocator, list: list.map_err(failed)? }
            }
        };
        Ok(Recording { commands, kept: Vec::new() })
    }

    fn execute(&self, state: &mut State, recording: Recording) -> Result<()> {
        let failed = |error| self.error("submitting commands", &error);
        let list = &recording.commands.list;
        // SAFETY: the list is being recorded.
        unsafe { list.Close() }.map_err(failed)?;
        let list: ID3D12CommandList = list.cast().map_err(failed)?;
        // SAFETY: the list is closed. What it uses is kept until the fence has the value after it.
        unsafe { self.queue.ExecuteCommandLists(&[Some(list)]) };
        state.submitted += 1;
        state.flying.push_back((state.submitted, recording));
        // SAFETY: the fence belongs to the queue's device.
        unsafe { self.queue.Signal(&self.fence, state.submitted) }.map_err(failed)?;
        self.collect(state);
        Ok(())
    }

    /// Takes back what the device has finished.
    fn collect(&self, state: &mut State) {
        let completed = self.completed();
        while state.flying.front().is_some_and(|(value, _)| *value <= completed) {
            state.spare.extend(state.flying.pop_front().map(|(_, recording)| recording.commands));
        }
        state.dropped.retain(|(value, _)| *value > completed);
    }

    fn submit(&self, state: &mut State) -> Result<()> {
        match state.open.take() {
            Some(recording) => self.execute(state, recording),
            None => Ok(()),
        }
    }

    /// Submits the launches, and returns the fence's value after everything.
    pub(crate) fn flush(&self) -> Result<u64> {
        let mut state = self.state();
        self.submit(&mut state)?;
        Ok(state.submitted)
    }

    /// Adds a launch; it may be submitted later. `starts` are the first elements of the buffers and a zero.
    pub(crate) fn launch(
        &self,
        pipeline: &Arc<Pipeline>,
        addresses: &[u64],
        starts: &[i32],
        grid: [u32; 3],
    ) -> Result<()> {
        let mut state = self.state();
        let recording = self.resume(&mut state)?;
        let list = &recording.commands.list;
        // SAFETY: the list is being recorded, and the pipeline kept until it is finished. The root signature has the
        // constants first and then a buffer for each address. Buffers need no transition: they become writable on
        // first use in a list.
        unsafe {
            list.SetComputeRootSignature(&pipeline.signature);
            list.SetPipelineState(&pipeline.state);
            list.SetComputeRoot32BitConstants(0, starts.len() as u32, starts.as_ptr().cast(), 0);
            for (at, &address) in addresses.iter().enumerate() {
                list.SetComputeRootUnorderedAccessView(at as u32 + 1, address);
            }
            let [x, y, z] = grid;
            list.Dispatch(x, y, z);
            list.ResourceBarrier(&[everything_written()]);
        }
        self.pause(&mut state, recording, Some(pipeline.clone())).map(drop)
    }

    /// Adds a run of a DirectML graph, or of what initialises it; it may be submitted later. Returns the fence's value
    /// after it, until which the table, the heap and what `kept` lacks must be kept.
    pub(crate) fn dispatch(
        &self,
        dispatchable: &IDMLDispatchable,
        table: &IDMLBindingTable,
        heap: &ID3D12DescriptorHeap,
        kept: Kept,
    ) -> Result<u64> {
        let recorder = &self.open_directml()?.recorder;
        let mut state = self.state();
        let recording = self.resume(&mut state)?;
        let list = &recording.commands.list;
        // SAFETY: the list is being recorded. The table's descriptors are in the heap, which is kept until the list is
        // finished.
        unsafe {
            list.SetDescriptorHeaps(&[Some(heap.clone())]);
            recorder.RecordDispatch(list, dispatchable, table);
            list.ResourceBarrier(&[everything_written()]);
        }
        self.pause(&mut state, recording, kept)
    }

    /// The list that is being recorded, or a new one.
    fn resume(&self, state: &mut State) -> Result<Recording> {
        match state.open.take() {
            Some(recording) => Ok(recording),
            None => self.begin(state),
        }
    }

    /// Adds what a command uses to its list, and submits the list if it is full. Returns the fence's value after it.
    fn pause(&self, state: &mut State, mut recording: Recording, used: Kept) -> Result<u64> {
        recording.kept.push(used);
        if recording.kept.len() < TOGETHER {
            state.open = Some(recording);
            return Ok(state.submitted + 1);
        }
        self.execute(state, recording)?;
        Ok(state.submitted)
    }

    /// Submits a copy after everything before. The device's part must stay valid until it is dropped through
    /// [`Connection::release`], and the host's until the copy is finished.
    pub(crate) fn copy(
        &self,
        (target, to): (&ID3D12Resource, usize),
        (source, from): (&ID3D12Resource, usize),
        bytes: usize,
    ) -> Result<()> {
        let mut state = self.state();
        // Between two submissions, buffers need no transitions.
        self.submit(&mut state)?;
        let recording = self.begin(&mut state)?;
        // SAFETY: the list is being recorded. The engine's parts lie within their blocks, those of the host in the
        // mapped memory.
        unsafe {
            let list = &recording.commands.list;
            list.CopyBufferRegion(target, to as u64, source, from as u64, bytes as u64);
        }
        self.execute(&mut state, recording)
    }

    /// Frees memory once the device has finished what uses it.
    pub(crate) fn release(&self, memory: ID3D12Resource) {
        let mut state = self.state();
        let last = state.submitted + u64::from(state.open.is_some());
        if self.completed() < last {
            state.dropped.push((last, memory));
        }
    }

    /// Whether the device has finished a submission, or was removed.
    pub(crate) fn has_finished(&self, value: u64) -> bool {
        self.completed() >= value
    }

    /// Waits for a submission.
    pub(crate) fn wait_for(&self, value: u64) -> Result<()> {
        if !self.has_finished(value) {
            // SAFETY: without an event, the call returns once the fence has the value.
            unsafe { self.fence.SetEventOnCompletion(value, HANDLE::default()) }
                .map_err(|error| self.error("waiting for the device", &error))?;
        }
        let completed = self.completed();
        if completed == REMOVED || completed < value { self.sound() } else { Ok(()) }
    }

    /// Waits until all work has finished.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.wait_for(self.flush()?)
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // If the device does not respond, what it uses is kept.
        if self.synchronize().is_err() && self.sound().is_ok() {
            std::mem::forget(std::mem::take(&mut *self.state()));
        }
    }
}

// SAFETY: Direct3D's devices, queues and fences may be used from any thread; lists and their memory are only used by
// the thread that has the lock.
unsafe impl Send for Connection {}
// SAFETY: as above.
unsafe impl Sync for Connection {}

/// A barrier after which everything written before can be read.
fn everything_written() -> D3D12_RESOURCE_BARRIER {
    let all = D3D12_RESOURCE_UAV_BARRIER { pResource: ManuallyDrop::new(None) };
    D3D12_RESOURCE_BARRIER {
        Type: D3D12_RESOURCE_BARRIER_TYPE_UAV,
        Anonymous: D3D12_RESOURCE_BARRIER_0 { UAV: ManuallyDrop::new(all) },
        ..Default::default()
    }
}
