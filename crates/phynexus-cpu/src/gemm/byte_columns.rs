//! Products of up to a few hundred rows of `uint8` with a matrix of `int8` that is contiguous along k, as weights of
//! linear layers are. Only the rows are packed: the matrix is read where it lies, one word of a column at a time.

use phynexus::DType;

use super::Problem;

/// The greatest number of rows. With more, packing the matrix takes little of the time.
const MOST_ROWS: usize = 256;

/// Computes the product if it is of this kind, and the machine has instructions for it; returns whether it did.
///
/// # Safety
/// Same as [`super::bytes::product`].
#[cfg(target_arch = "x86_64")]
pub(super) unsafe fn product(problem: &Problem<'_>) -> bool {
    let is_unshifted = (problem.a.dtype, problem.b.dtype) == (DType::U8, DType::I8);
    let fits = problem.m <= MOST_ROWS && problem.b.row_stride == 1 && problem.c.column_stride == 1;
    if !is_unshifted || !fits || !super::bytes::has_dots(problem.set) {
        return false;
    }
    // SAFETY: guaranteed by the caller; the machine has VNNI.
    unsafe { x86::product(problem) };
    true
}

/// Other machines take the general path.
///
/// # Safety
/// None.
#[cfg(not(target_arch = "x86_64"))]
pub(super) unsafe fn product(_: &Problem<'_>) -> bool {
    false
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use std::{arch::x86_64::*, array};

    use super::super::{
        Problem,
        blocked::Shared,
        bytes::{lanes, pack},
        part,
        scratch::Scratch,
    };
    use crate::kernels::{HasKernels, bytes::Words, words::Packing};
    use crate::pool;

    /// Words of a register.
    const LANES: usize = 16;
    /// Registers of rows, and columns, whose sums are kept in registers: 24 of 32.
    const REGISTERS: usize = 4;
    const COLUMNS: usize = 6;
    /// Columns whose sums are transposed together: whole blocks, and whole cache lines of C.
    const GROUP: usize = 8 * COLUMNS;
    /// The rows of a panel.
    const PANEL: usize = REGISTERS * LANES;

    /// # Safety
    /// Same as [`super::product`]; the machine must have VNNI.
    pub(super) unsafe fn product(problem: &Problem<'_>) {
        let Problem { m, n, k, a, set, .. } = *problem;
        let packing = Packing::new(set, Words::FourBytes, a.dtype, false);
        let words = k.div_ceil(4);
        let panels = m.div_ceil(PANEL);
        let packed = Scratch::new::<u32>(panels * PANEL * words);
        let start = Shared(packed.start::<u32>());
        problem.tasks(panels, &|panel| {
            let rows = panel * PANEL..m.min((panel + 1) * PANEL);
            let width = rows.len().next_multiple_of(LANES);
            // SAFETY: the rows exist, and each task writes its own panel.
            unsafe {
                let out = start.get().add(panel * PANEL * words);
                pack(packing, lanes(a.corner(rows.start, 0)), rows.len(), k, out, width);
            }
        });
        let groups = n.div_ceil(GROUP);
        let tasks = groups.min(4 * pool::threads());
        problem.tasks(tasks, &|task| {
            let range = part(groups, tasks, task);
            for group in range.clone() {
                for panel in 0..panels {
                    // SAFETY: the panel is packed, and tasks write disjoint columns.
                    unsafe { block(problem, start.get().add(panel * PANEL * words), panel, group) };
                }
            }
            problem.finish(0..m, range.start * GROUP..n.min(range.end * GROUP));
        });
    }

    /// The products of the rows of a panel with a group of columns.
    ///
    /// # Safety
    /// Rows and columns must exist, no other thread may write their products, and the machine must have VNNI.
    unsafe fn block(problem: &Problem<'_>, packed: *const u32, panel: usize, group: usize) {
        let Problem { m, n, k, b, c, set, .. } = *problem;
        let rows = PANEL.min(m - panel * PANEL);
        let registers = rows.div_ceil(LANES);
        let columns = group * GROUP..n.min((group + 1) * GROUP);
        let mut sums = [0i32; GROUP * PANEL];
        for first in columns.clone().step_by(COLUMNS) {
            // A missing column is replaced by the first.
            let starts = array::from_fn(|j| match first + j < n {
                true => b.corner(0, first + j).data,
                false => b.corner(0, first).data,
            });
            let out = sums[(first - columns.start) * PANEL..].as_mut_ptr();
            // SAFETY: there is room for the sums of whole blocks; the rest is guaranteed by the caller.
            unsafe {
                match registers {
                    1 => columns_of::<1>(packed, starts, k, out),
                    2 => columns_of::<2>(packed, starts, k, out),
                    3 => columns_of::<3>(packed, starts, k, out),
                    _ => columns_of::<4>(packed, starts, k, out),
                }
            }
        }
        // Only bits are moved.
        let mut turned = [0i32; GROUP * PANEL + 4 * LANES];
        let transpose = f32::kernels(set).transpose;
        // SAFETY: `sums` has GROUP lines of PANEL numbers, and rows <= PANEL; `turned` has room for their transpose and one
        // more register. The rows and columns of C exist.
        unsafe {
            transpose(sums.as_ptr().cast(), PANEL as isize, GROUP, rows, turned.as_mut_ptr().cast(), GROUP);
            for (i, turned) in turned.chunks_exact(GROUP).take(rows).enumerate() {
                let out = c.corner(panel * PANEL + i, columns.start).data.cast::<i32>();
                std::ptr::copy_nonoverlapping(turned.as_ptr(), out, columns.len());
            }
        }
    }

    /// The sums of `W` registers of rows and six columns: `out[j * PANEL + i]` is that of row i and column j.
    ///
    /// # Safety
    /// The words of the rows, the bytes of the columns and the sums must exist, and the machine must have VNNI.
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn columns_of<const W: usize>(
        mut rows: *const u32,
        starts: [*const u8; COLUMNS],
        k: usize,
        out: *mut i32,
    ) {
        let mut sums = [[_mm512_setzero_si512(); W]; COLUMNS];
        let mut step = |words: [i32; COLUMNS]| {
            // SAFETY: guaranteed by the caller: there is a word for each four bytes of k.
            let left: [__m512i; W] =
                array::from_fn(|w| unsafe { _mm512_loadu_si512(rows.add(w * LANES).cast()) });
            for (sums, word) in sums.iter_mut().zip(words) {
                let right = _mm512_set1_epi32(word);
                for (sum, left) in sums.iter_mut().zip(left) {
                    *sum = _mm512_dpbusd_epi32(*sum, left, right);
                }
            }
            rows = rows.wrapping_add(W * LANES);
        };
        for q in 0..k / 4 {
            // SAFETY: columns have k bytes.
            step(starts.map(|start| unsafe { start.cast::<i32>().add(q).read_unaligned() }));
        }
        if !k.is_multiple_of(4) {
            step(starts.map(|start| {
                let mut last = [0; 4];
                // SAFETY: columns have k bytes.
                unsafe { std::ptr::copy_nonoverlapping(start.add(k - k % 4), last.as_mut_ptr(), k % 4) };
                i32::from_le_bytes(last)
            }));
        }
        for (j, sums) in sums.into_iter().enumerate() {
            for (w, sum) in sums.into_iter().enumerate() {
                // SAFETY: guaranteed by the caller.
                unsafe { _mm512_storeu_si512(out.add(j * PANEL + w * LANES).cast(), sum) };
            }
        }
    }
}
