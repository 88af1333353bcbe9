//! Index expressions and masks that are sums of strides times coordinates.

use phynexus::kernel::{Index, Mask};
use smallvec::SmallVec;

use super::{
    access::Axes,
    axis::{Extents, LANES, OUTER},
};

/// `offset + strides * coordinates`.
#[derive(Clone, Debug)]
pub(super) struct Linear {
    pub(super) offset: i64,
    pub(super) strides: [SmallVec<[i64; 4]>; 2],
}

impl Linear {
    pub(super) fn at(&self, axis: usize, point: &[usize]) -> i64 {
        self.strides[axis].iter().zip(point).map(|(&stride, &x)| stride * x as i64).sum()
    }
    pub(super) fn innermost(&self, axis: usize) -> i64 {
        self.strides[axis].last().copied().unwrap_or(0)
    }
}

/// `low <= value < high`.
#[derive(Clone, Debug)]
pub(super) struct Bounds {
    pub(super) value: Linear,
    pub(super) low: i64,
    pub(super) high: i64,
}

impl Bounds {
    /// The `j` in `0..count` for which `low <= base + step * j < high` holds.
    pub(super) fn interval(&self, base: i64, step: i64, count: usize) -> (usize, usize) {
        let (low, high) = (self.low - base, self.high - base);
        let ceiling = |a: i64, b: i64| -(-a).div_euclid(b);
        let (from, to) = match step {
            0 if low <= 0 && 0 < high => (0, count as i64),
            0 => (0, 0),
            1 => (low, high),
            s if s > 0 => (ceiling(low, s), ceiling(high, s)),
            s => ((-high).div_euclid(-s) + 1, (-low).div_euclid(-s) + 1),
        };
        (from.clamp(0, count as i64) as usize, to.clamp(0, count as i64) as usize)
    }
}

/// An index and its mask as sums of strides; `extents` are those of the joined ranges.
#[derive(Clone, Debug)]
pub(super) struct Strided {
    pub(super) index: Linear,
    pub(super) mask: SmallVec<[Bounds; 1]>,
    pub(super) extents: [Extents; 2],
}

impl Strided {
    /// The linear form of an index and its mask, over ranges that are joined if all of them continue; `None` if not
    /// linear.
    pub(super) fn new(index: &Index, mask: Option<&Mask>, axes: &Axes, rank: usize) -> Option<Strided> {
        let of = |index: &Index| -> Option<Linear> {
            let (offset, strides) = index.strides(rank)?;
            let on = |axis: usize| axes.ranges[axis].iter().map(|&range| strides[range]).collect();
            Some(Linear { offset, strides: [on(OUTER), on(LANES)] })
        };
        let mut index = of(index)?;
        let mut bounds: SmallVec<[Bounds; 1]> = SmallVec::new();
        for condition in mask.iter().flat_map(|m| m.conditions()) {
            bounds.push(Bounds { value: of(&condition.index)?, low: condition.low, high: condition.high });
        }
        let mut extents = axes.extents.clone();
        for axis in [OUTER, LANES] {
            for inner in (1..extents[axis].len()).rev() {
                let extent = extents[axis][inner];
                let runs_on =
                    |map: &Linear| map.strides[axis][inner - 1] == map.strides[axis][inner] * extent as i64;
                if runs_on(&index) && bounds.iter().all(|b| runs_on(&b.value)) {
                    extents[axis][inner] *= extents[axis][inner - 1];
                    extents[axis].remove(inner - 1);
                    index.strides[axis].remove(inner - 1);
                    for b in &mut bounds {
                        b.value.strides[axis].remove(inner - 1);
                    }
                }
            }
        }
        Some(Strided { index, mask: bounds, extents })
    }
}
