//! Histograms of activations, and the ranges that calibrators take from them.

use crate::{
    Format,
    scheme::{Range, Scheme},
};

/// Bins on each side of zero.
const BINS: usize = 2048;

/// How often numbers occur, on both sides of zero. Zeros are counted apart: every scheme has them exactly.
pub(super) struct Histogram {
    width: f64,
    zeros: u64,
    /// Counts of numbers below zero, from zero outwards.
    below: Vec<u64>,
    /// Counts of numbers above zero.
    above: Vec<u64>,
}

impl Histogram {
    /// For numbers up to this magnitude.
    pub(super) fn new(magnitude: f64) -> Histogram {
        let width = if magnitude > 0.0 { magnitude / BINS as f64 } else { 1.0 };
        Histogram { width, zeros: 0, below: vec![0; BINS], above: vec![0; BINS] }
    }

    pub(super) fn add(&mut self, x: f32) {
        let bin = ((f64::from(x).abs() / self.width) as usize).min(BINS - 1);
        let counts = match x {
            0.0 => return self.zeros += 1,
            x if x < 0.0 => &mut self.below,
            _ => &mut self.above,
        };
        if let Some(count) = counts.get_mut(bin) {
            *count += 1;
        }
    }

    fn total(&self) -> u64 {
        self.zeros + self.below.iter().chain(&self.above).sum::<u64>()
    }

    /// The counts of magnitudes.
    fn magnitudes(&self) -> Vec<u64> {
        self.below.iter().zip(&self.above).map(|(below, above)| below + above).collect()
    }

    /// The range without the outermost numbers: half of them on each side, or by magnitude.
    pub(super) fn percentile(&self, full: Range, percentage: f64, symmetric: bool) -> Range {
        let outside = (1.0 - percentage / 100.0) * self.total() as f64;
        if symmetric {
            let bound = self.bound(&self.magnitudes(), outside);
            return clipped(full, bound, bound);
        }
        clipped(full, self.bound(&self.below, outside / 2.0), self.bound(&self.above, outside / 2.0))
    }

    /// The magnitude beyond which so many of the counted numbers are, with numbers spread evenly in each bin.
    fn bound(&self, counts: &[u64], outside: f64) -> f64 {
        let mut left = outside;
        for (bin, &count) in counts.iter().enumerate().rev() {
            let count = count as f64;
            if count > left {
                return (bin as f64 + 1.0 - left / count) * self.width;
            }
            left -= count;
        }
        0.0
    }

    /// The range with the least divergence between the distribution of magnitudes, clipped, and that of their quantized
    /// values.
    pub(super) fn entropy(&self, full: Range, format: Format, symmetric: bool) -> Range {
        let is_one_sided = full.least >= 0.0 || full.greatest <= 0.0;
        let levels = 1usize << (if is_one_sided && !symmetric { format.bits() } else { format.bits() - 1 });
        let counts = self.magnitudes();
        let candidates = (levels..=BINS).step_by((BINS / 256).max(1));
        let divergences: Vec<_> = candidates.map(|bins| (bins, divergence(&counts, bins, levels))).collect();
        let least = divergences.iter().map(|(_, found)| *found).min_by(|a, b| a.value.total_cmp(&b.value));
        let limit = least.map_or(0.0, |least| least.value + least.deviation);
        // The widest range of those that the samples do not tell from the best.
        let widest = divergences.iter().rev().find(|(_, found)| found.value <= limit);
        let bound = widest.map_or(full.magnitude(), |(bins, _)| *bins as f64 * self.width);
        clipped(full, bound, bound)
    }

