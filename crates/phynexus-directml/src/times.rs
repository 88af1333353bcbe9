//! Timestamps of the device.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use phynexus::{Error, Result};
use smallvec::SmallVec;
use windows::Win32::Graphics::Direct3D12::{
    D3D12_QUERY_HEAP_DESC, D3D12_QUERY_HEAP_TYPE_TIMESTAMP, D3D12_QUERY_TYPE_TIMESTAMP, ID3D12QueryHeap,
};

use crate::{
    connection::Connection,
    memory::Block,
    object::{Held, Holder},
};

/// Timestamps that are read together.
const TOGETHER: u32 = 512;
/// Bytes of a timestamp.
const BYTES: usize = size_of::<u64>();

/// A timestamp.
pub(crate) struct Mark {
    batch: Arc<Batch>,
    at: u32,
}

/// Copies from a block to the host.
type Read<'a> = dyn Fn(&Block, &mut [u8]) -> Result<()> + 'a;

/// Timestamps that are taken one after another.
struct Batch {
    queries: Held<ID3D12QueryHeap>,
    connection: Arc<Connection>,
    /// The numbers of those that were taken.
    taken: Mutex<Vec<u32>>,
    /// Ticks, once they were read.
    ticks: OnceLock<Vec<Option<u64>>>,
}

impl Holder for Batch {
    fn release(&self) {
        drop(self.queries.take());
    }
}

// SAFETY: Direct3D's heaps may be used from any thread.
unsafe impl Send for Batch {}
// SAFETY: as above.
unsafe impl Sync for Batch {}

/// The device's clock.
#[derive(Default)]
pub(crate) struct Times {
    /// The batch that gets the next timestamp, and its number there.
    current: Mutex<Option<(Arc<Batch>, u32)>>,
}

impl Times {
    fn current(&self) -> MutexGuard<'_, Option<(Arc<Batch>, u32)>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the next place in the current batch, if it has room.
    fn place(&self) -> Option<(Arc<Batch>, u32)> {
        let mut current = self.current();
        let (batch, next) = current.as_mut().filter(|(_, next)| *next < TOGETHER)?;
        let at = *next;
        *next += 1;
        Some((batch.clone(), at))
    }

    /// A timestamp after everything launched so far.
    pub(crate) fn mark(&self, connection: &Arc<Connection>) -> Result<Mark> {
        let (batch, at) = match self.place() {
            Some(place) => place,
            None => {
                let batch = Batch::new(connection)?;
                *self.current() = Some((batch.clone(), 1));
                (batch, 0)
            }
        };
        let queries = batch.queries.get().ok_or_else(|| connection.lost())?;
        connection.note(&queries, at, SmallVec::from_iter([batch.clone() as _]))?;
        batch.taken().push(at);
        Ok(Mark { batch, at })
    }

    /// Nanoseconds between two timestamps.
    pub(crate) fn elapsed(
        &self,
        connection: &Connection,
        read: &Read<'_>,
        from: &Mark,
        to: &Mark,
    ) -> Result<f64> {
        let parts = connection.parts()?;
        // SAFETY: the call has no preconditions.
        let frequency = unsafe { parts.queue.GetTimestampFrequency() }
            .map_err(|error| connection.error("asking for the clock's frequency", &error))?;
        let (from, to) = (self.ticks(read, from)?, self.ticks(read, to)?);
        Ok(to.saturating_sub(from) as f64 * 1e9 / frequency.max(1) as f64)
    }

    fn ticks(&self, read: &Read<'_>, mark: &Mark) -> Result<u64> {
        let ticks = match mark.batch.ticks.get() {
            Some(ticks) => ticks,
            None => {
                // Later timestamps are of another batch.
                let mut current = self.current();
                drop(current.take_if(|(batch, _)| Arc::ptr_eq(batch, &mark.batch)));
                drop(current);
                let ticks = mark.batch.read(read)?;
                mark.batch.ticks.get_or_init(|| ticks)
            }
        };
        let missing = || Error::internal("phynexus_directml", "a timestamp was not taken");
        ticks.get(mark.at as usize).copied().flatten().ok_or_else(missing)
    }
}

impl Batch {
    fn new(connection: &Arc<Connection>) -> Result<Arc<Batch>> {
        let description = D3D12_QUERY_HEAP_DESC {
            Type: D3D12_QUERY_HEAP_TYPE_TIMESTAMP,
            Count: TOGETHER,
            ..Default::default()
        };
        let mut made: Option<ID3D12QueryHeap> = None;
        // SAFETY: the description and the pointer are valid during the call.
        unsafe { connection.parts()?.device.CreateQueryHeap(&description, &mut made) }
            .map_err(|error| connection.error("preparing timestamps", &error))?;
        let made = made.ok_or_else(|| Error::internal("phynexus_directml", "no heap was made"))?;
        let (queries, connection) = (Held::new(made), connection.clone());
        let batch = Arc::new(Batch { queries, connection, taken: Mutex::default(), ticks: OnceLock::new() });
        batch.connection.holds(&batch)?;
        Ok(batch)
    }

    fn taken(&self) -> MutexGuard<'_, Vec<u32>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the timestamps.
    fn read(&self, read: &Read<'_>) -> Result<Vec<Option<u64>>> {
        let connection = &self.connection;
        let taken = self.taken().clone();
        let mut bytes = vec![0; TOGETHER as usize * BYTES];
        let values = Block::new(connection, bytes.len())?;
        let (resource, start) = values.place()?;
        let queries = self.queries.get().ok_or_else(|| connection.lost())?;
        // SAFETY: the list is being recorded, and the block has room for the values. Those that were not taken, which
        // would never finish, are left out.
        connection.with_list(|list| unsafe {
            for &at in &taken {
                let to = start + u64::from(at) * BYTES as u64;
                list.ResolveQueryData(&queries, D3D12_QUERY_TYPE_TIMESTAMP, at, 1, &resource, to);
            }
        })?;
        read(&values, &mut bytes)?;
        // The device's byte order is the host's.
        let (words, _) = bytes.as_chunks::<BYTES>();
        let value = |at: u32| {
            let word = words.get(at as usize).copied().unwrap_or_default();
            taken.contains(&at).then(|| u64::from_ne_bytes(word))
        };
        Ok((0..TOGETHER).map(value).collect())
    }
}
