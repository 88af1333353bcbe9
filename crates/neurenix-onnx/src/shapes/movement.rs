//! Operators that move elements.

use phynexus::shape::MAX_RANK;

use super::{
    Size,
    elementwise::{given_shape, same, shape},
    fact::Known,
    numbers::{bounds, range},
    site::{Rows, Site, one, product, shown, tensor},
};
use crate::{Element, Error, Result};

pub(super) const ROWS: Rows = &[
    ("CenterCropPad", center_crop_pad),
    ("Col2Im", col2im),
    ("Concat", concat),
    ("DepthToSpace", |site| blocks(site, true)),
    ("Expand", expand),
    ("Flatten", flatten),
    ("Pad", pad),
    ("Reshape", reshape),
    ("ReverseSequence", same),
    ("Shape", |site| {
        let count = site.rank(0).map(|rank| {
            let (start, end) = bounds(site, rank);
            Size::number(end.saturating_sub(start) as i64)
        });
        one(Some(Element::Int64), Some(vec![site.or_fresh(count)]))
    }),
    ("Size", |_| one(Some(Element::Int64), Some(Vec::new()))),
    ("Slice", slice),
    ("SpaceToDepth", |site| blocks(site, false)),
    ("Split", split),
    ("Squeeze", squeeze),
    ("Tile", tile),
    ("Transpose", transpose),
    ("Trilu", same),
    ("Unsqueeze", unsqueeze),
];

fn center_crop_pad(site: &Site<'_>) -> Result<Vec<Known>> {
    let Some(mut sizes) = shape(site) else { return one(site.element(0), None) };
    let axes = match site.ints("axes") {
        Some(axes) => site.axes(axes, sizes.len())?,
        None => (0..sizes.len()).collect(),
    };
    let target = site.numbers(1).unwrap_or_else(|| site.unknown(axes.len()));
    for (axis, target) in axes.into_iter().zip(target) {
        sizes[axis] = target;
    }
    one(site.element(0), Some(sizes))
}

fn col2im(site: &Site<'_>) -> Result<Vec<Known>> {
    let Some([batch, rows, _]) = site.of_rank(0, 3)? else { return one(site.element(0), None) };
    let area = site.numbers(2).and_then(|block| product(&block));
    let channels = area.and_then(|area| rows.over(&area));
    let Some(image) = given_shape(site, 1)? else { return one(site.element(0), None) };
    one(site.element(0), Some([vec![batch.clone(), site.or_fresh(channels)], image].concat()))
}

fn concat(site: &Site<'_>) -> Result<Vec<Known>> {
    let element = (0..site.count()).find_map(|input| site.element(input));
    let known: Vec<&[Size]> = (0..site.count()).filter_map(|input| site.shape(input)).collect();
    let Some(first) = known.first() else { return one(element, None) };
    let axis = site.axis(
        site.int("axis").ok_or_else(|| Error::invalid("attribute \"axis\" is missing"))?,
        first.len(),
    )?;
    let mut sizes = first.to_vec();
    let mut sum = Some(Size::number(0));
    for shape in &known {
        if shape.len() != first.len() {
            return Err(Error::invalid(format!(
                "the shapes {} and {} cannot be joined",
                shown(first),
                shown(shape)
            )));
        }
        for (at, (own, size)) in sizes.iter_mut().zip(shape.iter()).enumerate().filter(|(at, _)| *at != axis)
        {
            *own = site.same(own, size, &format!("the extents of axis {at}"))?;
        }
        sum = sum.and_then(|sum| sum.plus(&shape[axis]));
    }
    sizes[axis] = site.or_fresh(sum.filter(|_| known.len() == site.count()));
    one(element, Some(sizes))
}

/// `DepthToSpace` and its inverse.
fn blocks(site: &Site<'_>, to_space: bool) -> Result<Vec<Known>> {
    let Some([batch, channels, height, width]) = site.of_rank(0, 4)? else {
        return one(site.element(0), Some(site.unknown(4)));
    };
    let side = Size::number(site.int_or("blocksize", 0).max(1));
    let area = site.or_fresh(side.times(&side));
    let (less, more) = (
        |size: &Size, by: &Size| site.or_fresh(size.over(by)),
        |size: &Size, by: &Size| site.or_fresh(size.times(by)),
    );
    let sizes = match to_space {
        true => vec![batch.clone(), less(channels, &area), more(height, &side), more(width, &side)],
        false => vec![batch.clone(), more(channels, &area), less(height, &side), less(width, &side)],
    };
    one(site.element(0), Some(sizes))
}

fn expand(site: &Site<'_>) -> Result<Vec<Known>> {
    let target = given_shape(site, 1)?;
    one(site.element(0), site.broadcast(&[site.shape(0), target.as_deref()])?)
}

