//! Host memory of user-controlled size. If the system refuses an allocation, the result is an error instead of an
//! abort.

use crate::{Element, Error, Result, interrupt};

/// The number of elements written between two interrupt checks.
pub(crate) const BLOCK: usize = 1 << 20;

/// Reserves room for `more` additional elements.
///
/// # Errors
/// [`Error::HostMemory`] if the system refuses the memory.
pub fn reserve<T>(vec: &mut Vec<T>, more: usize) -> Result<()> {
    let refused = |_| Error::HostMemory { requested: more.saturating_mul(size_of::<T>()) };
    vec.try_reserve_exact(more).map_err(refused)
}

/// Appends an element.
///
/// # Errors
/// [`Error::HostMemory`] if the system refuses the memory.
pub fn push<T>(vec: &mut Vec<T>, element: T) -> Result<()> {
    if vec.len() == vec.capacity() {
        // Double the capacity, so appending takes amortised constant time.
        reserve(vec, vec.len().max(8))?;
    }
    vec.push(element);
    Ok(())
}

/// Returns an empty vector with room for `count` elements.
///
/// # Errors
/// [`Error::HostMemory`] if the system refuses the memory.
pub fn room<T>(count: usize) -> Result<Vec<T>> {
    let mut vec = Vec::new();
    reserve(&mut vec, count)?;
    Ok(vec)
}

/// Returns `count` copies of a value.
///
/// # Errors
/// [`Error::HostMemory`] if the system refuses the memory, [`Error::Interrupted`].
pub fn filled<T: Clone>(value: T, count: usize) -> Result<Vec<T>> {
    let mut vec = room(count)?;
    while vec.len() < count {
        interrupt::check()?;
        vec.resize(count.min(vec.len() + BLOCK), value.clone());
    }
    Ok(vec)
}

/// Converts little-endian bytes to elements.
pub(crate) fn elements<T: Element>(bytes: &[u8]) -> Result<Vec<T>> {
    let size = T::DTYPE.size();
    let mut elements = room(bytes.len() / size)?;
    for part in bytes.chunks(size * 4096) {
        interrupt::check()?;
        elements.extend(T::read_bytes(part));
    }
    Ok(elements)
}

/// Converts elements to little-endian bytes.
pub(crate) fn bytes_of<T: Element>(values: &[T]) -> Result<Vec<u8>> {
    let mut bytes = room(size_of_val(values))?;
    for part in values.chunks(BLOCK) {
        interrupt::check()?;
        T::write_bytes(part, &mut bytes);
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_machine_has_is_refused() {
        let refused = |result: Result<()>, bytes: usize| {
            assert!(matches!(result, Err(Error::HostMemory { requested }) if requested == bytes));
        };
        refused(room::<u64>(usize::MAX).map(drop), usize::MAX);
        refused(filled(0u16, 1 << 58).map(drop), 1 << 59);
        refused(reserve(&mut vec![1u8, 2, 3], usize::MAX), usize::MAX);
    }

    #[test]
    fn pushed_elements_stay_in_order() {
        let mut numbers = Vec::new();
        (0..1000).for_each(|number| push(&mut numbers, number).unwrap());
        assert!(numbers.into_iter().eq(0..1000));
    }

    #[test]
    fn elements_and_bytes_are_each_others() {
        let count = BLOCK + 5;
        let values: Vec<i32> = (0..count as i32).map(|i| i.wrapping_mul(-77)).collect();
        let bytes = bytes_of(&values).unwrap();
        assert_eq!(bytes.len(), 4 * count);
        assert_eq!(elements::<i32>(&bytes).unwrap(), values);
        assert_eq!(filled(7u8, count).unwrap(), vec![7; count]);
        assert_eq!(elements::<bool>(&[0, 1, 1]).unwrap(), [false, true, true]);
        assert!(bytes_of::<f64>(&[]).unwrap().is_empty());
    }
}
