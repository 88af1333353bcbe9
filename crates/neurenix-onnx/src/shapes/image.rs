//! Images: resampling, sampling grids and boxes.

use super::{
    Size,
    fact::Known,
    site::{Rows, Site, one},
};
use crate::{Element, Error, Result};

pub(super) const ROWS: Rows = &[
    ("AffineGrid", affine_grid),
    ("GridSample", grid_sample),
    ("NonMaxSuppression", |site| one(Some(Element::Int64), Some(vec![site.fresh(), Size::number(3)]))),
    ("Resize", resize),
    ("Upsample", resize),
];

fn affine_grid(site: &Site<'_>) -> Result<Vec<Known>> {
    let element = site.element(0);
    let count = match site.shape(1) {
        Some([count]) => count.as_extent().filter(|count| matches!(count, 4 | 5)),
        _ => None,
    };
    let sizes = site.numbers(1).filter(|sizes| matches!(sizes.len(), 4 | 5));
    let Some(sizes) = sizes.or_else(|| count.map(|count| site.unknown(count))) else {
        return one(element, None);
    };
    let (batch, spatial) = (sizes[..1].to_vec(), sizes[2..].to_vec());
    let dimensions = vec![Size::number(spatial.len() as i64)];
    one(element, Some([batch, spatial, dimensions].concat()))
}

fn grid_sample(site: &Site<'_>) -> Result<Vec<Known>> {
    let (Some([batch, channels, ..]), Some([_, points @ .., _])) = (site.shape(0), site.shape(1)) else {
        return one(site.element(0), None);
    };
    one(site.element(0), Some([&[batch.clone(), channels.clone()], points].concat()))
}

fn resize(site: &Site<'_>) -> Result<Vec<Known>> {
    let element = site.element(0);
    let Some(own) = site.shape(0) else { return one(element, None) };
    let axes = match site.ints("axes") {
        Some(axes) => site.axes(axes, own.len())?,
        None => (0..own.len()).collect(),
    };
    let mut sizes = own.to_vec();
    let old = site.opset() < 11 || site.node.operator == "Upsample";
    let scales: Option<Vec<f64>> = match site.floats("scales") {
        Some(scales) => Some(scales.iter().map(|&scale| f64::from(scale)).collect()),
        None => site.fact(if old { 1 } else { 2 }).and_then(|fact| fact.floats()),
    };
    let is_empty = |input: usize| match site.shape(input) {
        Some([size]) => size.as_number() == Some(0),
        _ => false,
    };
    let target = if old || !site.has(3) || is_empty(3) { None } else { Some(site.numbers(3)) };
    let misfit = |what: &str, count: usize| {
        Error::invalid(format!("{what} has {count} numbers, it needs {}", axes.len()))
    };
    match (scales.filter(|scales| !scales.is_empty()), target) {
        (Some(scales), _) => {
            if scales.len() != axes.len() {
                return Err(misfit("scales", scales.len()));
            }
            for (&axis, scale) in axes.iter().zip(scales) {
                sizes[axis] = site.or_fresh(scaled(&own[axis], scale));
            }
        }
        (None, Some(Some(target))) => {
            if target.len() != axes.len() {
                return Err(misfit("sizes", target.len()));
            }
            let stretches = site.text_or("keep_aspect_ratio_policy", "stretch") == "stretch";
            let fitted = if stretches { Some(target) } else { fitted(site, own, &axes, &target) };
            let fitted = fitted.unwrap_or_else(|| site.unknown(axes.len()));
            axes.iter().zip(fitted).for_each(|(&axis, size)| sizes[axis] = size);
        }
        _ => axes.iter().for_each(|&axis| sizes[axis] = site.fresh()),
    }
    one(element, Some(sizes))
}

/// An extent times a scale, rounded down as the operator does.
fn scaled(size: &Size, scale: f64) -> Option<Size> {
    match size.as_number() {
        Some(size) => {
            let scaled = (size as f32 * scale as f32).floor();
            (scaled.is_finite() && scaled < 1e15).then(|| Size::number(scaled as i64))
        }
        None if scale.fract() == 0.0 && scale > 0.0 && scale < 1e9 => size.times(&Size::number(scale as i64)),
        None if scale > 1e-9 && (1.0 / scale).fract() == 0.0 => {
            size.over(&Size::number((1.0 / scale) as i64))
        }
        None => None,
    }
}

/// Target sizes with the aspect ratio kept.
fn fitted(site: &Site<'_>, own: &[Size], axes: &[usize], target: &[Size]) -> Option<Vec<Size>> {
    let numbers = |sizes: Vec<&Size>| sizes.into_iter().map(Size::as_number).collect::<Option<Vec<i64>>>();
    let own = numbers(axes.iter().map(|&axis| &own[axis]).collect())?;
    let target = numbers(target.iter().collect())?;
    let ratios = target.iter().zip(&own).map(|(&target, &own)| target as f64 / own as f64);
    let ratio = match site.text_or("keep_aspect_ratio_policy", "stretch") {
        "not_larger" => ratios.fold(f64::INFINITY, f64::min),
        "not_smaller" => ratios.fold(0.0, f64::max),
        _ => return None,
    };
    Some(own.iter().map(|&own| Size::number((ratio * own as f64 + 0.5).floor() as i64)).collect())
}
