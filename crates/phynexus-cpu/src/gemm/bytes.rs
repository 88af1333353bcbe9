//! Exact products of 8-bit integers with 32-bit results.
//!
//! If words hold four bytes, the machine multiplies unsigned bytes of A by signed bytes of B. A signed A is shifted up
//! by 128 and an unsigned B down: with a = a' - za and b = b' + zb,
//! `sum a b = sum a' b' + zb sum a' - za sum b' - k za zb`, all modulo 2^32.

use phynexus::DType;

use super::blocked::Shared;
use super::byte_kernels::{ByteKernels, MAX_TILE, Words, kernels};
use super::pack::Lines;
use super::scratch::Scratch;
use super::{Problem, part};
use crate::pool;

/// Both operands, packed for the kernels.
struct Packed<'a> {
    problem: &'a Problem<'a>,
    kernels: &'static ByteKernels,
    /// The number of 32-bit words along k.
    words: usize,
    a: Shared<u32>,
    b: Shared<u32>,
    /// The corrections added to every element of a row, and of a column.
    row_corrections: Shared<i32>,
    column_corrections: Shared<i32>,
}

/// Computes the product.
///
/// # Safety
/// Same as [`super::gemm`]; operands must be bytes, C must have 32 bits, and k must not be 0.
pub(super) unsafe fn product(problem: &Problem<'_>) {
    let Problem { m, n, k, a, b, .. } = *problem;
    let kernels = kernels(problem.set);
    let width = kernels.columns;
    let words = k.div_ceil(if kernels.words == Words::FourBytes { 4 } else { 2 });
    let (tiles, panels) = (m.div_ceil(kernels.tiles.len()), n.div_ceil(width));
    let a_words = Scratch::new::<u32>(m * words);
    let b_words = Scratch::new::<u32>(panels * width * words);
    let row_corrections = Scratch::new::<i32>(m);
    let column_corrections = Scratch::new::<i32>(panels * width);
    let packed = Packed {
        problem,
        kernels,
        words,
        a: Shared(a_words.start()),
        b: Shared(b_words.start()),
        row_corrections: Shared(row_corrections.start()),
        column_corrections: Shared(column_corrections.start()),
    };
    let za = if a.dtype == DType::I8 { 128 } else { 0 };
    let zb = if b.dtype == DType::U8 { 128 } else { 0 };
    let constant = (k as i32).wrapping_mul(za * zb);
    problem.tasks(tiles + panels, &|task| {
        // SAFETY: the lines exist, and each task writes its own part of the scratch.
        unsafe {
            if let Some(p) = task.checked_sub(tiles) {
                let columns = p * width..n.min((p + 1) * width);
                let corner = b.corner(0, columns.start);
                let lines =
                    Lines { data: corner.data, dtype: b.dtype, lane: b.column_stride, step: b.row_stride };
                let out = packed.b.get().add(p * width * words);
                let sums = packed.column_corrections.get().add(p * width);
                let lanes = columns.len();
                pack(lines, lanes, k, out, width, kernels.words, zb != 0);
                correct(kernels.words, out, words, width, lanes, true, sums, |sum| sum.wrapping_mul(-za));
            } else {
                let rows = part(m, tiles, task);
                let corner = a.corner(rows.start, 0);
                let lines =
                    Lines { data: corner.data, dtype: a.dtype, lane: a.row_stride, step: a.column_stride };
                let out = packed.a.get().add(rows.start * words);
                let sums = packed.row_corrections.get().add(rows.start);
                let height = rows.len();
                pack(lines, height, k, out, height, kernels.words, za != 0);
                let shift = |sum: i32| sum.wrapping_mul(zb).wrapping_sub(constant);
                correct(kernels.words, out, words, height, height, false, sums, shift);
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
                unsafe { tile(&packed, part(m, tiles, t), p) };
            }
        }
        let rows = part(m, tiles, tile_range.start).start..part(m, tiles, tile_range.end - 1).end;
        problem.finish(rows, panel_range.start * width..n.min(panel_range.end * width));
    });
}

