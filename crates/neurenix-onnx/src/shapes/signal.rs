//! Signals: windows, mel scales and Fourier transforms.

use super::{
    Size,
    fact::Known,
    site::{Rows, Site, one},
};
use crate::{Element, Result};

pub(super) const ROWS: Rows = &[
    ("BlackmanWindow", window),
    ("DFT", dft),
    ("HammingWindow", window),
    ("HannWindow", window),
    ("MelWeightMatrix", |site| {
        let bins = site.number(1).and_then(|length| half(&length));
        one(output_type(site), Some(vec![site.or_fresh(bins), site.or_fresh(site.number(0))]))
    }),
    ("STFT", stft),
];

fn output_type(site: &Site<'_>) -> Option<Element> {
    Some(site.element_attribute("output_datatype").unwrap_or(Element::Float))
}

fn window(site: &Site<'_>) -> Result<Vec<Known>> {
    one(output_type(site), Some(vec![site.or_fresh(site.number(0))]))
}

/// The length of the one-sided spectrum of so many samples.
fn half(length: &Size) -> Option<Size> {
    length.over(&Size::number(2))?.plus(&Size::number(1))
}

fn dft(site: &Site<'_>) -> Result<Vec<Known>> {
    let element = site.element(0);
    let Some(sizes) = site.shape(0) else { return one(element, None) };
    let axis = match site.opset() < 20 {
        true => Some(site.int_or("axis", 1)),
        false if !site.has(2) => Some(-2),
        false => site.integers(2).and_then(|axis| axis.first().copied()),
    };
    let (inverse, onesided) = (site.int_or("inverse", 0) != 0, site.int_or("onesided", 0) != 0);
    let parts = Size::number(if inverse && onesided { 1 } else { 2 });
    let Some(axis) = axis else {
        // Whichever axis it is.
        let is_kept = !onesided && !site.has(1);
        let mut sizes = if is_kept { sizes.to_vec() } else { site.unknown(sizes.len()) };
        sizes.last_mut().into_iter().for_each(|last| *last = parts.clone());
        return one(element, Some(sizes));
    };
    let axis = site.axis(axis, sizes.len())?;
    let length = match site.has(1) {
        true => site.number(1),
        false if inverse && onesided => {
            sizes[axis].minus(&Size::number(1)).and_then(|n| n.times(&Size::number(2)))
        }
        false => Some(sizes[axis].clone()),
    };
    let length = if onesided && !inverse { length.and_then(|length| half(&length)) } else { length };
    let mut sizes = sizes.to_vec();
    sizes[axis] = site.or_fresh(length);
    sizes.last_mut().into_iter().for_each(|last| *last = parts.clone());
    one(element, Some(sizes))
}

fn stft(site: &Site<'_>) -> Result<Vec<Known>> {
    let element = site.element(0);
    let Some([batch, samples, _]) = site.of_rank(0, 3)? else { return one(element, Some(site.unknown(4))) };
    let frame = match (site.has(3), site.shape(2)) {
        (true, _) => site.number(3),
        (false, Some([window])) => Some(window.clone()),
        (false, None) if !site.has(2) => Some(samples.clone()),
        _ => None,
    };
    let count = || samples.minus(frame.as_ref()?)?.over(&site.number(1)?)?.plus(&Size::number(1));
    let bins = if site.int_or("onesided", 1) != 0 { frame.as_ref().and_then(half) } else { frame.clone() };
    let shape = vec![batch.clone(), site.or_fresh(count()), site.or_fresh(bins), Size::number(2)];
    one(element, Some(shape))
}
