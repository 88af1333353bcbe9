//! The tile of a contraction of 16-bit floats by matrix instructions: each subgroup has a rectangle of fragments.

use super::{
    Target,
    contraction::{Contraction, Shape, Tile},
    load::{Layout, pipeline},
    tile::quad_at,
};
use crate::{
    DType, Scalar,
    kernel::{
        Index,
        build::Builder,
        loops::{AxisKind, Fragment, Matrix, MatrixShape, Memory, Place, Role},
    },
};

/// The shapes to choose from, the best for large results first; parts are those of a subgroup.
pub(super) const SHAPES: [Shape; 3] = [
    Shape { rows: 128, columns: 128, depth: 32, part: [64, 64] },
    Shape { rows: 64, columns: 64, depth: 32, part: [32, 32] },
    Shape { rows: 32, columns: 32, depth: 32, part: [16, 16] },
];

/// Rows, columns and depth of the instruction.
const SIDE: usize = 16;
/// Elements between rows in shared memory beyond their length, so that they spread over the memory's banks.
const PAD: usize = 8;
/// From row to row of the array through which a fragment's elements reach the invocations.
const PITCH: usize = SIDE + 4;

/// The type of the factors, if the device has an instruction for them.
pub(super) fn instruction(contraction: &Contraction, target: &Target) -> Option<DType> {
    let [left, right] = contraction.dtypes();
    let shape = MatrixShape { rows: SIDE, columns: SIDE, depth: SIDE };
    let known = target.limits.matrices.contains(&(shape, left, contraction.held));
    let half = matches!(left, DType::F16 | DType::BF16) && left == right;
    (half && known && target.limits.subgroup.is_some_and(|width| 64 % width == 0)).then_some(left)
}

/// Bytes of shared memory of a group.
pub(super) fn shared_bytes(shape: Shape) -> usize {
    let tiles = shape.rows * (shape.depth + PAD) + shape.depth * (shape.columns + PAD);
    let subgroups = shape.rows / shape.part[0] * (shape.columns / shape.part[1]);
    2 * tiles * DType::F16.size() + subgroups * SIDE * PITCH * DType::F32.size()
}

/// The statements of a group.
pub(super) fn lower(b: &mut Builder, tile: &Tile, dtype: DType) {
    let Tile { contraction, shape, ref invocation, .. } = *tile;
    let width = tile.target.limits.subgroup.unwrap_or(1);
    let mut layout = |size: usize, outer: usize, depth: usize| Layout {
        array: b.shared(dtype, 2 * size),
        dtype,
        outer,
        depth,
        size,
    };
    let pitches = [shape.depth + PAD, shape.columns + PAD];
    let layouts =
        [layout(shape.rows * pitches[0], pitches[0], 1), layout(shape.depth * pitches[1], 1, pitches[1])];
    let through = b.shared(contraction.held, tile.block / width * SIDE * PITCH);
    let (down, across) = (shape.part[0] / SIDE, shape.part[1] / SIDE);
    let shape_of = MatrixShape { rows: SIDE, columns: SIDE, depth: SIDE };
    let fragment = |role, dtype, length| Fragment { role, shape: shape_of, dtype, length };
    let left = b.fragments(fragment(Role::Left, dtype, down));
    let right = b.fragments(fragment(Role::Right, dtype, across));
    let sums = b.fragments(fragment(Role::Accumulator, contraction.held, down * across));
    let subgroup = invocation.quotient(width as i64, b.ranges());
    let beside = (shape.columns / shape.part[1]) as i64;
    let row = subgroup.quotient(beside, b.ranges()).scale(shape.part[0] as i64);
    let column = subgroup.remainder(beside, b.ranges()).scale(shape.part[1] as i64);
    let (rows, i) = b.axis(down, AxisKind::Unroll);
    let (columns, j) = b.axis(across, AxisKind::Unroll);
    let at = i.scale(across as i64).add(&j);
    let side = SIDE as i64;
    b.repeat(rows, |b| {
        b.repeat(columns, |b| {
            b.matrix(Matrix::Fill(sums(at.clone()), Scalar::Float(0.0).cast(contraction.held)));
        });
    });
    let load = |b: &mut Builder, tile, array: Memory, index: Index, stride: usize| {
        b.matrix(Matrix::Load { tile, place: Place::at(array, &index), stride });
    };
    pipeline(b, tile, layouts, |b, half| {
        b.over(shape.depth / SIDE, AxisKind::Unroll, |b, step| {
            b.repeat(rows, |b| {
                let first = half.scale(layouts[0].size as i64).add(&step.scale(side));
                let index = row.add(&i.scale(side)).scale(pitches[0] as i64);
                load(b, left(i.clone()), layouts[0].array, first.add(&index), pitches[0]);
            });
            b.repeat(columns, |b| {
                let first = half.scale(layouts[1].size as i64).add(&step.scale(side * pitches[1] as i64));
                let index = column.add(&j.scale(side));
                load(b, right(j.clone()), layouts[1].array, first.add(&index), pitches[1]);
            });
            b.repeat(rows, |b| {
                b.repeat(columns, |b| {
                    let (left, right) = (left(i.clone()), right(j.clone()));
                    b.matrix(Matrix::MultiplyAdd { accumulator: sums(at.clone()), left, right });
                });
            });
        });
    });

    // Only the device knows which invocation has which element of a fragment, so they go through shared memory.
    let lane = invocation.remainder(width as i64, b.ranges());
    let first = subgroup.scale((SIDE * PITCH) as i64);
    b.repeat(rows, |b| {
        b.repeat(columns, |b| {
            let place = Place::at(through, &first);
            b.matrix(Matrix::Store { tile: sums(at.clone()), place, stride: PITCH });
            b.barrier();
            b.over(SIDE * SIDE / 4 / width, AxisKind::Unroll, |b, turn| {
                let quad = turn.scale(width as i64).add(&lane);
                let down = quad.quotient(4, b.ranges());
                let across = quad.remainder(4, b.ranges()).scale(4);
                let element = first.add(&down.scale(PITCH as i64)).add(&across);
                let values = quad_at(b, tile, through, contraction.held, &element);
                let row = tile.row.add(&row).add(&i.scale(side)).add(&down);
                let column = tile.column.add(&column).add(&j.scale(side)).add(&across);
                if contraction.extent(2).is_multiple_of(4) {
                    tile.finish(b, &row, &column, &values);
                } else {
                    for (lane, &value) in values.iter().enumerate() {
                        tile.finish(b, &row, &column.shift(lane as i64), &[value]);
                    }
                }
            });
            b.barrier();
        });
    });
}
