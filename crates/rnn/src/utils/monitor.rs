//! Times, bytes and counts by name.

use std::{collections::HashMap, time::Instant};

use serde::{Deserialize, Serialize};

/// Times (in seconds), bytes and counts by name.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PerformanceMonitor {
    /// Seconds.
    pub times: HashMap<String, Vec<f64>>,
    /// Bytes.
    pub memory_usage: HashMap<String, Vec<usize>>,
    /// How often timers of the name were ended.
    pub counters: HashMap<String, usize>,
}

fn mean(numbers: impl ExactSizeIterator<Item = f64>) -> Option<f64> {
    let count = numbers.len();
    (count > 0).then(|| numbers.sum::<f64>() / count as f64)
}

impl PerformanceMonitor {
    /// Without figures.
    pub fn new() -> PerformanceMonitor {
        PerformanceMonitor::default()
    }

    /// The beginning of a time; give it to [`PerformanceMonitor::end_timer`].
    pub fn start_timer(&mut self, _name: &str) -> Instant {
        Instant::now()
    }

    /// Adds the time since then.
    pub fn end_timer(&mut self, name: &str, start_time: Instant) {
        self.times.entry(name.to_owned()).or_default().push(start_time.elapsed().as_secs_f64());
        *self.counters.entry(name.to_owned()).or_default() += 1;
    }

    /// Adds a number of bytes.
    pub fn record_memory(&mut self, name: &str, bytes: usize) {
        self.memory_usage.entry(name.to_owned()).or_default().push(bytes);
    }

    /// The mean time, if there is one.
    pub fn average_time(&self, name: &str) -> Option<f64> {
        mean(self.times.get(name)?.iter().copied())
    }

    /// The times together, if there are any.
    pub fn total_time(&self, name: &str) -> Option<f64> {
        Some(self.times.get(name)?.iter().sum())
    }

    /// The mean number of bytes, if there is one.
    pub fn average_memory(&self, name: &str) -> Option<f64> {
        mean(self.memory_usage.get(name)?.iter().map(|bytes| *bytes as f64))
    }

    /// The greatest number of bytes, if there is one.
    pub fn peak_memory(&self, name: &str) -> Option<usize> {
        self.memory_usage.get(name)?.iter().copied().max()
    }

    /// How often a timer was ended, if it was.
    pub fn count(&self, name: &str) -> Option<usize> {
        self.counters.get(name).copied()
    }

    /// Prints a line a name.
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

    /// Forgets all figures.
    pub fn reset(&mut self) {
        *self = PerformanceMonitor::new();
    }
}
