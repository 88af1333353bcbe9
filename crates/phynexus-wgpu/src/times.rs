//! Timestamps of the device. A fixed number can be in flight at once.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use phynexus::Result;
use wgpu::{
    Buffer, BufferDescriptor, BufferUsages, CommandEncoder, Device, Features, QUERY_SET_MAX_QUERIES,
    QUERY_SIZE, QuerySet, QuerySetDescriptor, QueryType, Queue,
};

use crate::connection::Connection;

/// The features for timestamps between launches.
pub(crate) const TIMES: Features = Features::TIMESTAMP_QUERY.union(Features::TIMESTAMP_QUERY_INSIDE_ENCODERS);

/// A timestamp: ticks of the device's clock, once they have been read.
pub(crate) type Mark = Arc<OnceLock<u64>>;

/// The device's timestamps.
pub(crate) struct Times {
    queries: QuerySet,
    /// The buffer that receives their values.
    values: Buffer,
    /// Nanoseconds per tick.
    period: f64,
    /// For each query in use, the mark that receives its value.
    marks: Mutex<Vec<Mark>>,
}

impl Times {
    /// `None` if the device does not support timestamps.
    pub(crate) fn new(device: &Device, queue: &Queue) -> Option<Times> {
        let period = f64::from(queue.get_timestamp_period());
        if !device.features().contains(TIMES) || period <= 0.0 {
            return None;
        }
        let queries = device.create_query_set(&QuerySetDescriptor {
            label: None,
            ty: QueryType::Timestamp,
            count: QUERY_SET_MAX_QUERIES,
        });
        let values = device.create_buffer(&BufferDescriptor {
            label: None,
            size: u64::from(QUERY_SET_MAX_QUERIES * QUERY_SIZE),
            usage: BufferUsages::QUERY_RESOLVE | BufferUsages::COPY_SRC,
            mapped_at_creation: false,
        });
        Some(Times { queries, values, period, marks: Mutex::new(Vec::new()) })
    }

    fn marks(&self) -> MutexGuard<'_, Vec<Mark>> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records the timestamp with this number.
    pub(crate) fn record(&self, encoder: &mut CommandEncoder, query: u32) {
        encoder.write_timestamp(&self.queries, query);
    }

    /// A timestamp after everything launched so far.
    pub(crate) fn mark(&self, connection: &Connection) -> Result<Mark> {
        let mut marks = self.marks();
        let is_full = marks.len() == QUERY_SET_MAX_QUERIES as usize;
        if is_full {
            self.ask(connection, &mut marks)?;
        }
        let mark = Mark::default();
        connection.note(marks.len() as u32)?;
        marks.push(mark.clone());
        if is_full {
            // The launch that the timestamp ends was submitted above.
            connection.submit_pending()?;
        }
        Ok(mark)
    }

    /// Nanoseconds between two timestamps.
    pub(crate) fn elapsed(&self, connection: &Connection, from: &Mark, to: &Mark) -> Result<f64> {
        if from.get().is_none() || to.get().is_none() {
            self.ask(connection, &mut self.marks())?;
        }
        match (from.get(), to.get()) {
            // A clock with few bits may have wrapped around.
            (Some(from), Some(to)) => Ok(to.saturating_sub(*from) as f64 * self.period),
            _ => Err(connection.error("reading a timestamp", "the device did not record it")),
        }
    }

    /// Reads all timestamps. Their queries are free afterwards.
    fn ask(&self, connection: &Connection, marks: &mut Vec<Mark>) -> Result<()> {
        if marks.is_empty() {
            return Ok(());
        }
        let count = marks.len() as u32;
        connection.with_encoder(|encoder| {
            encoder.resolve_query_set(&self.queries, 0..count, &self.values, 0);
        })?;
        let mut values = vec![0; (count * QUERY_SIZE) as usize];
        connection.read(&self.values, 0, &mut values)?;
        let (values, _) = values.as_chunks::<8>();
        for (mark, value) in marks.drain(..).zip(values) {
            // The device's byte order is the host's.
            let _ = mark.set(u64::from_ne_bytes(*value));
        }
        Ok(())
    }
}
