//! The memory locations of a tile's elements: index expressions and masks, classified at compile time.

use phynexus::kernel::{Index, Mask, index::Atom};
use smallvec::SmallVec;

use super::{
    axis::{Extents, LANES, OUTER, walk},
    movement::{self, Block, Steps},
    strided::{Bounds, Linear, Strided},
};

/// The ranges of the two axes: their indices in the kernel and their extents.
#[derive(Clone, Debug, Default)]
pub(super) struct Axes {
    pub(super) ranges: [SmallVec<[usize; 4]>; 2],
    pub(super) extents: [Extents; 2],
}

impl Axes {
    /// The number of positions of an axis.
    pub(super) fn total(&self, axis: usize) -> usize {
        self.extents[axis].iter().product()
    }
}

/// The axes along which a value varies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub(super) struct Varies(pub(super) [bool; 2]);

impl Varies {
    pub(super) const NOWHERE: Varies = Varies([false, false]);
    pub(super) const EVERYWHERE: Varies = Varies([true, true]);

    pub(super) fn or(self, other: Varies) -> Varies {
        Varies([self.0[OUTER] || other.0[OUTER], self.0[LANES] || other.0[LANES]])
    }
    pub(super) fn on(self, axis: usize) -> bool {
        self.0[axis]
    }
    /// True if it varies only along the outer axis: its elements then form one vector of that length.
    pub(super) fn is_outer(self) -> bool {
        self == Varies([true, false])
    }
}

/// A part of both axes: start and count for each.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    pub(super) start: [usize; 2],
    pub(super) count: [usize; 2],
}

#[derive(Clone, Debug)]
enum Map {
    /// A sum of strides.
    Linear(Box<Strided>),
    /// Evaluated element by element.
    General(Box<General>),
}

/// An index with its mask, prepared for walking over a window of a tile.
#[derive(Clone, Debug)]
pub(super) struct Access {
    index: Index,
    map: Map,
    extents: [Extents; 2],
    /// The axes along which the index or the mask varies.
    pub(super) varies: Varies,
}

#[derive(Clone, Debug)]
struct General {
    index: Index,
    mask: Option<Mask>,
    /// The ranges of the walked axes.
    ranges: [SmallVec<[usize; 4]>; 2],
    /// The number of ranges of the kernel.
    rank: usize,
}

/// Number of elements that a general index map evaluates at a time.
const BATCH: usize = 256;

impl Access {
    /// Classifies an index. An index that varies only along the outer axis is walked as if that were the lane axis.
    pub(super) fn new(index: &Index, mask: Option<&Mask>, axes: &Axes) -> Access {
        let conditions = || mask.iter().flat_map(|m| m.conditions()).map(|c| &c.index);
        let depends = |axis: usize| {
            let depends =
                |range: &usize| index.depends_on(*range) || conditions().any(|c| c.depends_on(*range));
            axes.ranges[axis].iter().any(depends)
        };
        let varies = Varies([depends(OUTER), depends(LANES)]);
        let mut used = Axes::default();
        for axis in [OUTER, LANES] {
            if varies.on(axis) {
                let place = if varies.is_outer() { LANES } else { axis };
                used.ranges[place] = axes.ranges[axis].clone();
                used.extents[place] = axes.extents[axis].clone();
            }
        }
        let rank = axes.ranges[OUTER].len() + axes.ranges[LANES].len();
        let map = match Strided::new(index, mask, &used, rank) {
            Some(strided) => Map::Linear(Box::new(strided)),
            None => {
                let (index, mask) = (index.clone(), mask.cloned());
                Map::General(Box::new(General { index, mask, ranges: used.ranges.clone(), rank }))
            }
        };
        let extents = match &map {
            Map::Linear(strided) => strided.extents.clone(),
            Map::General(_) => used.extents,
        };
        Access { index: index.clone(), map, extents, varies }
    }

    /// The steps between lanes and between outer positions within the innermost ranges, if the map is a sum of strides.
    pub(super) fn innermost_steps(&self) -> Option<[i64; 2]> {
        match &self.map {
            Map::Linear(strided) => Some([OUTER, LANES].map(|axis| strided.index.innermost(axis))),
            Map::General(_) => None,
        }
    }

    /// False if the two are known to differ as functions.
    pub(super) fn may_equal(&self, other: &Access) -> bool {
        let linear = |access: &Access| matches!(access.map, Map::Linear(_));
        self.index == other.index || !linear(self) || !linear(other)
    }

