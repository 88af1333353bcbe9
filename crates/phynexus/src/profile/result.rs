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

/// Whose time it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Clock {
    /// The device's own: from when it began to when it had finished. A kernel of a few microseconds on an idle device
    /// includes its way there.
    Device,
    /// The host's.
    Host,
}

/// What kind of thing it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Track {
    /// Computing, on a device.
    Kernels,
    /// Copying between host and device.
    Transfers,
    /// What the host does meanwhile.
    Host,
}

/// What the host does besides kernels and transfers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// From the first operation recorded to its evaluation, with what the program does in between.
    Recording,
    /// Walking the graph and finding its plan.
    Evaluating,
    /// Making a plan.
    Planning,
    /// Making a plan's steps ready to run.
    Compiling,
    /// Giving steps to a device that has a clock of its own.
    Submitting,
    /// Waiting for a device, to read from it or because somebody asked.
    Waiting,
}

impl Phase {
    /// In a word.
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

/// The steps of one kind on one device, or the transfers of one direction.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileRow {
    /// Kernels or transfers.
    pub track: Track,
    /// What they are and compute.
    pub name: String,
    /// The device they ran on.
    pub device: String,
    /// How many ran.
    pub count: u64,
    /// Their time together.
    pub time: Duration,
    /// The shortest.
    pub least: Duration,
    /// The longest.
    pub most: Duration,
    /// Whose time that is. If the host's, and in a profile that only counts, a device with a queue was given the work in it.
    pub clock: Clock,
    /// Bytes of the tensors read and written together, or copied.
    pub bytes: u64,
    /// Arithmetic operations together, each function counted as one and each multiply-add as two.
    pub operations: u64,
    /// Matrix products and convolutions of factors other than whole `float32`s, whose peak is another.
    pub own_peak: bool,
}

impl ProfileRow {
    /// The time of one.
    pub fn mean(&self) -> Duration {
        self.time.div_f64(self.count.max(1) as f64)
    }

    /// Bytes a second; absent if no time was measured.
    pub fn bytes_per_second(&self) -> Option<f64> {
        self.rate(self.bytes)
    }

    /// Operations a second; absent if no time was measured.
    pub fn operations_per_second(&self) -> Option<f64> {
        self.rate(self.operations)
    }

    fn rate(&self, amount: u64) -> Option<f64> {
        (!self.time.is_zero()).then(|| amount as f64 / self.time.as_secs_f64())
    }

    /// The share of the roofline (Williams, Waterman, Patterson 2009): the time that the bytes or the operations take at
    /// least, whichever is longer, over the time it took. More than 1 means that data came from a cache: bytes are those of
    /// the tensors, the peak is that of the device's memory. Absent for transfers, where a peak is not known, and for products of other types than `float32`, which have peaks of their own.
    pub fn roofline(&self, peaks: &Peaks) -> Option<f64> {
        let (bytes, operations) = peaks.bytes.zip(peaks.operations)?;
        let least = (self.bytes as f64 / bytes).max(self.operations as f64 / operations);
        (self.has_roof() && !self.time.is_zero()).then(|| least / self.time.as_secs_f64())
    }

    /// Whether the peaks are those of its work.
    pub(crate) fn has_roof(&self) -> bool {
        self.track == Track::Kernels && !self.own_peak
    }
}

/// What the host did: one phase.
#[derive(Clone, Debug, PartialEq)]
pub struct HostRow {
    /// What.
    pub phase: Phase,
    /// How often.
    pub count: u64,
    /// The time together, without that of phases inside it.
    pub time: Duration,
}

/// Where the figures of what a device can do at most come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeakOrigin {
    /// Clock rates and widths that the driver tells.
    Specification,
    /// A copy of large tensors and a product of large matrices, timed in this process.
    Measured,
}

/// A device that ran something.
#[derive(Clone, Debug)]
pub struct DeviceProfile {
    /// Which.
    pub device: Device,
    /// Its model.
    pub model: String,
    /// What it can do at most.
    pub peaks: Peaks,
    /// How that is known.
    pub origin: PeakOrigin,
    /// What its pool held in the end.
    pub memory: MemoryStatistics,
}