    /// The range with the least sum of squared errors, by a search over shares of the full range: first of both ends
    /// together, then of each.
    pub(super) fn least_error(&self, full: Range, format: Format, symmetric: bool) -> Range {
        const STEPS: u32 = 100;
        let scaled =
            |(low, high): (f64, f64)| Range { least: low * full.least, greatest: high * full.greatest };
        let best = |start: (f64, f64), shares: &dyn Fn(f64) -> (f64, f64)| {
            let candidates = (1..STEPS).map(|step| shares(f64::from(step) / f64::from(STEPS)));
            let rated = std::iter::once(start)
                .chain(candidates)
                .map(|shares| (self.squared_error(scaled(shares), format, symmetric), shares));
            rated.min_by(|a, b| a.0.total_cmp(&b.0)).map_or(start, |(_, shares)| shares)
        };
        let mut shares = best((1.0, 1.0), &|both| (both, both));
        if !symmetric && full.least < 0.0 && full.greatest > 0.0 {
            let (low, _) = shares;
            shares = best(shares, &|high| (low, high));
            let (_, high) = shares;
            shares = best(shares, &|low| (low, high));
        }
        scaled(shares)
    }

    /// The sum of squared errors of all numbers, each in the middle of its bin.
    fn squared_error(&self, range: Range, format: Format, symmetric: bool) -> f64 {
        let scheme = Scheme::of_range(range, format, symmetric);
        let (lowest, highest) = format.range();
        let (scale, zero_point) = (f64::from(scheme.scale), scheme.zero_point as f64);
        let error = |x: f64| {
            let whole = ((x / scale).round_ties_even() + zero_point).clamp(lowest, highest);
            (x - scale * (whole - zero_point)).powi(2)
        };
        let side = |counts: &[u64], sign: f64| -> f64 {
            let bins = counts.iter().enumerate().filter(|(_, count)| **count > 0);
            bins.map(|(bin, &count)| count as f64 * error(sign * (bin as f64 + 0.5) * self.width)).sum()
        };
        side(&self.below, -1.0) + side(&self.above, 1.0)
    }
}

/// The range within these magnitudes below and above zero.
fn clipped(full: Range, below: f64, above: f64) -> Range {
    Range { least: full.least.max(-below), greatest: full.greatest.min(above) }
}

/// A divergence as estimated from samples.
#[derive(Clone, Copy)]
struct Divergence {
    value: f64,
    /// The standard deviation of the value by chance.
    deviation: f64,
}

/// The Kullback-Leibler divergence from the counts, clipped to the first `bins`, to the same at `levels` levels.
///
/// Counts of few samples differ within a level by chance, which looks like lost information and would lead to narrow
/// ranges. Twice the number of samples times the divergence by chance has a chi-squared distribution, whose mean is
/// subtracted.
fn divergence(counts: &[u64], bins: usize, levels: usize) -> Divergence {
    let (inside, outside) = counts.split_at(bins.min(counts.len()));
    let mut clipped: Vec<f64> = inside.iter().map(|&count| count as f64).collect();
    if let Some(last) = clipped.last_mut() {
        *last += outside.iter().sum::<u64>() as f64;
    }
    let mut leveled = vec![0.0; clipped.len()];
    let mut freedom = 0;
    for level in 0..levels {
        let (start, end) = (level * bins / levels, (level + 1) * bins / levels);
        let (Some(given), Some(own)) = (inside.get(start..end), clipped.get(start..end)) else { continue };
        let used = own.iter().filter(|count| **count > 0.0).count();
        freedom += used.saturating_sub(1);
        let mean = given.iter().sum::<u64>() as f64 / used.max(1) as f64;
        let places = leveled.iter_mut().skip(start).zip(own).filter(|(_, count)| **count > 0.0);
        places.for_each(|(place, _)| *place = mean);
    }
    let (total, leveled_total): (f64, f64) = (clipped.iter().sum(), leveled.iter().sum());
    if leveled_total == 0.0 {
        return Divergence { value: f64::INFINITY, deviation: 0.0 };
    }
    // A level without numbers of its own, into which numbers are clipped, is all but impossible.
    const TINY: f64 = 1e-9;
    let terms = clipped.iter().zip(&leveled).filter(|(count, _)| **count > 0.0);
    let divergence: f64 = terms
        .map(|(&count, &level)| {
            let (p, q) = (count / total, (level / leveled_total).max(TINY));
            p * (p / q).ln()
        })
        .sum();
    let freedom = freedom as f64;
    Divergence { value: divergence - freedom / (2.0 * total), deviation: (freedom / 2.0).sqrt() / total }
}