    /// The part of a tile that the access walks.
    fn window(&self, tile: Window) -> Window {
        let mut window = Window { start: [0, 0], count: [1, 1] };
        for axis in [OUTER, LANES] {
            if self.varies.on(axis) {
                let place = if self.varies.is_outer() { LANES } else { axis };
                window.start[place] = tile.start[axis];
                window.count[place] = tile.count[axis];
            }
        }
        window
    }

    /// `(offset, pitch)` in elements if the lanes of the tile are contiguous in memory, the pitch between outer
    /// positions is constant, and the mask holds everywhere. The memory can then be used in place.
    pub(super) fn direct(&self, tile: Window) -> Option<(isize, isize)> {
        let Map::Linear(strided) = &self.map else { return None };
        let Strided { index, mask, extents } = &**strided;
        let window = self.window(tile);
        if window.count.contains(&0) {
            return None;
        }
        let mut points = [super::axis::Point::new(), super::axis::Point::new()];
        for axis in [OUTER, LANES] {
            points[axis] = super::axis::decompose(&extents[axis], window.start[axis]);
            let room = match (extents[axis].last(), points[axis].last()) {
                (Some(extent), Some(at)) => extent - at,
                _ => 1,
            };
            if window.count[axis] > room {
                return None;
            }
        }
        if window.count[LANES] > 1 && index.innermost(LANES) != 1 {
            return None;
        }
        let base = |map: &Linear| map.offset + map.at(OUTER, &points[OUTER]) + map.at(LANES, &points[LANES]);
        let last = |axis: usize| window.count[axis] as i64 - 1;
        let holds = |bounds: &Bounds| {
            let first = base(&bounds.value);
            let (outer, lanes) =
                (bounds.value.innermost(OUTER) * last(OUTER), bounds.value.innermost(LANES) * last(LANES));
            let (least, greatest) =
                (first + outer.min(0) + lanes.min(0), first + outer.max(0) + lanes.max(0));
            bounds.low <= least && greatest < bounds.high
        };
        mask.iter().all(holds).then(|| (base(index) as isize, index.innermost(OUTER) as isize))
    }

    /// Copies the tile's elements, of `size` bytes each, to `target`, where the pitch of outer positions is the tile's
    /// number of lanes.
    ///
    /// # Safety
    /// `source` must be the parameter's first element, and all indices where the mask holds must be within it; `target`
    /// must have room for the tile; `fill` must be one element.
    pub(super) unsafe fn load(
        &self,
        tile: Window,
        size: usize,
        source: *const u8,
        fill: *const u8,
        target: *mut u8,
    ) {
        let window = self.window(tile);
        let pitch = window.count[LANES];
        let place = |outer: usize, lane: usize| (outer * pitch + lane) * size;
        match &self.map {
            Map::Linear(strided) if strided.mask.is_empty() => {
                let index = &strided.index;
                self.blocks(window, |outer, lanes| {
                    let at = index.offset + index.at(OUTER, outer.point) + index.at(LANES, lanes.point);
                    let lane = index.innermost(LANES) as isize;
                    let (block, from, to) = if lanes.rows > 1 {
                        let rank = lanes.point.len();
                        let row = index.strides[LANES][rank - 2] as isize;
                        let block = Block { rows: lanes.rows, count: lanes.count };
                        (block, Steps { row, element: lane }, lanes.count)
                    } else {
                        let block = Block { rows: outer.rows, count: lanes.count };
                        (block, Steps { row: index.innermost(OUTER) as isize, element: lane }, pitch)
                    };
                    // SAFETY: the block is part of the tile, and the index gives the places of its elements.
                    unsafe {
                        let source = source.offset(at as isize * size as isize);
                        let target = target.add(place(outer.position, lanes.position));
                        movement::copy(
                            size,
                            block,
                            source,
                            from,
                            target,
                            Steps { row: to as isize, element: 1 },
                        );
                    }
                });
            }
            Map::Linear(strided) => self.rows(window, |outer, lanes| {
                let Strided { index, mask, .. } = &**strided;
                let (mut from, mut to) = (0, lanes.count);
                for bounds in mask {
                    let value = &bounds.value;
                    let base = value.offset + value.at(OUTER, outer.point) + value.at(LANES, lanes.point);
                    let (first, last) = bounds.interval(base, value.innermost(LANES), lanes.count);
                    (from, to) = (from.max(first), to.min(last));
                }
                let to = to.max(from);
                let at = index.offset + index.at(OUTER, outer.point) + index.at(LANES, lanes.point);
                let element = index.innermost(LANES);
                let row = |count| Block { rows: 1, count };
                // SAFETY: the three parts of the row; the mask holds in the middle one.
                unsafe {
                    let target = target.add(place(outer.position, lanes.position));
                    movement::fill(size, row(from), fill, target, 0);
                    if to > from {
                        let source = source.offset((at + element * from as i64) as isize * size as isize);
                        let steps = Steps { row: 0, element: element as isize };
                        let target = target.add(from * size);
                        movement::copy(
                            size,
                            row(to - from),
                            source,
                            steps,
                            target,
                            Steps { row: 0, element: 1 },
                        );
                    }
                    movement::fill(size, row(lanes.count - to), fill, target.add(to * size), 0);
                }
            }),
            Map::General(_) => self.positions(window, |outer, lane, positions| {
                // SAFETY: a part of the tile's row, read from the places given by the index.
                unsafe { movement::gather(size, source, positions, fill, target.add(place(outer, lane))) }
            }),
        }
    }

