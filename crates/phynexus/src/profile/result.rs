//! A finished profile: rows, figures, the table.

use std::{
    fmt::{self, Display, Formatter},
    sync::Arc,
    time::Duration,
};

use crate::{
    Error,
    device::{Device, MemoryStatistics, Peaks},
    text::show_bytes,
    text::show_count,
};

/// The clock that measured a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// The device's clock, from the start of the work to its end. For a kernel of a few microseconds on an idle device,
    /// this includes the launch latency.
    Device,
    /// The host's clock.
    Host,
}

/// The kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Track {
    /// Computation on a device.
    Kernels,
    /// Copies between host and device.
    Transfers,
    /// Work of the host.
    Host,
}

/// Work of the host other than kernels and transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// From the first recorded operation to its evaluation, including the program's own work in between.
    Recording,
    /// Walking the graph and finding its plan.
    Evaluating,
    /// Making a plan.
    Planning,
    /// Compiling a plan's steps.
    Compiling,
    /// Submitting steps to a device with its own clock.
    Submitting,
    /// Waiting for a device, to read from it or on request.
    Waiting,
}

impl Phase {
    /// Returns the name of the phase.
    pub fn name(self) -> &'static str {
        match self {
            Phase::Recording => "recording",
            Phase::Evaluating => "evaluating",
            Phase::Planning => "planning",
            Phase::Compiling => "compiling",
            Phase::Submitting => "submitting",
            Phase::Waiting => "waiting",
        }
    }
}

/// The steps of one kind on one device, or the transfers in one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileRow {
    /// Kernels or transfers.
    pub track: Track,
    /// The name of the step or transfer, including what it computes.
    pub name: String,
    /// The device they ran on.
    pub device: String,
    /// The number of runs.
    pub count: u64,
    /// The total time.
    pub time: Duration,
    /// The shortest time.
    pub least: Duration,
    /// The longest time.
    pub most: Duration,
    /// The clock of these times. With the host's clock in a profile of [`Detail::Counts`](super::Detail::Counts), the
    /// time on a device with a queue is the time to submit.
    pub clock: Clock,
    /// Total bytes of the tensors read and written, or of the copies.
    pub bytes: u64,
    /// Total arithmetic operations. A function counts as one and a multiply-add as two.
    pub operations: u64,
    /// True for matrix products and convolutions of factors other than full `float32`. These have a different peak.
    pub own_peak: bool,
}

impl ProfileRow {
    /// Returns the mean time of a run.
    pub fn mean(&self) -> Duration {
        self.time.div_f64(self.count.max(1) as f64)
    }

    /// Returns bytes per second, or `None` if no time was measured.
    pub fn bytes_per_second(&self) -> Option<f64> {
        self.rate(self.bytes)
    }

    /// Returns operations per second, or `None` if no time was measured.
    pub fn operations_per_second(&self) -> Option<f64> {
        self.rate(self.operations)
    }

    fn rate(&self, amount: u64) -> Option<f64> {
        (!self.time.is_zero()).then(|| amount as f64 / self.time.as_secs_f64())
    }

    /// Returns the fraction of the roofline (Williams, Waterman, Patterson 2009): the minimum time for the bytes or for
    /// the operations, whichever is longer, divided by the measured time. A value above 1 means that data came from a
    /// cache, because bytes are those of the tensors and the peak is that of the device's memory. Returns `None` for
    /// transfers, for unknown peaks, and for products of dtypes other than `float32`, which have different peaks.
    pub fn roofline(&self, peaks: &Peaks) -> Option<f64> {
        let (bytes, operations) = peaks.bytes.zip(peaks.operations)?;
        let least = (self.bytes as f64 / bytes).max(self.operations as f64 / operations);
        (self.has_roof() && !self.time.is_zero()).then(|| least / self.time.as_secs_f64())
    }

    /// Returns whether the device's peaks apply to this work.
    pub(crate) fn has_roof(&self) -> bool {
        self.track == Track::Kernels && !self.own_peak
    }
}

