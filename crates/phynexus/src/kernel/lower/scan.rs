//! Cumulative operations along an axis. A line is computed by one invocation if there are enough lines for all
//! processors, otherwise by a group.

use super::{
    Lowered, Source, Target, access,
    indexed::{BLOCK, each},
    operand::{Work, only},
    reduce::accumulator,
};
use crate::{
    kernel::{
        Index, Mask, Ranges,
        build::Builder,
        loops::AxisKind,
        step::Library,
        view::{Coordinates, flat, unflatten},
    },
    op::Combine,
    shape::{Dims, contiguous_strides},
};

/// A line of at most this many elements is computed by a single invocation.
const SHORT: usize = 32;

/// Lowers a scan with this combination along this axis, from the end if `reverse`.
pub(super) fn lower(
    library: &Library,
    (combine, axis, reverse): (Combine, usize, bool),
    result: Source,
    target: &Target,
    lowered: &mut Lowered,
) {
    let (shape, dtype) = (&library.node.shape, library.node.dtype);
    let x = &library.operands[0];
    let length = shape[axis];
    let mut outer: Dims = shape.clone();
    outer[axis] = 1;
    let lines: usize = outer.iter().product();
    let strides = contiguous_strides(shape);
    let held = accumulator(dtype);
    let op = combine.binary();
    let mut work = Work::new("scan");
    let input = work.operand(x, Source::Binding(0));
    let output = work.buffer(dtype, library.node.len(), result, true);
    // The positions where element `i` of a line is read and written.
    let positions = |line: &Index, i: &Index, ranges: &Ranges| {
        let mut at = Coordinates::from_elem(Index::default(), shape.len());
        unflatten(&outer, line, ranges, &mut at);
        at[axis] = if reverse { i.scale(-1).shift(length as i64 - 1) } else { i.clone() };
        (flat(&at, &x.layout.strides, 0).shift(-input.start), flat(&at, &strides, 0))
    };
    if length <= SHORT || lines >= target.processors * BLOCK {
        each(&mut work, target, lines, |b, line| {
            let running = b.registers(held, 1);
            let nothing = b.constant(held, combine.identity(dtype));
            b.store(running, &only(), nothing);
            b.over(length, AxisKind::Serial, |b, i| {
                let (from, to) = positions(line, i, b.ranges());
                let x = b.load(input.array, &from);
                let x = b.cast(held, x);
                b.accumulate(running, &only(), op, x);
                let sum = b.load(running, &only());
                let sum = b.cast(dtype, sum);
                b.store(output.array, &to, sum);
            });
        });
        return work.finish(lowered);
    }
    let largest = 1 << target.limits.block_size.max(1).ilog2();
    let block = length.next_power_of_two().min(2 * BLOCK).min(largest);
    access::launch(&mut work.b, &target.limits, lines, [1, block], |b, line, _, member| {
        let (first, second) = (b.shared(held, block), b.shared(held, block));
        let carry = b.registers(held, 1);
        let nothing = combine.identity(dtype).cast(held);
        let start = b.constant(held, nothing);
        b.store(carry, &only(), start);
        b.over(length.div_ceil(block), AxisKind::Serial, |b, tile| {
            let i = tile.scale(block as i64).add(member);
            let inside = Mask::within(&i, 0, length as i64, b.ranges());
            let (from, to) = positions(line, &i, b.ranges());
            let x = b.load_where(input.array, &from, inside.clone(), combine.identity(dtype));
            let mut sum = b.cast(held, x);
            let mut arrays = [first, second];
            let mut exchange = |b: &mut Builder, value| {
                arrays.swap(0, 1);
                b.store(arrays[0], member, value);
                b.barrier();
                arrays[0]
            };
            let mut distance = 1;
            while distance < block as i64 {
                let array = exchange(b, sum);
                let far = Mask::within(member, distance, block as i64, b.ranges());
                let before = b.load_where(array, &member.shift(-distance), far, nothing);
                sum = b.binary(op, before, sum);
                distance *= 2;
            }
            let array = exchange(b, sum);
            let total = b.load(array, &Index::constant(block as i64 - 1));
            let before = b.load(carry, &only());
            let sum = b.binary(op, before, sum);
            let sum = b.cast(dtype, sum);
            b.store_where(output.array, &to, inside, sum);
            b.accumulate(carry, &only(), op, total);
            b.barrier();
        });
    });
    work.finish(lowered);
}
