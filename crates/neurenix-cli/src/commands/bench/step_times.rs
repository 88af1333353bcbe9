//! Time of a workload by kind of step.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use neurenix::{
    Result,
    phynexus::profile::{Clock, Detail, ProfileRow, Profiler, show_giga},
};

use super::workloads::Step;

/// For each kind of step, prints its row from the repetition that spent the least time in it, longest first.
pub(super) fn print(step: &mut Step, seconds: f64) -> Result<()> {
    let mut least: BTreeMap<String, ProfileRow> = BTreeMap::new();
    let begun = Instant::now();
    // The first repetition builds the plans.
    step()?;
    while begun.elapsed().as_secs_f64() < seconds || least.is_empty() {
        let profiler = Profiler::start(Detail::Timeline)?;
        step()?;
        let profile = profiler.finish()?;
        if profile.rows.is_empty() {
            break;
        }
        for row in profile.rows {
            let best = least.entry(row.name.clone()).or_insert_with(|| row.clone());
            if row.time < best.time {
                *best = row;
            }
        }
    }
    let mut rows: Vec<ProfileRow> = least.into_values().collect();
    rows.sort_by_key(|row| std::cmp::Reverse(row.time));
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    for row in &rows {
        let rate = show_giga(row.operations as f64 / row.time.as_secs_f64().max(1e-9));
        let clock = if row.clock == Clock::Device { "device" } else { "host" };
        say!("  {:>8.3} ms ({clock}) {:>4} x {rate:>7} GFLOP/s  {}", ms(row.time), row.count, row.name)?;
    }
    say!("  {:>8.3} ms in total", ms(rows.iter().map(|row| row.time).sum()))
}
