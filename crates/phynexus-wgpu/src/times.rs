//! When the device did what: timestamps, a fixed number of which is under way at once.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use phynexus::Result;
use wgpu::{
    Buffer, BufferDescriptor, BufferUsages, CommandEncoder, Device, Features, QUERY_SET_MAX_QUERIES,
    QUERY_SIZE, QuerySet, QuerySetDescriptor, QueryType, Queue,
};

use crate::connection::Connection;

/// What notes of time between launches need.
pub(crate) const TIMES: Features = Features::TIMESTAMP_QUERY.union(Features::TIMESTAMP_QUERY_INSIDE_ENCODERS);

/// A note of the device's time: ticks of its clock, once the device was asked for them.
pub(crate) type Mark = Arc<OnceLock<u64>>;

/// The notes that the device makes.
pub(crate) struct Times {
    queries: QuerySet,
    /// Where the device puts their values.
    values: Buffer,
    /// Nanoseconds of a tick.
    period: f64,
    /// Who gets the value of each query that is in use.
    marks: Mutex<Vec<Mark>>,
}

impl Times {
    /// Nothing if the device has no clock for programs.
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

    /// Records the note of this number.
    pub(crate) fn record(&self, encoder: &mut CommandEncoder, query: u32) {
        encoder.write_timestamp(&self.queries, query);
    }

    /// A note behind everything launched so far.
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
            // What it ends was submitted above.
            connection.submit_pending()?;
        }
        Ok(mark)
    }

    /// Nanoseconds between two notes.
    pub(crate) fn elapsed(&self, connection: &Connection, from: &Mark, to: &Mark) -> Result<f64> {
        if from.get().is_none() || to.get().is_none() {
            self.ask(connection, &mut self.marks())?;
        }
        match (from.get(), to.get()) {
            // A clock of few bits may have begun anew.
            (Some(from), Some(to)) => Ok(to.saturating_sub(*from) as f64 * self.period),
            _ => Err(connection.error("asking for the time", "the device did not note it")),
        }
    }

    /// Waits for all notes; their queries are free afterwards.
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
