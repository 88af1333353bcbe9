//! Integer products, exact modulo two to the width of the result, and integers as accumulators.

use phynexus::DType;

use super::pack::Accumulator;
use super::scratch::Scratch;
use super::{Operand, Problem, bytes};

/// Columns summed at a time.
const COLUMNS: usize = 512;

/// Any product of integers.
///
/// # Safety
/// Same as [`super::gemm`].
pub(super) unsafe fn product(problem: &Problem<'_>) {
    let is_byte = |dtype: DType| matches!(dtype, DType::I8 | DType::U8);
    let bytes = is_byte(problem.a.dtype) && is_byte(problem.b.dtype) && problem.c.dtype.size() == 4;
    // SAFETY: guaranteed by the caller.
    unsafe {
        if bytes && problem.k > 0 {
            bytes::product(problem);
        } else {
            plain(problem);
        }
    }
}

/// Sums in 64 bits; the result keeps the low bits.
///
/// # Safety
/// Same as [`product`].
unsafe fn plain(problem: &Problem<'_>) {
    let Problem { m, n, k, a, b, c, .. } = *problem;
    let blocks = n.div_ceil(COLUMNS);
    problem.tasks(m * blocks, &|task| {
        let i = task / blocks;
        let columns = task % blocks * COLUMNS..n.min((task % blocks + 1) * COLUMNS);
        let scratch = Scratch::new::<i64>(2 * COLUMNS);
        // SAFETY: the scratch has room for two rows; the caller guarantees the operands and C.
        unsafe {
            let sums = std::slice::from_raw_parts_mut(scratch.start::<i64>(), columns.len());
            sums.fill(0);
            let row = scratch.start::<i64>().add(COLUMNS);
            for p in 0..k {
                let mut x = 0;
                widen(&a.corner(i, p), 1, &mut x);
                widen(&b.corner(p, columns.start), columns.len(), row);
                for (sum, y) in sums.iter_mut().zip(std::slice::from_raw_parts(row, columns.len())) {
                    *sum = sum.wrapping_add(x.wrapping_mul(*y));
                }
            }
            for (j, sum) in columns.clone().zip(sums.iter()) {
                let p = c.corner(i, j).data;
                i64::store(sum, 1, c.dtype, p, 1);
            }
        }
        problem.finish(i..i + 1, columns);
    });
}

/// Calls `$f!(type)` with the Rust type of an integer dtype; `bool` is `u8`.
macro_rules! by_integer {
    ($dtype:expr, $f:ident) => {
        match $dtype {
            DType::U8 | DType::Bool => $f!(u8),
            DType::U16 => $f!(u16),
            DType::U32 => $f!(u32),
            DType::U64 => $f!(u64),
            DType::I8 => $f!(i8),
            DType::I16 => $f!(i16),
            DType::I32 => $f!(i32),
            _ => $f!(i64),
        }
    };
}

/// Reads `count` elements of a row as 64-bit integers.
///
/// # Safety
/// The elements must exist, and `out` must have room for them.
unsafe fn widen(row: &Operand, count: usize, out: *mut i64) {
    macro_rules! elements {
        ($t:ty) => {
            for j in 0..count {
                // SAFETY: guaranteed by the caller.
                unsafe { *out.add(j) = *row.data.cast::<$t>().offset(j as isize * row.column_stride) as i64 }
            }
        };
    }
    by_integer!(row.dtype, elements)
}

/// Sums modulo two to the width. A narrower result keeps the low bits, which equal its own sum.
macro_rules! accumulator {
    ($sum:ty, $k_block:literal) => {
        impl Accumulator for $sum {
            const K_BLOCK: usize = $k_block;
            const HALF: Option<Self> = None;

            unsafe fn widen(dtype: DType, source: *const u8, count: usize, out: *mut $sum) {
                macro_rules! elements {
                    ($t:ty) => {
                        for i in 0..count {
                            // SAFETY: guaranteed by the caller.
                            unsafe { *out.add(i) = *source.cast::<$t>().add(i) as $sum }
                        }
                    };
                }
                by_integer!(dtype, elements)
            }

            unsafe fn store(source: *const $sum, count: usize, dtype: DType, out: *mut u8, stride: isize) {
                macro_rules! elements {
                    ($t:ty) => {
                        for i in 0..count {
                            // SAFETY: guaranteed by the caller.
                            unsafe { *out.cast::<$t>().offset(i as isize * stride) = *source.add(i) as $t }
                        }
                    };
                }
                by_integer!(dtype, elements)
            }
        }
    };
}
accumulator!(i32, 320);
accumulator!(i64, 256);
