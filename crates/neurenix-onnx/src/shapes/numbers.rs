//! Follows the elements of small tensors of integers, such as shapes, through the operators that compute with them.

use phynexus::{Device, tensor::Generator};

use super::{
    SMALL, Size,
    fact::{Fact, Known},
    site::{Site, product},
};
use crate::{
    Element, Value,
    graph::{Action, Call, Environment, Scope},
};

/// Operators that are computed if all of their inputs are known.
const FOLDED: &[&str] = &[
    "Abs",
    "Add",
    "And",
    "ArgMax",
    "ArgMin",
    "Cast",
    "Ceil",
    "Clip",
    "Compress",
    "Concat",
    "ConstantOfShape",
    "CumSum",
    "Div",
    "Equal",
    "Expand",
    "Flatten",
    "Floor",
    "Gather",
    "GatherElements",
    "GatherND",
    "Greater",
    "GreaterOrEqual",
    "Identity",
    "Less",
    "LessOrEqual",
    "Max",
    "Min",
    "Mod",
    "Mul",
    "Neg",
    "NonZero",
    "Not",
    "OneHot",
    "Or",
    "Pad",
    "Pow",
    "Range",
    "Reciprocal",
    "ReduceMax",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "Reshape",
    "Round",
    "ScatterElements",
    "ScatterND",
    "Sign",
    "Slice",
    "Split",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Sum",
    "Tile",
    "TopK",
    "Transpose",
    "Unique",
    "Unsqueeze",
    "Where",
    "Xor",
];

/// Results as a rule found them, with their elements if these can be followed.
pub(super) fn followed(site: &Site<'_>, mut results: Vec<Known>) -> Vec<Known> {
    if let Some(folded) = folded(site, &results) {
        return folded.iter().map(Known::of_value).collect();
    }
    let Some(found) = symbolic(site, &results) else { return results };
    for (known, symbols) in results.iter_mut().zip(found) {
        let Known::Tensor(fact) = known else { continue };
        // Constants are cheap to keep, expressions are not.
        if symbols.len() <= SMALL && site.inference.may_follow(symbols.len()) {
            let is_there = |count| count == symbols.len();
            fact.symbols = fact.count().is_some_and(is_there).then_some(symbols);
        }
    }
    results
}

/// The results of a node whose inputs are all known.
fn folded(site: &Site<'_>, results: &[Known]) -> Option<Vec<Value>> {
    let node = site.node;
    if !FOLDED.contains(&node.operator.as_str()) || node.inputs.is_empty() {
        return None;
    }
    // Whatever has an unknown extent is no larger than the inputs.
    let is_small = |known: &Known| {
        let sizes = known.fact().and_then(|fact| fact.shape.as_ref());
        let extent = |size: &Size| match size.as_extent() {
            None if size.as_number().is_none() => Some(1),
            extent => extent,
        };
        let product = |count: usize, size| count.checked_mul(extent(size)?);
        let count = sizes.and_then(|sizes| sizes.iter().try_fold(1usize, product));
        let fits = |size| extent(size).is_some_and(|extent| extent <= SMALL);
        count.is_some_and(|count| count <= SMALL) && sizes.is_some_and(|sizes| sizes.iter().all(fits))
    };
    if !results.iter().all(is_small) {
        return None;
    }
    let input = |(place, known): (usize, &Known)| match site.has(place) {
        true => known.fact().and_then(Fact::value).map(Some),
        false => Some(None),
    };
    let mut inputs: Vec<Option<Value>> = site.inputs.iter().enumerate().map(input).collect::<Option<_>>()?;
    while inputs.last().is_some_and(Option::is_none) {
        inputs.pop();
    }
    let Action::Compute(operator) = &node.action else { return None };
    if !site.inference.may_follow(results.len() * SMALL / 8) {
        return None;
    }
    let device = Device::find("cpu").ok()?;
    let environment = Environment { device, generator: &Generator::new(0) };
    let call = Call { node, inputs, environment, scope: &Scope::default(), device };
    // Failures are for the run to report: a rule has found no contradiction.
    operator(&call).ok()
}