    /// Copies the tile's elements from `source`, where outer positions are `pitch` elements apart, to memory.
    ///
    /// # Safety
    /// Same as [`Access::load`] with the directions exchanged. The access must have no mask.
    pub(super) unsafe fn store(
        &self,
        tile: Window,
        size: usize,
        source: *const u8,
        pitch: isize,
        target: *mut u8,
    ) {
        let window = self.window(tile);
        let place = |outer: usize, lane: usize| (outer as isize * pitch + lane as isize) * size as isize;
        match &self.map {
            Map::Linear(strided) => self.blocks(window, |outer, lanes| {
                let index = &strided.index;
                let at = index.offset + index.at(OUTER, outer.point) + index.at(LANES, lanes.point);
                let element = index.innermost(LANES) as isize;
                let (block, row, from) = if lanes.rows > 1 {
                    let row = index.strides[LANES][lanes.point.len() - 2] as isize;
                    (Block { rows: lanes.rows, count: lanes.count }, row, lanes.count as isize)
                } else {
                    (Block { rows: outer.rows, count: lanes.count }, index.innermost(OUTER) as isize, pitch)
                };
                // SAFETY: the block is part of the tile, and the index gives its destination.
                unsafe {
                    let source = source.offset(place(outer.position, lanes.position));
                    let target = target.offset(at as isize * size as isize);
                    // In-place: the value is stored where it was loaded from.
                    if !std::ptr::eq(source, target) {
                        let from = Steps { row: from, element: 1 };
                        movement::copy(size, block, source, from, target, Steps { row, element });
                    }
                }
            }),
            Map::General(_) => self.positions(window, |outer, lane, positions| {
                // SAFETY: a part of the tile's row, written to the places given by the index.
                unsafe { movement::scatter(size, source.offset(place(outer, lane)), positions, target) }
            }),
        }
    }

    /// Writes the index's value for every element of the tile.
    ///
    /// # Safety
    /// `target` must have room for the tile's elements.
    pub(super) unsafe fn coordinates(&self, tile: Window, target: *mut i64) {
        let window = self.window(tile);
        let pitch = window.count[LANES];
        match &self.map {
            Map::Linear(strided) => self.rows(window, |outer, lanes| {
                let index = &strided.index;
                let mut at = index.offset + index.at(OUTER, outer.point) + index.at(LANES, lanes.point);
                for i in 0..lanes.count {
                    // SAFETY: an element of the tile.
                    unsafe { *target.add(outer.position * pitch + lanes.position + i) = at };
                    at += index.innermost(LANES);
                }
            }),
            Map::General(_) => self.positions(window, |outer, lane, positions| {
                for (i, &position) in positions.iter().enumerate() {
                    // SAFETY: an element of the tile.
                    unsafe { *target.add(outer * pitch + lane + i) = position };
                }
            }),
        }
    }

    /// Walks a window in blocks: several outer positions with one run of lanes, or one outer position with several rows
    /// of lanes.
    fn blocks(&self, window: Window, mut body: impl FnMut(super::axis::Block<'_>, super::axis::Block<'_>)) {
        use super::axis::Block;
        let [outers, lanes] = &self.extents;
        walk(outers, window.start[OUTER], window.count[OUTER], false, |outer| {
            let inner = lanes.last().copied().unwrap_or(1);
            let one_run = window.start[LANES] % inner + window.count[LANES] <= inner;
            if one_run {
                let outer = Block { rows: outer.count, count: 1, ..outer };
                walk(lanes, window.start[LANES], window.count[LANES], false, |run| {
                    body(Block { ..outer }, run);
                });
                return;
            }
            let mut point = super::axis::Point::from_slice(outer.point);
            for i in 0..outer.count {
                let one = Block { position: outer.position + i, point: &point, rows: 1, count: 1 };
                walk(lanes, window.start[LANES], window.count[LANES], true, |run| body(Block { ..one }, run));
                if let Some(last) = point.last_mut() {
                    *last += 1;
                }
            }
        });
    }

