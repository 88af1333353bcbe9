//! Times, bytes and counts by name.

use std::{collections::HashMap, time::Instant};

use serde::{Deserialize, Serialize};

/// Times (in seconds), bytes and counts by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerformanceMonitor {
    /// Durations in seconds.
    pub times: HashMap<String, Vec<f64>>,
    /// Recorded numbers of bytes.
    pub memory_usage: HashMap<String, Vec<usize>>,
    /// The number of finished timers.
    pub counters: HashMap<String, usize>,
}

fn mean(numbers: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    let count = numbers.len();
    (count > 0).then(|| numbers.sum::<f64>() / count as f64)
}

impl PerformanceMonitor {
    /// An empty monitor.
    pub fn new() -> PerformanceMonitor {
        PerformanceMonitor::default()
    }

    /// The start time for [`PerformanceMonitor::end_timer`].
    pub fn start_timer(&mut self, _name: &str) -> Instant {
        Instant::now()
    }

    /// Records the time since `start_time`.
    pub fn end_timer(&mut self, name: &str, start_time: Instant) {
        self.times.entry(name.to_owned()).or_default().push(start_time.elapsed().as_secs_f64());
        *self.counters.entry(name.to_owned()).or_default() += 1;
    }

    /// Records a number of bytes.
    pub fn record_memory(&mut self, name: &str, bytes: usize) {
        self.memory_usage.entry(name.to_owned()).or_default().push(bytes);
    }

    /// The mean duration, if there is one.
    pub fn average_time(&self, name: &str) -> Option<f64> {
        mean(self.times.get(name)?.iter().copied())
    }

    /// The total duration, if there is one.
    pub fn total_time(&self, name: &str) -> Option<f64> {
        Some(self.times.get(name)?.iter().sum())
    }

    /// The mean number of bytes, if there is one.
    pub fn average_memory(&self, name: &str) -> Option<f64> {
        mean(self.memory_usage.get(name)?.iter().map(|bytes| *bytes as f64))
    }

    /// The maximum number of bytes, if there is one.
    pub fn peak_memory(&self, name: &str) -> Option<usize> {
        self.memory_usage.get(name)?.iter().copied().max()
    }

    /// The number of finished timers, if there are any.
    pub fn count(&self, name: &str) -> Option<usize> {
        self.counters.get(name).copied()
    }

    /// Prints one line per name.
    pub fn print_summary(&self) {
        let mut names: Vec<&String> = self.times.keys().chain(self.memory_usage.keys()).collect();
        names.sort_unstable();
        names.dedup();
        for name in names {
            let (count, total) = (self.count(name).unwrap_or(0), self.total_time(name).unwrap_or(0.0));
            let memory = self.peak_memory(name).unwrap_or(0);
            println!("{name}: {count} times, {total:.6} s, at most {memory} bytes");
        }
    }

    /// Clears all records.
    pub fn reset(&mut self) {
        *self = PerformanceMonitor::new();
    }
}
