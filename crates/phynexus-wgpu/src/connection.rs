//! A GPU in use: its queue, what waits to be submitted, copies, errors.

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

/// Launches that are submitted together, at most.
const TOGETHER: usize = 64;
/// Bytes that are copied at once, at most: as many are taken of the host's memory for it.
pub(crate) const AT_ONCE: usize = 64 << 20;
/// How long a device that has finished may take to say so.
const ANSWER: Duration = Duration::from_secs(60);

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

/// What waits to be submitted.
enum Command {
    Launch(Launch),
    /// A note of the time, by its number.
    Note(u32),
}

/// A launch of a kernel.
pub(crate) struct Launch {
    pub(crate) pipeline: ComputePipeline,
    pub(crate) bindings: BindGroup,
    /// The first element of each buffer, in bytes of `i32`.
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

    /// The error that happened meanwhile, if one did. After it nothing on this device is to be trusted.
    fn sound(&self) -> Result<()> {
        match self.failure.get() {
            Some(message) => Err(Error::Device { device: self.name.clone(), message: message.clone() }),
            None => Ok(()),
        }
    }

    fn pending(&self) -> MutexGuard<'_, Vec<Command>> {
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
        self.add(Command::Launch(launch))
    }

    /// Notes the time behind everything launched so far, as [`Times`] says.
    pub(crate) fn note(&self, number: u32) -> Result<()> {
        self.add(Command::Note(number))
    }

    fn add(&self, command: Command) -> Result<()> {
        let mut pending = self.pending();
        // A launch goes with the notes before and behind it: what lies between two submissions would count as its time.
        let may_end = matches!(pending.last(), Some(Command::Launch(_)));
        pending.push(command);
        if pending.len() >= TOGETHER && may_end {
            self.submit(&mut pending, |_| ())?;
        }
        Ok(())
    }

    /// Submits what waits.
    pub(crate) fn submit_pending(&self) -> Result<()> {
        let mut pending = self.pending();
        if !pending.is_empty() {
            self.submit(&mut pending, |_| ())?;
        }
        Ok(())
    }

    /// Submits what waits, and then what `last` adds.
    pub(crate) fn with_encoder(&self, last: impl FnOnce(&mut CommandEncoder)) -> Result<()> {
        self.submit(&mut self.pending(), last)
    }

    /// The machine code on disk; nothing if the API gives none.
    pub(crate) fn kept(&self) -> Option<&Kept> {
        self.kept.as_ref()
    }

    /// How it tells when it did what; nothing if it does not.
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

    /// Copies to the host, when everything before has finished.
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
                    .map_err(|message| self.error("making room for a copy", message))?
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
        // A thread that submits meanwhile may be the one that is told; it passes the answer on at once.
        match mapped.recv_timeout(ANSWER) {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return Err(self.error("copying from the device", error)),
            Err(_) => return Err(self.error("copying from the device", "it does not answer")),
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

    /// Tells, whenever it is asked, whether everything submitted so far is done, or has failed.
    pub(crate) fn progress(&self) -> Result<impl Fn() -> bool> {
        self.with_encoder(|_| ())?;
        let done = Arc::new(AtomicBool::new(false));
        let tell = done.clone();
        self.queue.on_submitted_work_done(move || tell.store(true, Ordering::Release));
        Ok(move || {
            // Not a wait with a time limit: wgpu 30 panics if another thread's poll collects the submission between the
            // limit and its own look (an assertion of `Device::maintain`). What failed is told to whoever waits next.
            done.load(Ordering::Acquire)
                || self.sound().is_err()
                || self.device.poll(PollType::Poll).is_err()
                || done.load(Ordering::Acquire)
        })
    }

    /// Waits until everything has finished.
    pub(crate) fn synchronize(&self) -> Result<()> {
        self.submit_pending()?;
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
