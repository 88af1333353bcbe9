//! What ran where, how often and for how long: a count for each kind of step while it is switched on.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use super::explain::StepSummary;

/// The steps of one kind on one device.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileRow {
    /// What they are and compute.
    pub name: String,
    /// The device they ran on.
    pub device: String,
    /// How many ran.
    pub count: u64,
    /// Their time together. On a device with a queue, the time to submit them.
    pub time: Duration,
    /// Bytes read and written together.
    pub bytes: u64,
    /// Arithmetic operations together.
    pub operations: u64,
}

static ENABLED: AtomicBool = AtomicBool::new(false);
static ROWS: Mutex<BTreeMap<(String, String), ProfileRow>> = Mutex::new(BTreeMap::new());

/// Begins to count, from nothing. Every thread's work is counted.
pub fn start() {
    ROWS.lock().unwrap_or_else(PoisonError::into_inner).clear();
    ENABLED.store(true, Ordering::Release);
}

/// Ends counting; the rows, the longest time first.
pub fn finish() -> Vec<ProfileRow> {
    ENABLED.store(false, Ordering::Release);
    let rows = std::mem::take(&mut *ROWS.lock().unwrap_or_else(PoisonError::into_inner));
    let mut rows: Vec<ProfileRow> = rows.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.time));
    rows
}

pub(super) fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

pub(super) fn record(step: &StepSummary, time: Duration) {
    let name = format!("{} {}", step.name, step.detail);
    let mut rows = ROWS.lock().unwrap_or_else(PoisonError::into_inner);
    let row = rows.entry((step.device.clone(), name.clone())).or_insert_with(|| ProfileRow {
        name,
        device: step.device.clone(),
        ..ProfileRow::default()
    });
    row.count += 1;
    row.time += time;
    row.bytes += (step.bytes_read + step.bytes_written) as u64;
    row.operations += step.operations;
}
