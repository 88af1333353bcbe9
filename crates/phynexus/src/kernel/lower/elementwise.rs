//! Kernels without columns: each invocation computes one element of the row space, or a vector of neighbours. The
//! specifications of a batch are compiled to one kernel, in which each has a part of the grid.

use std::cmp::Reverse;

use smallvec::SmallVec;

use super::{
    Launch, Source, Target,
    access::{self, Buffer, stride},
    expression::Scope,
    transposed::Transposed,
};
use crate::hash::FastMap;
use crate::kernel::{
    Index, Mask, Ranges,
    build::Builder,
    fused::{FusedOp, Fusion},
    loops::AxisKind,
    view::{Coordinates, unflatten},
};

/// Invocations per group.
const BLOCK: usize = 256;
/// Maximum number of specifications per kernel: a group skips those before its own, and all of them are compiled
/// together.
const MOST: usize = 64;

/// A specification without columns and with at least one row, and its arguments.
pub(super) struct Task<'a> {
    pub(super) fused: &'a Fusion,
    pub(super) sources: Vec<Source>,
}

/// Lowers independent specifications to as few kernels as their buffers allow.
pub(super) fn lower_all(tasks: &[Task], target: &Target) -> Vec<Launch> {
    let limits = &target.limits;
    let mut launches = Vec::new();
    let mut rest = tasks;
    while let Some((first, others)) = rest.split_first() {
        let cost =
            |task: &Task| [task.sources.len(), task.fused.row_count().div_ceil(BLOCK.min(limits.block_size))];
        let [mut buffers, mut groups] = cost(first);
        let fits = |task: &&Task| {
            let [more_buffers, more_groups] = cost(task);
            (buffers, groups) = (buffers + more_buffers, groups + more_groups);
            buffers <= limits.bindings && groups <= limits.grid[0]
        };
        let count = 1 + others.iter().take(MOST - 1).take_while(fits).count();
        let (together, after) = rest.split_at(count);
        launches.push(lower(together, target));
        rest = after;
    }
    launches
}

/// Lowers one or several specifications to one kernel. The groups of several must fit in one dimension of the grid.
pub(super) fn lower(tasks: &[Task], target: &Target) -> Launch {
    if let [task] = tasks
        && let Some(transposed) = Transposed::of(task.fused, target)
    {
        return transposed.lower(task, target);
    }
    let most = BLOCK.min(target.limits.block_size).max(1);
    let elements: usize = tasks.iter().map(|task| task.fused.row_count()).sum();
    // Wide accesses pay off only if there is enough work for all processors.
    let wide = elements >= target.processors * most * 4;
    let lanes: Vec<usize> =
        tasks.iter().map(|task| if wide { lanes(task.fused, target) } else { 1 }).collect();
    let threads: Vec<usize> =
        tasks.iter().zip(&lanes).map(|(task, lanes)| task.fused.row_count().div_ceil(*lanes)).collect();
    let block = most.min(threads.iter().copied().max().unwrap_or(1).next_power_of_two());

    let mut b = Builder::new("elementwise");
    let mut arguments = Vec::new();
    let mut parts = Vec::with_capacity(tasks.len());
    for ((task, lanes), threads) in tasks.iter().zip(lanes).zip(threads) {
        let (buffers, theirs) = access::declare(&mut b, task.fused, &task.sources);
        arguments.extend(theirs);
        parts.push(Part { fused: task.fused, buffers, lanes, groups: threads.div_ceil(block) });
    }
    let groups = parts.iter().map(|part| part.groups).sum();
    access::launch(&mut b, &target.limits, groups, [1, block], |b, group, _, invocation| {
        let thread = |group: &Index| group.scale(block as i64).add(invocation);
        match parts.as_slice() {
            [part] => part.store(b, &thread(group)),
            several => {
                let mut first = 0;
                for part in several {
                    b.over(part.groups, AxisKind::Part(first), |b, group| part.store(b, &thread(group)));
                    first += part.groups as u32;
                }
            }
        }
    });
    Launch { kernel: b.finish(), arguments }
}

/// The number of neighbouring elements per invocation.
fn lanes(fused: &Fusion, target: &Target) -> usize {
    access::lanes(fused, target, |lanes| {
        let ranges = Ranges([fused.row_count().div_ceil(lanes)].into_iter().collect());
        let first = Index::range(0, &ranges).scale(lanes as i64);
        let point = |lane| coordinates(fused, &first.shift(lane as i64), &ranges);
        Some(((0..lanes).map(point).collect(), ranges))
    })
}

