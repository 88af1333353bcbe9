//! Kernels without columns: every invocation computes one element of the rows' space, or a vector of neighbours.

use std::collections::HashMap;

use super::{
    Launch, Source, Target,
    access::{self, Buffer},
    expression::Scope,
};
use crate::kernel::{
    Index, Mask, Ranges,
    build::Builder,
    fused::Fused,
    loops::AxisKind,
    view::{Coordinates, unflatten},
};

/// Invocations of a group.
const BLOCK: usize = 256;

/// The kernel of a specification without columns, with at least one row.
pub(super) fn lower(fused: &Fused, sources: &[Source], target: &Target) -> Launch {
    let count = fused.row_count();
    let most = BLOCK.min(target.limits.block_size).max(1);
    // Wide accesses pay where there is work for everybody.
    let lanes = if count < target.processors * most * 4 {
        1
    } else {
        access::lanes(fused, target, |lanes| {
            let ranges = Ranges([count.div_ceil(lanes)].into_iter().collect());
            let first = Index::range(0, &ranges).scale(lanes as i64);
            let point = |lane| coordinates(fused, &first.shift(lane as i64), &ranges);
            Some(((0..lanes).map(point).collect(), ranges))
        })
    };
    let threads = count.div_ceil(lanes);
    let block = most.min(threads.next_power_of_two());

    let mut b = Builder::new("elementwise");
    let (buffers, arguments) = access::declare(&mut b, fused, sources);
    access::launch(&mut b, &target.limits, threads.div_ceil(block), [1, block], |b, group, _, invocation| {
        let thread = group.scale(block as i64).add(invocation);
        let first = thread.scale(lanes as i64);
        let whole = Mask::within(&first, 0, count as i64 - lanes as i64 + 1, b.ranges());
        let at = |b: &mut Builder, elements: &[Index], holds: &Mask| {
            let ranges = b.ranges().clone();
            let points = elements.iter().map(|flat| coordinates(fused, flat, &ranges)).collect();
            store_all(b, fused, &buffers, points, holds);
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
    });
    Launch { kernel: b.finish(), arguments }
}

/// The rows' coordinates of element `flat`.
fn coordinates(fused: &Fused, flat: &Index, ranges: &Ranges) -> Coordinates {
    let mut coordinates = Coordinates::from_elem(Index::default(), fused.rows.len());
    unflatten(&fused.rows, flat, ranges, &mut coordinates);
    coordinates
}

/// All loads come before the first store: one may be of the same memory.
fn store_all(b: &mut Builder, fused: &Fused, buffers: &[Buffer], points: Vec<Coordinates>, holds: &Mask) {
    let (holds, guard) = (holds.clone(), Mask::default());
    let mut scope = Scope { fused, buffers, points, holds, guard, known: HashMap::new(), kept: None };
    for store in &fused.stores {
        scope.value(b, store.value);
    }
    for store in &fused.stores {
        scope.store(b, store, &Mask::default());
    }
}
