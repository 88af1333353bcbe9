//! Exact products of 8-bit integers with 32-bit results.
//!
//! If words hold four bytes, the machine multiplies unsigned bytes of A by signed bytes of B. A signed A is shifted up
//! by 128 and an unsigned B down: with a = a' + sa and b = b' + sb,
//! `sum a b = sum a' b' + sb sum a' + sa sum b' + k sa sb`, all modulo 2^32.

use std::ops::Range;

use super::blocked::Shared;
use super::pack::Lines;
use super::scratch::Scratch;
use super::{Operand, Problem, part};
use super::{byte_columns, byte_dots};
use crate::kernels::bytes::{ByteKernels, ByteTile, MAX_COLUMNS, Signed, kernels};
use crate::kernels::words::Packing;
use crate::kernels::{HasKernels, InstructionSet};
use crate::pool;

/// Words of a lane that are transposed at a time.
const CHUNK: usize = 64;
/// The most lanes that are packed together.
pub(crate) const MAX_LANES: usize = 64;

/// Both operands, packed for the kernels.
struct Packed<'a> {
    problem: &'a Problem<'a>,
    kernels: &'static ByteKernels,
    /// The number of words along k.
    words: usize,
    a: Shared<u32>,
    /// Words between tiles of A.
    tile: usize,
    b: Shared<u32>,
    /// What is added to every element of a row, and of a column.
    of_rows: Shared<i32>,
    of_columns: Shared<i32>,
}

/// Computes the product.
///
/// # Safety
/// Same as [`super::gemm`]; operands must be bytes, C must have 32 bits, and k must not be 0.
pub(super) unsafe fn product(problem: &Problem<'_>) {
    let mut turned;
    let mut problem = problem;
    // Few columns are few rows of the transpose. Kernels write rows of C.
    let is_tall = problem.n < problem.m && problem.n <= byte_dots::MOST_ROWS;
    let is_turned = problem.c.column_stride != 1 && problem.c.row_stride == 1;
    if is_tall && problem.a.column_stride == 1 || is_turned && problem.m > byte_dots::MOST_ROWS {
        turned = problem.exchanged();
        // The stride along an axis of one element is arbitrary.
        if turned.n == 1 {
            turned.c.column_stride = 1;
        }
        problem = &turned;
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        if !byte_dots::product(problem) && !byte_columns::product(problem) {
            tiled(problem);
        }
    }
}

/// Computes the product by tiles of packed operands.
///
/// # Safety
/// Same as [`product`].
unsafe fn tiled(problem: &Problem<'_>) {
    let Problem { m, n, k, a, b, set, .. } = *problem;
    let kernels = kernels(set, Some(Signed::Columns));
    let width = kernels.columns();
    let words = k.div_ceil(kernels.words.elements());
    let (tiles, panels) = (m.div_ceil(kernels.rows()), n.div_ceil(width));
    // Transposed copies may write one register past the end.
    let tile_size = words * kernels.rows().min(m) + MAX_COLUMNS;
    let a_words = Scratch::new::<u32>(tiles * tile_size);
    let b_words = Scratch::new::<u32>(panels * width * words);
    let of_rows = Scratch::new::<i32>(m);
    let of_columns = Scratch::new::<i32>(panels * width);
    let packed = Packed {
        problem,
        kernels,
        words,
        a: Shared(a_words.start()),
        tile: tile_size,
        b: Shared(b_words.start()),
        of_rows: Shared(of_rows.start()),
        of_columns: Shared(of_columns.start()),
    };
    let of_a = Packing::new(set, kernels.words, a.dtype, false);
    let of_b = Packing::new(set, kernels.words, b.dtype, true);
    let (sa, sb) = (of_a.shift(), of_b.shift());
    let constant = (k as i32).wrapping_mul(sa * sb);
    problem.tasks(tiles + panels, &|task| {
        // SAFETY: the lines exist, and each task writes its own part of the scratch.
        unsafe {
            if let Some(p) = task.checked_sub(tiles) {
                let columns = p * width..n.min((p + 1) * width);
                let out = packed.b.get().add(p * width * words);
                pack(of_b, lanes(b.corner(0, columns.start).transposed()), columns.len(), k, out, width);
                let sums = packed.of_columns.get().add(p * width);
                sums.write_bytes(0, width);
                if sa != 0 {
                    for first in (0..columns.len()).step_by(kernels.lanes) {
                        (kernels.sum_columns)(words, out.add(first), width, sums.add(first));
                    }
                    for j in 0..columns.len() {
                        *sums.add(j) = (*sums.add(j)).wrapping_mul(sa);
                    }
                }
            } else {
                let rows = part(m, tiles, task);
                let out = packed.a.get().add(task * tile_size);
                pack(of_a, lanes(a.corner(rows.start, 0)), rows.len(), k, out, rows.len());
                let sums = packed.of_rows.get();
                for (i, row) in rows.clone().enumerate() {
                    let mut sum = 0i32;
                    if sb != 0 {
                        for q in 0..words {
                            sum = sum.wrapping_add(sum_of_bytes(*out.add(q * rows.len() + i)));
                        }
                    }
                    *sums.add(row) = sum.wrapping_mul(sb).wrapping_add(constant);
                }
            }
        }
    });
    let threads = pool::threads();
    let wanted = if problem.work() < super::SERIAL { 1 } else { 4 * threads };
    let row_blocks = tiles.div_ceil(8).max(wanted.div_ceil(panels)).min(tiles);
    let column_blocks = wanted.div_ceil(row_blocks).min(panels);
    problem.tasks(row_blocks * column_blocks, &|task| {
        let tile_range = part(tiles, row_blocks, task / column_blocks);
        let panel_range = part(panels, column_blocks, task % column_blocks);
        for p in panel_range.clone() {
            for t in tile_range.clone() {
                // SAFETY: both operands are packed, and tiles of C are disjoint.
                unsafe { tile(&packed, t, part(m, tiles, t), p) };
            }
        }
        let rows = part(m, tiles, tile_range.start).start..part(m, tiles, tile_range.end - 1).end;
        problem.finish(rows, panel_range.start * width..n.min(panel_range.end * width));
    });
}

