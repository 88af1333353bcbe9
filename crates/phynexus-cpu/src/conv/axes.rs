//! The geometry of a convolution along three spatial axes. Missing leading axes have extent 1.
//!
//! A convolution and its input gradient are the same computation: every position of the result is a weighted sum of
//! some places ("taps") of the source, relative to the position. Forward, positions step through the source by the
//! stride. Backward with stride s, result elements fall into s phases per axis; those of one phase share their taps and
//! are adjacent in the source.

use phynexus::op::Geometry;

/// The taps along one axis that are summed for the elements of one phase.
#[derive(Clone, Debug, Default)]
pub(super) struct Phase {
    /// Filter index and source offset of each tap, relative to `position * step`.
    pub(super) taps: Vec<(usize, isize)>,
    /// Number of result elements in this phase: number t is element `phase + t * phases`.
    pub(super) count: usize,
}

/// One spatial axis.
#[derive(Clone, Debug)]
pub(super) struct Axis {
    /// The source's extent.
    pub(super) source: usize,
    /// The result's extent.
    pub(super) result: usize,
    /// The source distance between adjacent positions.
    pub(super) step: usize,
    pub(super) phases: Vec<Phase>,
    /// The smallest and the greatest offset of all taps.
    pub(super) low: isize,
    pub(super) high: isize,
}

impl Axis {
    /// The axis for computing the convolution's output.
    pub(super) fn forward(geometry: &Geometry, d: usize, input: usize, output: usize) -> Axis {
        let (before, dilation) = (geometry.padding[d].0 as isize, geometry.dilation[d] as isize);
        let taps = (0..geometry.kernel[d]).map(|r| (r, r as isize * dilation - before)).collect();
        Axis::new(input, output, geometry.stride[d], vec![Phase { taps, count: output }])
    }

    /// The axis for computing the gradient of the convolution's input; the source is the gradient of its output.
    pub(super) fn backward(geometry: &Geometry, d: usize, input: usize, output: usize) -> Axis {
        let (before, dilation) = (geometry.padding[d].0 as isize, geometry.dilation[d] as isize);
        let stride = geometry.stride[d] as isize;
        let phase = |f: isize| {
            let place = |r: usize| f + before - r as isize * dilation;
            let taps = (0..geometry.kernel[d]).filter(|&r| place(r) % stride == 0);
            let count = (input as isize - f + stride - 1) / stride;
            Phase { taps: taps.map(|r| (r, place(r) / stride)).collect(), count: count.max(0) as usize }
        };
        // Phases from the input's extent on have no elements.
        let phases = stride.min((input as isize).max(1));
        Axis::new(output, input, 1, (0..phases).map(phase).collect())
    }

    /// An axis whose elements are each computed from the one at its place. A missing axis has one.
    pub(super) fn of_points(count: usize) -> Axis {
        Axis::new(count, count, 1, vec![Phase { taps: vec![(0, 0)], count }])
    }

    /// Whether it is an axis of points.
    pub(super) fn is_pointwise(&self) -> bool {
        let [phase] = &self.phases[..] else { return false };
        self.step == 1 && self.source == self.result && phase.taps == [(0, 0)]
    }

    /// For taps at three adjacent elements, the axis of tiles: each is two elements of the result, and four of the
    /// source.
    pub(super) fn tiles(&self) -> Option<Axis> {
        let [phase] = &self.phases[..] else { return None };
        if self.step != 1 || phase.taps.len() != 3 || self.high - self.low != 2 {
            return None;
        }
        let taps = (0..4).map(|place| (place, self.low + place as isize)).collect();
        let count = self.result.div_ceil(2);
        Some(Axis::new(self.source, count, 2, vec![Phase { taps, count }]))
    }

    /// The tiles of two elements of the result of such an axis.
    pub(super) fn tiles_of_result(&self) -> Axis {
        let count = self.result.div_ceil(2);
        Axis::new(self.result, count, 2, vec![Phase { taps: vec![(0, 0), (1, 1)], count }])
    }

    fn new(source: usize, result: usize, step: usize, phases: Vec<Phase>) -> Axis {
        let places = || phases.iter().flat_map(|p| &p.taps).map(|tap| tap.1);
        let (low, high) = (places().min().unwrap_or(0), places().max().unwrap_or(0));
        Axis { source, result, step, phases, low, high }
    }

    /// The greatest number of positions in a phase.
    pub(super) fn positions(&self) -> usize {
        self.phases.iter().map(|p| p.count).max().unwrap_or(0)
    }
}
