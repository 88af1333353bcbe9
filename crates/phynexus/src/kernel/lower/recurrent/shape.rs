//! How the work of a launch is divided.

use super::{GATES, SAVED, Target};
use crate::{
    DType,
    kernel::loops::{AsyncCopy, MatrixUnit, Panel},
    op::{TensorType, composite::Cell},
};

/// Units of a group, and of one whose weights would not fit otherwise: 64 rows are all gates of so many units, which
/// takes an exchange.
const UNITS: [usize; 2] = [32, Panel::ROWS / SAVED];
/// The most sequences of a group, and of one that computes gradients: with more of them, what an invocation keeps does
/// not fit its registers.
const COLUMNS: [usize; 2] = [64, 48];
/// The most launches. With 3 for 1,024 sequences, a step takes a quarter of what it takes with launches of its own, whose
/// time grows with the sequences, too.
const LAUNCHES: usize = 16;

#[derive(Clone, Copy)]
pub(super) struct Shape {
    /// Units of a group.
    pub(super) units: usize,
    /// Sequences of a group.
    pub(super) columns: usize,
    /// Groups along the units, and along the sequences.
    pub(super) slices: usize,
    pub(super) teams: usize,
}

impl Shape {
    /// The division that gives groups the most units, then the fewest sequences without further launches, if weights
    /// fit shared memory.
    pub(super) fn of(cell: Cell, state: TensorType, is_gradient: bool, target: &Target) -> Option<Shape> {
        let (dtype, &[batch, hidden]) = (state.dtype(), state.shape()) else { return None };
        let limits = &target.limits;
        let has = |unit: &MatrixUnit| {
            unit.multiplies_panels([dtype; 2], DType::F32) && unit.shape.columns >= COLUMNS[0]
        };
        let is_possible = limits.matrices.iter().any(has)
            && limits.async_copies
            && dtype.size() == 2
            && hidden.is_multiple_of(AsyncCopy::BYTES / dtype.size())
            && limits.block_size >= Panel::INVOCATIONS
            && limits.dtypes.contains(&DType::U32)
            && batch > 0
            && hidden > 0;
        let padded = hidden.next_multiple_of(Panel::WIDTH);
        let with = |units: usize| {
            let slices = hidden.div_ceil(units);
            let most = (limits.meeting_groups / slices).min(limits.grid[1]);
            let shape =
                |columns: usize| Shape { units, columns, slices, teams: batch.div_ceil(columns).min(most) };
            let fits = |shape: &Shape| {
                let rows = shape.tiles(cell) * Panel::ROWS;
                // What a step multiplies the weights with: all states, or gradients of the group's gates.
                let terms = if is_gradient { rows } else { padded };
                dtype.size() * (rows * padded + shape.columns * terms) <= limits.shared_bytes
                    && batch.div_ceil(shape.columns * shape.teams) <= LAUNCHES
            };
            let wanted = batch.div_ceil(most.max(1)).next_multiple_of(Panel::LEAST_COLUMNS);
            let largest = wanted.min(COLUMNS[usize::from(is_gradient)]) / Panel::LEAST_COLUMNS;
            let columns = (1..=largest).rev().map(|n| n * Panel::LEAST_COLUMNS);
            columns.filter(|_| most > 0).map(shape).find(fits)
        };
        UNITS.into_iter().filter(|_| is_possible).find_map(with)
    }

    /// Whether all gates of a unit are in one panel.
    pub(super) fn is_narrow(&self) -> bool {
        self.units < UNITS[0]
    }

    /// Panels of 64 rows that the gates of a group's units fill.
    pub(super) fn tiles(&self, cell: Cell) -> usize {
        if self.is_narrow() { 1 } else { cell.gates().div_ceil(GATES) }
    }
}