/// The elements of a node's results, as far as they can be expressed.
fn symbolic(site: &Site<'_>, results: &[Known]) -> Option<Vec<Vec<Size>>> {
    let pairs = |apply: &dyn Fn(&Size, &Size) -> Option<Size>| Some(vec![elementwise(site, apply)?]);
    let kept = || Some(vec![site.numbers(0)?]);
    let is_float =
        site.element(0).is_some_and(|element| element.dtype().is_some_and(|dtype| dtype.is_float()));
    match site.node.operator.as_str() {
        "Add" => pairs(&|a, b| a.plus(b)),
        "Sub" => pairs(&|a, b| a.minus(b)),
        "Mul" => pairs(&|a, b| a.times(b)),
        // Integers are rounded towards zero, which differs for negative ones.
        "Div" if is_float => pairs(&|a, b| a.divided(b)),
        "Div" => pairs(&|a, b| match a.as_number().is_some() || a.is_size(site.inference.assumes) {
            true => a.over(b),
            false => a.divided(b),
        }),
        "Mod" if !is_float => pairs(&|a, b| a.minus(&a.over(b)?.times(b)?)),
        "Max" => pairs(&|a, b| greater(a, b, true)),
        "Min" => pairs(&|a, b| greater(a, b, false)),
        "Equal" => pairs(&|a, b| decided(&a.minus(b)?, |sign| sign == 0)),
        "Greater" => pairs(&|a, b| decided(&a.minus(b)?, |sign| sign > 0)),
        "GreaterOrEqual" => pairs(&|a, b| decided(&a.minus(b)?, |sign| sign >= 0)),
        "Less" => pairs(&|a, b| decided(&a.minus(b)?, |sign| sign < 0)),
        "LessOrEqual" => pairs(&|a, b| decided(&a.minus(b)?, |sign| sign <= 0)),
        "Neg" => {
            Some(vec![site.numbers(0)?.iter().map(|x| Size::number(0).minus(x)).collect::<Option<_>>()?])
        }
        "Identity" | "Floor" | "Ceil" | "Round" | "Squeeze" | "Unsqueeze" | "Reshape" | "Flatten" => kept(),
        "Cast" => match site.element_attribute("to") {
            Some(Element::Int64 | Element::Int32 | Element::Float | Element::Double) => kept(),
            _ => None,
        },
        "Shape" => {
            let shape = site.shape(0)?;
            let (start, end) = bounds(site, shape.len());
            Some(vec![shape.get(start..end).unwrap_or_default().to_vec()])
        }
        "Size" => Some(vec![vec![product(site.shape(0)?)?]]),
        "Gather" => gathered(site),
        "Concat" => concatenated(site),
        "Slice" => sliced(site),
        "Split" => {
            let mut rest = site.numbers(0)?.into_iter();
            let part = |known: &Known| Some(rest.by_ref().take(known.fact()?.count()?).collect());
            if site.rank(0)? == 1 { results.iter().map(part).collect() } else { None }
        }
        "ReduceProd" if is_whole_reduction(results) => Some(vec![vec![product(&site.numbers(0)?)?]]),
        "ReduceSum" if is_whole_reduction(results) => {
            let numbers = site.numbers(0)?;
            let sum = numbers.iter().try_fold(Size::number(0), |sum, number| sum.plus(number))?;
            Some(vec![vec![sum]])
        }
        "Expand" | "Tile" => {
            let (number, count) = (site.number(0)?, results.first()?.fact()?.count()?);
            (count <= SMALL).then(|| vec![vec![number; count]])
        }
        "Where" => {
            let count = results.first()?.fact()?.count()?;
            let (condition, a, b) = (site.numbers(0)?, site.numbers(1)?, site.numbers(2)?);
            let at = |all: &[Size], place: usize| match all {
                [one] => Some(one.clone()),
                all => all.get(place).filter(|_| all.len() == count).cloned(),
            };
            let chosen = |place: usize| {
                let (a, b) = (at(&a, place)?, at(&b, place)?);
                match at(&condition, place)?.as_number() {
                    _ if a == b => Some(a),
                    Some(holds) => Some(if holds != 0 { a } else { b }),
                    None => Some(site.fresh()),
                }
            };
            Some(vec![(0..count).map(chosen).collect::<Option<_>>()?])
        }
        _ => None,
    }
}

/// A reduction to one element.
fn is_whole_reduction(results: &[Known]) -> bool {
    results.first().and_then(Known::fact).and_then(Fact::count) == Some(1)
}

/// The axes that `Shape` returns.
pub(super) fn bounds(site: &Site<'_>, rank: usize) -> (usize, usize) {
    let place = |bound: i64| {
        (if bound < 0 { bound.saturating_add(rank as i64) } else { bound }).clamp(0, rank as i64) as usize
    };
    (place(site.int_or("start", 0)), place(site.int_or("end", rank as i64)))
}

