//! The profile section: a part of the timeline, memory use, and the table.

use std::{fmt::Write, time::Duration};

use neurenix::phynexus::profile::{
    ABOVE_THE_ROOF, Clock, Event, MemorySample, PeakOrigin, Profile, ProfileRow, Track, show_giga, show_rate,
};

use super::{format, html::Text};

/// Number of timeline events to draw.
const DRAWN_EVENTS: usize = 240;
/// Number of time steps in the memory chart; each shows its maximum.
const MEMORY_STEPS: usize = 360;
/// Number of table rows to show; the run's files contain all of them.
const SHOWN_ROWS: usize = 40;

const WIDTH: f64 = 860.0;
const LEFT: f64 = 150.0;
const LANE: f64 = 26.0;
const MEMORY_HEIGHT: f64 = 90.0;

/// The contents of the section.
pub(super) fn section(profile: &Profile) -> String {
    let mut out = timeline(&profile.events);
    for device in &profile.devices {
        let samples = profile.memory.iter().filter(|sample| &*sample.device == device.device.name());
        out += &memory(device.device.name(), &samples.collect::<Vec<_>>(), profile.duration);
    }
    out += &peaks(profile);
    out += &table(profile);
    out += &host(profile);
    out
}

fn seconds(time: Duration) -> String {
    format::seconds(time.as_secs_f64())
}

/// Draws events from the middle of the run, when everything is compiled.
fn timeline(events: &[Event]) -> String {
    let first = events.len().saturating_sub(DRAWN_EVENTS) / 2;
    let drawn = &events[first..events.len().min(first + DRAWN_EVENTS)];
    let (Some(start), Some(end)) =
        (drawn.iter().map(|e| e.start).min(), drawn.iter().map(|e| e.start + e.time).max())
    else {
        return "<p class=\"quiet\">No event was recorded.</p>".to_owned();
    };
    let lane = |event: &Event| match event.track {
        Track::Host => "host".to_owned(),
        Track::Kernels => format!("{} kernels", event.device),
        Track::Transfers => format!("{} transfers", event.device),
    };
    let mut lanes: Vec<String> = drawn.iter().map(lane).collect();
    lanes.sort_unstable();
    lanes.dedup();
    let span = (end - start).as_secs_f64().max(1e-9);
    let x = |time: Duration| LEFT + time.saturating_sub(start).as_secs_f64() / span * (WIDTH - LEFT);
    let height = lanes.len() as f64 * LANE + 24.0;
    let mut out = format!(
        "<figure class=\"chart timeline\"><figcaption>{} from the middle of the run, from {} on</figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"Timeline of kernels, transfers and the host\">",
        seconds(end - start),
        seconds(start),
    );
    for (number, name) in lanes.iter().enumerate() {
        let y = number as f64 * LANE;
        let _ = write!(
            out,
            "<text x=\"0\" y=\"{:.0}\">{}</text><line class=\"grid\" x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{:.0}\" y2=\"{:.0}\"/>",
            y + 17.0,
            Text(name),
            y + LANE - 2.0,
            y + LANE - 2.0,
        );
    }
    for event in drawn {
        let number = lanes.iter().position(|name| *name == lane(event)).unwrap_or(0);
        let (left, right) = (x(event.start), x(event.start + event.time));
        let class = match event.track {
            Track::Kernels => "kernel",
            Track::Transfers => "transfer",
            Track::Host => "host",
        };
        let _ = write!(
            out,
            "<rect class=\"{class}\" x=\"{left:.2}\" y=\"{:.0}\" width=\"{:.2}\" height=\"{:.0}\"><title>{} {}</title></rect>",
            number as f64 * LANE + 3.0,
            (right - left).max(0.4),
            LANE - 8.0,
            Text(&event.name),
            seconds(event.time),
        );
    }
    let _ = write!(
        out,
        "<text x=\"{LEFT}\" y=\"{y:.0}\">0</text><text x=\"{WIDTH}\" y=\"{y:.0}\" text-anchor=\"end\">{}</text></svg></figure>",
        seconds(end - start),
        y = height - 6.0,
    );
    out
}

