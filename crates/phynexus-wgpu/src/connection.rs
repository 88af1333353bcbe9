//! An open GPU: its queue, pending commands, copies and errors.

use std::{
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    task::{Context, Poll, Waker},
    time::Duration,
};

use phynexus::{Error, Result, device::DeviceNature, gpu::NotCompiled};
use smallvec::SmallVec;
use wgpu::{
    BindGroup, Buffer, BufferDescriptor, BufferUsages, COPY_BUFFER_ALIGNMENT, CommandEncoder, ComputePass,
    ComputePipeline, Device, DeviceDescriptor, ErrorFilter, MapMode, MemoryHints, PollType, Queue,
};

use crate::{adapter::Found, exit, pipelines::Kept, times::Times};

/// Maximum number of launches per submission.
const TOGETHER: usize = 64;
/// Maximum size of a single copy in bytes. Each copy allocates as much host memory.
pub(crate) const AT_ONCE: usize = 64 << 20;
/// Maximum time for a finished device to report it.
const ANSWER: Duration = Duration::from_secs(60);

/// The result of a future that makes progress without an executor, like wgpu's outside browsers.
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

/// A pending command.
enum Command {
    Launch(Launch),
    /// A timestamp, by its number.
    Note(u32),
}

/// A kernel launch.
pub(crate) struct Launch {
    pub(crate) pipeline: ComputePipeline,
    pub(crate) bindings: BindGroup,
    /// The first element of each buffer, as the bytes of `i32` values.
    pub(crate) starts: SmallVec<[u8; 64]>,
    pub(crate) grid: [u32; 3],
}

impl Launch {
    fn record(&self, pass: &mut ComputePass<'_>) {
        let [x, y, z] = self.grid;
        pass.set_pipeline(&self.pipeline);
        pass.set_bind_group(0, &self.bindings, &[]);
        if !self.starts.is_empty() {
            pass.set_immediates(0, &self.starts);
        }
        pass.dispatch_workgroups(x, y, z);
    }
}

