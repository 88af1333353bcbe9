//! Which ranges become the lanes of a tile, and how large tiles are.

use phynexus::kernel::{
    Index,
    fused::{Fused, Operation},
};
use smallvec::SmallVec;

use super::{
    access::Axes,
    axis::{Cut, LANES, OUTER},
    normal::ranges,
};
use crate::vector::SUM_LANES;

/// Lanes are as many innermost ranges as it takes to have this many, so that a call of a vector kernel pays.
const FEWEST_LANES: usize = 128;
/// Rows of fewer columns are laid side by side rather than along the lanes.
const SHORT_ROW: usize = 24;
/// Bytes of registers and operands that a tile may have: most of the first-level cache.
const TILE_BYTES: usize = 32 << 10;
/// Elements of a tile, at least and at most: the calls for a tile cost some 100 nanoseconds whatever its size.
const FEWEST_ELEMENTS: usize = 2048;
const MOST_ELEMENTS: usize = 4096;
/// Lanes of a tile of a block: a block is several rows high and may be narrow.
const BLOCK_LANES: usize = 256;
/// Elements of the largest tile that holds whole rows of columns: what the second-level cache has room for.
const LONGEST_ROW: usize = 16 << 10;
/// As [`LONGEST_ROW`], where rows are the lanes and a tile has some of them.
const TALLEST_TILE: usize = 64 << 10;
/// Columns that are combined by themselves, at most.
const SEGMENT: usize = 4096;
/// Segments of a row of a tile that has its rows side by side, where one is added after another: a tree of up to so many
/// does so too.
const MOST_SEGMENTS: usize = 3;
/// Rows side by side in a tile that is summed column by column.
const ROW_LANES: usize = 512;

/// The axes of a kernel's tiles.
pub(super) struct Plan {
    pub(super) axes: Axes,
    /// The axis of the rows; `None` without columns.
    pub(super) rows: Option<usize>,
    /// The columns of a row as they are combined: each segment by itself, then the segments in a tree.
    pub(super) segments: Cut,
    /// True if a tile cannot hold all columns of a row: then there is a pass over memory for each reduction phase.
    pub(super) chunked: bool,
    /// The most lanes of a tile of an elementwise kernel.
    pub(super) most_lanes: usize,
}

/// The axes of a kernel that runs on blocks of a matrix.
pub(super) fn blocks(kernel: &Fused) -> Plan {
    let (rows, all) = (kernel.rows.len(), ranges(kernel).len());
    let axes = Axes {
        ranges: [(0..rows).collect(), (rows..all).collect()],
        extents: [kernel.rows.clone(), kernel.columns.clone()],
    };
    Plan { axes, rows: None, segments: Cut::whole(1), chunked: false, most_lanes: BLOCK_LANES }
}

/// Chooses the axes for a kernel in normal form whose reductions have this many phases. `columns` are the extents of the
/// columns as they were before: they are those of the tensors that are reduced, whatever else the kernel does.
pub(super) fn plan(kernel: &Fused, columns: &[usize], phases: usize) -> Plan {
    let (rows, all) = (kernel.rows.len(), ranges(kernel).len());
    if kernel.columns.is_empty() {
        let axes = elementwise_axes(kernel);
        return Plan { axes, rows: None, segments: Cut::whole(1), chunked: false, most_lanes: MOST_ELEMENTS };
    }
    let (row_count, column_count) = (kernel.row_count(), kernel.column_count());
    let upright = rows_in_lanes(kernel);
    let ranges_of = |from: usize, to: usize| (from..to).collect::<SmallVec<[usize; 4]>>();
    let (row_ranges, column_ranges) = (ranges_of(0, rows), ranges_of(rows, all));
    let mut axes = Axes::default();
    let (row_axis, column_axis) = if upright { (LANES, OUTER) } else { (OUTER, LANES) };
    axes.ranges[row_axis] = row_ranges;
    axes.ranges[column_axis] = column_ranges;
    axes.extents[row_axis] = kernel.rows.clone();
    axes.extents[column_axis] = kernel.columns.clone();
    let segments = Cut::segments(columns, SEGMENT);
    let chunked = if upright {
        let lanes = row_count.min(64);
        // Sums alone keep nothing of the columns, so nothing is gained by holding them.
        let stored = kernel.stores.iter().any(|s| kernel.instructions[s.value as usize].per_column);
        column_count * lanes > if phases > 1 || stored { TALLEST_TILE } else { TALLEST_TILE / 8 }
            || segments.count > MOST_SEGMENTS
    } else {
        column_count > LONGEST_ROW
    };
    Plan { axes, rows: Some(row_axis), segments, chunked, most_lanes: MOST_ELEMENTS }
}