/// A function of pairs of elements; one of the operands may be one number.
fn elementwise(site: &Site<'_>, apply: &dyn Fn(&Size, &Size) -> Option<Size>) -> Option<Vec<Size>> {
    if site.count() == 1 {
        return site.numbers(0);
    }
    let (a, b) = (site.numbers(0)?, site.numbers(1)?);
    let count = a.len().max(b.len());
    let fits = |all: &[Size], rank: Option<usize>| {
        all.len() == 1 || all.len() == count && rank.is_some_and(|r| r <= 1)
    };
    let same = site.shape(0) == site.shape(1);
    if site.count() > 2 || !(same || fits(&a, site.rank(0)) && fits(&b, site.rank(1))) {
        return None;
    }
    let at = |all: &[Size], place: usize| {
        if all.len() == 1 { all.first().cloned() } else { all.get(place).cloned() }
    };
    (0..count).map(|place| Some(site.or_fresh(apply(&at(&a, place)?, &at(&b, place)?)))).collect()
}

/// The greater of two, or the lesser, if it is clear which that is.
fn greater(a: &Size, b: &Size, wants_greater: bool) -> Option<Size> {
    let a_is_greater = decided(&a.minus(b)?, |sign| sign >= 0)?.as_number()? != 0;
    Some(if a_is_greater == wants_greater { a.clone() } else { b.clone() })
}

/// Whether a comparison holds for the sign of a difference, if that is clear.
fn decided(difference: &Size, holds: impl Fn(i64) -> bool) -> Option<Size> {
    let answer = |answer: bool| Some(Size::number(i64::from(answer)));
    if let Some(number) = difference.as_number() {
        return answer(holds(number.signum()));
    }
    // An extent plus a number.
    let negated = Size::number(0).minus(difference)?;
    for (size, turned) in [(difference, 1), (&negated, -1)] {
        if size.least().is_some_and(|least| least > 0) {
            return answer(holds(turned));
        }
        // At least 0: the answer may be the same for 0 and above.
        if size.least() == Some(0) && holds(0) == holds(turned) {
            return answer(holds(0));
        }
    }
    None
}

fn gathered(site: &Site<'_>) -> Option<Vec<Vec<Size>>> {
    let (data, index) = (site.numbers(0)?, site.integers(1)?);
    if site.rank(0)? != 1 || !matches!(site.int_or("axis", 0), 0 | -1) {
        return None;
    }
    let element = |&at: &i64| {
        let place = if at < 0 { at.checked_add(data.len() as i64)? } else { at };
        data.get(usize::try_from(place).ok()?).cloned()
    };
    Some(vec![index.iter().map(element).collect::<Option<_>>()?])
}

fn concatenated(site: &Site<'_>) -> Option<Vec<Vec<Size>>> {
    let mut all = Vec::new();
    for input in 0..site.count() {
        let fact = site.fact(input)?;
        if fact.shape.as_ref()?.len() != 1 {
            return None;
        }
        match fact.numbers() {
            Some(numbers) => all.extend(numbers),
            // Elements that depend on data are sizes that nothing is known of.
            None => all.extend(site.unknown(fact.count().filter(|&count| count <= SMALL)?)),
        }
        if all.len() > SMALL {
            return None;
        }
    }
    Some(vec![all])
}

fn sliced(site: &Site<'_>) -> Option<Vec<Vec<Size>>> {
    let data = site.numbers(0)?;
    let numbers = |name: &str, input: usize| site.integers_since(10, name, input).unwrap_or(Some(vec![]));
    let (starts, ends) = (numbers("starts", 1)?, numbers("ends", 2)?);
    let steps = numbers("steps", 4)?;
    let (&[start], &[end], 1) = (&starts[..], &ends[..], site.rank(0)?) else { return None };
    let (count, step) = (data.len() as i64, steps.first().copied().unwrap_or(1));
    let (first, last) = range(start, end, step, count)?;
    let mut found = Vec::new();
    let mut at = first;
    while if step > 0 { at < last } else { at > last } {
        found.push(data.get(usize::try_from(at).ok()?)?.clone());
        at = at.checked_add(step)?;
    }
    Some(vec![found])
}

/// Where a slice of so many elements begins, and before which element it ends.
pub(super) fn range(start: i64, end: i64, step: i64, count: i64) -> Option<(i64, i64)> {
    let from_zero = |at: i64| if at < 0 { at.saturating_add(count) } else { at };
    match step {
        0 => None,
        1.. => Some((from_zero(start).clamp(0, count), from_zero(end).clamp(0, count))),
        _ => Some((from_zero(start).clamp(0, count - 1), from_zero(end).clamp(-1, count - 1))),
    }
}