/// One phase of the host's work.
#[derive(Clone, Debug, PartialEq)]
pub struct HostRow {
    /// The phase.
    pub phase: Phase,
    /// The number of occurrences.
    pub count: u64,
    /// The total time without nested phases.
    pub time: Duration,
}

/// The source of a device's peak rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeakOrigin {
    /// Clock rates and widths reported by the driver.
    Specification,
    /// A copy of large tensors and a product of large matrices, timed in this process.
    Measured,
}

/// A device that ran something.
#[derive(Clone, Debug)]
pub struct DeviceProfile {
    /// The device.
    pub device: Device,
    /// Its model.
    pub model: String,
    /// Its peak rates.
    pub peaks: Peaks,
    /// The source of the peak rates.
    pub origin: PeakOrigin,
    /// The state of its memory pool at the end.
    pub memory: MemoryStatistics,
}

/// One event on the timeline.
#[derive(Clone, Debug)]
pub struct Event {
    /// The kind of work.
    pub track: Track,
    /// The device.
    pub device: Arc<str>,
    /// The name of the kernel or of the work.
    pub name: Arc<str>,
    /// How a kernel was launched, or other details. May be empty.
    pub detail: String,
    /// The start, relative to the profiler's start.
    pub start: Duration,
    /// The duration.
    pub time: Duration,
    /// Bytes of the tensors, if the event is a whole step or a transfer.
    pub bytes: u64,
    /// Arithmetic operations, if the event is a whole step.
    pub operations: u64,
    /// The clock of these times.
    pub clock: Clock,
    /// The number of the host thread.
    pub thread: u32,
}

/// The state of a device's memory pool at one time.
#[derive(Clone, Debug)]
pub struct MemorySample {
    /// The device.
    pub device: Arc<str>,
    /// The time since the profiler's start.
    pub at: Duration,
    /// Bytes held by live tensors.
    pub allocated: usize,
    /// Bytes taken from the system.
    pub reserved: usize,
}

/// The result of a profiler.
#[derive(Clone, Debug)]
pub struct Profile {
    /// From the profiler's start to its end.
    pub duration: Duration,
    /// Kernels by kind, longest time first, then transfers.
    pub rows: Vec<ProfileRow>,
    /// The host's phases. Empty for [`Detail::Counts`](super::Detail::Counts), as are `events` and `memory`.
    pub host: Vec<HostRow>,
    /// The devices that ran something.
    pub devices: Vec<DeviceProfile>,
    /// The timeline, sorted by start.
    pub events: Vec<Event>,
    /// Memory over time.
    pub memory: Vec<MemorySample>,
    /// The number of events and memory samples that were not kept. The rows include them.
    pub left_out: u64,
    /// Errors of devices that did not report their times. Their latest work is missing.
    pub failures: Vec<Error>,
}

impl Profile {
    /// Returns the rows of kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &ProfileRow> {
        self.rows.iter().filter(|row| row.track == Track::Kernels)
    }

    /// Returns the peak rates of a row's device. They are unknown if the profile does not include that device.
    pub fn peaks(&self, row: &ProfileRow) -> Peaks {
        let device = self.devices.iter().find(|d| d.device.name() == row.device);
        device.map(|d| d.peaks).unwrap_or_default()
    }
}

