//! Contraction tiles by multiplications and additions. Each invocation computes a rectangle of the result in registers.

use super::{
    contraction::{Shape, Tile, Unit},
    load::{Layout, Loaders, STAGES},
};
use crate::{
    DType,
    kernel::{
        Index,
        build::Builder,
        loops::{ArrayId, AxisKind, KernelOp, Type, ValueId},
    },
};

/// Candidate shapes, those for large results first.
pub(super) const SHAPES: [Shape; 7] = [
    Shape { rows: 128, columns: 128, depth: 16, part: [8, 8], unit: Unit::Invocation },
    WHERE_THE_LARGEST_DOES_NOT_FIT,
    Shape { rows: 64, columns: 64, depth: 16, part: [4, 4], unit: Unit::Invocation },
    Shape { rows: 32, columns: 64, depth: 16, part: [4, 4], unit: Unit::Invocation },
    Shape { rows: 32, columns: 32, depth: 16, part: [4, 4], unit: Unit::Invocation },
    Shape { rows: 16, columns: 64, depth: 16, part: [4, 4], unit: Unit::Invocation },
    Shape { rows: 16, columns: 16, depth: 8, part: [4, 4], unit: Unit::Invocation },
];

/// Reads as little per product as the largest shape, with a quarter of its invocations. If the largest one fits,
/// smaller parts keep a GPU busier.
pub(super) const WHERE_THE_LARGEST_DOES_NOT_FIT: Shape =
    Shape { rows: 64, columns: 64, depth: 16, part: [8, 8], unit: Unit::Invocation };

/// The number of neighbouring rows, and of neighbouring columns, of an invocation.
const QUAD: usize = 4;

/// Elements between the rows of consecutive terms in a shared array, chosen to spread over the memory banks.
fn pitch(extent: usize) -> usize {
    extent + QUAD
}

/// Bytes of shared memory per group.
pub(super) fn shared_bytes(shape: Shape, held: DType, stages: usize) -> usize {
    stages * shape.depth * (pitch(shape.rows) + pitch(shape.columns)) * held.size()
}

/// Emits the statements of the invocation in row `y` and column `x` of the block.
pub(super) fn lower(b: &mut Builder, tile: &Tile, y: &Index, x: &Index) {
    let Tile { contraction, shape, .. } = *tile;
    let held = contraction.held;
    let layouts = [shape.rows, shape.columns].map(|extent| {
        let size = shape.depth * pitch(extent);
        Layout { dtype: held, outer: 1, depth: pitch(extent), size, panels: false }
    });
    let loaders = Loaders::new(b, tile, layouts, STAGES);
    let arrays = loaders.arrays();
    let [height, width] = shape.part;
    let sums = b.registers(held, height * width);
    let nothing = b.constant(held, 0i32);
    b.over(height * width, AxisKind::Unroll, |b, i| b.store(sums, i, nothing));

    // Rows of quads are interleaved between invocations, so that neighbours read neighbouring quads.
    let apart = |extent: usize, part: usize| extent / (part / QUAD);
    loaders.pipeline(b, |b, slot| {
        b.over(shape.depth, AxisKind::Unroll, |b, summand| {
            let mut read = |factor: usize, extent: usize, part: usize, at: &Index| -> Vec<ValueId> {
                let layout = layouts[factor];
                let first = slot.scale(layout.size as i64).add(&summand.scale(layout.depth as i64));
                let quad = |quad: usize| {
                    let index = at.scale(QUAD as i64).shift((quad * apart(extent, part)) as i64);
                    quad_at(b, tile, arrays[factor], held, &first.add(&index))
                };
                (0..part / QUAD).flat_map(quad).collect()
            };
            let left = read(0, shape.rows, height, y);
            let right = read(1, shape.columns, width, x);
            for (i, &left) in left.iter().enumerate() {
                for (j, &right) in right.iter().enumerate() {
                    let at = Index::constant((i * width + j) as i64);
                    let before = b.load(sums, &at);
                    let after = b.multiply_add(left, right, before);
                    b.store(sums, &at, after);
                }
            }
        });
    });

    let lanes = if contraction.extent(2).is_multiple_of(QUAD) { QUAD } else { 1 };
    b.over(height / QUAD, AxisKind::Unroll, |b, down| {
        b.over(QUAD, AxisKind::Unroll, |b, i| {
            b.over(width / QUAD, AxisKind::Unroll, |b, across| {
                b.over(QUAD / lanes, AxisKind::Unroll, |b, j| {
                    let position = |first: &Index, quad: &Index, extent, part, at: &Index, i: &Index| {
                        let quads = quad.scale(apart(extent, part) as i64).add(&at.scale(QUAD as i64));
                        first.add(&quads).add(i)
                    };
                    let row = position(&tile.row, down, shape.rows, height, y, i);
                    let column = position(&tile.column, across, shape.columns, width, x, j);
                    let register = down.scale(QUAD as i64).add(i).scale(width as i64);
                    let register = register.add(&across.scale(QUAD as i64)).add(j);
                    let sums: Vec<ValueId> =
                        (0..lanes).map(|lane| b.load(sums, &register.shift(lane as i64))).collect();
                    tile.finish(b, &row, &column, &sums);
                });
            });
        });
    });
}

/// Loads four neighbouring elements of a shared array, with the widest accesses of the device.
pub(super) fn quad_at(
    b: &mut Builder,
    tile: &Tile,
    array: ArrayId,
    dtype: DType,
    first: &Index,
) -> Vec<ValueId> {
    let wide = tile.target.vector_bytes / dtype.size();
    let lanes = [4, 2].into_iter().find(|&lanes| lanes <= wide).unwrap_or(1);
    let mut all = Vec::with_capacity(QUAD);
    for at in (0..QUAD).step_by(lanes) {
        let vector = b.load_lanes(array, &first.shift(at as i64), lanes as u8);
        for lane in 0..lanes {
            all.push(match lanes {
                1 => vector,
                _ => b.bind(Type::scalar(dtype), KernelOp::Lane(vector, lane as u8)),
            });
        }
    }
    all
}
