//! Selection of rows by index.

use std::sync::atomic::{AtomicUsize, Ordering};

use phynexus::DType;

use super::{Shared, Source, parallel_ranges};
use crate::working_memory;

/// Indices read at a time.
pub(super) const BLOCK: usize = 256;

/// Reads the indices from `first` on as rows of `0..size`; negative indices count from the end. Returns false if one is
/// out of range; that entry of `rows` is then not a valid row.
type Reader = unsafe fn(indices: *const u8, first: usize, size: usize, rows: &mut [usize]) -> bool;

/// # Safety
/// `indices` must address as many elements of T as are read.
unsafe fn read<T: Copy + TryInto<i64>>(
    indices: *const u8,
    first: usize,
    size: usize,
    rows: &mut [usize],
) -> bool {
    // SAFETY: guaranteed by the caller.
    let indices = unsafe { std::slice::from_raw_parts(indices.cast::<T>().add(first), rows.len()) };
    let mut inside = true;
    for (row, &index) in rows.iter_mut().zip(indices) {
        // Does not fit in i64, so it is out of range.
        let index = index.try_into().unwrap_or(i64::MAX);
        let wrapped = if index < 0 { index.wrapping_add(size as i64) } else { index };
        inside &= (wrapped as u64) < size as u64;
        *row = wrapped as usize;
    }
    inside
}

/// The reader for indices of `dtype`; `None` for `bool` and floats.
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
        DType::Bool => return None,
        DType::F8E4M3 | DType::F8E5M2 | DType::F16 | DType::BF16 | DType::F32 | DType::F64 => return None,
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
    /// Creates `count` indices of an integer dtype; `None` for `bool` and floats.
    ///
    /// # Safety
    /// `start` must address `count` elements of `dtype` for as long as the value is used.
    pub unsafe fn new(dtype: DType, start: *const u8, count: usize) -> Option<Indices> {
        Some(Indices { start: Source(start), count, read: reader(dtype)? })
    }

    /// The number of indices.
    pub(super) fn len(&self) -> usize {
        self.count
    }

    /// Reads the indices from `first` on as rows of `0..size`. Returns false if one is out of range.
    ///
    /// # Safety
    /// There must be as many indices.
    #[inline(always)]
    pub(super) unsafe fn read(&self, first: usize, size: usize, rows: &mut [usize]) -> bool {
        // SAFETY: guaranteed by the caller and by `new`.
        unsafe { (self.read)(self.start.at(0), first, size, rows) }
    }

    /// All indices as rows of `0..size`.
    ///
    /// # Errors
    /// The first index that is out of range.
    pub(super) fn rows(&self, size: usize) -> Result<Vec<usize>, i64> {
        let mut all = working_memory::filled(0, self.count);
        let out = Shared(all.as_mut_ptr());
        // SAFETY: every task reads its own indices and writes its own rows.
        self.check_by(size, |start, end| unsafe {
            self.read(start, size, std::slice::from_raw_parts_mut(out.at(start), end - start))
        })?;
        Ok(all)
    }

    /// Returns the first index that is out of range as an error.
    pub(super) fn check(&self, size: usize) -> Result<(), i64> {
        // SAFETY: the indices of a block exist.
        self.check_by(size, |start, end| unsafe { self.read(start, size, &mut [0; BLOCK][..end - start]) })
    }

    /// Calls `inside` with blocks of indices in parallel. The first invalid index of a block for which it returns false
    /// is the error.
    fn check_by(&self, size: usize, inside: impl Fn(usize, usize) -> bool + Sync) -> Result<(), i64> {
        let bad = AtomicUsize::new(usize::MAX);
        parallel_ranges(self.count, 8, BLOCK, |start, end| {
            let mut blocks = (start..end).step_by(BLOCK);
            if let Some(block) = blocks.find(|&block| !inside(block, end.min(block + BLOCK))) {
                bad.fetch_min(block, Ordering::Relaxed);
            }
        });
        for i in bad.into_inner()..self.count {
            let mut row = [0];
            // SAFETY: i is a valid position.
            if !unsafe { self.read(i, size, &mut row) } {
                let row = row[0] as i64;
                return Err(if row < 0 { row.wrapping_sub(size as i64) } else { row });
            }
        }
        Ok(())
    }
}

/// `dst[i, ..] = src[index[i], ..]` for rows of `row_bytes` bytes. Negative indices count from the end.
///
/// # Errors
/// The first index outside `-rows..rows`, unchanged; nothing is written then.
///
/// # Safety
/// `src` must address `rows` rows, and `dst` as many as there are indices; neither may overlap the other or the
/// indices.
pub unsafe fn gather(
    src: *const u8,
    rows: usize,
    row_bytes: usize,
    indices: Indices,
    dst: *mut u8,
) -> Result<(), i64> {
    indices.check(rows)?;
    // SAFETY: guaranteed by the caller, and all indices are valid rows.
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
/// Same as for [`gather`]; all indices must be in range.
unsafe fn rows_of<T: Copy>(src: *const u8, rows: usize, width: usize, indices: Indices, dst: *mut u8) {
    let (src, dst) = (Source(src.cast::<T>()), Shared(dst.cast::<T>()));
    parallel_ranges(indices.count, width * size_of::<T>() + 8, BLOCK, |start, end| {
        let mut block = [0; BLOCK];
        for first in (start..end).step_by(BLOCK) {
            let found = &mut block[..BLOCK.min(end - first)];
            // SAFETY: a block of indices; their rows, which the caller checked, lie within src, and dst has as many
            // rows.
            unsafe {
                indices.read(first, rows, found);
                for (i, row) in found.iter().enumerate() {
                    std::ptr::copy_nonoverlapping(src.at(row * width), dst.at((first + i) * width), width);
                }
            }
        }
    });
}
