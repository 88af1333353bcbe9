//! Chooses the ranges that become the lanes of a tile, and the size of tiles.

use phynexus::kernel::{
    Index,
    fused::{FusedOp, Fusion},
};
use smallvec::SmallVec;

use super::{
    access::Axes,
    axis::{Cut, LANES, OUTER},
    normal::ranges,
};
use crate::vector::SUM_LANES;

/// Minimum number of lanes: enough innermost ranges become lanes for a call of a vector kernel to pay off.
const FEWEST_LANES: usize = 128;
/// Rows with fewer columns are laid side by side instead of along the lanes.
const SHORT_ROW: usize = 24;
/// Bytes of registers and operands per tile: most of the first-level cache.
const TILE_BYTES: usize = 32 << 10;
/// Minimum and maximum number of elements per tile: the calls for a tile cost about 100 nanoseconds regardless of its
/// size.
const FEWEST_ELEMENTS: usize = 2048;
const MOST_ELEMENTS: usize = 4096;
/// Lanes per tile of a block, which has several rows and may be narrow.
const BLOCK_LANES: usize = 256;
/// Elements of the largest tile that holds whole rows of columns: the capacity of the second-level cache.
const LONGEST_ROW: usize = 16 << 10;
/// Like [`LONGEST_ROW`], if rows are the lanes and a tile has several of them.
const TALLEST_TILE: usize = 64 << 10;
/// Maximum number of columns that are combined by themselves.
const SEGMENT: usize = 4096;
/// Maximum number of segments per row that are added sequentially in a tile with its rows side by side: a tree of this
/// size adds in the same order.
const MOST_SEGMENTS: usize = 3;
/// Rows side by side in a tile that is summed column by column.
const ROW_LANES: usize = 512;

/// The axes of a kernel's tiles.
pub(super) struct Plan {
    pub(super) axes: Axes,
    /// The axis of the rows; `None` without columns.
    pub(super) rows: Option<usize>,
    /// The cut of a row's columns for reduction: each segment is combined by itself, then the segments in a tree.
    pub(super) segments: Cut,
    /// True if a tile cannot hold all columns of a row: each reduction phase then makes a pass over memory.
    pub(super) chunked: bool,
    /// The maximum number of lanes per tile of an elementwise kernel.
    pub(super) most_lanes: usize,
}

/// The axes of a kernel that runs on blocks of a matrix.
pub(super) fn blocks(kernel: &Fusion) -> Plan {
    let (rows, all) = (kernel.rows.len(), ranges(kernel).len());
    let axes = Axes {
        ranges: [(0..rows).collect(), (rows..all).collect()],
        extents: [kernel.rows.clone(), kernel.columns.clone()],
    };
    Plan { axes, rows: None, segments: Cut::whole(1), chunked: false, most_lanes: BLOCK_LANES }
}

/// Chooses the axes for a kernel in normal form whose reductions have this many phases. `columns` are the extents of
/// the columns before normalisation, which are those of the reduced tensors regardless of the rest of the kernel.
pub(super) fn plan(kernel: &Fusion, columns: &[usize], phases: usize) -> Plan {
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
        // Sums alone keep nothing of the columns, so holding them gains nothing.
        let stored = kernel.stores.iter().any(|s| kernel.instructions[s.value as usize].per_column);
        column_count * lanes > if phases > 1 || stored { TALLEST_TILE } else { TALLEST_TILE / 8 }
            || segments.count > MOST_SEGMENTS
    } else {
        column_count > LONGEST_ROW
    };
    Plan { axes, rows: Some(row_axis), segments, chunked, most_lanes: MOST_ELEMENTS }
}

/// The lanes are the innermost ranges. The other ranges may be in any order; the best last one is that along which
/// operands with strided lanes are contiguous.
fn elementwise_axes(kernel: &Fusion) -> Axes {
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

/// The indices of all loads.
fn loads(kernel: &Fusion) -> impl Iterator<Item = &Index> {
    kernel.instructions.iter().filter_map(|i| match &i.operation {
        FusedOp::Load { index, .. } => Some(index),
        _ => None,
    })
}

/// True if adjacent rows should be adjacent lanes: if most loads are contiguous along the rows, or there are many short
/// rows.
fn rows_in_lanes(kernel: &Fusion) -> bool {
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

/// Cuts the axes into tiles of an elementwise kernel or of whole rows, or into chunks of columns. `bytes` is the size
/// of a tile's element in registers and operands. `transposes` is true if an operand is contiguous along the outer axis
/// instead of the lanes.
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
            // A few short rows at a time: rows are processed one by one, and the cost per tile is shared.
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
