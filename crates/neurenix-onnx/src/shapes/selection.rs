//! Operators with indices.

use super::{
    Size,
    elementwise::same,
    fact::Known,
    site::{Rows, Site, one, tensor},
};
use crate::{Element, Result};

pub(super) const ROWS: Rows = &[
    ("Compress", compress),
    ("Gather", gather),
    ("GatherElements", |site| one(site.element(0), site.shape(1).map(<[Size]>::to_vec))),
    ("GatherND", gather_nd),
    ("NonZero", |site| {
        let rank = site.rank(0).map(|rank| Size::number(rank.max(1) as i64));
        one(Some(Element::Int64), Some(vec![site.or_fresh(rank), site.fresh()]))
    }),
    ("OneHot", one_hot),
    ("Scatter", same),
    ("ScatterElements", same),
    ("ScatterND", same),
    ("TensorScatter", same),
    ("Unique", unique),
];

fn compress(site: &Site<'_>) -> Result<Vec<Known>> {
    let Some(axis) = site.int("axis") else { return one(site.element(0), Some(vec![site.fresh()])) };
    along(site, axis)
}

/// The shape of the first input, but for an axis whose extent is not known.
fn along(site: &Site<'_>, axis: i64) -> Result<Vec<Known>> {
    let Some(sizes) = site.shape(0) else { return one(site.element(0), None) };
    let axis = site.axis(axis, sizes.len())?;
    let mut sizes = sizes.to_vec();
    sizes[axis] = site.fresh();
    one(site.element(0), Some(sizes))
}

fn gather(site: &Site<'_>) -> Result<Vec<Known>> {
    let (Some(sizes), Some(index)) = (site.shape(0), site.shape(1)) else {
        return one(site.element(0), None);
    };
    let axis = site.axis(site.int_or("axis", 0), sizes.len())?;
    one(site.element(0), Some([&sizes[..axis], index, &sizes[axis + 1..]].concat()))
}

fn gather_nd(site: &Site<'_>) -> Result<Vec<Known>> {
    let (Some(sizes), Some([outer @ .., depth])) = (site.shape(0), site.shape(1)) else {
        return one(site.element(0), None);
    };
    let batches = usize::try_from(site.int_or("batch_dims", 0)).unwrap_or(0);
    let Some(taken) = depth.as_extent().and_then(|depth| depth.checked_add(batches)) else {
        return one(site.element(0), None);
    };
    match sizes.get(taken..) {
        Some(rest) => one(site.element(0), Some([outer, rest].concat())),
        None => Err(crate::Error::invalid(format!(
            "indices of {depth} axes are too long for {} dimensions",
            sizes.len()
        ))),
    }
}

fn one_hot(site: &Site<'_>) -> Result<Vec<Known>> {
    let Some(sizes) = site.shape(0) else { return one(site.element(2), None) };
    let axis = site.axis(site.int_or("axis", -1), sizes.len() + 1)?;
    let mut sizes = sizes.to_vec();
    sizes.insert(axis, site.or_fresh(site.number(1)));
    one(site.element(2), Some(sizes))
}

fn unique(site: &Site<'_>) -> Result<Vec<Known>> {
    let count = site.fresh();
    let values = match site.int("axis") {
        None => tensor(site.element(0), Some(vec![count.clone()])),
        Some(axis) => {
            let shape = match site.shape(0) {
                None => None,
                Some(sizes) => {
                    let axis = site.axis(axis, sizes.len())?;
                    let mut sizes = sizes.to_vec();
                    sizes[axis] = count.clone();
                    Some(sizes)
                }
            };
            tensor(site.element(0), shape)
        }
    };
    let inverse = match (site.shape(0), site.int("axis")) {
        (Some(sizes), Some(axis)) => sizes[site.axis(axis, sizes.len())?].clone(),
        (Some(sizes), None) => super::windows::merged(site, sizes),
        (None, _) => site.fresh(),
    };
    let vector = |size: Size| tensor(Some(Element::Int64), Some(vec![size]));
    Ok(vec![values, vector(count.clone()), vector(inverse), vector(count)])
}
