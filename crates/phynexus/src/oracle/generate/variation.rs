//! Cases with the same operations and other numbers or sizes. What a device keeps of their plans must not change the
//! results of the case itself.

use super::{Case, CaseLeaf, Choice, Distribution, random_array};
use crate::{
    Scalar,
    op::{Constant, Op, check::check},
    shape::Dims,
};

/// The maximum number of elements of a node.
const GREATEST: usize = 1 << 16;

/// Returns the case with other numbers, if it has any that may vary.
pub(super) fn with_other_numbers(case: &Case) -> Option<Case> {
    let mut other = case.clone();
    let mut differs = false;
    for node in &mut other.ir.nodes {
        if let Op::Constant(constant) = &mut node.op
            && constant.may_vary()
        {
            let number = constant.0.as_f64();
            let changed = match node.dtype.is_float() {
                true => Scalar::Float(number * 1.25),
                false => Scalar::Int(number as i64 + 2),
            };
            let changed = Constant(changed.cast(node.dtype));
            differs |= changed.may_vary() && changed != *constant;
            *constant = if changed.may_vary() { changed } else { constant.clone() };
        }
    }
    differs.then_some(other)
}

/// Returns the case with another size of a dimension, wherever that is found: the extents equal to one of a leaf's, or
/// their multiples, change in the same proportion. `None` if no such change gives a valid graph.
pub(super) fn with_other_sizes(case: &Case, choice: &mut Choice) -> Option<Case> {
    let mut extents: Vec<usize> =
        case.leaves.iter().flat_map(|leaf| leaf.values.shape.iter().copied()).collect();
    extents.retain(|&extent| extent > 1);
    extents.sort_unstable();
    extents.dedup();
    (1..extents.len()).for_each(|i| extents.swap(i, choice.below(i + 1)));
    // Kernels are alike more often if the same vectors divide the size.
    let longer: fn(usize) -> usize =
        choice.of(&[|size| size + 1, |size| size + 4, |size| 2 * size, |size| 3 * size]);
    let attempts = extents.iter().flat_map(|&from| [(from, false), (from, true)]);
    attempts.into_iter().find_map(|(from, multiples)| {
        let to = longer(from);
        let resized = |shape: &Dims| -> Dims {
            let extent = |&extent: &usize| match extent % from == 0 && (multiples || extent == from) {
                true => extent / from * to,
                false => extent,
            };
            shape.iter().map(extent).collect()
        };
        let mut other = case.clone();
        other.ir.nodes.iter_mut().for_each(|node| node.shape = resized(&node.shape));
        let is_small = other.ir.nodes.iter().all(|node| node.len() <= GREATEST);
        if !is_small || check(&other.ir).is_err() {
            return None;
        }
        for leaf in &mut other.leaves {
            let shape = resized(&leaf.values.shape);
            if shape != leaf.values.shape {
                let values = random_array(choice, Distribution::Positive, leaf.values.dtype, &shape);
                *leaf = CaseLeaf::contiguous(values);
            }
        }
        Some(other)
    })
}

#[cfg(test)]
mod tests {
    use super::{super::random_case, *};

    #[test]
    fn most_random_graphs_have_a_variant_of_another_size() {
        let cases: Vec<Case> = (0..200).map(|seed| random_case(seed, 8)).collect();
        let mut choice = Choice::new(1);
        let varied = cases.iter().filter_map(|case| Some((case, with_other_sizes(case, &mut choice)?)));
        let varied: Vec<(&Case, Case)> = varied.collect();
        assert!(varied.len() > 100, "{} of {}", varied.len(), cases.len());
        for (case, other) in varied {
            let nodes = || case.ir.nodes.iter().zip(&other.ir.nodes);
            assert!(nodes().any(|(one, other)| one.shape != other.shape), "{case}");
            assert!(nodes().all(|(one, other)| one.op == other.op && one.shape.len() == other.shape.len()));
            assert!(other.leaves.iter().zip(&other.ir.leaves).all(|(leaf, &id)| {
                leaf.values.shape == other.ir.node(id).shape && leaf.layout.shape == leaf.values.shape
            }));
        }
    }
}
