//! The device's queue: command lists, what they use, and their order.

use std::{
    any::Any,
    mem::{self, ManuallyDrop},
    sync::{
        Arc, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use phynexus::{Error, Result};
use smallvec::SmallVec;
use windows::{
    Win32::{
        AI::MachineLearning::DirectML::IDMLDispatchable,
        Graphics::Direct3D12::{
            D3D12_COMMAND_LIST_TYPE_COMPUTE, D3D12_QUERY_TYPE_TIMESTAMP, D3D12_RESOURCE_BARRIER,
            D3D12_RESOURCE_BARRIER_0, D3D12_RESOURCE_BARRIER_TYPE_UAV, D3D12_RESOURCE_UAV_BARRIER,
            ID3D12CommandAllocator, ID3D12CommandList, ID3D12GraphicsCommandList, ID3D12QueryHeap,
            ID3D12Resource,
        },
    },
    core::Interface,
};

use crate::{
    binding::Table,
    connection::{Connection, Parts},
    debug::named,
    lists::{Commands, Dropped, Kept, Recording, Repeated, State},
    object::{Made, Pipeline},
};

/// Maximum number of launches per command list.
const TOGETHER: usize = 64;

/// Routines that DirectML has computed in this process.
static DISPATCHED: AtomicU64 = AtomicU64::new(0);

/// Returns the number of times that DirectML has computed a step since the start of the process.
pub fn dispatched_routines() -> u64 {
    DISPATCHED.load(Ordering::Relaxed)
}

/// Runs of lists that repeat, in this process.
static REPEATED: AtomicU64 = AtomicU64::new(0);

/// Returns how often a list of repeated steps has run since the start of the process.
pub fn repeated_lists() -> u64 {
    REPEATED.load(Ordering::Relaxed)
}

/// A command with the name of its step.
pub(crate) struct Work<'a> {
    pub(crate) name: &'a str,
    pub(crate) what: What,
}

#[expect(
    clippy::large_enum_variant,
    reason = "launches of kernels are frequent, and a command is not moved often"
)]
pub(crate) enum What {
    Kernel {
        pipeline: Arc<Pipeline>,
        made: Made,
        addresses: SmallVec<[u64; 20]>,
        /// The first elements of the buffers and a zero.
        starts: SmallVec<[i32; 21]>,
        grid: [u32; 3],
    },
    /// A run of a DirectML graph, or of what initialises it.
    Dispatch { dispatchable: IDMLDispatchable, table: Arc<Table>, kept: Option<Arc<dyn Any + Send + Sync>> },
}

impl Work<'_> {
    fn is_routine(&self) -> bool {
        matches!(&self.what, What::Dispatch { kept: Some(_), .. })
    }

    fn kept(&self) -> Kept {
        match &self.what {
            What::Kernel { pipeline, .. } => SmallVec::from_iter([pipeline.clone() as _]),
            What::Dispatch { table, kept, .. } => kept.iter().cloned().chain([table.clone() as _]).collect(),
        }
    }
}

impl Connection {
    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `work` with the lock. What the device has finished is dropped afterwards.
    fn locked<R>(&self, work: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.state();
        let result = work(&mut state);
        let trash = mem::take(&mut state.trash);
        // Another thread may have released the device during the call.
        let stale = self.is_released().then(|| mem::take(&mut *state));
        self.latest.store(state.submitted + u64::from(state.open.is_some()), Ordering::Release);
        drop(state);
        drop((trash, stale));
        result
    }