fn flatten(site: &Site<'_>) -> Result<Vec<Known>> {
    let sizes = match site.shape(0) {
        None => site.unknown(2),
        Some(sizes) => {
            let axis = site.int_or("axis", 1);
            let axis = if axis == sizes.len() as i64 { sizes.len() } else { site.axis(axis, sizes.len())? };
            let (before, after) = sizes.split_at(axis);
            vec![site.or_fresh(product(before)), site.or_fresh(product(after))]
        }
    };
    one(site.element(0), Some(sizes))
}

fn pad(site: &Site<'_>) -> Result<Vec<Known>> {
    let Some(sizes) = site.shape(0) else { return one(site.element(0), None) };
    let rank = sizes.len();
    let axes = match site.has(3) {
        false => Some((0..rank).collect()),
        true => site.integers(3).map(|axes| site.axes(&axes, rank)).transpose()?,
    };
    let pads = match site.opset() < 11 {
        true => site
            .ints("pads")
            .or(site.ints("paddings"))
            .map(|all| all.iter().map(|&n| Size::number(n)).collect()),
        false => site.numbers(1),
    };
    let (Some(axes), Some(pads)) = (axes, pads) else {
        return one(site.element(0), Some(site.unknown(rank)));
    };
    let axes: Vec<usize> = axes;
    if pads.len() != 2 * axes.len() {
        return Err(Error::invalid(format!(
            "{} axes need twice as many pads, got {}",
            axes.len(),
            pads.len()
        )));
    }
    let (before, after) = pads.split_at(axes.len());
    let mut sizes = sizes.to_vec();
    for ((axis, before), after) in axes.into_iter().zip(before).zip(after) {
        let sum = sizes[axis].plus(before).and_then(|sum| sum.plus(after));
        let is_safe = site.inference.assumes || before.is_size(false) && after.is_size(false);
        sizes[axis] = site.or_fresh(sum.filter(|_| is_safe));
    }
    one(site.element(0), Some(sizes))
}

fn reshape(site: &Site<'_>) -> Result<Vec<Known>> {
    let element = site.element(0);
    // Before opset 5, the shape was an attribute.
    let target = match site.ints("shape").filter(|_| !site.has(1)) {
        Some(all) => Some(all.iter().map(|&size| Size::number(size)).collect()),
        None => site.numbers(1),
    };
    let Some(target) = target else {
        let rank = match site.shape(1) {
            Some([rank]) => rank.as_extent().filter(|&rank| rank <= MAX_RANK),
            _ => None,
        };
        return one(element, rank.map(|rank| site.unknown(rank)));
    };
    let own = site.shape(0);
    let mut sizes = Vec::with_capacity(target.len());
    let mut inferred = None;
    for (axis, size) in target.into_iter().enumerate() {
        sizes.push(match size.as_number() {
            Some(0) if site.int_or("allowzero", 0) == 0 => match own {
                None => site.fresh(),
                Some(own) => own.get(axis).cloned().ok_or_else(|| {
                    Error::invalid(format!(
                        "the size 0 of axis {axis} has no axis of the input to take it from"
                    ))
                })?,
            },
            Some(-1) if inferred.is_some() => {
                return Err(Error::invalid("a shape can have one -1 only"));
            }
            Some(-1) => {
                inferred = Some(axis);
                Size::number(1)
            }
            Some(number) if number < 0 => {
                return Err(Error::invalid(format!("a shape must not be negative, one extent is {number}")));
            }
            // 0 and -1 have a meaning of their own.
            None if !site.inference.assumes && size.least().is_none_or(|least| least < 1) => site.fresh(),
            _ => size,
        });
    }
    let (total, rest) = (own.and_then(product), product(&sizes));
    let (Some(total), Some(rest)) = (total, rest) else {
        inferred.into_iter().for_each(|axis| sizes[axis] = site.fresh());
        return one(element, Some(sizes));
    };
    let misfit = || {
        let own = own.map(shown).unwrap_or_default();
        Error::invalid(format!("{total} elements of the shape {own} cannot have the shape {}", shown(&sizes)))
    };
    match inferred {
        // A product with a size of 0 may have any other size.
        Some(axis) => match (total.as_number(), rest.as_number()) {
            (_, Some(0)) => sizes[axis] = site.fresh(),
            (Some(total), Some(rest)) if total % rest != 0 => return Err(misfit()),
            _ => sizes[axis] = site.or_fresh(total.over(&rest)),
        },
        None if total.contradicts(&rest) => return Err(misfit()),
        None => {}
    }
    one(element, Some(sizes))
}

