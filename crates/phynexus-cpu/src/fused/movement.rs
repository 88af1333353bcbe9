//! Copies between tiles and memory with steps along both axes.

/// A block of elements: `rows` times `count`. Steps are in elements.
#[derive(Clone, Copy)]
pub(super) struct Block {
    /// Number of rows.
    pub(super) rows: usize,
    /// Elements per row.
    pub(super) count: usize,
}

/// The distances between the elements of a block.
#[derive(Clone, Copy)]
pub(super) struct Steps {
    /// Between rows.
    pub(super) row: isize,
    /// Between elements.
    pub(super) element: isize,
}

/// Copies a block of elements of `size` bytes (1, 2, 4 or 8).
///
/// # Safety
/// All elements that the steps reach must be valid: to read at `source`, to write at `target`. The two must not
/// overlap.
pub(super) unsafe fn copy(
    size: usize,
    block: Block,
    source: *const u8,
    from: Steps,
    target: *mut u8,
    to: Steps,
) {
    // SAFETY: guaranteed by the caller; an element of `size` bytes has the alignment of its dtype.
    unsafe {
        match size {
            1 => copy_elements(block, source, from, target, to),
            2 => copy_elements(block, source.cast::<u16>(), from, target.cast::<u16>(), to),
            4 => copy_elements(block, source.cast::<u32>(), from, target.cast::<u32>(), to),
            _ => copy_elements(block, source.cast::<u64>(), from, target.cast::<u64>(), to),
        }
    }
}

/// # Safety
/// Same as [`copy`].
unsafe fn copy_elements<T: Copy>(block: Block, source: *const T, from: Steps, target: *mut T, to: Steps) {
    let Block { rows, count } = block;
    // A block is walked along the axis that is contiguous on one side; if the sides differ, in squares.
    if rows > 1 && from.row == 1 && from.element != 1 && to.element == 1 {
        // SAFETY: guaranteed by the caller.
        return unsafe { transpose(block, source, from.element, target, to.row) };
    }
    if rows > 1 && to.row == 1 && to.element != 1 && from.element == 1 {
        let turned = Block { rows: count, count: rows };
        // SAFETY: the same elements with the axes exchanged.
        return unsafe { transpose(turned, source, from.row, target, to.element) };
    }
    if rows > 1 && from.row == 0 && from.element == 1 && to.element == 1 && to.row == count as isize {
        // The same row repeatedly: copies what is already written, doubling each time.
        // SAFETY: guaranteed by the caller; each copy reads the part written before.
        unsafe {
            source.copy_to_nonoverlapping(target, count);
            let (mut done, all) = (count, rows * count);
            while done < all {
                let more = done.min(all - done);
                target.copy_to_nonoverlapping(target.add(done), more);
                done += more;
            }
        }
        return;
    }
    for row in 0..rows as isize {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let (source, target) = (source.offset(row * from.row), target.offset(row * to.row));
            if to.element == 1 && from.element == 1 {
                if count >= 16 {
                    source.copy_to_nonoverlapping(target, count);
                } else {
                    for i in 0..count {
                        *target.add(i) = *source.add(i);
                    }
                }
            } else if to.element == 1 && from.element == 0 {
                let value = *source;
                for i in 0..count {
                    *target.add(i) = value;
                }
            } else {
                for i in 0..count as isize {
                    *target.offset(i * to.element) = *source.offset(i * from.element);
                }
            }
        }
    }
}

/// `target[row * pitch + i] = source[row + i * step]`, in squares whose cache lines stay in cache.
///
/// # Safety
/// Same as [`copy`].
unsafe fn transpose<T: Copy>(block: Block, source: *const T, step: isize, target: *mut T, pitch: isize) {
    const SIDE: usize = 16;
    for first in (0..block.count).step_by(SIDE) {
        for row in (0..block.rows).step_by(SIDE) {
            let (width, height) = (SIDE.min(block.count - first), SIDE.min(block.rows - row));
            for i in 0..width {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    let source = source.offset((first + i) as isize * step + row as isize);
                    let target = target.offset(row as isize * pitch + (first + i) as isize);
                    for r in 0..height {
                        *target.offset(r as isize * pitch) = *source.add(r);
                    }
                }
            }
        }
    }
}

/// Fills the rows of a block, `pitch` elements apart, with an element of `size` bytes.
///
/// # Safety
/// Same as [`copy`].
pub(super) unsafe fn fill(size: usize, block: Block, value: *const u8, target: *mut u8, pitch: usize) {
    let (from, to) = (Steps { row: 0, element: 0 }, Steps { row: pitch as isize, element: 1 });
    // SAFETY: guaranteed by the caller; the value is read with step 0.
    unsafe { copy(size, block, value, from, target, to) }
}

/// The position of an element that is not loaded. Negative positions are before a parameter's first element, as in
/// reversed tensors.
pub(super) const NOWHERE: i64 = i64::MIN;

/// `target[i] = source[positions[i]]`, or the fill where the position is [`NOWHERE`].
///
/// # Safety
/// Same as [`copy`], for all other positions.
pub(super) unsafe fn gather(
    size: usize,
    source: *const u8,
    positions: &[i64],
    fill: *const u8,
    target: *mut u8,
) {
    /// # Safety
    /// Same as [`gather`].
    unsafe fn elements<T: Copy>(source: *const T, positions: &[i64], fill: T, target: *mut T) {
        for (i, &position) in positions.iter().enumerate() {
            // SAFETY: guaranteed by the caller.
            unsafe {
                *target.add(i) = if position == NOWHERE { fill } else { *source.offset(position as isize) }
            };
        }
    }
    // SAFETY: guaranteed by the caller; an element of `size` bytes has the alignment of its dtype.
    unsafe {
        match size {
            1 => elements(source, positions, *fill, target),
            2 => elements(source.cast::<u16>(), positions, *fill.cast(), target.cast()),
            4 => elements(source.cast::<u32>(), positions, *fill.cast(), target.cast()),
            _ => elements(source.cast::<u64>(), positions, *fill.cast(), target.cast()),
        }
    }
}

/// `target[positions[i]] = source[i]`.
///
/// # Safety
/// Same as [`copy`], for all positions.
pub(super) unsafe fn scatter(size: usize, source: *const u8, positions: &[i64], target: *mut u8) {
    /// # Safety
    /// Same as [`scatter`].
    unsafe fn elements<T: Copy>(source: *const T, positions: &[i64], target: *mut T) {
        for (i, &position) in positions.iter().enumerate() {
            // SAFETY: guaranteed by the caller.
            unsafe { *target.offset(position as isize) = *source.add(i) };
        }
    }
    // SAFETY: guaranteed by the caller; an element of `size` bytes has the alignment of its dtype.
    unsafe {
        match size {
            1 => elements(source, positions, target),
            2 => elements(source.cast::<u16>(), positions, target.cast()),
            4 => elements(source.cast::<u32>(), positions, target.cast()),
            _ => elements(source.cast::<u64>(), positions, target.cast()),
        }
    }
}
