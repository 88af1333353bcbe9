//! Exports the timeline in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.
//!
//! The host is a process with one track per thread. Each device is a process with a track of kernels, a track of
//! transfers and a memory counter. Times are in microseconds since the profiler's start.

use std::fmt::Write;

use super::result::{Clock, Event, Profile, Track};

const HOST: usize = 1;

impl Profile {
    /// Returns the timeline as a JSON document.
    pub fn chrome_trace(&self) -> String {
        let mut out = Lines(String::from("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"), true);
        let mut devices: Vec<&str> = self.devices.iter().map(|d| d.device.name()).collect();
        let others = self.events.iter().filter(|e| e.track != Track::Host).map(|event| &*event.device);
        for name in others.chain(self.memory.iter().map(|sample| &*sample.device)) {
            if !devices.contains(&name) {
                devices.push(name);
            }
        }
        let process = |name: &str| {
            devices.iter().position(|device| *device == name).map_or(HOST, |position| HOST + 1 + position)
        };
        let mut tracks: Vec<(usize, u32, String)> = Vec::new();
        out.name("process_name", HOST, 0, "host");
        for (position, device) in devices.iter().enumerate() {
            out.name("process_name", HOST + 1 + position, 0, device);
        }
        for event in &self.events {
            let (process, track, name) = match event.track {
                Track::Host => (HOST, event.thread, format!("thread {}", event.thread)),
                // Events timed by the host may overlap with those of another thread, so each thread has a track.
                Track::Kernels if event.clock == Clock::Host => {
                    (process(&event.device), 2 * event.thread, "kernels".to_owned())
                }
                Track::Kernels => (process(&event.device), 0, "kernels".to_owned()),
                Track::Transfers if event.clock == Clock::Host => {
                    (process(&event.device), 2 * event.thread + 1, "transfers".to_owned())
                }
                Track::Transfers => (process(&event.device), 1, "transfers".to_owned()),
            };
            if !tracks.iter().any(|(p, t, _)| (*p, *t) == (process, track)) {
                out.name("thread_name", process, track, &name);
                tracks.push((process, track, name));
            }
            out.event(event, process, track);
        }
        for sample in &self.memory {
            out.line(format_args!(
                "{{\"ph\":\"C\",\"name\":\"memory\",\"pid\":{},\"ts\":{:.3},\"args\":{{\"allocated\":{},\"reserved\":{}}}}}",
                process(&sample.device),
                sample.at.as_secs_f64() * 1e6,
                sample.allocated,
                sample.reserved,
            ));
        }
        out.0 + "\n]}\n"
    }
}

/// The list of events, and whether the next one is the first.
struct Lines(String, bool);

impl Lines {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        if !std::mem::replace(&mut self.1, false) {
            self.0.push_str(",\n");
        }
        let _ = self.0.write_fmt(line);
    }

    fn name(&mut self, what: &str, process: usize, track: u32, name: &str) {
        self.line(format_args!(
            "{{\"ph\":\"M\",\"name\":\"{what}\",\"pid\":{process},\"tid\":{track},\"args\":{{\"name\":{}}}}}",
            Text(name)
        ));
    }

    fn event(&mut self, event: &Event, process: usize, track: u32) {
        let clock = if event.clock == Clock::Device { "device" } else { "host" };
        let mut arguments = format!("\"clock\":\"{clock}\"");
        for (name, value) in [("bytes", event.bytes), ("operations", event.operations)] {
            if value > 0 {
                let _ = write!(arguments, ",\"{name}\":{value}");
            }
        }
        if !event.detail.is_empty() {
            let _ = write!(arguments, ",\"detail\":{}", Text(&event.detail));
        }
        self.line(format_args!(
            "{{\"ph\":\"X\",\"name\":{},\"pid\":{process},\"tid\":{track},\"ts\":{:.3},\"dur\":{:.3},\"args\":{{{arguments}}}}}",
            Text(&event.name),
            event.start.as_secs_f64() * 1e6,
            event.time.as_secs_f64() * 1e6,
        ));
    }
}

/// A JSON string.
struct Text<'a>(&'a str);

impl std::fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' => f.write_str("\\\"")?,
                '\\' => f.write_str("\\\\")?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}
