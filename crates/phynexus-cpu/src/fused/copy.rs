//! Kernels that only copy from one layout to another, as when a permuted tensor is made contiguous. Tiles and registers
//! would be overhead.

use std::cmp::Reverse;

use phynexus::kernel::fused::{FusedOp, Fusion, Store};

use super::normal::normalise;
use crate::ops;

/// Copies of one tensor into dense results.
pub(super) struct LayoutCopy {
    /// Bytes per element.
    size: usize,
    /// The source's parameter and first element.
    source: (usize, isize),
    results: Vec<Dense>,
}

/// A result.
struct Dense {
    /// Extents in memory order, and the source's strides.
    shape: Vec<usize>,
    strides: Vec<isize>,
    /// Its parameter and first element.
    target: (usize, isize),
    /// Whether the source has the same layout.
    alike: bool,
}

impl LayoutCopy {
    /// The copies that make up this kernel, if it contains nothing else and not all results have the source's layout.
    pub(super) fn of(kernel: &Fusion) -> Option<LayoutCopy> {
        let [instruction] = kernel.instructions.as_slice() else { return None };
        if !matches!(instruction.operation, FusedOp::Load { mask: None, .. }) || kernel.column_count() != 1 {
            return None;
        }
        let size = instruction.dtype.size();
        let kernel = normalise(kernel, false);
        let FusedOp::Load { parameter, index, .. } = &kernel.instructions.first()?.operation else {
            return None;
        };
        let (first, strides) = index.strides(kernel.rows.len())?;
        let results: Vec<Dense> =
            kernel.stores.iter().map(|store| dense(&kernel, store, &strides)).collect::<Option<_>>()?;
        let source = (usize::from(*parameter), first as isize);
        (!results.iter().all(|result| result.alike)).then_some(LayoutCopy { size, source, results })
    }

    /// # Safety
    /// Same as [`super::FusedKernel::run`].
    pub(super) unsafe fn run(&self, parameters: &[*mut u8]) {
        let at = |(parameter, element): (usize, isize)| {
            parameters[parameter].wrapping_offset(element * self.size as isize)
        };
        let source = at(self.source);
        for Dense { shape, strides, target, alike } in &self.results {
            let target = at(*target);
            // A result that shares its source's memory is already complete.
            if *alike && target == source {
                continue;
            }
            // SAFETY: guaranteed by the caller.
            unsafe { ops::copy_strided(self.size, shape, strides, source, target) };
        }
    }
}

/// The destination of a store, if its elements have no gaps.
fn dense(kernel: &Fusion, store: &Store, strides: &[i64]) -> Option<Dense> {
    let (first, places) = store.index.strides(kernel.rows.len())?;
    let mut order: Vec<usize> = (0..kernel.rows.len()).collect();
    order.sort_by_key(|&range| Reverse(places[range]));
    let mut elements = 1;
    for &range in order.iter().rev() {
        if places[range] != elements {
            return None;
        }
        elements *= kernel.rows[range] as i64;
    }
    Some(Dense {
        shape: order.iter().map(|&range| kernel.rows[range]).collect(),
        strides: order.iter().map(|&range| strides[range] as isize).collect(),
        target: (usize::from(store.parameter), first as isize),
        alike: order.iter().all(|&range| strides[range] == places[range]),
    })
}

#[cfg(test)]
mod tests {
    use phynexus::{
        DType, Scalar,
        kernel::{
            Ranges,
            fused::{Instruction, Parameter},
            view,
        },
        shape::Dims,
    };

    use super::*;
    use crate::fused::FusedKernel;

