//! Control flow.

use super::{
    Size,
    fact::{Fact, Known},
    site::{Rows, Site, tensor},
};
use crate::{Element, Error, Result, graph::Graph};

pub(super) const ROWS: Rows = &[("If", if_), ("Loop", loop_), ("Scan", scan)];

/// How often the body of a loop is looked at, until the types of its states stay as they are.
const TURNS: usize = 6;

fn if_(site: &Site<'_>) -> Result<Vec<Known>> {
    let branch = |name: &str| match site.graph(name) {
        Some(graph) => site.inference.graph(graph, Vec::new(), Some(site.scope)),
        None => Ok(Vec::new()),
    };
    if let Some(condition) = site.number(0).and_then(|number| number.as_number()) {
        return branch(if condition != 0 { "then_branch" } else { "else_branch" });
    }
    match (branch("then_branch"), branch("else_branch")) {
        (Ok(a), Ok(b)) => {
            let joined = a.iter().zip(&b).map(|(a, b)| a.joined(b).renewed(&mut || site.fresh()));
            Ok(joined.collect())
        }
        // A branch that cannot run for these sizes is one that is not taken.
        (Ok(results), Err(_)) | (Err(_), Ok(results)) => Ok(results),
        (Err(error), Err(_)) => Err(error),
    }
}

/// Looks at a body until the types of its states, the outputs from `before` on, are the same before and after a step.
/// Returns its outputs; `None` if they never are.
fn settled(
    site: &Site<'_>,
    body: &Graph,
    states: Vec<Known>,
    before: usize,
    inputs: impl Fn(&[Known]) -> Vec<Known>,
) -> Result<Option<Vec<Known>>> {
    let mut states: Vec<Known> = states.into_iter().map(Known::without_numbers).collect();
    if body.outputs.len() < before + states.len() {
        return Err(Error::invalid(format!(
            "the body has {} outputs, it needs at least {}",
            body.outputs.len(),
            before + states.len()
        )));
    }
    let mut varying = Vec::new();
    for _ in 0..TURNS {
        let outputs = site.inference.graph(body, inputs(&states), Some(site.scope))?;
        let results = outputs.iter().skip(before);
        let joined: Vec<Known> =
            states.iter().zip(results).map(|(state, result)| widened(state, result, &varying)).collect();
        if joined.iter().zip(&states).all(|(joined, state)| joined.is_alike(state)) {
            let outputs = outputs.into_iter().enumerate();
            // After no steps, the states are those at the start.
            return Ok(Some(
                outputs
                    .map(|(at, output)| match at.checked_sub(before).and_then(|at| states.get(at)) {
                        Some(state) => state.clone(),
                        None => output,
                    })
                    .collect(),
            ));
        }
        let mut vary = || {
            varying.push(site.fresh());
            varying.last().cloned().unwrap_or_else(|| site.fresh())
        };
        states = joined.into_iter().map(|state| state.renewed(&mut vary)).collect();
    }
    Ok(None)
}

/// A state that is `result` after a step. Extents that are known to vary stay.
fn widened(state: &Known, result: &Known, varying: &[Size]) -> Known {
    match (state, result) {
        (Known::Sequence(a), Known::Sequence(b)) => Known::Sequence(Box::new(widened(a, b, varying))),
        (Known::Optional(a), Known::Optional(b)) => Known::Optional(Box::new(widened(a, b, varying))),
        (Known::Tensor(Fact { shape: Some(a), .. }), Known::Tensor(Fact { shape: Some(b), .. }))
            if a.len() == b.len() =>
        {
            let mut joined = state.joined(result).without_numbers();
            if let Known::Tensor(Fact { shape: Some(shape), .. }) = &mut joined {
                let kept = shape.iter_mut().zip(a).filter(|(_, own)| varying.contains(own));
                kept.for_each(|(size, own)| *size = own.clone());
            }
            joined
        }
        _ => state.joined(result).without_numbers(),
    }
}

/// A scan output: the results of so many steps along a new axis.
fn scanned(site: &Site<'_>, step: &Known, axis: i64, count: &Size) -> Result<Known> {
    let Some(fact) = step.fact() else { return Ok(Known::Nothing) };
    let shape = match &fact.shape {
        None => None,
        Some(sizes) => {
            let mut sizes = sizes.clone();
            // What differs from step to step is an extent that is not known, but the same in all of them.
            sizes.insert(site.axis(axis, sizes.len() + 1)?, count.clone());
            Some(sizes)
        }
    };
    Ok(tensor(fact.element, shape))
}