/// An open device.
pub(crate) struct Connection {
    name: String,
    device: Device,
    queue: Queue,
    pending: Mutex<Vec<Command>>,
    times: Option<Times>,
    kept: Option<Kept>,
    /// The staging buffer for reads: mapped by one thread at a time.
    staging: Mutex<Option<Buffer>>,
    /// The first uncaptured error.
    failure: Arc<OnceLock<String>>,
    /// The alignment of bindings in bytes.
    pub(crate) alignment: usize,
    /// The size of the largest binding in bytes.
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
            // Only the first error is kept: it shows the cause.
            let _ = uncaptured.set(words(&error));
        }));
        let lost = failure.clone();
        device.set_device_lost_callback(move |_, message| {
            let _ = lost.set(format!("the device is lost: {message}"));
        });
        let times = Times::new(&device, &queue);
        let connection = Connection {
            name,
            device,
            queue,
            pending: Mutex::new(Vec::new()),
            times,
            kept: Kept::new(found),
            staging: Mutex::new(None),
            failure,
            alignment: limits.min_storage_buffer_offset_alignment as usize,
            largest_binding: limits.max_storage_buffer_binding_size / 4 * 4,
            largest_buffer: limits.max_buffer_size,
        };
        if found.info.nature == DeviceNature::Emulator {
            exit::guard(&connection);
        }
        Ok(connection)
    }

    pub(crate) fn error(&self, doing: &str, message: impl std::fmt::Display) -> Error {
        Error::Device { device: self.name.clone(), message: format!("{doing}: {message}") }
    }

    /// The uncaptured error, if any. After one, no result of this device can be trusted.
    fn sound(&self) -> Result<()> {
        match self.failure.get() {
            Some(message) => Err(Error::Device { device: self.name.clone(), message: message.clone() }),
            None => Ok(()),
        }
    }

    fn pending(&self) -> MutexGuard<'_, Vec<Command>> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` and captures its errors: they are refusals if the device is intact and memory suffices.
    pub(crate) fn checked<T>(&self, work: impl FnOnce(&Device) -> T) -> Result<T, NotCompiled> {
        // Three variables: scopes must end in reverse order, also if the work panics.
        let internal = self.device.push_error_scope(ErrorFilter::Internal);
        let validation = self.device.push_error_scope(ErrorFilter::Validation);
        let memory = self.device.push_error_scope(ErrorFilter::OutOfMemory);
        let made = work(&self.device);
        let memory = wait_for(memory.pop());
        let validation = wait_for(validation.pop());
        let internal = wait_for(internal.pop());
        // Errors of a lost device are not the kernel's fault.
        self.sound()?;
        match (memory, validation.or(internal)) {
            (Some(_), _) => Err(NotCompiled::out_of_memory(&self.name, 0)),
            (None, Some(error)) => Err(words(&error).into()),
            (None, None) => Ok(made),
        }
    }

    /// A buffer of `bytes` bytes; `None` if memory does not suffice.
    pub(crate) fn allocate(&self, bytes: usize) -> Option<Buffer> {
        // Kernels access whole vectors of four words.
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

    /// The device, for creating objects on it.
    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// Queues a launch; it may be submitted later.
    pub(crate) fn launch(&self, launch: Launch) -> Result<()> {
        self.add(Command::Launch(launch))
    }

    /// Queues a timestamp after everything launched so far; see [`Times`].
    pub(crate) fn note(&self, number: u32) -> Result<()> {
        self.add(Command::Note(number))
    }

    fn add(&self, command: Command) -> Result<()> {
        let mut pending = self.pending();
        // A launch is submitted with the timestamps before and after it: a gap between two submissions would count as
        // its time.
        let may_end = matches!(pending.last(), Some(Command::Launch(_)));
        pending.push(command);
        if pending.len() >= TOGETHER && may_end {
            self.submit(&mut pending, |_| ())?;
        }
        Ok(())
    }

    /// Submits the pending commands.
    pub(crate) fn submit_pending(&self) -> Result<()> {
        let mut pending = self.pending();
        if !pending.is_empty() {
            self.submit(&mut pending, |_| ())?;
        }
        Ok(())
    }

    /// Submits the pending commands, followed by what `last` encodes.
    pub(crate) fn with_encoder(&self, last: impl FnOnce(&mut CommandEncoder)) -> Result<()> {
        self.submit(&mut self.pending(), last)
    }

    /// The machine code cached on disk; `None` if the API provides none.
    pub(crate) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// The device's timestamps; `None` if not supported.
    pub(crate) fn times(&self) -> Option<&Times> {
        self.times.as_ref()
    }

    fn submit(&self, pending: &mut Vec<Command>, last: impl FnOnce(&mut CommandEncoder)) -> Result<()> {
        let mut encoder = self.device.create_command_encoder(&Default::default());
        let mut pass: Option<ComputePass<'static>> = None;
        for command in pending.drain(..) {
            match (command, &self.times) {
                (Command::Launch(launch), _) => {
                    let begin = || encoder.begin_compute_pass(&Default::default()).forget_lifetime();
                    launch.record(pass.get_or_insert_with(begin));
                }
                (Command::Note(number), Some(times)) => {
                    // A pass ends when it is dropped.
                    pass = None;
                    times.record(&mut encoder, number);
                }
                (Command::Note(_), None) => {}
            }
        }
        drop(pass);
        last(&mut encoder);
        self.queue.submit([encoder.finish()]);
        // Frees the resources of finished work; errors are reported below.
        let _ = self.device.poll(PollType::Poll);
        self.sound()
    }

    /// Copies from the host.
    pub(crate) fn write(&self, buffer: &Buffer, offset: usize, bytes: &[u8]) -> Result<()> {
        let alignment = COPY_BUFFER_ALIGNMENT as usize;
        let (before, after) =
            (offset % alignment, (alignment - (offset + bytes.len()) % alignment) % alignment);
        if before + after > 0 {
            // Writes cover whole words, so the surrounding bytes are included.
            let mut whole = vec![0; before + bytes.len() + after];
            let end = whole.len() - alignment;
            self.read(buffer, offset - before, &mut whole[..alignment])?;
            self.read(buffer, offset - before + end, &mut whole[end..])?;
            whole[before..before + bytes.len()].copy_from_slice(bytes);
            return self.write(buffer, offset - before, &whole);
        }
        // The write takes effect before the next submission.
        let mut pending = self.pending();
        if !pending.is_empty() {
            self.submit(&mut pending, |_| ())?;
        }
        let mut parts = bytes.chunks(AT_ONCE).zip((offset..).step_by(AT_ONCE)).peekable();
        while let Some((part, at)) = parts.next() {
            self.queue.write_buffer(buffer, at as u64, part);
            if parts.peek().is_some() {
                self.queue.submit([]);
                self.wait()?;
            }
        }
        self.sound()
    }

    /// Copies to the host after all previous work has finished.
    pub(crate) fn read(&self, buffer: &Buffer, offset: usize, bytes: &mut [u8]) -> Result<()> {
        let mut from = offset;
        for part in bytes.chunks_mut(AT_ONCE) {
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
                    .map_err(|message| self.error("allocating a staging buffer", message))?
            }
        };
        self.with_encoder(|encoder| {
            encoder.copy_buffer_to_buffer(buffer, first_word, &staging, 0, size);
        })?;
        let (told, mapped) = mpsc::channel();
        staging.slice(..size).map_async(MapMode::Read, move |result| {
            let _ = told.send(result);
        });
        self.wait()?;
        // Another thread's poll may run this callback; it forwards the result at once.
        match mapped.recv_timeout(ANSWER) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(self.error("copying from the device", error)),
            Err(_) => return Err(self.error("copying from the device", "the device does not respond")),
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

    /// Returns a function that reports whether everything submitted so far is done or has failed.
    pub(crate) fn progress(&self) -> Result<impl Fn() -> bool> {
        self.with_encoder(|_| ())?;
        let done = Arc::new(AtomicBool::new(false));
        let tell = done.clone();
        self.queue.on_submitted_work_done(move || tell.store(true, Ordering::Release));
        Ok(move || {
            // Not a wait with a timeout: wgpu 30 panics if another thread's poll collects the submission between the
            // timeout and its own check (an assertion in `Device::maintain`). The next thread that waits gets the
            // error.
            done.load(Ordering::Acquire)
                || self.sound().is_err()
                || self.device.poll(PollType::Poll).is_err()
                || done.load(Ordering::Acquire)
        })
    }

    /// Waits until all work has finished.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.submit_pending()?;
        self.wait()
    }
}

/// An error and its causes, on one line.
fn words(error: &wgpu::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(inner) = cause {
        text = format!("{text}: {inner}");
        cause = inner.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
