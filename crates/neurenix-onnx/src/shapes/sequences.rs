//! Sequences and optionals.

use super::{
    Size,
    fact::Known,
    site::{Rows, Site, one, tensor},
};
use crate::{Element, Result};

pub(super) const ROWS: Rows = &[
    ("ConcatFromSequence", concat_from_sequence),
    ("Optional", |site| Ok(vec![if site.has(0) { site.known(0).clone() } else { Known::Nothing }])),
    ("OptionalGetElement", |site| {
        Ok(vec![match site.known(0) {
            Known::Optional(inner) => (**inner).clone(),
            other => other.clone(),
        }])
    }),
    ("OptionalHasElement", |_| one(Some(Element::Bool), Some(Vec::new()))),
    ("SequenceAt", |site| Ok(vec![part(site, 0)])),
    ("SequenceConstruct", |site| {
        let first = site.known(0).clone().without_numbers();
        let joined =
            (1..site.count()).fold(first, |all, input| all.joined(site.known(input)).without_numbers());
        Ok(vec![sequence(site, joined)])
    }),
    ("SequenceEmpty", |site| {
        let element = site.element_attribute("dtype").unwrap_or(Element::Float);
        Ok(vec![Known::Sequence(Box::new(tensor(Some(element), None)))])
    }),
    ("SequenceErase", |site| Ok(vec![site.known(0).clone()])),
    ("SequenceInsert", |site| {
        Ok(vec![sequence(site, part(site, 0).joined(&site.known(1).clone().without_numbers()))])
    }),
    ("SequenceLength", |_| one(Some(Element::Int64), Some(Vec::new()))),
    ("SequenceMap", sequence_map),
    ("SplitToSequence", split_to_sequence),
];

/// A sequence of such parts.
fn sequence(site: &Site<'_>, part: Known) -> Known {
    Known::Sequence(Box::new(part.renewed(&mut || site.fresh())))
}

/// The type of the parts of a sequence. Extents that are not known differ from part to part.
fn part(site: &Site<'_>, input: usize) -> Known {
    match site.known(input) {
        Known::Sequence(inner) => {
            let mut part = (**inner).clone();
            if let Known::Tensor(fact) = &mut part {
                let unknown = fact.shape.iter_mut().flatten().filter(|size| !size.is_known());
                unknown.for_each(|size| *size = site.fresh());
            }
            part
        }
        Known::Optional(_) | Known::Nothing | Known::Tensor(_) => Known::Nothing,
    }
}

fn concat_from_sequence(site: &Site<'_>) -> Result<Vec<Known>> {
    let part = part(site, 0);
    let Some(fact) = part.fact() else { return Ok(Vec::new()) };
    let Some(sizes) = &fact.shape else { return one(fact.element, None) };
    let joins = site.int_or("new_axis", 0) != 0;
    let axis = site.axis(site.int_or("axis", 0), sizes.len() + usize::from(joins))?;
    let mut sizes = sizes.clone();
    match joins {
        true => sizes.insert(axis, site.fresh()),
        false => sizes[axis] = site.fresh(),
    }
    one(fact.element, Some(sizes))
}

fn sequence_map(site: &Site<'_>) -> Result<Vec<Known>> {
    let Some(body) = site.graph("body") else { return Ok(Vec::new()) };
    let input = |input: usize| match site.known(input) {
        Known::Sequence(_) => part(site, input),
        other => other.clone(),
    };
    let results = site.inference.graph(body, (0..site.count()).map(input).collect(), Some(site.scope))?;
    Ok(results.into_iter().map(|part| sequence(site, part.without_numbers())).collect())
}

fn split_to_sequence(site: &Site<'_>) -> Result<Vec<Known>> {
    let Some(sizes) = site.shape(0) else {
        return Ok(vec![Known::Sequence(Box::new(tensor(site.element(0), None)))]);
    };
    let axis = site.axis(site.int_or("axis", 0), sizes.len())?;
    let mut sizes = sizes.to_vec();
    if !site.has(1) && site.int_or("keepdims", 1) == 0 {
        sizes.remove(axis);
    } else if !site.has(1) {
        sizes[axis] = Size::number(1);
    } else {
        // One length that divides the axis, or lengths that are all the same.
        let lengths = site.integers(1).unwrap_or_default();
        let total = sizes[axis].as_number();
        sizes[axis] = match &lengths[..] {
            &[length] if site.rank(1) == Some(0) && total.is_some_and(|n| length > 0 && n % length == 0) => {
                Size::number(length)
            }
            [first, rest @ ..] if site.rank(1) == Some(1) && rest.iter().all(|length| length == first) => {
                Size::number(*first)
            }
            _ => site.fresh(),
        };
    }
    Ok(vec![Known::Sequence(Box::new(tensor(site.element(0), Some(sizes))))])
}
