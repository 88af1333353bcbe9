//! A device's collectives: in a stream of their own, so that kernels run meanwhile.
//!
//! A collective waits for everything submitted before it. What touches memory in the first stream goes through
//! [`Collectives::before`], and what waits for the device through [`Collectives::watch`].

use std::{
    ffi::c_void,
    ops::Range,
    sync::{Arc, OnceLock},
};

use phynexus::Result;

use crate::{
    Endpoint, Routine,
    flights::{Flight, Flights, Touched},
};

/// A GPU's streams. Its work is in the first one, except for collectives.
pub trait Streams {
    /// A point in a stream.
    type Event: Send + Sync;

    /// Makes the GPU current on this thread.
    ///
    /// # Errors
    /// Those of the driver.
    fn bind(&self) -> Result<()>;
    /// The first stream.
    fn first(&self) -> *mut c_void;
    /// Creates a stream that lives as long as the process and waits for no other one.
    ///
    /// # Errors
    /// Those of the driver.
    fn create(&self) -> Result<*mut c_void>;
    /// Creates an event.
    ///
    /// # Errors
    /// Those of the driver.
    fn event(&self) -> Result<Self::Event>;
    /// Records an event after what was submitted to a stream so far.
    ///
    /// # Safety
    /// The stream must be one of this GPU.
    ///
    /// # Errors
    /// Those of the driver.
    unsafe fn record(&self, event: &Self::Event, stream: *mut c_void) -> Result<()>;
    /// Makes what is submitted to a stream from now on wait for an event.
    ///
    /// # Safety
    /// The stream must be one of this GPU.
    ///
    /// # Errors
    /// Those of the driver.
    unsafe fn follow(&self, event: &Self::Event, stream: *mut c_void) -> Result<()>;
    /// Whether the device has passed the event, or has failed.
    fn has_happened(&self, event: &Self::Event) -> bool;
}

/// A stream; it lives as long as the process.
struct Stream(*mut c_void);

// SAFETY: streams may be used from any thread.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

/// The collectives of a device with events `E`.
pub struct Collectives<E> {
    stream: OnceLock<Stream>,
    flights: Flights<E>,
}

impl<E> Default for Collectives<E> {
    fn default() -> Collectives<E> {
        Collectives { stream: OnceLock::new(), flights: Flights::default() }
    }
}

impl<E: Send + Sync> Collectives<E> {
    /// The collectives that the first stream does not wait for.
    pub fn open(&self) -> Vec<Arc<Flight<E>>> {
        self.flights.open()
    }

    /// Makes what is submitted to the first stream from now on wait for a collective.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn join(&self, gpu: &impl Streams<Event = E>, flight: &Flight<E>) -> Result<()> {
        gpu.bind()?;
        // SAFETY: the stream is this GPU's.
        unsafe { gpu.follow(flight.done(), gpu.first()) }?;
        flight.join();
        Ok(())
    }

    /// Makes what is submitted to the first stream from now on wait for all collectives.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn join_all(&self, gpu: &impl Streams<Event = E>) -> Result<()> {
        self.open().iter().try_for_each(|flight| self.join(gpu, flight))
    }

    /// Call this before submitting something to the first stream that touches this memory.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn before(&self, gpu: &impl Streams<Event = E>, touched: &[Touched]) -> Result<()> {
        let open = self.open();
        let waits = open.iter().filter(|flight| flight.collides(touched));
        waits.into_iter().try_for_each(|flight| self.join(gpu, flight))
    }

    /// The same for something that reads this memory.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn before_read(&self, gpu: &impl Streams<Event = E>, range: Range<u64>) -> Result<()> {
        self.before(gpu, &[Touched { range, written: false }])
    }

    /// The same for something that writes this memory, or frees it.
    ///
    /// # Errors
    /// Those of the driver.
    pub fn before_write(&self, gpu: &impl Streams<Event = E>, range: Range<u64>) -> Result<()> {
        self.before(gpu, &[Touched { range, written: true }])
    }

    /// A function that a wait calls in its loop. It looks every millisecond whether a collective fails, and does not
    /// wait. Its error is that of a collective: the device's numbers are undefined.
    pub fn look(&self, gpu: &impl Streams<Event = E>) -> impl Fn() -> Result<()> {
        self.flights.look(|event| gpu.has_happened(event))
    }

    /// While collectives run, waits for an event, and ends those that fail. The caller then waits by the driver.
    ///
    /// # Errors
    /// That of a collective: the device's numbers are undefined.
    pub fn watch(&self, gpu: &impl Streams<Event = E>, event: &E) -> Result<()> {
        let has_happened = |event: &E| gpu.has_happened(event);
        self.flights.watch(|| has_happened(event), has_happened)
    }

    /// While collectives run, waits for everything submitted, as [`Collectives::watch`] does.
    ///
    /// # Errors
    /// As [`Collectives::watch`].
    pub fn watch_all(&self, gpu: &impl Streams<Event = E>) -> Result<()> {
        if self.flights.is_quiet() {
            return Ok(());
        }
        self.join_all(gpu)?;
        gpu.bind()?;
        let event = gpu.event()?;
        // SAFETY: the stream is this GPU's.
        unsafe { gpu.record(&event, gpu.first()) }?;
        self.watch(gpu, &event)
    }

    /// Submits a collective: its operand and its result are at these addresses.
    ///
    /// # Safety
    /// They must be memory of the endpoint, whose streams these are, with the bytes of the step, and must not overlap.
    /// What touches the memory later, or frees it, must go through [`Collectives::before`].
    ///
    /// # Errors
    /// [`Collective`](phynexus::Error::Collective) if a rank ended or is too late, or did so before;
    /// [`Argument`](phynexus::Error::Argument) if the group is closed; those of the driver.
    pub unsafe fn submit(
        &self,
        gpu: &impl Streams<Event = E>,
        endpoint: &dyn Endpoint,
        routine: &Routine,
        addresses: [u64; 2],
    ) -> Result<()> {
        gpu.bind()?;
        let stream = match self.stream.get() {
            Some(Stream(stream)) => *stream,
            None => {
                let made = gpu.create()?;
                // If another thread was faster, this one is left unused.
                self.stream.get_or_init(|| Stream(made)).0
            }
        };
        let [begun, done] = [gpu.event()?, gpu.event()?];
        // SAFETY: both streams are this GPU's.
        unsafe {
            gpu.record(&begun, gpu.first())?;
            gpu.follow(&begun, stream)?;
        }
        // SAFETY: the stream is this GPU's.
        let record = |done: &E| unsafe { gpu.record(done, stream) };
        // SAFETY: guaranteed by the caller.
        unsafe { routine.submit(endpoint, &self.flights, addresses, stream, [begun, done], record) }
    }
}