    /// Walks a window by single outer positions and runs of lanes.
    fn rows(&self, window: Window, mut body: impl FnMut(super::axis::Block<'_>, super::axis::Block<'_>)) {
        use super::axis::Block;
        let [outers, lanes] = &self.extents;
        walk(outers, window.start[OUTER], window.count[OUTER], false, |outer| {
            let mut point = super::axis::Point::from_slice(outer.point);
            for i in 0..outer.count {
                let one = Block { position: outer.position + i, point: &point, rows: 1, count: 1 };
                walk(lanes, window.start[LANES], window.count[LANES], false, |run| {
                    body(Block { ..one }, run)
                });
                if let Some(last) = point.last_mut() {
                    *last += 1;
                }
            }
        });
    }

    /// Evaluates a general map over a window, one batch of lanes at a time. Calls `body(outer, lane, positions)`, with
    /// [`movement::NOWHERE`] where the mask does not hold.
    fn positions(&self, window: Window, mut body: impl FnMut(usize, usize, &[i64])) {
        let Map::General(general) = &self.map else { return };
        let General { index, mask, ranges, rank } = &**general;
        let mut point: SmallVec<[usize; 8]> = SmallVec::from_elem(0, *rank);
        self.rows(window, |outer, lanes| {
            for (axis, block) in [(OUTER, &outer), (LANES, &lanes)] {
                for (&range, &x) in ranges[axis].iter().zip(block.point) {
                    point[range] = x;
                }
            }
            let lane = ranges[LANES].last().copied();
            let first = lane.map_or(0, |range| point[range]);
            let mut done = 0;
            while done < lanes.count {
                let mut buffer = [0; BATCH];
                let values = &mut buffer[..BATCH.min(lanes.count - done)];
                if let Some(range) = lane {
                    point[range] = first + done;
                }
                evaluate(index, &point, lane, values);
                for condition in mask.iter().flat_map(|m| m.conditions()) {
                    let mut buffer = [0; BATCH];
                    let tested = &mut buffer[..values.len()];
                    evaluate(&condition.index, &point, lane, tested);
                    for (value, tested) in values.iter_mut().zip(tested) {
                        if *tested < condition.low || *tested >= condition.high {
                            *value = movement::NOWHERE;
                        }
                    }
                }
                body(outer.position, lanes.position + done, values);
                done += values.len();
            }
        });
    }
}

/// The values of an index from `point` on, while the range `lane` counts up.
fn evaluate(index: &Index, point: &[usize], lane: Option<usize>, values: &mut [i64]) {
    let is_lane = |range: u8| lane == Some(usize::from(range));
    let mut base = index.offset();
    let mut step = 0;
    for term in index.terms() {
        if let Atom::Range(range) = term.atom {
            base += term.factor * point.get(usize::from(range)).map_or(0, |&x| x as i64);
            step += if is_lane(range) { term.factor } else { 0 };
        }
    }
    for (i, value) in values.iter_mut().enumerate() {
        *value = base + step * i as i64;
    }
    for term in index.terms() {
        let (x, k, remainder) = match &term.atom {
            Atom::Range(_) => continue,
            Atom::Quotient(x, k) => (x, *k, false),
            Atom::Remainder(x, k) => (x, *k, true),
        };
        let lane_step = x.strides(point.len()).map(|(_, strides)| lane.map_or(0, |range| strides[range]));
        match lane_step {
            Some(step) if step.abs() < k => {
                // Quotient and remainder are updated incrementally.
                let first = x.evaluate(point);
                let (mut quotient, mut rest) = (first.div_euclid(k), first.rem_euclid(k));
                for value in values.iter_mut() {
                    *value += term.factor * if remainder { rest } else { quotient };
                    rest += step;
                    let carry = i64::from(rest >= k) - i64::from(rest < 0);
                    rest -= carry * k;
                    quotient += carry;
                }
            }
            _ => {
                let mut buffer = [0; BATCH];
                let inner = &mut buffer[..values.len()];
                evaluate(x, point, lane, inner);
                for (value, x) in values.iter_mut().zip(inner) {
                    *value += term.factor * if remainder { x.rem_euclid(k) } else { x.div_euclid(k) };
                }
            }
        }
    }
}
