//! Reductions, cumulative operators, sorting.

use super::{
    Size,
    elementwise::same,
    fact::Known,
    site::{Rows, Site, one, tensor},
};
use crate::{Element, Result};

pub(super) const ROWS: Rows = &[
    ("ArgMax", arg_extreme),
    ("ArgMin", arg_extreme),
    ("CumProd", same),
    ("CumSum", same),
    ("Hardmax", same),
    ("LogSoftmax", same),
    ("ReduceL1", reduce),
    ("ReduceL2", reduce),
    ("ReduceLogSum", reduce),
    ("ReduceLogSumExp", reduce),
    ("ReduceMax", reduce),
    ("ReduceMean", reduce),
    ("ReduceMin", reduce),
    ("ReduceProd", reduce),
    ("ReduceSum", reduce),
    ("ReduceSumSquare", reduce),
    ("Softmax", same),
    ("TopK", top_k),
];

/// A shape without these axes, or with extents of 1 in their place.
fn reduced(sizes: &[Size], axes: &[usize], keeps: bool) -> Vec<Size> {
    let size = |(axis, size): (usize, &Size)| match (axes.contains(&axis), keeps) {
        (false, _) => Some(size.clone()),
        (true, true) => Some(Size::number(1)),
        (true, false) => None,
    };
    sizes.iter().enumerate().filter_map(size).collect()
}

fn arg_extreme(site: &Site<'_>) -> Result<Vec<Known>> {
    let element = Some(Element::Int64);
    let Some(sizes) = site.shape(0) else { return one(element, None) };
    let axis = site.axis(site.int_or("axis", 0), sizes.len())?;
    one(element, Some(reduced(sizes, &[axis], site.int_or("keepdims", 1) != 0)))
}

/// A reduction over axes that the second input names, or an attribute in old files.
fn reduce(site: &Site<'_>) -> Result<Vec<Known>> {
    let (element, keeps) = (site.element(0), site.int_or("keepdims", 1) != 0);
    let Some(sizes) = site.shape(0) else { return one(element, None) };
    let axes = match site.has(1) {
        true => site.integers(1),
        false => Some(site.ints("axes").unwrap_or_default().to_vec()),
    };
    let Some(axes) = axes else {
        let count = site.shape(1).and_then(|shape| shape.first()?.as_extent());
        let rank =
            if keeps { Some(sizes.len()) } else { count.and_then(|count| sizes.len().checked_sub(count)) };
        return one(element, rank.filter(|_| keeps || count != Some(0)).map(|rank| site.unknown(rank)));
    };
    if axes.is_empty() && site.int_or("noop_with_empty_axes", 0) != 0 {
        return same(site);
    }
    let axes = if axes.is_empty() { (0..sizes.len()).collect() } else { site.axes(&axes, sizes.len())? };
    one(element, Some(reduced(sizes, &axes, keeps)))
}

fn top_k(site: &Site<'_>) -> Result<Vec<Known>> {
    let shape = match site.shape(0) {
        None => None,
        Some(sizes) => {
            let axis = site.axis(site.int_or("axis", -1), sizes.len())?;
            let count = if site.has(1) { site.number(1) } else { site.int("k").map(Size::number) };
            let mut sizes = sizes.to_vec();
            sizes[axis] = site.or_fresh(count);
            Some(sizes)
        }
    };
    Ok(vec![tensor(site.element(0), shape.clone()), tensor(Some(Element::Int64), shape)])
}
