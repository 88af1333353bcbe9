//! A GPU in use: its queue, what waits to be submitted, copies, errors.

use std::{
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    task::{Context, Poll, Waker},
};

use phynexus::{Error, Result, gpu::NotCompiled};
use smallvec::SmallVec;
use wgpu::{
    BindGroup, Buffer, BufferDescriptor, BufferUsages, COPY_BUFFER_ALIGNMENT, CommandEncoder,
    ComputePipeline, Device, DeviceDescriptor, ErrorFilter, MapMode, MemoryHints, PollType, Queue,
};

use crate::adapter::Found;

/// Launches that are submitted together, at most.
const TOGETHER: usize = 64;
/// Bytes that are read at once, at most.
const READ_AT_ONCE: usize = 64 << 20;

/// The result of a future that needs nobody else to make progress, as wgpu's are outside browsers.
pub(crate) fn wait_for<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let mut context = Context::from_waker(Waker::noop());
    loop {
        match future.as_mut().poll(&mut context) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::yield_now(),
        }
    }
}

/// A launch that waits to be submitted.
pub(crate) struct Launch {
    pub(crate) pipeline: ComputePipeline,
    pub(crate) bindings: BindGroup,
    /// The first element of each buffer, in bytes of `i32`.
    pub(crate) starts: SmallVec<[u8; 64]>,
    pub(crate) grid: [u32; 3],
}

/// An open device.
pub(crate) struct Connection {
    name: String,
    device: Device,
    queue: Queue,
    pending: Mutex<Vec<Launch>>,
    /// What reads go through: mapped by one thread at a time.
    staging: Mutex<Option<Buffer>>,
    /// The first error that nobody asked for.
    failure: Arc<OnceLock<String>>,
    /// What bindings begin at multiples of, in bytes.
    pub(crate) alignment: usize,
    /// Bytes of the largest binding.
    pub(crate) largest_binding: u64,
    largest_buffer: u64,
}

impl Connection {
    /// Opens the device with the adapter's own limits.
    pub(crate) fn new(found: &Found) -> Result<Connection> {
        let name = found.info.name.clone();
        let limits = found.adapter.limits();
        let opened = wait_for(found.adapter.request_device(&DeviceDescriptor {
            label: None,
            required_features: found.features,
            required_limits: limits.clone(),
            memory_hints: MemoryHints::Performance,
            ..Default::default()
        }));
        let (device, queue) = opened.map_err(|error| Error::Device {
            device: name.clone(),
            message: format!("opening the device: {error}"),
        })?;
        let failure = Arc::new(OnceLock::new());
        let uncaptured = failure.clone();
        device.on_uncaptured_error(Arc::new(move |error: wgpu::Error| {
            // The first one tells what went wrong.
            let _ = uncaptured.set(words(&error));
        }));
        let lost = failure.clone();
        device.set_device_lost_callback(move |_, message| {
            let _ = lost.set(format!("the device is lost: {message}"));
        });
        Ok(Connection {
            name,
            device,
            queue,
            pending: Mutex::new(Vec::new()),
            staging: Mutex::new(None),
            failure,
            alignment: limits.min_storage_buffer_offset_alignment as usize,
            largest_binding: limits.max_storage_buffer_binding_size / 4 * 4,
            largest_buffer: limits.max_buffer_size,
        })
    }

    fn error(&self, doing: &str, message: impl std::fmt::Display) -> Error {
        Error::Device { device: self.name.clone(), message: format!("{doing}: {message}") }
    }

    /// The error that happened meanwhile, if one did. After it nothing on this device is to be trusted.
    fn sound(&self) -> Result<()> {
        match self.failure.get() {
            Some(message) => Err(Error::Device { device: self.name.clone(), message: message.clone() }),
            None => Ok(()),
        }
    }

    fn pending(&self) -> MutexGuard<'_, Vec<Launch>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does something whose errors are its result: refusals, if the device is well and has room.
    pub(crate) fn checked<T>(&self, work: impl FnOnce(&Device) -> T) -> Result<T, NotCompiled> {
        // Three variables: they end in the reverse of their order, as scopes must, if the work panics too.
        let internal = self.device.push_error_scope(ErrorFilter::Internal);
        let validation = self.device.push_error_scope(ErrorFilter::Validation);
        let memory = self.device.push_error_scope(ErrorFilter::OutOfMemory);
        let made = work(&self.device);
        let memory = wait_for(memory.pop());
        let validation = wait_for(validation.pop());
        let internal = wait_for(internal.pop());
        // What a device that is lost says of a kernel is not the kernel's fault.
        self.sound()?;
        match (memory, validation.or(internal)) {
            (Some(_), _) => Err(NotCompiled::out_of_memory(&self.name, 0)),
            (None, Some(error)) => Err(words(&error).into()),
            (None, None) => Ok(made),
        }
    }