/// The lanes are the innermost ranges; the other ranges may come in any order, and the best last one is that along
/// which operands that are strided over the lanes are contiguous.
fn elementwise_axes(kernel: &Fused) -> Axes {
    let count = kernel.rows.len();
    let mut first = count;
    let mut lanes = 1;
    while first > 0 && lanes < FEWEST_LANES {
        first -= 1;
        lanes *= kernel.rows[first];
    }
    let mut outer: SmallVec<[usize; 4]> = (0..first).collect();
    for index in loads(kernel) {
        let Some((_, strides)) = index.strides(count) else { continue };
        let across = |range: usize| strides[range].abs() == 1 && kernel.rows[range] > 1;
        if first < count
            && strides[count - 1].abs() > 1
            && let Some(at) = outer.iter().position(|&range| across(range))
        {
            let range = outer.remove(at);
            outer.push(range);
            break;
        }
    }
    let extents = |ranges: &[usize]| ranges.iter().map(|&range| kernel.rows[range]).collect();
    let lanes: SmallVec<[usize; 4]> = (first..count).collect();
    Axes { extents: [extents(&outer), extents(&lanes)], ranges: [outer, lanes] }
}

/// The indices of everything loaded.
fn loads(kernel: &Fused) -> impl Iterator<Item = &Index> {
    kernel.instructions.iter().filter_map(|i| match &i.operation {
        Operation::Load { index, .. } => Some(index),
        _ => None,
    })
}

/// True if neighbouring rows are to be neighbouring lanes: where most loads are contiguous along the rows, or rows are
/// short and many.
fn rows_in_lanes(kernel: &Fused) -> bool {
    let (rows, all) = (kernel.rows.len(), ranges(kernel).len());
    let (row_count, column_count) = (kernel.row_count(), kernel.column_count());
    if rows == 0 || row_count < 8 {
        return false;
    }
    let (mut along_rows, mut along_columns) = (0, 0);
    for index in loads(kernel) {
        let Some((_, strides)) = index.strides(all) else { continue };
        let both = (0..rows).any(|r| strides[r] != 0) && (rows..all).any(|c| strides[c] != 0);
        if both {
            along_rows += usize::from(strides[rows - 1].abs() == 1);
            along_columns += usize::from(strides[all - 1].abs() == 1);
        }
    }
    match along_rows.cmp(&along_columns) {
        std::cmp::Ordering::Greater => true,
        _ => column_count <= SHORT_ROW && row_count >= 4 * column_count,
    }
}

/// Cuts the axes into tiles of an elementwise kernel or of whole rows, or into chunks of columns, given the bytes that a
/// tile's element takes in registers and operands. `transposes` if an operand is contiguous along the outer axis instead
/// of the lanes.
pub(super) fn cut(plan: &Plan, bytes: usize, transposes: bool) -> [Cut; 2] {
    let Axes { extents, .. } = &plan.axes;
    let elements = (TILE_BYTES / bytes.max(1)).clamp(FEWEST_ELEMENTS, MOST_ELEMENTS);
    match (plan.rows, plan.chunked) {
        (None, _) => {
            let lanes = if transposes { 64 } else { elements.min(plan.most_lanes) };
            let lanes = Cut::new(&extents[LANES], lanes);
            [Cut::new(&extents[OUTER], (elements / lanes.longest.max(1)).max(1)), lanes]
        }
        (Some(rows), false) => {
            let columns = plan.axes.total(1 - rows);
            // A few short rows at a time: rows are worked on one by one, and what a tile costs is shared.
            let piece = (MOST_ELEMENTS / columns.max(1)).max(if rows == OUTER { 1 } else { 64 });
            let (rows_cut, columns_cut) = (Cut::new(&extents[rows], piece), Cut::whole(columns));
            if rows == OUTER { [rows_cut, columns_cut] } else { [columns_cut, rows_cut] }
        }
        (Some(OUTER), true) => [Cut::new(&extents[OUTER], 1), plan.segments],
        // As many columns at a time as there are sums.
        (Some(_), true) => {
            let mut columns = plan.segments;
            columns.longest = columns.longest.min(SUM_LANES);
            [columns, Cut::new(&extents[LANES], ROW_LANES)]
        }
    }
}