fn slice(site: &Site<'_>) -> Result<Vec<Known>> {
    let Some(sizes) = site.shape(0) else { return one(site.element(0), None) };
    let rank = sizes.len();
    let mut sizes = sizes.to_vec();
    let given = |name: &str, input: usize| -> Option<Option<Vec<Size>>> {
        match site.opset() < 10 {
            true => site.ints(name).map(|all| Some(all.iter().map(|&number| Size::number(number)).collect())),
            false => site.has(input).then(|| site.numbers(input)),
        }
    };
    let (Some(Some(starts)), Some(Some(ends))) = (given("starts", 1), given("ends", 2)) else {
        // Where the axes are known, the others stay.
        let axes = match site.integers_since(10, "axes", 3) {
            Some(Some(axes)) => site.axes(&axes, rank)?,
            _ => (0..rank).collect(),
        };
        axes.into_iter().for_each(|axis| sizes[axis] = site.fresh());
        return one(site.element(0), Some(sizes));
    };
    let axes = match site.integers_since(10, "axes", 3) {
        None => (0..starts.len() as i64).collect(),
        Some(Some(axes)) => axes,
        Some(None) => return one(site.element(0), Some(site.unknown(rank))),
    };
    let steps = match site.integers_since(10, "steps", 4) {
        None => vec![Some(1); starts.len()],
        Some(Some(steps)) => steps.into_iter().map(Some).collect(),
        Some(None) => vec![None; starts.len()],
    };
    let axes = site.axes(&axes, rank)?;
    for (((axis, start), end), step) in axes.into_iter().zip(&starts).zip(&ends).zip(steps) {
        let size = step.and_then(|step| sliced(&sizes[axis], start, end, step, site.inference.assumes));
        sizes[axis] = site.or_fresh(size);
    }
    one(site.element(0), Some(sizes))
}

/// The number of elements of a slice. With `assumes`, the axis is taken to have all that the bounds name.
fn sliced(size: &Size, start: &Size, end: &Size, step: i64, assumes: bool) -> Option<Size> {
    if let (Some(size), Some(start), Some(end)) = (size.as_number(), start.as_number(), end.as_number()) {
        let (first, last) = range(start, end, step, size)?;
        let distance = if step > 0 { last - first } else { first - last };
        return Size::number(distance.max(0)).over_up(&Size::number(step.checked_abs()?));
    }
    if step > 0 && end.as_number() == Some(0) {
        return Some(Size::number(0));
    }
    // A bound from the start or the end of an axis whose extent is not a number.
    let place = |bound: &Size| match bound.as_number() {
        Some(number) if number >= size.as_number().unwrap_or(i64::from(i32::MAX)) => Some(size.clone()),
        Some(number) if number < -i64::from(i32::MAX) => Some(Size::number(0)),
        Some(number) if number < 0 => {
            size.plus(&Size::number(number)).filter(|place| assumes || place.is_size(false))
        }
        Some(0) => Some(Size::number(0)),
        // It may be beyond the end.
        Some(_) => None,
        // A negative one would count from the end.
        None => Some(bound.clone()).filter(|bound| bound == size || bound.is_size(assumes)),
    };
    let step_size = Size::number(step.checked_abs()?);
    if step < 0 {
        // The whole axis backwards.
        let whole =
            start.as_number() == Some(-1) && end.as_number().is_some_and(|end| end < -i64::from(i32::MAX));
        return if whole { size.over_up(&step_size) } else { None };
    }
    let first = match start.as_number() {
        Some(number) if (0..i64::from(i32::MAX)).contains(&number) => start.clone(),
        _ => place(start)?,
    };
    let last = place(end)?;
    // A symbolic bound ends a slice only if it is no more than the extent.
    let is_within = |bound: &Size| {
        size.minus(bound).and_then(|rest| rest.least()).is_some_and(|least| least >= 0) || bound == size
    };
    if end.as_number().is_none() && !is_within(&last) {
        return None;
    }
    last.minus(&first)?.over_up(&step_size)?.at_least_zero(assumes)
}