    /// A buffer of so many bytes; nothing if there is no room.
    pub(crate) fn allocate(&self, bytes: usize) -> Option<Buffer> {
        // Kernels see whole vectors of four words.
        let size = (bytes as u64).max(1).checked_next_multiple_of(16)?;
        if size > self.largest_buffer || self.sound().is_err() {
            return None;
        }
        let usage = BufferUsages::STORAGE | BufferUsages::COPY_SRC | BufferUsages::COPY_DST;
        self.checked(|device| {
            device.create_buffer(&BufferDescriptor { label: None, size, usage, mapped_at_creation: false })
        })
        .ok()
    }

    /// The device, for what is made of its objects.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Submits a launch, sooner or later.
    pub(crate) fn launch(&self, launch: Launch) -> Result<()> {
        let mut pending = self.pending();
        pending.push(launch);
        if pending.len() >= TOGETHER { self.submit(&mut pending, |_| ()) } else { Ok(()) }
    }

    /// Submits what waits, and then what `last` adds.
    fn submit(&self, pending: &mut Vec<Launch>, last: impl FnOnce(&mut CommandEncoder)) -> Result<()> {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        if !pending.is_empty() {
            let mut pass = encoder.begin_compute_pass(&Default::default());
            for launch in pending.drain(..) {
                let [x, y, z] = launch.grid;
                pass.set_pipeline(&launch.pipeline);
                pass.set_bind_group(0, &launch.bindings, &[]);
                if !launch.starts.is_empty() {
                    pass.set_immediates(0, &launch.starts);
                }
                pass.dispatch_workgroups(x, y, z);
            }
        }
        last(&mut encoder);
        self.queue.submit([encoder.finish()]);
        // Frees what finished work held; what is wrong is told below.
        let _ = self.device.poll(PollType::Poll);
        self.sound()
    }

    /// Copies from the host.
    pub(crate) fn write(&self, buffer: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        let alignment = COPY_BUFFER_ALIGNMENT as usize;
        let (before, after) =
            (offset % alignment, (alignment - (offset + bytes.len()) % alignment) % alignment);
        if before + after > 0 {
            // Whole words are written, so what is around comes along.
            let mut whole = vec![0; before + bytes.len() + after];
            let end = whole.len() - alignment;
            self.read(buffer, offset - before, &mut whole[..alignment])?;
            self.read(buffer, offset - before + end, &mut whole[end..])?;
            whole[before..before + bytes.len()].copy_from_slice(bytes);
            return self.write(buffer, offset - before, &whole);
        }
        // The write comes before what is submitted next.
        let mut pending = self.pending();
        if !pending.is_empty() {
            self.submit(&mut pending, |_| ())?;
        }
        self.queue.write_buffer(buffer, offset as u64, bytes);
        self.sound()
    }

    /// Copies to the host, when everything before has finished.
    pub(crate) fn read(&self, buffer: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let mut from = offset;
        for part in bytes.chunks_mut(READ_AT_ONCE) {
            self.read_part(buffer, from, part)?;
            from += part.len();
        }
        Ok(())
    }

    fn read_part(&self, buffer: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let (first, end) = (offset as u64, (offset + bytes.len()) as u64);
        let first_word = first / COPY_BUFFER_ALIGNMENT * COPY_BUFFER_ALIGNMENT;
        let size = end.next_multiple_of(COPY_BUFFER_ALIGNMENT) - first_word;
        let mut kept = self.staging.lock().unwrap_or_else(PoisonError::into_inner);
        let staging = match kept.take().filter(|staging| staging.size() >= size) {
            Some(staging) => staging,
            None => {
                let usage = BufferUsages::MAP_READ | BufferUsages::COPY_DST;
                let size = size.next_power_of_two().max(4096);
                let descriptor = BufferDescriptor { label: None, size, usage, mapped_at_creation: false };
                self.checked(|device| device.create_buffer(&descriptor))
                    .map_err(|message| self.error("making room for a copy", message))?
            }
        };
        self.submit(&mut self.pending(), |encoder| {
            encoder.copy_buffer_to_buffer(buffer, first_word, &staging, 0, size);
        })?;
        let mapped = Arc::new(OnceLock::new());
        let told = mapped.clone();
        staging.slice(..size).map_async(MapMode::Read, move |result| {
            let _ = told.set(result);
        });
        self.wait()?;
        match mapped.get() {
            Some(Ok(())) => {}
            Some(Err(error)) => return Err(self.error("copying from the device", error)),
            None => return Err(self.error("copying from the device", "it does not answer")),
        }
        let copied = staging.slice(..size).get_mapped_range().map(|range| {
            let start = (first - first_word) as usize;
            bytes.copy_from_slice(&range[start..start + bytes.len()]);
        });
        staging.unmap();
        copied.map_err(|error| self.error("copying from the device", error))?;
        *kept = Some(staging);
        Ok(())
    }

    fn wait(&self) -> Result<()> {
        let waited = self.device.poll(PollType::wait_indefinitely());
        self.sound()?;
        waited.map(drop).map_err(|error| self.error("waiting for the device", error))
    }

    /// Waits until everything has finished.
    pub(crate) fn synchronize(&self) -> Result<()> {
        let mut pending = self.pending();
        if !pending.is_empty() {
            self.submit(&mut pending, |_| ())?;
        }
        drop(pending);
        self.wait()
    }
}

/// An error with its causes, on one line.
fn words(error: &wgpu::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
