//! The inner kernel: a tile of C, a few rows high and two registers wide, held in registers while k advances.

use super::lanes::Lanes;

/// The arguments of a tile kernel or a streaming kernel (`axpy`). Strides are in elements.
pub(crate) struct Tile<T> {
    /// The length of the sums.
    pub(crate) k: usize,
    /// The first row of A, at the first k.
    pub(crate) a: *const T,
    /// Row stride of A.
    pub(crate) a_row: isize,
    /// Column stride of A (steps of k).
    pub(crate) a_step: isize,
    /// The first column of B; columns are contiguous.
    pub(crate) b: *const T,
    /// Row stride of B (steps of k).
    pub(crate) b_step: isize,
    /// The corner of C; columns are contiguous.
    pub(crate) c: *mut T,
    /// Row stride of C.
    pub(crate) c_row: isize,
    /// The number of columns. A tile has more than (W - 1) registers and at most W.
    pub(crate) columns: usize,
    /// Whether to add to C instead of overwriting it. Streaming kernels only add.
    pub(crate) accumulate: bool,
}

/// A tile kernel or a streaming kernel.
pub(crate) type TileKernel<T> = unsafe fn(&Tile<T>);

/// Computes a tile of `M` rows and at most `W` registers.
///
/// A is read in place by broadcasts. Rows are addressed from two pointers and the multiples 1, 3 and 5 of the row
/// stride; with the machine's address modes, these reach 14 rows without more registers.
///
/// # Safety
/// The machine must support the instruction set of `V`, and `tile` must describe memory that is valid for these
/// accesses.
#[inline(always)]
pub(crate) unsafe fn tile<V: Lanes, const M: usize, const W: usize>(tile: &Tile<V::Scalar>) {
    // SAFETY: guaranteed by the caller; every address below is an element of the tile's rows and columns.
    unsafe {
        let size = size_of::<V::Scalar>() as isize;
        let mask = V::first(tile.columns - (W - 1) * V::N);
        let (row, step, b_step) = (tile.a_row * size, tile.a_step * size, tile.b_step * size);
        let (row3, row5) = (opaque(row * 3), opaque(row * 5));
        let mut acc = [[V::zero(); W]; M];
        let mut low = tile.a.cast::<u8>();
        let mut high = low.wrapping_offset(row * 7);
        let mut b = tile.b.cast::<u8>();
        for _ in 0..tile.k {
            let mut right = [V::zero(); W];
            for (w, r) in right.iter_mut().enumerate() {
                let p = b.cast::<V::Scalar>().add(w * V::N);
                *r = if w + 1 == W { V::load_masked(p, mask) } else { V::load(p) };
            }
            for (i, sums) in acc.iter_mut().enumerate() {
                let base = if i < 7 { low } else { high };
                let p = match i % 7 {
                    0 => base,
                    1 => base.wrapping_offset(row),
                    2 => base.wrapping_offset(row * 2),
                    3 => base.wrapping_offset(row3),
                    4 => base.wrapping_offset(row * 4),
                    5 => base.wrapping_offset(row5),
                    _ => base.wrapping_offset(row3 * 2),
                };
                let left = V::splat(p.cast());
                for (sum, r) in sums.iter_mut().zip(right) {
                    *sum = left.mul_add(r, *sum);
                }
            }
            low = low.wrapping_offset(step);
            high = high.wrapping_offset(step);
            b = b.wrapping_offset(b_step);
        }
        for (i, sums) in acc.into_iter().enumerate() {
            let row = tile.c.offset(i as isize * tile.c_row);
            for (w, mut sum) in sums.into_iter().enumerate() {
                let p = row.add(w * V::N);
                if w + 1 == W {
                    if tile.accumulate {
                        sum = sum.add(V::load_masked(p, mask));
                    }
                    sum.store_masked(p, mask);
                } else {
                    if tile.accumulate {
                        sum = sum.add(V::load(p));
                    }
                    sum.store(p);
                }
            }
        }
    }
}

/// Hides the origin of the value from the compiler, which would otherwise recompute it in the loop.
#[inline(always)]
fn opaque(mut x: isize) -> isize {
    // SAFETY: no instruction is emitted.
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    unsafe {
        std::arch::asm!("/* {0} */", inout(reg) x, options(pure, nomem, nostack, preserves_flags));
    }
    x
}
