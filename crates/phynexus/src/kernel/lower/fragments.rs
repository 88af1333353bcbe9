//! Contraction tiles of 16-bit floats, or of `float32` that may be rounded, by matrix instructions. Each subgroup
//! computes a rectangle of fragments.

use super::{
    Target,
    contraction::{Contraction, Shape, Tile, Unit},
    load::{Layout, Loaders, STAGES, along_depth},
    tile::quad_at,
};
use crate::{
    DType, Scalar,
    kernel::{
        Index,
        build::Builder,
        loops::{AxisKind, Fragment, Matrix, MatrixShape, MatrixUnit, MemoryAccess, Role},
    },
};

/// Candidate shapes, those for large results first; parts are per subgroup.
const SHAPES: [Shape; 4] = [
    Shape { rows: 128, columns: 256, depth: 32, part: [64, 64], unit: Unit::Subgroup },
    Shape { rows: 128, columns: 128, depth: 32, part: [64, 64], unit: Unit::Subgroup },
    Shape { rows: 64, columns: 64, depth: 32, part: [32, 32], unit: Unit::Subgroup },
    Shape { rows: 32, columns: 32, depth: 32, part: [16, 16], unit: Unit::Subgroup },
];

/// Candidate shapes for 32-bit factors.
const WIDE_SHAPES: [Shape; 4] = [
    Shape { rows: 128, columns: 256, depth: 16, part: [64, 64], unit: Unit::Subgroup },
    Shape { rows: 128, columns: 128, depth: 16, part: [64, 64], unit: Unit::Subgroup },
    Shape { rows: 64, columns: 64, depth: 16, part: [32, 32], unit: Unit::Subgroup },
    Shape { rows: 32, columns: 32, depth: 16, part: [16, 16], unit: Unit::Subgroup },
];

/// Rows and columns of a matrix instruction.
const SIDE: usize = 16;
/// Padding of a factor's rows in shared memory, in elements, which spreads them over the memory banks.
const PAD: usize = 8;
/// The same padding in bytes, for rows of neighbouring terms.
const PAD_BYTES: usize = 16;
/// Elements between rows of the array that passes a fragment's elements to the invocations.
const PITCH: usize = SIDE + 4;

/// The matrix instruction used: the type of the factors, and the number of terms.
#[derive(Clone, Copy)]
pub(super) struct Instruction {
    dtype: DType,
    depth: usize,
}

/// The matrix instruction for these factors, if the device has one.
pub(super) fn instruction(contraction: &Contraction, target: &Target) -> Option<Instruction> {
    let [left, right] = contraction.dtypes();
    let fits = |unit: &&MatrixUnit| {
        let square = unit.shape.rows == SIDE && unit.shape.columns == SIDE;
        square && unit.factors == [left, right] && unit.sum == contraction.held
    };
    let unit = target.limits.matrices.iter().find(fits)?;
    let divides = target.limits.subgroup.is_some_and(|width| 64 % width == 0);
    divides.then_some(Instruction { dtype: left, depth: unit.shape.depth })
}

/// The candidate shapes.
pub(super) fn shapes(instruction: Instruction) -> &'static [Shape] {
    if instruction.dtype.size() > 2 { &WIDE_SHAPES } else { &SHAPES }
}

/// Bytes of shared memory per group.
pub(super) fn shared_bytes(shape: Shape, stages: usize, Instruction { dtype, .. }: Instruction) -> usize {
    let tile =
        |extent: usize| (extent * (shape.depth + PAD_BYTES / dtype.size())).max(shape.depth * (extent + PAD));
    let tiles = tile(shape.rows) + tile(shape.columns);
    let subgroups = shape.rows / shape.part[0] * (shape.columns / shape.part[1]);
    stages * tiles * dtype.size() + subgroups * SIDE * PITCH * DType::F32.size()
}

/// Emits the statements of a group.
pub(super) fn lower(b: &mut Builder, tile: &Tile, Instruction { dtype, depth }: Instruction) {
    let Tile { contraction, shape, ref invocation, .. } = *tile;
    let width = tile.target.limits.subgroup.unwrap_or(1);
    // Tiles keep the factors' memory order, so contiguous elements stay contiguous. Fragments can be loaded from either
    // order.
    let along = [0, 1].map(|factor| along_depth(contraction, factor));
    let extents = [shape.rows, shape.columns];
    let layouts = [0, 1].map(|factor| match along[factor] {
        true => {
            let pitch = shape.depth + PAD_BYTES / dtype.size();
            Layout { dtype, outer: pitch, depth: 1, size: extents[factor] * pitch, panels: false }
        }
        false => {
            let pitch = extents[factor] + PAD;
            Layout { dtype, outer: 1, depth: pitch, size: shape.depth * pitch, panels: false }
        }
    });
    let loaders = Loaders::new(b, tile, layouts, STAGES);
    let arrays = loaders.arrays();
    let through = b.shared(contraction.held, tile.block / width * SIDE * PITCH);
    let (down, across) = (shape.part[0] / SIDE, shape.part[1] / SIDE);
    let shape_of = MatrixShape { rows: SIDE, columns: SIDE, depth };
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
    // Loads the fragment of a factor at a row of the left one or a column of the right one, and a term.
    let load = |b: &mut Builder, tile, factor: usize, slot: &Index, outer: &Index, summand: &Index| {
        let Layout { outer: across, depth: step, size, .. } = layouts[factor];
        let index = slot.scale(size as i64).add(&outer.scale(across as i64)).add(&summand.scale(step as i64));
        let (access, stride) = (MemoryAccess::at(arrays[factor], &index), across.max(step));
        b.matrix(Matrix::Load { tile, access, stride, transposed: along[factor] == (factor == 1) });
    };
    loaders.pipeline(b, |b, slot| {
        b.over(shape.depth / depth, AxisKind::Unroll, |b, step| {
            let summand = step.scale(depth as i64);
            b.repeat(rows, |b| load(b, left(i.clone()), 0, slot, &row.add(&i.scale(side)), &summand));
            b.repeat(columns, |b| load(b, right(j.clone()), 1, slot, &column.add(&j.scale(side)), &summand));
            b.repeat(rows, |b| {
                b.repeat(columns, |b| {
                    let (left, right) = (left(i.clone()), right(j.clone()));
                    b.matrix(Matrix::MultiplyAdd { accumulator: sums(at.clone()), left, right });
                });
            });
        });
    });

    // Only the device knows how elements are distributed over invocations, so they pass through shared memory.
    let lane = invocation.remainder(width as i64, b.ranges());
    let first = subgroup.scale((SIDE * PITCH) as i64);
    b.repeat(rows, |b| {
        b.repeat(columns, |b| {
            let access = MemoryAccess::at(through, &first);
            b.matrix(Matrix::Store { tile: sums(at.clone()), access, stride: PITCH });
            b.barrier();
            b.over(SIDE * SIDE / 4 / width, AxisKind::Unroll, |b, turn| {
                let quad = turn.scale(width as i64).add(&lane);
                let down = quad.quotient(4, b.ranges());
                let across = quad.remainder(4, b.ranges()).scale(4);
                let element = first.add(&down.scale(PITCH as i64)).add(&across);
                let values = quad_at(b, tile, through, contraction.held, &element);
                let row = tile.row.add(&row).add(&i.scale(side)).add(&down);
                let column = tile.column.add(&column).add(&j.scale(side)).add(&across);
                tile.finish_quad(b, &row, &column, &values);
            });
            b.barrier();
        });
    });
}