    /// Copies a permuted tensor of consecutive numbers into a result with the axis order `places`, and into one with
    /// reversed axes.
    fn check(shape: &[usize], permutation: &[usize], places: &[usize], is_copy: bool) {
        let rank = shape.len();
        let dense = |extents: &[usize], order: &[usize]| {
            let mut strides = vec![0isize; rank];
            let mut step = 1;
            for &axis in order.iter().rev() {
                strides[axis] = step;
                step *= extents[axis] as isize;
            }
            strides
        };
        let in_order: Vec<usize> = (0..rank).collect();
        let source_strides = dense(shape, &in_order);
        let extents: Vec<usize> = permutation.iter().map(|&axis| shape[axis]).collect();
        let from: Vec<isize> = permutation.iter().map(|&axis| source_strides[axis]).collect();
        let backwards: Vec<usize> = places.iter().rev().copied().collect();
        let results = [dense(&extents, places), dense(&extents, &backwards)];
        let rows = Dims::from_slice(&extents);
        let coordinates = Ranges::of(&rows).coordinates();
        let index = view::flat(&coordinates, &from, 0);
        let load = FusedOp::Load { parameter: 0, index, mask: None, fill: Scalar::Int(0) };
        let parameter = |written: bool| Parameter { dtype: DType::F32, written };
        let store = |parameter: u16| {
            let to = &results[usize::from(parameter) - 1];
            Store { parameter, value: 0, index: view::flat(&coordinates, to, 0), replaces: None }
        };
        let count: usize = shape.iter().product();
        for stores in [vec![store(1)], vec![store(1), store(2)]] {
            let kernel = Fusion {
                rows: rows.clone(),
                instructions: vec![Instruction {
                    operation: load.clone(),
                    dtype: DType::F32,
                    per_column: false,
                }],
                parameters: [false, true, true].map(parameter)[..1 + stores.len()].to_vec(),
                stores,
                ..Fusion::default()
            };
            let expected =
                is_copy || kernel.stores.len() > 1 && extents.iter().filter(|&&n| n > 1).count() > 1;
            assert_eq!(LayoutCopy::of(&kernel).is_some(), expected, "{shape:?} {permutation:?} {places:?}");
            let mut source: Vec<f32> = (0..count).map(|i| i as f32).collect();
            let mut found = [vec![-1.0f32; count], vec![-1.0f32; count]];
            let [one, other] = &mut found;
            let parameters = [&mut source, one, other].map(|values| values.as_mut_ptr().cast::<u8>());
            // SAFETY: all have as many elements as the indices reach.
            unsafe { FusedKernel::new(&kernel).unwrap().run(&parameters).unwrap() };
            for (result, to) in results.iter().enumerate().take(kernel.stores.len()) {
                for flat in 0..count {
                    let (mut rest, mut x, mut y) = (flat, 0, 0);
                    for axis in (0..rank).rev() {
                        let at = (rest % extents[axis]) as isize;
                        rest /= extents[axis];
                        (x, y) = (x + at * from[axis], y + at * to[axis]);
                    }
                    assert_eq!(found[result][y as usize], x as f32, "{shape:?} {permutation:?} {places:?}");
                }
            }
        }
    }

    #[test]
    fn a_result_in_the_place_of_its_source_is_left_there() {
        let rows = Dims::from_slice(&[3, 2]);
        let coordinates = Ranges::of(&rows).coordinates();
        let index = |strides: &[isize]| view::flat(&coordinates, strides, 0);
        let load = FusedOp::Load { parameter: 0, index: index(&[2, 1]), mask: None, fill: Scalar::Int(0) };
        let kernel = Fusion {
            instructions: vec![Instruction { operation: load, dtype: DType::F32, per_column: false }],
            parameters: [false, true, true].map(|written| Parameter { dtype: DType::F32, written }).to_vec(),
            stores: vec![
                Store { parameter: 1, value: 0, index: index(&[2, 1]), replaces: None },
                Store { parameter: 2, value: 0, index: index(&[1, 3]), replaces: None },
            ],
            rows,
            ..Fusion::default()
        };
        let mut source: Vec<f32> = (0..6u8).map(f32::from).collect();
        let mut turned = vec![-1.0f32; 6];
        let place = source.as_mut_ptr().cast::<u8>();
        // SAFETY: all have as many elements as the indices reach; overlapping elements are stored where they are
        // loaded.
        unsafe {
            FusedKernel::new(&kernel).unwrap().run(&[place, place, turned.as_mut_ptr().cast()]).unwrap()
        };
        assert_eq!(source, [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
        assert_eq!(turned, [0.0, 2.0, 4.0, 1.0, 3.0, 5.0]);
    }

    #[test]
    fn permutations_are_copied_as_such() {
        check(&[3, 2, 4, 5, 32], &[1, 3, 0, 2, 4], &[0, 1, 2, 3, 4], true);
        check(&[3, 2, 4, 37, 33], &[1, 3, 0, 2, 4], &[2, 3, 4, 0, 1], true);
        check(&[70, 90], &[1, 0], &[0, 1], true);
        check(&[5, 1, 7], &[2, 1, 0], &[0, 1, 2], true);
        // Identical layouts are one flat copy.
        check(&[70, 90], &[0, 1], &[0, 1], false);
        check(&[70, 90], &[1, 0], &[1, 0], false);
        check(&[1, 1], &[1, 0], &[0, 1], false);
    }
}