/// The sum of the unsigned bytes of a word.
fn sum_of_bytes(word: u32) -> i32 {
    word.to_le_bytes().into_iter().map(i32::from).sum()
}

/// The rows of a matrix as lines.
pub(super) fn lanes(rows: Operand) -> Lines {
    Lines { data: rows.data, dtype: rows.dtype, lane: rows.row_stride, step: rows.column_stride }
}

/// Computes one tile of C.
///
/// # Safety
/// The operands must be packed, and no other thread may write the tile.
unsafe fn tile(packed: &Packed<'_>, number: usize, rows: Range<usize>, panel: usize) {
    let Packed { problem, kernels, words, .. } = *packed;
    let width = kernels.columns();
    let columns = panel * width..problem.n.min((panel + 1) * width);
    let c = problem.c.corner(rows.start, columns.start);
    let is_direct = c.column_stride == 1;
    let mut sums = [0i32; 16 * MAX_COLUMNS];
    // SAFETY: guaranteed by the caller; there is room for the sums of the tallest and widest tile.
    unsafe {
        kernels.tiles[rows.len() - 1][columns.len().div_ceil(kernels.lanes) - 1](&ByteTile {
            words,
            a: packed.a.get().add(number * packed.tile),
            b: packed.b.get().add(panel * width * words),
            b_step: width,
            c: if is_direct { c.data.cast() } else { sums.as_mut_ptr() },
            c_row: if is_direct { c.row_stride } else { width as isize },
            columns: columns.len(),
            of_rows: packed.of_rows.get().add(rows.start),
            of_columns: packed.of_columns.get().add(columns.start),
        });
        if !is_direct {
            for (i, sums) in sums.chunks_exact(width).take(rows.len()).enumerate() {
                let out = c.corner(i, 0).data.cast::<i32>();
                for (j, sum) in sums.iter().take(columns.len()).enumerate() {
                    *out.offset(j as isize * c.column_stride) = *sum;
                }
            }
        }
    }
}

/// Bytes that are zero once they are shifted.
static ZEROS: [[u8; MAX_LANES]; 2] = [[0; MAX_LANES], [0x80; MAX_LANES]];

/// Copies lines as words: `out[q * width + l]` is word q of lane l. Elements past the end of k are zero; missing lanes
/// are undefined.
///
/// # Safety
/// The lines must exist, `out` must have room for the words of `width` lanes and one register, and the machine must
/// support the instruction set. There must be at most `width` lanes; `width` must be at most 16, or a multiple of it
/// and at most [`MAX_LANES`].
pub(crate) unsafe fn pack(
    packing: Packing,
    lines: Lines,
    lanes: usize,
    k: usize,
    out: *mut u32,
    width: usize,
) {
    let each = packing.elements();
    let words = k.div_ceil(each);
    let at = |lane: usize, p: usize| {
        lines.data.wrapping_offset(lane as isize * lines.lane + p as isize * lines.step)
    };
    // SAFETY: guaranteed by the caller in all cases.
    unsafe {
        if lines.lane == 1 && lines.step != 1 {
            let zeros = ZEROS[usize::from(packing.zero() != 0)].as_ptr();
            for q in 0..words {
                let mut steps = [zeros; 4];
                for (j, step) in steps.iter_mut().enumerate().take(each.min(k - q * each)) {
                    *step = at(0, q * each + j);
                }
                packing.interleave(steps, lanes, out.add(q * width));
            }
            return;
        }
        if lines.step == 1 && packing.transposed(lines.data, lines.lane, lanes, k, out, width) {
            return;
        }
        let mut packed = [0u32; MAX_LANES * CHUNK];
        let mut bytes = [0u8; 4 * CHUNK];
        let transpose = f32::kernels(packing.set).transpose;
        for start in (0..words).step_by(CHUNK) {
            let (first, last) = (start * each, k.min((start + CHUNK) * each));
            for lane in 0..lanes {
                let line = if lines.step == 1 {
                    at(lane, first)
                } else {
                    for (byte, p) in bytes.iter_mut().zip(first..last) {
                        *byte = *at(lane, p);
                    }
                    bytes.as_ptr()
                };
                packing.line(line, last - first, packed.as_mut_ptr().add(lane * CHUNK));
            }
            // Only bits are moved.
            let (from, to) = (packed.as_ptr().cast(), out.add(start * width).cast());
            transpose(from, CHUNK as isize, lanes, CHUNK.min(words - start), to, width);
        }
    }
}

/// Whether products of few rows need no packed operand on this instruction set.
pub(super) fn has_dots(set: InstructionSet) -> bool {
    kernels(set, Some(Signed::Columns)).words.elements() == 4
}