fn loop_(site: &Site<'_>) -> Result<Vec<Known>> {
    let Some(body) = site.graph("body") else { return Ok(Vec::new()) };
    let scalar = |element| tensor(Some(element), Some(Vec::new()));
    let states: Vec<Known> = (2..site.count()).map(|input| site.known(input).clone()).collect();
    let count = states.len();
    let inputs = |states: &[Known]| {
        [scalar(Element::Int64), scalar(Element::Bool)].into_iter().chain(states.iter().cloned()).collect()
    };
    let Some(outputs) = settled(site, body, states, 1, inputs)? else { return Ok(Vec::new()) };
    let is_true = |fact: Option<&Fact>| {
        fact.and_then(Fact::integers).is_some_and(|all| matches!(all[..], [number] if number != 0))
    };
    // Without a condition, that of the body is ignored.
    let never_stops = !site.has(1) || is_true(site.fact(1)) && is_true(outputs.first().and_then(Known::fact));
    let trips = if never_stops { site.number(0) } else { None };
    let trips = trips.and_then(|trips| trips.at_least_zero(site.inference.assumes));
    let trips = site.or_fresh(trips);
    let outputs = outputs.into_iter().skip(1).enumerate();
    outputs
        .map(|(at, output)| if at < count { Ok(output) } else { scanned(site, &output, 0, &trips) })
        .collect()
}

/// A tensor without an axis.
fn slice(site: &Site<'_>, known: &Known, axis: i64) -> Result<(Known, Option<Size>)> {
    let Some(fact) = known.fact() else { return Ok((Known::Nothing, None)) };
    let Some(sizes) = &fact.shape else { return Ok((tensor(fact.element, None), None)) };
    let mut sizes = sizes.clone();
    let length = sizes.remove(site.axis(axis, sizes.len())?);
    Ok((tensor(fact.element, Some(sizes)), Some(length)))
}

fn scan(site: &Site<'_>) -> Result<Vec<Known>> {
    let Some(body) = site.graph("body") else { return Ok(Vec::new()) };
    let batched = site.opset() < 9;
    let count = usize::try_from(site.int_or("num_scan_inputs", 0)).unwrap_or(0);
    let all: Vec<Known> =
        (usize::from(batched)..site.count()).map(|input| site.known(input).clone()).collect();
    let Some(states) = all.len().checked_sub(count).filter(|_| count > 0) else {
        return Err(Error::invalid(format!(
            "num_scan_inputs is {count}, but there are {} inputs",
            all.len()
        )));
    };
    let axes = site.ints("scan_input_axes").unwrap_or_default();
    let (mut slices, mut length, mut batch) = (Vec::new(), None::<Size>, None);
    for (at, known) in all.iter().skip(states).enumerate() {
        let axis = if batched { 1 } else { axes.get(at).copied().unwrap_or(0) };
        let (mut element, own) = slice(site, known, axis)?;
        if batched {
            (element, batch) = slice(site, &element, 0)?;
        }
        length = match (length, own) {
            (Some(a), Some(b)) => Some(site.same(&a, &b, "the lengths of the scan inputs")?),
            (a, b) => a.or(b),
        };
        slices.push(element);
    }
    let mut starts: Vec<Known> = all.into_iter().take(states).collect();
    if batched {
        starts = starts.iter().map(|state| Ok(slice(site, state, 0)?.0)).collect::<Result<_>>()?;
    }
    let inputs = |states: &[Known]| states.iter().chain(&slices).cloned().collect();
    let Some(outputs) = settled(site, body, starts, 0, inputs)? else { return Ok(Vec::new()) };
    let (length, batch) = (site.or_fresh(length), site.or_fresh(batch));
    let axes = site.ints("scan_output_axes").unwrap_or_default();
    let result = |(at, output): (usize, Known)| {
        let output = match at.checked_sub(states) {
            None => output.without_numbers(),
            Some(at) => {
                let axis = if batched { 0 } else { axes.get(at).copied().unwrap_or(0) };
                scanned(site, &output, axis, &length)?
            }
        };
        if batched { scanned(site, &output, 0, &batch) } else { Ok(output) }
    };
    outputs.into_iter().enumerate().map(result).collect()
}
