//! The memory layout of views.

use smallvec::SmallVec;

use super::{Op, Permute, Slice};
use crate::shape::Layout;

/// The layout of a view, if strides can express it.
pub(crate) fn view_layout(op: &Op, shape: &[usize], input: &Layout) -> Option<Layout> {
    match op {
        Op::Reshape => reshape_layout(shape, input),
        Op::Permute(Permute(permutation)) => Some(Layout {
            shape: shape.into(),
            strides: permutation.iter().map(|&p| input.strides[p as usize]).collect(),
            offset: input.offset,
        }),
        Op::Expand => {
            let keep = |(i, &s): (usize, &isize)| if input.shape[i] == 1 && shape[i] != 1 { 0 } else { s };
            let strides = input.strides.iter().enumerate().map(keep).collect();
            Some(Layout { shape: shape.into(), strides, offset: input.offset })
        }
        Op::Slice(Slice { start, step }) => {
            if shape.contains(&0) {
                return Some(Layout {
                    shape: shape.into(),
                    strides: input.strides.clone(),
                    offset: input.offset,
                });
            }
            let moved: isize =
                start.iter().zip(&input.strides).map(|(&s, &stride)| s as isize * stride).sum();
            let strides = input.strides.iter().zip(step).map(|(a, b)| a * b).collect();
            Some(Layout { shape: shape.into(), strides, offset: input.offset.checked_add_signed(moved)? })
        }
        _ => None,
    }
}

/// Strides that give the same elements the shape `shape`, if there are any (as in NumPy's reshape without a copy).
fn reshape_layout(shape: &[usize], input: &Layout) -> Option<Layout> {
    if shape.contains(&0) {
        return Some(Layout { shape: shape.into(), ..Layout::contiguous(shape) });
    }
    let mut strides: SmallVec<[isize; 4]> = SmallVec::from_elem(0, shape.len());
    // Runs of input dimensions that are contiguous in memory, last first.
    let mut blocks: SmallVec<[(usize, isize); 4]> = SmallVec::new();
    for (&extent, &stride) in input.shape.iter().zip(&input.strides).rev().filter(|(d, _)| **d != 1) {
        match blocks.last_mut() {
            Some((size, inner)) if stride == *inner * *size as isize => *size *= extent,
            _ => blocks.push((extent, stride)),
        }
    }
    let mut blocks = blocks.into_iter();
    let (mut left, mut stride) = blocks.next().unwrap_or((1, 1));
    for axis in (0..shape.len()).rev() {
        if shape[axis] == 1 {
            strides[axis] = stride;
            continue;
        }
        if left == 1 {
            (left, stride) = blocks.next()?;
        }
        if left % shape[axis] != 0 {
            return None;
        }
        strides[axis] = stride;
        stride *= shape[axis] as isize;
        left /= shape[axis];
    }
    Some(Layout { shape: shape.into(), strides, offset: input.offset })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: &[usize], strides: &[isize]) -> Layout {
        Layout { shape: shape.into(), strides: strides.into(), offset: 0 }
    }

    #[test]
    fn reshapes_without_a_copy_where_strides_allow() {
        let l = |shape: &[usize], input: Layout| reshape_layout(shape, &input).map(|l| l.strides.to_vec());
        assert_eq!(l(&[6], layout(&[2, 3], &[3, 1])), Some(vec![1]));
        assert_eq!(l(&[6], layout(&[3, 2], &[1, 3])), None);
        assert_eq!(l(&[2, 2, 3], layout(&[4, 3], &[6, 1])), Some(vec![12, 6, 1]));
        assert_eq!(l(&[12], layout(&[4, 3], &[6, 1])), None);
        assert_eq!(l(&[4], layout(&[2, 2], &[0, 0])), Some(vec![0]));
        assert_eq!(l(&[1, 1], layout(&[], &[])), Some(vec![1, 1]));
        assert_eq!(l(&[3, 2], layout(&[6], &[-1])), Some(vec![-2, -1]));
    }
}