/// The memory held by tensors over the run.
fn memory(device: &str, samples: &[&MemorySample], duration: Duration) -> String {
    let Some(most) = samples.iter().map(|sample| sample.allocated).max().filter(|&most| most > 0) else {
        return String::new();
    };
    let span = duration.as_secs_f64().max(1e-9);
    let mut steps: Vec<Option<usize>> = vec![None; MEMORY_STEPS];
    for sample in samples {
        let at = (sample.at.as_secs_f64() / span * MEMORY_STEPS as f64) as usize;
        let step = &mut steps[at.min(MEMORY_STEPS - 1)];
        *step = Some(step.map_or(sample.allocated, |known| known.max(sample.allocated)));
    }
    let mut path = String::new();
    let mut last = 0;
    for (step, held) in steps.into_iter().enumerate() {
        last = held.unwrap_or(last);
        let x = LEFT + step as f64 / MEMORY_STEPS as f64 * (WIDTH - LEFT);
        let y = 4.0 + (1.0 - last as f64 / most as f64) * (MEMORY_HEIGHT - 8.0);
        let _ = write!(path, "{}{x:.1} {y:.1}", if path.is_empty() { "M" } else { "L" });
    }
    format!(
        "<figure class=\"chart timeline\"><figcaption>Memory of {name}: {} at most</figcaption>\
         <svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\" aria-label=\"Memory of {name} over the run\">\
         <text x=\"0\" y=\"14\">{}</text><text x=\"0\" y=\"{MEMORY_HEIGHT}\">0 B</text>\
         <path class=\"line train\" d=\"{path}\"/></svg></figure>",
        format::bytes(most as u64),
        MEMORY_HEIGHT + 4.0,
        format::bytes(most as u64),
        name = Text(device),
    )
}

fn peaks(profile: &Profile) -> String {
    let mut out = String::new();
    for device in &profile.devices {
        let (Some(bytes), Some(operations)) = (device.peaks.bytes, device.peaks.operations) else { continue };
        let origin = match device.origin {
            PeakOrigin::Specification => "by the driver's figures",
            PeakOrigin::Measured => "as measured by a copy and a matrix product",
        };
        let _ = write!(
            out,
            "<p>Peak rates of {}: {} and {} of float32, {origin}. The last column is relative to them.</p>",
            Text(device.device.name()),
            show_rate(bytes, "B/s"),
            show_rate(operations, "FLOP/s"),
        );
    }
    if profile.rows.iter().any(|row| row.roofline(&profile.peaks(row)).is_some_and(|share| share > 1.0)) {
        let _ = write!(out, "<p class=\"quiet\">{}.</p>", Text(ABOVE_THE_ROOF));
    }
    out
}

fn table(profile: &Profile) -> String {
    let mut out = String::from(
        "<div class=\"scroll\" tabindex=\"0\" role=\"group\" aria-label=\"Profile\"><table class=\"kernels\"><thead><tr>\
         <th scope=\"col\">Kernel or transfer</th><th scope=\"col\">Device</th><th scope=\"col\">Clock</th>",
    );
    for name in ["Runs", "Total", "Mean", "Least", "Most", "Bytes", "GB/s", "GFLOP/s", "Of the peak"] {
        let _ = write!(out, "<th scope=\"col\" class=\"figure\">{name}</th>");
    }
    out += "</tr></thead><tbody>";
    for row in profile.rows.iter().take(SHOWN_ROWS) {
        out += &table_row(row, profile);
    }
    out += "</tbody></table></div>";
    if profile.rows.len() > SHOWN_ROWS {
        let _ = write!(
            out,
            "<p class=\"quiet\">{} more rows are in profile.txt.</p>",
            profile.rows.len() - SHOWN_ROWS
        );
    }
    out
}

fn table_row(row: &ProfileRow, profile: &Profile) -> String {
    let dash = || "\u{2013}".to_owned();
    let giga = |rate: Option<f64>| rate.map_or_else(dash, show_giga);
    let operations = if row.operations > 0 { giga(row.operations_per_second()) } else { dash() };
    let clock = if row.clock == Clock::Device { "device" } else { "host" };
    let mut out = format!(
        "<tr><th scope=\"row\"><code>{}</code></th><td>{}</td><td>{clock}</td>",
        Text(&row.name),
        Text(&row.device)
    );
    for figure in [
        format::count(row.count),
        seconds(row.time),
        seconds(row.mean()),
        seconds(row.least),
        seconds(row.most),
        format::bytes(row.bytes),
        giga(row.bytes_per_second()),
        operations,
        row.roofline(&profile.peaks(row)).map_or_else(dash, format::percent),
    ] {
        let _ = write!(out, "<td class=\"figure\">{figure}</td>");
    }
    out + "</tr>"
}

fn host(profile: &Profile) -> String {
    let phases = profile
        .host
        .iter()
        .map(|row| format!("{} {}", row.phase.name(), seconds(row.time)))
        .collect::<Vec<_>>();
    match phases.is_empty() {
        true => String::new(),
        false => {
            format!("<p>Host time in {}: {}.</p>", seconds(profile.duration), phases.join(", "))
        }
    }
}
