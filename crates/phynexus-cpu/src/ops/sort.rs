//! Stable sorting.

use phynexus::{DType, host_memory, interrupt};

use super::order::{Key, Ordered};
use super::{Shared, Source, parallel_ranges};
use crate::by_dtype::by_dtype;
use crate::pool;

/// Rows up to this length are sorted by comparison: the histograms of a radix sort would cost more.
const SHORT: usize = 512;
/// Rows of at least this length are sorted by several threads.
const LONG: usize = 1 << 16;
/// Maximum length of a part of a row, so that an interruption does not have to wait long.
const PART: usize = 1 << 19;

/// `dst[r, i]` (`int64`) is the position in row r of the i-th element in ascending (or descending) order. Equal
/// elements keep their order in both directions; NaN is the greatest, and zeros are equal.
///
/// # Safety
/// `src` must address `rows * n` elements of `dtype`, and `dst` as many of `int64`; they must not overlap.
pub unsafe fn arg_sort(dtype: DType, descending: bool, rows: usize, n: usize, src: *const u8, dst: *mut i64) {
    // SAFETY: guaranteed by the caller.
    unsafe { by_dtype!(dtype, bool is u8, T => typed::<T>(descending, rows, n, src, dst)) }
}

/// # Safety
/// Same as for [`arg_sort`].
unsafe fn typed<T: Ordered>(descending: bool, rows: usize, n: usize, src: *const u8, dst: *mut i64) {
    let (src, dst) = (Source(src.cast::<T>()), Shared(dst));
    if n == 0 {
        return;
    }
    let key: fn(T) -> T::Key = if descending { |x| !x.key() } else { T::key };
    let row = |r: usize, threads: usize| {
        // SAFETY: row r lies within both buffers and belongs to this call.
        let (x, y) = unsafe {
            (std::slice::from_raw_parts(src.at(r * n), n), std::slice::from_raw_parts_mut(dst.at(r * n), n))
        };
        if n <= SHORT || n > u32::MAX as usize {
            y.iter_mut().enumerate().for_each(|(i, y)| *y = i as i64);
            y.sort_by_key(|&i| key(x[i as usize]));
        } else {
            radix_sort(x, y, key, threads);
        }
    };
    if n >= LONG && rows < pool::threads() {
        (0..rows).for_each(|r| row(r, pool::threads()));
    } else {
        // A sort makes about ten passes over its row.
        parallel_ranges(rows, 10 * n * size_of::<T>(), 1, |start, end| (start..end).for_each(|r| row(r, 1)));
    }
}

/// A key and its original position.
#[derive(Clone, Copy)]
struct Entry<K> {
    key: K,
    position: u32,
}

/// Sorts by the bytes of the keys, from the least significant. Each pass is stable. Bytes that all keys share are
/// skipped.
fn radix_sort<T: Ordered>(x: &[T], y: &mut [i64], key: impl Fn(T) -> T::Key + Sync, parts: usize) {
    let n = x.len();
    // Threads write the memory first, because one thread would take long to touch it and could not be interrupted.
    let mut entries: Vec<Entry<T::Key>> = interrupt::or_leave(host_memory::room(n));
    let mut sorted = interrupt::or_leave(host_memory::room(n));
    let places = Shared(entries.as_mut_ptr());
    parallel_ranges(n, size_of::<T>(), 1, |start, end| {
        for (i, &x) in x.iter().enumerate().take(end).skip(start) {
            // SAFETY: i < n, there is room for n entries, and this one belongs to this task.
            unsafe { places.at(i).write(Entry { key: key(x), position: i as u32 }) }
        }
    });
    // SAFETY: there is room for n entries, and all have been written.
    unsafe { entries.set_len(n) };
    for byte in 0..T::Key::BYTES {
        if radix_pass(&entries, &mut sorted, byte, parts) {
            std::mem::swap(&mut entries, &mut sorted);
        }
    }
    let positions = Shared(y.as_mut_ptr());
    parallel_ranges(n, size_of::<i64>(), 1, |start, end| {
        for (i, entry) in entries.iter().enumerate().take(end).skip(start) {
            // SAFETY: i < n, and the position belongs to this task.
            unsafe { *positions.at(i) = entry.position.into() }
        }
    });
}

/// Distributes `from` into `to`, which has room for as many entries, by one byte. Returns false without doing anything
/// if all keys share the byte.
fn radix_pass<K: Key>(from: &[Entry<K>], to: &mut Vec<Entry<K>>, byte: u32, parts: usize) -> bool {
    assert!(to.capacity() >= from.len());
    let parts = parts.max(from.len().div_ceil(PART));
    let size = from.len().div_ceil(parts);
    let parts = from.len().div_ceil(size);
    let part = |p: usize| &from[p * size..((p + 1) * size).min(from.len())];
    // The number of occurrences of each byte in each part; then the destination of the part's first entry with that
    // byte.
    let mut places = vec![[0usize; 256]; parts];
    let table = Shared(places.as_mut_ptr());
    pool::parallel_for(parts, &|p| {
        // SAFETY: p < parts, and the counts belong to this task.
        let counts = unsafe { &mut *table.at(p) };
        part(p).iter().for_each(|entry| counts[entry.key.byte(byte)] += 1);
    });
    let first = from[0].key.byte(byte);
    if places.iter().map(|counts| counts[first]).sum::<usize>() == from.len() {
        return false;
    }
    let mut total = 0;
    for value in 0..256 {
        for counts in &mut places {
            let count = counts[value];
            counts[value] = total;
            total += count;
        }
    }
    let (table, target) = (Shared(places.as_mut_ptr()), Shared(to.as_mut_ptr()));
    pool::parallel_for(parts, &|p| {
        // SAFETY: p < parts; the places of all parts and bytes are disjoint and cover the length of `from`, for which
        // `to` has room.
        unsafe {
            let places = &mut *table.at(p);
            for &entry in part(p) {
                let place = &mut places[entry.key.byte(byte)];
                target.at(*place).write(entry);
                *place += 1;
            }
        }
    });
    // SAFETY: there is room, and every place has been written.
    unsafe { to.set_len(from.len()) };
    true
}