fn split(site: &Site<'_>) -> Result<Vec<Known>> {
    let (count, element) = (site.node.outputs.len(), site.element(0));
    let Some(sizes) = site.shape(0) else { return Ok(vec![tensor(element, None); count]) };
    let axis = site.axis(site.int_or("axis", 0), sizes.len())?;
    let size = &sizes[axis];
    let lengths: Vec<Size> = match site.integers_since(13, "split", 1) {
        Some(_) => {
            let attribute = || site.ints("split").map(|all| all.iter().map(|&n| Size::number(n)).collect());
            let given: Option<Vec<Size>> = if site.opset() < 13 { attribute() } else { site.numbers(1) };
            match given {
                Some(given) if given.len() != count => {
                    return Err(Error::invalid(format!("{} sizes for {count} outputs", given.len())));
                }
                Some(given) => {
                    let sum = given.iter().try_fold(Size::number(0), |sum, size| sum.plus(size));
                    if sum.as_ref().is_some_and(|sum| sum.contradicts(size)) {
                        let parts = shown(&given);
                        return Err(Error::invalid(format!(
                            "an axis of {size} cannot be split into {parts}"
                        )));
                    }
                    given
                }
                None => site.unknown(count),
            }
        }
        None => {
            let parts = Size::number(count as i64);
            match size.as_extent() {
                Some(total) => {
                    let part = total.div_ceil(count.max(1));
                    (0..count)
                        .map(|at| Size::number(part.min(total.saturating_sub(at * part)) as i64))
                        .collect()
                }
                None if site.opset() < 18 => vec![site.or_fresh(size.over(&parts)); count],
                None => {
                    let part = site.or_fresh(size.over_up(&parts));
                    let mut all = vec![part.clone(); count];
                    if size.divided(&parts).is_none() {
                        // Of several, the last parts may be empty.
                        let rest = size.minus(&part).filter(|_| count == 2);
                        all.iter_mut().skip(1).for_each(|size| *size = site.or_fresh(rest.clone()));
                    }
                    all
                }
            }
        }
    };
    let part = |length: Size| {
        let mut sizes = sizes.to_vec();
        sizes[axis] = length;
        tensor(element, Some(sizes))
    };
    Ok(lengths.into_iter().map(part).collect())
}

fn squeeze(site: &Site<'_>) -> Result<Vec<Known>> {
    let Some(sizes) = site.shape(0) else { return one(site.element(0), None) };
    let axes = match site.integers_since(13, "axes", 1) {
        Some(Some(axes)) => site.axes(&axes, sizes.len())?,
        Some(None) => {
            let count = site.shape(1).and_then(|shape| shape.first()?.as_extent());
            let rank = count.and_then(|count| sizes.len().checked_sub(count));
            return one(site.element(0), rank.map(|rank| site.unknown(rank)));
        }
        // All of size 1: whether an unknown size is one is not known.
        None if sizes.iter().all(|size| size.as_number().is_some()) => {
            (0..sizes.len()).filter(|&axis| sizes[axis].as_number() == Some(1)).collect()
        }
        None => return one(site.element(0), None),
    };
    for &axis in &axes {
        site.same(&sizes[axis], &Size::number(1), &format!("the extent of the squeezed axis {axis} and 1"))?;
    }
    let rest = sizes.iter().enumerate().filter(|(axis, _)| !axes.contains(axis));
    one(site.element(0), Some(rest.map(|(_, size)| size.clone()).collect()))
}

fn tile(site: &Site<'_>) -> Result<Vec<Known>> {
    let Some(sizes) = site.shape(0) else { return one(site.element(0), None) };
    let tiled = match site.numbers(1) {
        Some(counts) if counts.len() != sizes.len() => {
            return Err(Error::invalid(format!("{} repeats for {} dimensions", counts.len(), sizes.len())));
        }
        Some(counts) => {
            sizes.iter().zip(&counts).map(|(size, count)| site.or_fresh(size.times(count))).collect()
        }
        None => site.unknown(sizes.len()),
    };
    one(site.element(0), Some(tiled))
}

fn transpose(site: &Site<'_>) -> Result<Vec<Known>> {
    let Some(sizes) = site.shape(0) else {
        return one(
            site.element(0),
            site.ints("perm").map(|order| site.unknown(order.len().min(MAX_RANK + 1))),
        );
    };
    let order = match site.ints("perm") {
        Some(order) => site.axes(order, sizes.len())?,
        None => (0..sizes.len()).rev().collect(),
    };
    if order.len() != sizes.len() {
        return Err(Error::invalid(format!("perm has {} axes for {} dimensions", order.len(), sizes.len())));
    }
    one(site.element(0), Some(order.into_iter().map(|axis| sizes[axis].clone()).collect()))
}

fn unsqueeze(site: &Site<'_>) -> Result<Vec<Known>> {
    let Some(sizes) = site.shape(0) else { return one(site.element(0), None) };
    let Some(Some(axes)) = site.integers_since(13, "axes", 1) else {
        let count = match site.shape(1) {
            Some([]) => Some(1),
            Some([count]) => count.as_extent().filter(|&count| count <= MAX_RANK),
            _ => None,
        };
        return one(site.element(0), count.map(|count| site.unknown(sizes.len() + count)));
    };
    let rank = sizes.len() + axes.len();
    let axes = site.axes(&axes, rank)?;
    let mut own = sizes.iter().cloned();
    let size = |axis: usize| if axes.contains(&axis) { Some(Size::number(1)) } else { own.next() };
    one(site.element(0), Some((0..rank).filter_map(size).collect()))
}
