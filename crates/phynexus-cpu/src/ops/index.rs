//! Rows by index.

use std::sync::atomic::{AtomicUsize, Ordering};

use phynexus::DType;

use super::{Shared, Source, parallel_ranges};

/// Reads index `i` as a row of `0..rows`: negative indices count from the end.
type Reader = unsafe fn(indices: *const u8, i: usize, rows: usize) -> Result<usize, i64>;

/// # Safety
/// `indices` addresses more than `i` elements of T.
unsafe fn read<T: Copy + TryInto<i64>>(indices: *const u8, i: usize, rows: usize) -> Result<usize, i64> {
    // SAFETY: given by the caller.
    let index = unsafe { *indices.cast::<T>().add(i) };
    // Beyond i64, and so out of range.
    let index = index.try_into().unwrap_or(i64::MAX);
    let row = if index < 0 { index.wrapping_add(rows as i64) } else { index };
    match usize::try_from(row) {
        Ok(row) if row < rows => Ok(row),
        _ => Err(index),
    }
}

/// How indices of `dtype` are read; `None` for `bool` and floats.
fn reader(dtype: DType) -> Option<Reader> {
    Some(match dtype {
        DType::U8 => read::<u8>,
        DType::U16 => read::<u16>,
        DType::U32 => read::<u32>,
        DType::U64 => read::<u64>,
        DType::I8 => read::<i8>,
        DType::I16 => read::<i16>,
        DType::I32 => read::<i32>,
        DType::I64 => read::<i64>,
        DType::Bool | DType::F16 | DType::BF16 | DType::F32 | DType::F64 => return None,
    })
}

/// Indices behind a pointer, with their type.
#[derive(Clone, Copy)]
pub struct Indices {
    start: Source<u8>,
    count: usize,
    read: Reader,
}

impl std::fmt::Debug for Indices {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Indices").field("count", &self.count).finish_non_exhaustive()
    }
}

impl Indices {
    /// `count` indices of an integer dtype; `None` for `bool` and floats.
    ///
    /// # Safety
    /// `start` addresses `count` elements of `dtype` for as long as the value is used.
    pub unsafe fn new(dtype: DType, start: *const u8, count: usize) -> Option<Indices> {
        Some(Indices { start: Source(start), count, read: reader(dtype)? })
    }

    /// Index i as a row of `0..rows`, or as it is if it is out of range.
    ///
    /// # Safety
    /// `i` is a position of an index.
    #[inline(always)]
    unsafe fn row(&self, i: usize, rows: usize) -> Result<usize, i64> {
        // SAFETY: given by the caller and by `new`.
        unsafe { (self.read)(self.start.at(0), i, rows) }
    }

    /// All indices as rows of `0..rows`.
    ///
    /// # Errors
    /// The first index that is out of range.
    pub(super) fn rows(&self, rows: usize) -> Result<Vec<usize>, i64> {
        self.check(rows)?;
        let mut all = vec![0; self.count];
        let out = Shared(all.as_mut_ptr());
        parallel_ranges(self.count, 16, 1, |start, end| {
            for i in start..end {
                // SAFETY: i is an index's position, in range, and this task's own.
                unsafe { *out.at(i) = self.row(i, rows).unwrap_or(0) }
            }
        });
        Ok(all)
    }

    /// The first index that is out of range.
    fn check(&self, rows: usize) -> Result<(), i64> {
        let bad = AtomicUsize::new(usize::MAX);
        parallel_ranges(self.count, 8, 1, |start, end| {
            // SAFETY: start..end lies within 0..count.
            if let Some(i) = (start..end).find(|&i| unsafe { self.row(i, rows) }.is_err()) {
                bad.fetch_min(i, Ordering::Relaxed);
            }
        });
        match bad.into_inner() {
            usize::MAX => Ok(()),
            // SAFETY: a position found above.
            i => unsafe { self.row(i, rows) }.map(|_| ()),
        }
    }
}

/// `dst[i, ..] = src[index[i], ..]` for rows of `row_bytes` bytes. Negative indices count from the end.
///
/// # Errors
/// The first index outside `-rows..rows`, as it is; nothing is written then.
///
/// # Safety
/// `src` addresses `rows` rows, `dst` as many as there are indices, neither overlapping the other or the indices.
pub unsafe fn gather(
    src: *const u8,
    rows: usize,
    row_bytes: usize,
    indices: Indices,
    dst: *mut u8,
) -> Result<(), i64> {
    indices.check(rows)?;
    // SAFETY: the caller vouches for the pointers, and all indices are rows.
    unsafe {
        match row_bytes {
            0 => {}
            1 => rows_of::<[u8; 1]>(src, rows, 1, indices, dst),
            2 => rows_of::<[u8; 2]>(src, rows, 1, indices, dst),
            4 => rows_of::<[u8; 4]>(src, rows, 1, indices, dst),
            8 => rows_of::<[u8; 8]>(src, rows, 1, indices, dst),
            16 => rows_of::<[u8; 16]>(src, rows, 1, indices, dst),
            _ => rows_of::<u8>(src, rows, row_bytes, indices, dst),
        }
    }
    Ok(())
}

/// Copies rows of `width` units.
///
/// # Safety
/// As for [`gather`]; all indices are in range.
unsafe fn rows_of<T: Copy>(src: *const u8, rows: usize, width: usize, indices: Indices, dst: *mut u8) {
    let (src, dst) = (Source(src.cast::<T>()), Shared(dst.cast::<T>()));
    parallel_ranges(indices.count, width * size_of::<T>() + 8, 1, |start, end| {
        for i in start..end {
            // SAFETY: i is an index's position; its row, checked by the caller, lies within src; dst has row i.
            unsafe {
                let row = indices.row(i, rows).unwrap_or(0);
                std::ptr::copy_nonoverlapping(src.at(row * width), dst.at(i * width), width);
            }
        }
    });
}