/// A specification and its part of the grid.
struct Part<'a> {
    fused: &'a Fusion,
    buffers: Vec<Buffer>,
    lanes: usize,
    groups: usize,
}

impl Part<'_> {
    /// Computes and stores the elements of an invocation.
    fn store(&self, b: &mut Builder, thread: &Index) {
        let Part { fused, lanes, .. } = *self;
        let count = fused.row_count();
        let first = thread.scale(lanes as i64);
        let whole = Mask::within(&first, 0, count as i64 - lanes as i64 + 1, b.ranges());
        let at = |b: &mut Builder, elements: &[Index], holds: &Mask| {
            let ranges = b.ranges().clone();
            let points = elements.iter().map(|flat| coordinates(fused, flat, &ranges)).collect();
            store_all(b, fused, &self.buffers, points, holds);
        };
        let vector: Vec<Index> = (0..lanes).map(|lane| first.shift(lane as i64)).collect();
        b.choose(
            whole.clone(),
            |b| at(b, &vector, &whole),
            |b| {
                let left = count % lanes;
                if left > 0 {
                    let last = Mask::within(&first, 0, count as i64, b.ranges());
                    b.when(last, |b| {
                        b.over(left, AxisKind::Serial, |b, i| {
                            at(b, &[i.shift((count - left) as i64)], &Mask::default());
                        });
                    });
                }
            },
        );
    }
}

/// The rows, from the slowest to the fastest: in an order in which neighbouring elements are neighbours in memory for
/// most of the bytes accessed.
fn order(fused: &Fusion) -> SmallVec<[usize; 6]> {
    let mut order: SmallVec<[usize; 6]> = (0..fused.rows.len()).collect();
    let loads = fused.instructions.iter().filter_map(|instruction| match &instruction.operation {
        FusedOp::Load { index, parameter, .. } => Some((index, *parameter)),
        _ => None,
    });
    let stores = fused.stores.iter().map(|store| (&store.index, store.parameter));
    let all: SmallVec<[(&Index, u16); 8]> = stores.chain(loads).collect();
    let along = |index: &Index, row: usize| stride(index, row).abs() == 1;
    // What is the same along a row is accessed once.
    let bytes = |&(index, parameter): &(&Index, u16)| {
        let rows = (0..fused.rows.len()).filter(|&row| index.depends_on(row)).map(|row| fused.rows[row]);
        rows.product::<usize>() * fused.parameters[usize::from(parameter)].dtype.size()
    };
    let bytes_along = |row: &usize| {
        all.iter().filter(|(index, _)| along(index, *row)).map(bytes).fold(0, usize::saturating_add)
    };
    // The last of equals.
    let mut wide = (0..fused.rows.len()).filter(|&row| fused.rows[row] > 1);
    let Some(fastest) = wide.clone().max_by_key(bytes_along) else { return order };
    if wide.next_back() != Some(fastest)
        && let Some((index, _)) =
            all.iter().filter(|(index, _)| along(index, fastest)).max_by_key(|at| bytes(at))
    {
        order.sort_by_key(|&row| (row == fastest, Reverse(stride(index, row).abs())));
    }
    order
}

/// The row coordinates of element `flat`.
fn coordinates(fused: &Fusion, flat: &Index, ranges: &Ranges) -> Coordinates {
    let order = order(fused);
    let extents: SmallVec<[usize; 6]> = order.iter().map(|&row| fused.rows[row]).collect();
    let mut sorted = Coordinates::from_elem(Index::default(), fused.rows.len());
    unflatten(&extents, flat, ranges, &mut sorted);
    let mut coordinates = Coordinates::from_elem(Index::default(), fused.rows.len());
    order.into_iter().zip(sorted).for_each(|(row, index)| coordinates[row] = index);
    coordinates
}

/// Performs all loads before the first store, since both may access the same memory.
fn store_all(b: &mut Builder, fused: &Fusion, buffers: &[Buffer], points: Vec<Coordinates>, holds: &Mask) {
    let (holds, guard) = (holds.clone(), Mask::default());
    let mut scope = Scope { fused, buffers, points, holds, guard, known: FastMap::default(), kept: None };
    scope.store_all(b, &fused.stores.iter().collect::<Vec<_>>());
}