/// One thing on the timeline.
#[derive(Clone, Debug)]
pub struct Event {
    /// Kernels, transfers or the host.
    pub track: Track,
    /// The device.
    pub device: Arc<str>,
    /// The kernel's name, or what was done.
    pub name: Arc<str>,
    /// How a kernel was launched, or for what. May be empty.
    pub detail: String,
    /// When it began, since the profiler's start.
    pub start: Duration,
    /// How long it took.
    pub time: Duration,
    /// Bytes of the tensors, where the event is a whole step or a transfer.
    pub bytes: u64,
    /// Arithmetic operations, where the event is a whole step.
    pub operations: u64,
    /// Whose time it is.
    pub clock: Clock,
    /// The number of the host's thread.
    pub thread: u32,
}

/// What a device's pool held at a time.
#[derive(Clone, Debug)]
pub struct MemorySample {
    /// The device.
    pub device: Arc<str>,
    /// When, since the profiler's start.
    pub at: Duration,
    /// Bytes held by live tensors.
    pub allocated: usize,
    /// Bytes taken from the system.
    pub reserved: usize,
}

/// What a profiler has noted.
#[derive(Clone, Debug)]
pub struct Profile {
    /// From its start to its end.
    pub duration: Duration,
    /// Kernels by kind, the longest time first, then transfers.
    pub rows: Vec<ProfileRow>,
    /// What the host did; empty for [`Detail::Counts`](super::Detail::Counts), as are events and memory.
    pub host: Vec<HostRow>,
    /// The devices that ran something.
    pub devices: Vec<DeviceProfile>,
    /// The timeline, by start.
    pub events: Vec<Event>,
    /// Memory over time.
    pub memory: Vec<MemorySample>,
    /// Events and changes of memory that were too many to keep. The rows count them.
    pub left_out: u64,
    /// Why devices did not tell their times; what ran on them last is missing.
    pub failures: Vec<Error>,
}

impl Profile {
    /// The rows of kernels.
    pub fn kernels(&self) -> impl Iterator<Item = &ProfileRow> {
        self.rows.iter().filter(|row| row.track == Track::Kernels)
    }

    /// What the device of a row can do at most; nothing known if it is not one of the profile's.
    pub fn peaks(&self, row: &ProfileRow) -> Peaks {
        let device = self.devices.iter().find(|d| d.device.name() == row.device);
        device.map(|d| d.peaks).unwrap_or_default()
    }
}

/// A table: a line for each row, then the host, devices and their memory.
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
            writeln!(f, "{} events were too many for the timeline; the rows count them", self.left_out)?;
        }
        Ok(())
    }
}

/// What a share of the roofline above 1 means.
pub const ABOVE_THE_ROOF: &str = "more than 100% of the roof: the roof is the device's memory, and tensors that a cache holds come faster; \
    of a table that is looked up all rows count, though only some are read";

fn percent(share: Option<f64>) -> String {
    share.map_or("-".to_owned(), |share| format!("{:.1}%", share * 100.0))
}

/// A rate with the prefix that fits, of three digits at least: `3.35 TB/s`, `87.2 MFLOP/s`.
pub fn show_rate(rate: f64, unit: &str) -> String {
    let prefixes = [(1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")];
    let (scale, prefix) = prefixes.into_iter().find(|(scale, _)| rate >= *scale).unwrap_or((1.0, ""));
    let value = rate / scale;
    let digits = if value < 10.0 { 2 } else { usize::from(value < 100.0) };
    format!("{value:.digits$} {prefix}{unit}")
}

/// A rate in billions: `3350.2`; of a small one two digits that are not 0: `0.0013`.
pub fn show_giga(rate: f64) -> String {
    let giga = rate / 1e9;
    let digits = match giga {
        small if small > 0.0 && small < 0.095 => (1 - small.log10().floor() as i32).clamp(1, 9) as usize,
        _ => 1,
    };
    format!("{giga:.digits$}")
}

/// A time in words: `3.21 ms`.
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