    fn begin(&self, parts: &Parts, spare: Option<Commands>) -> Result<Recording> {
        let failed = |error| self.error("beginning a command list", &error);
        let commands = match spare {
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
                    unsafe { parts.device.CreateCommandAllocator(kind) }.map_err(failed)?;
                // SAFETY: the allocator is new.
                let list = unsafe { parts.device.CreateCommandList(0, kind, &allocator, None) };
                Commands { allocator, list: list.map_err(failed)? }
            }
        };
        Ok(Recording { commands, kept: Vec::new() })
    }

    fn close(&self, list: &ID3D12GraphicsCommandList) -> Result<()> {
        // SAFETY: the list is being recorded.
        unsafe { list.Close() }.map_err(|error| self.error("ending a command list", &error))
    }

    /// Nothing that was recorded, or is recorded later, can be trusted if commands are lost: the device counts as removed.
    fn lose(&self, error: Error) -> Error {
        self.removal.get_or_init(|| format!("commands were lost: {error}"));
        error
    }

    /// Submits a closed list, and returns the fence's value after it. What the list uses must be kept until then.
    fn submit_list(&self, parts: &Parts, state: &mut State, list: &ID3D12GraphicsCommandList) -> Result<u64> {
        let failed = |error| self.error("submitting commands", &error);
        // Nothing is submitted to a removed device that still computes.
        self.sound()?;
        let list: ID3D12CommandList = list.cast().map_err(failed)?;
        state.submitted += 1;
        // SAFETY: the list is closed. What it uses is kept until the fence has the value after it, which belongs to the
        // queue's device.
        unsafe {
            parts.queue.ExecuteCommandLists(&[Some(list)]);
            parts.queue.Signal(&parts.fence, state.submitted)
        }
        .map_err(|error| self.lose(failed(error)))?;
        Ok(state.submitted)
    }

    fn execute(&self, parts: &Parts, state: &mut State, recording: Recording) -> Result<()> {
        self.close(&recording.commands.list).map_err(|error| self.lose(error))?;
        let list = recording.commands.list.clone();
        state.flying.push_back((state.submitted + 1, recording));
        self.submit_list(parts, state, &list)?;
        self.collect(parts, state);
        Ok(())
    }

    /// Takes back what the device has finished.
    fn collect(&self, parts: &Parts, state: &mut State) {
        let completed = parts.completed();
        while state.flying.front().is_some_and(|(value, _)| *value <= completed) {
            let Some((_, recording)) = state.flying.pop_front() else { break };
            state.spare.push(recording.commands);
            state.trash.0.extend(recording.kept);
        }
        state.trash.1.extend(self.dropped().extract_if(.., |(value, _)| *value <= completed));
    }

    /// What is dropped once the fence has the value. It has a lock of its own: dropping a list drops what it uses.
    fn dropped(&self) -> MutexGuard<'_, Vec<(u64, Dropped)>> {
        self.dropped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn submit(&self, parts: &Parts, state: &mut State) -> Result<()> {
        match state.open.take() {
            Some(recording) => self.execute(parts, state, recording),
            None => Ok(()),
        }
    }

    /// Submits the launches, and returns the fence's value after everything.
    pub(crate) fn flush(&self) -> Result<u64> {
        let parts = self.parts()?;
        self.locked(|state| {
            self.submit(&parts, state)?;
            Ok(state.submitted)
        })
    }

    /// Frees what the device has finished using.
    pub(crate) fn free_finished(&self) {
        if let Ok(parts) = self.parts() {
            self.locked(|state| self.collect(&parts, state));
        }
    }

    fn record(&self, parts: &Parts, list: &ID3D12GraphicsCommandList, work: &Work<'_>) -> Result<()> {
        let directml = match work.what {
            What::Kernel { .. } => None,
            What::Dispatch { .. } => Some(self.directml(parts)?),
        };
        // SAFETY: the list is being recorded, and what the command uses is kept until it is finished. A pipeline's root
        // signature has the constants first and then a buffer for each address. The table's descriptors are in its
        // heap. Buffers need no transition: they become writable on first use in a list.
        named(list, work.name, || unsafe {
            match &work.what {
                What::Kernel { made, addresses, starts, grid: [x, y, z], .. } => {
                    list.SetComputeRootSignature(&made.signature);
                    list.SetPipelineState(&made.state);
                    list.SetComputeRoot32BitConstants(0, starts.len() as u32, starts.as_ptr().cast(), 0);
                    for (at, &address) in addresses.iter().enumerate() {
                        list.SetComputeRootUnorderedAccessView(at as u32 + 1, address);
                    }
                    list.Dispatch(*x, *y, *z);
                }
                What::Dispatch { dispatchable, table, .. } => {
                    list.SetDescriptorHeaps(&[Some(table.heap().clone())]);
                    if let Some(directml) = directml {
                        directml.recorder.RecordDispatch(list, dispatchable, table.table());
                    }
                }
            }
            list.ResourceBarrier(&[everything_written()]);
        });
        Ok(())
    }

    /// Adds a command; it may be submitted later. Returns the fence's value after it.
    pub(crate) fn add(&self, work: &Work<'_>) -> Result<u64> {
        let parts = self.parts()?;
        let after = self.locked(|state| {
            let mut recording = self.resume(&parts, state)?;
            self.record(&parts, &recording.commands.list, work)?;
            recording.kept.push(work.kept());
            self.pause(&parts, state, recording, TOGETHER)
        })?;
        DISPATCHED.fetch_add(u64::from(work.is_routine()), Ordering::Relaxed);
        Ok(after)
    }

    /// The list that is being recorded, or a new one.
    fn resume(&self, parts: &Parts, state: &mut State) -> Result<Recording> {
        match state.open.take() {
            Some(recording) => Ok(recording),
            None => {
                let spare = state.spare.pop();
                self.begin(parts, spare)
            }
        }
    }

    /// Submits the list if it has so many commands. Returns the fence's value after it.
    fn pause(&self, parts: &Parts, state: &mut State, recording: Recording, most: usize) -> Result<u64> {
        if recording.kept.len() < most {
            state.open = Some(recording);
            return Ok(state.submitted + 1);
        }
        self.execute(parts, state, recording)?;
        Ok(state.submitted)
    }

    /// Adds a timestamp, taken when everything before has finished.
    pub(crate) fn note(&self, queries: &ID3D12QueryHeap, at: u32, kept: Kept) -> Result<()> {
        let parts = self.parts()?;
        self.locked(|state| {
            let mut recording = self.resume(&parts, state)?;
            // SAFETY: the list is being recorded, and the heap is kept until it is finished.
            unsafe { recording.commands.list.EndQuery(queries, D3D12_QUERY_TYPE_TIMESTAMP, at) };
            recording.kept.push(kept);
            // A launch is submitted with the timestamps before and after it: a gap between two submissions would count
            // as its time.
            self.pause(&parts, state, recording, usize::MAX).map(drop)
        })
    }

    /// Submits commands after everything before, in a list of their own: between two lists, buffers need no
    /// transitions.
    pub(crate) fn with_list(&self, record: impl FnOnce(&ID3D12GraphicsCommandList)) -> Result<()> {
        let parts = self.parts()?;
        self.locked(|state| {
            self.submit(&parts, state)?;
            let spare = state.spare.pop();
            let recording = self.begin(&parts, spare)?;
            record(&recording.commands.list);
            self.execute(&parts, state, recording)
        })
    }

    /// Submits a copy after everything before. The device's part must stay valid until it is dropped through
    /// [`Connection::drop_later`], and the host's until the copy is finished.
    pub(crate) fn copy(
        &self,
        (target, to): (&ID3D12Resource, u64),
        (source, from): (&ID3D12Resource, u64),
        bytes: usize,
    ) -> Result<()> {
        // SAFETY: the list is being recorded. The engine's parts lie within their blocks, those of the host in the
        // mapped memory.
        self.with_list(|list| unsafe { list.CopyBufferRegion(target, to, source, from, bytes as u64) })
    }

    /// Records commands that are to run repeatedly.
    pub(crate) fn repeated(&self, works: &[Work<'_>]) -> Result<Repeated> {
        let parts = self.parts()?;
        let spare = self.locked(|state| state.spare.pop());
        let mut recording = self.begin(&parts, spare)?;
        for work in works {
            self.record(&parts, &recording.commands.list, work)?;
            recording.kept.push(work.kept());
        }
        self.close(&recording.commands.list)?;
        let routines = works.iter().filter(|work| work.is_routine()).count() as u64;
        Ok(Repeated { recording, last: AtomicU64::new(0), routines })
    }

    /// Submits a run after everything before. A list runs once at a time.
    pub(crate) fn run(&self, repeated: &Repeated) -> Result<()> {
        self.wait_for(repeated.last.load(Ordering::Acquire))?;
        let parts = self.parts()?;
        self.locked(|state| {
            self.submit(&parts, state)?;
            let value = self.submit_list(&parts, state, &repeated.recording.commands.list)?;
            repeated.last.store(value, Ordering::Release);
            self.collect(&parts, state);
            Ok(())
        })?;
        DISPATCHED.fetch_add(repeated.routines, Ordering::Relaxed);
        REPEATED.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Drops a list once the device has finished its last run.
    pub(crate) fn drop_list(&self, repeated: Arc<Repeated>) {
        self.drop_after(repeated.last.load(Ordering::Acquire), Dropped::List(repeated));
    }

    /// Frees memory once the device has finished what uses it.
    pub(crate) fn drop_later(&self, memory: ID3D12Resource) {
        self.drop_after(self.latest.load(Ordering::Acquire), Dropped::Memory(memory));
    }

    fn drop_after(&self, value: u64, what: Dropped) {
        let Ok(parts) = self.parts() else { return };
        if parts.completed() < value {
            self.dropped().push((value, what));
        }
    }
}

/// A barrier after which everything written before can be read.
fn everything_written() -> D3D12_RESOURCE_BARRIER {
    let all = D3D12_RESOURCE_UAV_BARRIER { pResource: ManuallyDrop::new(None) };
    D3D12_RESOURCE_BARRIER {
        Type: D3D12_RESOURCE_BARRIER_TYPE_UAV,
        Anonymous: D3D12_RESOURCE_BARRIER_0 { UAV: ManuallyDrop::new(all) },
        ..Default::default()
    }
}