/// Computes one tile of C.
///
/// # Safety
/// The operands must be packed, and no other thread may write the tile.
unsafe fn tile(packed: &Packed<'_>, rows: std::ops::Range<usize>, panel: usize) {
    let Packed { problem, kernels, words, .. } = *packed;
    let width = kernels.columns;
    let columns = panel * width..problem.n.min((panel + 1) * width);
    let mut sums = [0i32; MAX_TILE];
    // SAFETY: guaranteed by the caller.
    unsafe {
        let (a, b) = (packed.a.get().add(rows.start * words), packed.b.get().add(panel * width * words));
        kernels.tiles[rows.len() - 1](words, a, b, sums.as_mut_ptr());
        let corrections = packed.column_corrections.get().add(columns.start);
        let corrections = std::slice::from_raw_parts(corrections, columns.len());
        for (i, sums) in rows.zip(sums.chunks_exact(width)) {
            let shift = *packed.row_corrections.get().add(i);
            let c = problem.c.corner(i, columns.start);
            let out = c.data.cast::<i32>();
            for (j, (sum, more)) in sums.iter().zip(corrections).enumerate() {
                *out.offset(j as isize * c.column_stride) = sum.wrapping_add(shift).wrapping_add(*more);
            }
        }
    }
}

/// Copies lines as words: `out[q * width + l]` is word q of lane l. Words are zero past the end of k and in missing
/// lanes. `flip` shifts bytes by 128.
///
/// # Safety
/// The lines must exist, and `out` must have room for the words of `width` lanes.
unsafe fn pack(lines: Lines, lanes: usize, k: usize, out: *mut u32, width: usize, words: Words, flip: bool) {
    let per_word = if words == Words::FourBytes { 4 } else { 2 };
    let signed = lines.dtype == DType::I8;
    let flip = if flip && words == Words::FourBytes { 0x8080_8080u32 } else { 0 };
    for q in 0..k.div_ceil(per_word) {
        let present = per_word.min(k - q * per_word);
        // SAFETY: guaranteed by the caller.
        let row = unsafe { std::slice::from_raw_parts_mut(out.add(q * width), width) };
        let start = lines.data.wrapping_offset((q * per_word) as isize * lines.step);
        let byte = |l: usize, j: usize| {
            // SAFETY: guaranteed by the caller.
            unsafe { *start.offset(l as isize * lines.lane + j as isize * lines.step) }
        };
        let (row, rest) = row.split_at_mut(lanes);
        rest.fill(0);
        match words {
            Words::FourBytes if present == 4 && lines.step == 1 => {
                for (l, word) in row.iter_mut().enumerate() {
                    // SAFETY: four adjacent bytes.
                    *word = unsafe { start.offset(l as isize * lines.lane).cast::<u32>().read_unaligned() }
                        ^ flip;
                }
            }
            Words::FourBytes if present == 4 && lines.lane == 1 => {
                for (l, word) in row.iter_mut().enumerate() {
                    *word = u32::from_le_bytes([byte(l, 0), byte(l, 1), byte(l, 2), byte(l, 3)]) ^ flip;
                }
            }
            Words::FourBytes => {
                let flip = flip as u8;
                for (l, word) in row.iter_mut().enumerate() {
                    let at = |j: usize| if j < present { byte(l, j) ^ flip } else { 0 };
                    *word = u32::from_le_bytes([at(0), at(1), at(2), at(3)]);
                }
            }
            Words::TwoShorts => {
                let wide = |x: u8| if signed { x as i8 as i16 as u16 } else { u16::from(x) };
                for (l, word) in row.iter_mut().enumerate() {
                    let second = if present > 1 { wide(byte(l, 1)) } else { 0 };
                    *word = u32::from(wide(byte(l, 0))) | u32::from(second) << 16;
                }
            }
        }
    }
}

/// Writes `correction(sum of the lane's bytes)` for every lane; zeros if the words are not shifted bytes.
///
/// # Safety
/// `packed` must hold `words` rows of `width` words, and `out` must have room for the lanes.
unsafe fn correct(
    format: Words,
    packed: *const u32,
    words: usize,
    width: usize,
    lanes: usize,
    signed: bool,
    out: *mut i32,
    correction: impl Fn(i32) -> i32,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let out = std::slice::from_raw_parts_mut(out.cast::<std::mem::MaybeUninit<i32>>(), lanes);
        for o in out.iter_mut() {
            o.write(0);
        }
        let out = std::slice::from_raw_parts_mut(out.as_mut_ptr().cast::<i32>(), lanes);
        if format == Words::TwoShorts {
            return;
        }
        for q in 0..words {
            let row = std::slice::from_raw_parts(packed.add(q * width), lanes);
            for (sum, word) in out.iter_mut().zip(row) {
                let bytes = word.to_le_bytes();
                let value = |b: u8| if signed { i32::from(b as i8) } else { i32::from(b) };
                *sum =
                    sum.wrapping_add(value(bytes[0]) + value(bytes[1]) + value(bytes[2]) + value(bytes[3]));
            }
        }
        for sum in out {
            *sum = correction(*sum);
        }
    }
}
