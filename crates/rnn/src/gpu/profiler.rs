//! Timing parts of a program.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use neurenix::phynexus::profile::{Detail, Profiler, Track};

use super::ByteCount;

/// A timed part of a program.
#[derive(Clone, Debug)]
pub struct GpuEvent {
    /// The name of the part.
    pub name: String,
    /// When the part began.
    pub start_time: Instant,
    /// The duration by the host's clock.
    pub duration: Duration,
    /// The time of kernels and copies, by the device's clock if it has one, else by the host's. Absent if another part
    /// was already running, in this profiler or another.
    pub device_time: Option<Duration>,
    /// The caller's value.
    pub memory_used: ByteCount,
    /// The caller's value.
    pub device_id: usize,
}

/// Times parts of a program on the host and on devices.
#[derive(Debug, Default)]
pub struct GpuProfiler {
    open: Vec<(String, Instant, Option<Profiler>)>,
    events: Vec<GpuEvent>,
}

impl GpuProfiler {
    /// Starts a part.
    pub fn start(&mut self, name: &str) {
        // The engine has one profiler for all threads, which the outermost part gets.
        let profiler = Profiler::start(Detail::Timeline).ok();
        self.open.push((name.to_owned(), Instant::now(), profiler));
    }

    /// Waits for the devices and ends the most recent part of this name, if there is one.
    pub fn end(&mut self, name: &str, memory_used: impl Into<ByteCount>, device_id: usize) {
        let Some(place) = self.open.iter().rposition(|(own, _, _)| own == name) else { return };
        let (name, start_time, profiler) = self.open.remove(place);
        let profile = profiler.and_then(|profiler| profiler.finish().ok());
        let duration = start_time.elapsed();
        let busy = |profile: &neurenix::phynexus::profile::Profile| {
            let rows = profile.rows.iter().filter(|row| row.track != Track::Host);
            rows.map(|row| row.time).sum()
        };
        self.events.push(GpuEvent {
            name,
            start_time,
            duration,
            device_time: profile.as_ref().map(busy),
            memory_used: memory_used.into(),
            device_id,
        });
    }

    /// The finished parts, in the order in which they ended.
    pub fn results(&self) -> &[GpuEvent] {
        &self.events
    }

    /// Clears all parts.
    pub fn clear(&mut self) {
        self.open.clear();
        self.events.clear();
    }

    /// A table with each name's count, total time, time on devices, and maximum memory.
    pub fn summary(&self) -> String {
        let mut names: Vec<&str> = Vec::new();
        for event in &self.events {
            if !names.contains(&event.name.as_str()) {
                names.push(&event.name);
            }
        }
        let mut table =
            format!("{:<24} {:>6} {:>12} {:>12} {:>14}\n", "part", "count", "total", "device", "memory");
        for name in names {
            let own = || self.events.iter().filter(|event| event.name == name);
            let total: Duration = own().map(|event| event.duration).sum();
            let device: Option<Duration> = own().map(|event| event.device_time).sum();
            let device = device.map_or("-".to_owned(), |time| format!("{:.3} ms", time.as_secs_f64() * 1e3));
            let memory = own().map(|event| event.memory_used).max().unwrap_or_default();
            let total = format!("{:.3} ms", total.as_secs_f64() * 1e3);
            // Writing to a string does not fail.
            let _ = writeln!(table, "{name:<24} {:>6} {total:>12} {device:>12} {memory:>14}", own().count());
        }
        table
    }

    /// Prints [`GpuProfiler::summary`].
    pub fn print_summary(&self) {
        print!("{}", self.summary());
    }
}