/// Formats a table with one line per row, followed by the host, devices and memory.
impl Display for Profile {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let all: Duration = self.kernels().map(|row| row.time).sum();
        writeln!(
            f,
            "{:>6} {:>8} {:>10} {:>10} {:>10} {:>10} {:>9} {:>9} {:>7} {:>8} {:>8} {:<6} {:<10} name",
            "share",
            "count",
            "total",
            "mean",
            "least",
            "most",
            "bytes",
            "FLOPs",
            "GB/s",
            "GFLOP/s",
            "of roof",
            "clock",
            "device",
        )?;
        for row in &self.rows {
            let share = match row.track {
                Track::Kernels if !all.is_zero() => percent(Some(row.time.as_secs_f64() / all.as_secs_f64())),
                _ => String::new(),
            };
            let giga = |rate: Option<f64>| rate.map_or("-".to_owned(), show_giga);
            let kernel = row.track == Track::Kernels;
            writeln!(
                f,
                "{share:>6} {:>8} {:>10} {:>10} {:>10} {:>10} {:>9} {:>9} {:>7} {:>8} {:>8} {:<6} {:<10} {}",
                row.count,
                show_time(row.time),
                show_time(row.mean()),
                show_time(row.least),
                show_time(row.most),
                show_bytes(row.bytes as usize),
                if kernel { show_count(row.operations) } else { String::new() },
                giga(row.bytes_per_second()),
                if kernel { giga(row.operations_per_second()) } else { String::new() },
                if kernel { percent(row.roofline(&self.peaks(row))) } else { String::new() },
                if row.clock == Clock::Device { "device" } else { "host" },
                row.device,
                row.name,
            )?;
        }
        writeln!(f, "kernels {} of {}", show_time(all), show_time(self.duration))?;
        for row in &self.host {
            writeln!(f, "host: {:<11} {:>10}, {} times", row.phase.name(), show_time(row.time), row.count)?;
        }
        for device in &self.devices {
            let peak = |rate: Option<f64>, unit: &str| {
                rate.map_or(format!("unknown G{unit}"), |rate| show_rate(rate, unit))
            };
            let origin = match device.origin {
                PeakOrigin::Specification => "by the driver's figures",
                PeakOrigin::Measured => "as measured by a copy and a product of float32 matrices",
            };
            writeln!(
                f,
                "{} ({}): at most {} and {} {origin}; memory {} at most, {} reserved",
                device.device,
                device.model,
                peak(device.peaks.bytes, "B/s"),
                peak(device.peaks.operations, "FLOP/s"),
                show_bytes(device.memory.peak),
                show_bytes(device.memory.reserved),
            )?;
        }
        if self.rows.iter().any(|row| row.roofline(&self.peaks(row)).is_some_and(|share| share > 1.0)) {
            writeln!(f, "{ABOVE_THE_ROOF}")?;
        }
        for failure in &self.failures {
            writeln!(f, "times are missing: {failure}")?;
        }
        if self.left_out > 0 {
            writeln!(f, "{} events did not fit in the timeline; the rows include them", self.left_out)?;
        }
        Ok(())
    }
}

/// Explains a roofline fraction above 1.
pub const ABOVE_THE_ROOF: &str = "more than 100% of the roof: the roof is the device's memory, and cached tensors are read faster; \
    a table lookup counts all rows, though only some are read";

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.1}%", share * 100.0))
}

/// Formats a rate with a fitting prefix and at least three digits: `3.35 TB/s`, `87.2 MFLOP/s`.
pub fn show_rate(rate: f64, unit: &str) -> String {
    let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (scale, prefix) = prefixes.into_iter().find(|(scale, _)| rate >= *scale).unwrap_or((1.0, ""));
    let value = rate / scale;
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {prefix}{unit}")
}

/// Formats a rate in billions: `3350.2`. A small one gets two significant digits: `0.0013`.
pub fn show_giga(rate: f64) -> String {
    let giga = rate / 1e9;
    let digits = match giga {
        small if small > 0.0 && small < 0.095 => (1 - small.log10().floor() as i32).clamp(1, 9) as usize,
        _ => 1,
    };
    format!("{giga:.digits$}")
}

/// Formats a time: `3.21 ms`.
pub(crate) fn show_time(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        s if s < 1e-3 => format!("{:.2} us", s * 1e6),
        s if s < 1.0 => format!("{:.2} ms", s * 1e3),
        s => format!("{s:.2} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_of_slow_devices_are_not_zero() {
        let rates = [3.35e12, 4.1e9, 87.24e6, 312.4e6, 999.0, 0.0].map(|rate| show_rate(rate, "B/s"));
        assert_eq!(rates, ["3.35 TB/s", "4.10 GB/s", "87.2 MB/s", "312 MB/s", "999 B/s", "0.00 B/s"]);
        let rates = [3350.21e9, 0.5e9, 0.0412e9, 0.00131e9, 0.0].map(show_giga);
        assert_eq!(rates, ["3350.2", "0.5", "0.041", "0.0013", "0.0"]);
    }
}
