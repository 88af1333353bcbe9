//! Shapes, strides and broadcasting.

use std::ops::Range;

use smallvec::SmallVec;

use crate::{DType, Error, Result};

/// A list of extents, one per dimension. Most tensors have at most four.
pub type Dims = SmallVec<[usize; 4]>;

/// Copies the extents into a list. For plain numbers this is faster than the list's generic conversion.
pub(crate) fn dims(shape: &[usize]) -> Dims {
    Dims::from_slice(shape)
}

/// Returns whether the extents are equal. Shapes are short, so a loop is faster than comparing memory.
pub(crate) fn same_extents(a: &[usize], b: &[usize]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a == b)
}

/// The maximum number of dimensions. Sets of axes are 64 bits wide.
pub const MAX_RANK: usize = 64;

/// Rejects shapes with more than [`MAX_RANK`] dimensions.
pub(crate) fn check_rank(op: &'static str, shape: &[usize]) -> Result<()> {
    if shape.len() > MAX_RANK {
        return Err(Error::shape(op, &[shape], format!("at most {MAX_RANK} dimensions are supported")));
    }
    Ok(())
}

/// Returns the number of elements. Returns `None` if the product of the nonzero extents overflows `isize`, because
/// strides are products of these extents.
pub fn checked_element_count(shape: &[usize]) -> Option<usize> {
    let others = shape.iter().filter(|d| **d != 0).try_fold(1usize, |n, &d| n.checked_mul(d))?;
    if others > isize::MAX as usize {
        return None;
    }
    Some(if shape.contains(&0) { 0 } else { others })
}

/// Fails if a tensor of this shape and dtype cannot exist.
///
/// # Errors
/// [`Error::Shape`] for too many dimensions, or for more bytes than the address space has.
pub(crate) fn check_size(op: &'static str, dtype: DType, shape: &[usize]) -> Result<()> {
    if shape.len() > MAX_RANK {
        check_rank(op, shape)?;
    }
    let bytes = checked_element_count(shape).and_then(|n| n.checked_mul(dtype.size()));
    match bytes {
        Some(bytes) if bytes <= isize::MAX as usize => Ok(()),
        _ => Err(Error::shape(op, &[shape], "the result would exceed the address space")),
    }
}

/// Returns the number of elements of a shape that was already checked for overflow.
pub fn element_count(shape: &[usize]) -> usize {
    shape.iter().product()
}

/// Returns the strides, in elements, of a row-major tensor of this shape.
pub fn contiguous_strides(shape: &[usize]) -> SmallVec<[isize; 4]> {
    let mut strides = SmallVec::from_elem(1isize, shape.len());
    for axis in (0..shape.len().saturating_sub(1)).rev() {
        strides[axis] = strides[axis + 1] * shape[axis + 1].max(1) as isize;
    }
    strides
}

/// Returns the broadcast shape of two shapes. They are aligned at the last dimension, and extents of 1 are repeated.
pub fn broadcast(op: &'static str, a: &[usize], b: &[usize]) -> Result<Dims> {
    let rank = a.len().max(b.len());
    let at = |s: &[usize], axis: usize| (axis + s.len()).checked_sub(rank).map_or(1, |i| s[i]);
    (0..rank)
        .map(|axis| match (at(a, axis), at(b, axis)) {
            (x, y) if x == y => Ok(x),
            (1, y) => Ok(y),
            (x, 1) => Ok(x),
            _ => Err(Error::shape(op, &[a, b], "sizes must be equal or 1, aligned at the last dimension")),
        })
        .collect()
}

/// Converts an axis counted from either end to an index into `shape`.
pub fn normalize_axis(op: &'static str, axis: i64, shape: &[usize]) -> Result<usize> {
    let rank = shape.len() as i64;
    if axis >= -rank && axis < rank {
        Ok(if axis < 0 { axis + rank } else { axis } as usize)
    } else {
        Err(Error::Axis { op, axis, shape: shape.to_vec() })
    }
}

/// The position of a tensor's elements in its buffer.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// The extents.
    pub shape: Dims,
    /// The step between neighbours along each dimension, in elements. 0 repeats elements; a negative step runs
    /// backwards.
    pub strides: SmallVec<[isize; 4]>,
    /// The first element's position in the buffer, in elements.
    pub offset: usize,
}

impl Clone for Layout {
    /// Replays clone many layouts. Copying plain numbers is faster than the lists' generic clone.
    fn clone(&self) -> Layout {
        let strides = SmallVec::from_slice(&self.strides);
        Layout { shape: dims(&self.shape), strides, offset: self.offset }
    }
}

impl Layout {
    /// Returns a row-major layout from the buffer's start.
    pub fn contiguous(shape: &[usize]) -> Layout {
        Layout { shape: shape.into(), strides: contiguous_strides(shape), offset: 0 }
    }

    /// Returns whether the elements are consecutive in row-major order, from any offset.
    pub fn is_contiguous(&self) -> bool {
        let mut expected = 1;
        let in_order = self.shape.iter().zip(&self.strides).rev().all(|(&extent, &stride)| {
            let fits = extent == 1 || stride == expected;
            expected *= extent as isize;
            fits
        });
        in_order || self.shape.contains(&0)
    }

    /// The number of elements.
    pub fn len(&self) -> usize {
        element_count(&self.shape)
    }

    /// Returns whether there are no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }

    /// Returns the range of positions in which the elements lie, relative to the first element.
    pub(crate) fn extent(&self) -> Range<isize> {
        if self.is_empty() {
            return 0..0;
        }
        let last = |(&extent, &stride): (&usize, &isize)| (extent as isize - 1) * stride;
        let ends = || self.shape.iter().zip(&self.strides).map(last);
        ends().filter(|&end| end < 0).sum::<isize>()..ends().filter(|&end| end > 0).sum::<isize>() + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn broadcasting() {
        assert_eq!(broadcast("add", &[3, 1], &[4]).unwrap().as_slice(), &[3, 4]);
        assert_eq!(broadcast("add", &[], &[2, 0]).unwrap().as_slice(), &[2, 0]);
        assert_eq!(broadcast("add", &[1], &[0]).unwrap().as_slice(), &[0]);
        let error = broadcast("add", &[3], &[4]).unwrap_err().to_string();
        assert_eq!(
            error,
            "add: shapes (3,) and (4,) do not fit: sizes must be equal or 1, aligned at the last dimension"
        );
    }

    #[test]
    fn axes() {
        assert_eq!(normalize_axis("sum", -1, &[2, 3]).unwrap(), 1);
        let error = normalize_axis("sum", 2, &[2, 3]).unwrap_err().to_string();
        assert_eq!(error, "sum: axis 2 is out of range for shape (2, 3): use -2 to 1");
    }

    #[test]
    fn contiguity() {
        assert!(Layout::contiguous(&[2, 3]).is_contiguous());
        let transposed =
            Layout { shape: [3, 2].as_slice().into(), strides: [1, 3].as_slice().into(), offset: 0 };
        assert!(!transposed.is_contiguous());
    }
}
