//! Checks of bulk copies.

use super::*;
use crate::kernel::loops::{BulkCopy, BulkPart, BulkTensor, Walk};

/// The greatest extent of a box along a dimension.
const MOST: usize = 256;
/// The greatest distance between beginnings of windows.
const MOST_STEP: usize = 8;

impl BulkTensor {
    /// Whether a device's copies can take this part of such a tensor. The limits are those of CUDA's tensor maps; of
    /// windows, the places of corners have fewer bits the more dimensions there are.
    pub fn is_supported(&self, element: usize) -> bool {
        let aligned = |elements: usize| (elements * element).is_multiple_of(AsyncCopy::BYTES);
        let rank = self.dimensions.len();
        let sized = self.dimensions.iter().all(|&(extent, _)| extent > 0 && u32::try_from(extent).is_ok());
        let strided = self
            .dimensions
            .iter()
            .skip(1)
            .all(|&(_, stride)| aligned(stride) && stride > 0 && ((stride * element) as u64) < 1 << 40);
        let plain = self.dimensions.first().is_some_and(|&(_, stride)| stride == 1) && aligned(self.start);
        // A copy's rows are those of a panel.
        let row = |elements: usize| elements * element == 2 * Panel::WIDTH;
        let part = match &self.part {
            BulkPart::Box(extents) => {
                (2..=5).contains(&rank)
                    && extents.len() == rank
                    && extents.iter().all(|extent| (1..=MOST).contains(extent))
                    && row(extents[0])
            }
            BulkPart::Windows { length, count, walks } => {
                let corner = match rank {
                    3 => 1 << 15,
                    4 => 1 << 7,
                    _ => 1 << 4,
                };
                let fits = |(walk, &(extent, _)): (&Walk, &(usize, usize))| {
                    let Walk { low, step, count } = *walk;
                    let high = low + ((count.max(1) - 1) * step) as i64 - (extent as i64 - 1);
                    let inside = |corner_at: i64| (-corner..corner).contains(&corner_at);
                    count > 0 && (1..=MOST_STEP).contains(&step) && inside(low) && inside(high)
                };
                (3..=5).contains(&rank)
                    && walks.len() == rank - 2
                    && walks.iter().zip(&self.dimensions[1..]).all(fits)
                    && row(*length)
                    && (1..=MOST).contains(count)
            }
        };
        plain && sized && strided && part
    }
}

impl Checker<'_> {
    pub(super) fn bulk_copy(&self, copy: &BulkCopy) -> Result<()> {
        if !self.limits.has_panels() {
            let message = format!("kernel {} needs bulk copies to shared memory", self.kernel.name);
            return Err(Error::Unsupported { device: self.limits.device.clone(), message });
        }
        let BulkCopy { tensor, at, mask, to } = copy;
        let Some(tensor) = self.kernel.tensor(copy) else {
            return self.fail(format!("no tensor {tensor}"));
        };
        let buffer = ArrayId::Buffer(tensor.buffer);
        let Some((dtype, length)) = self.kernel.array(buffer) else {
            return self.fail(format!("no {buffer:?}"));
        };
        let places = match &tensor.part {
            BulkPart::Box(extents) => extents.len(),
            BulkPart::Windows { walks, .. } => walks.len() + 2,
        };
        let same = self.kernel.array(to.array).is_some_and(|(to, _)| to == dtype);
        let fits = tensor.is_supported(dtype.size()) && tensor.last() < length && at.len() == places && same;
        self.require(fits, || format!("a bulk copy of {tensor:?} to {to:?}"))?;
        // It is made by an invocation beyond the block's first dimension.
        let uniform = |index: &Index| !self.depends(index, |kind| matches!(kind, AxisKind::Block(_)));
        let together = self.group_uniform
            && at.iter().chain([&to.index]).all(uniform)
            && mask.conditions().iter().all(|c| uniform(&c.index))
            && self.kernel.block()[1..] == [1, 1];
        self.require(together, || "a bulk copy that differs within a group".to_owned())?;
        at.iter().try_for_each(|index| self.index(index))?;
        mask.conditions().iter().try_for_each(|c| self.index(&c.index))?;
        if let BulkPart::Windows { .. } = &tensor.part {
            let known = self.conditions.and(mask);
            for index in &at[1..] {
                let (low, high) = known.bounds_of(index, &self.ranges);
                let is_window = std::ptr::eq(index, &at[1]);
                let most = if is_window { i64::from(i32::MAX) } else { tensor.greatest_distance() };
                self.require(known.is_never() || low >= 0 && high <= most, || {
                    format!("windows from {low} to {high}")
                })?;
            }
        }
        let aligned = |offset: i64| (offset * dtype.size() as i64) % Panel::ALIGNMENT as i64 == 0;
        let placed = self.kernel.holds_panels(to.array)
            && aligned(to.index.common_factor())
            && aligned(to.index.offset())
            && to.row.is_none()
            && to.mask.is_always();
        self.require(placed, || format!("a bulk copy to {to:?}"))?;
        self.in_bounds(to, tensor.part.elements())
    }
}
