//! The order of numbers. NaN is beyond every number.

use std::cmp::Ordering;

use super::number::Number;
use crate::op::Combine;

/// Compares two numbers, with NaN as the greatest and equal to itself; `None` if their bounds overlap.
pub(crate) fn compare(a: Number, b: Number) -> Option<Ordering> {
    match (a, b) {
        (Number::Integer(a), Number::Integer(b)) => Some(a.cmp(&b)),
        (Number::Float(a), Number::Float(b)) => match (a.is_nan(), b.is_nan()) {
            (true, true) => Some(Ordering::Equal),
            (true, false) => Some(Ordering::Greater),
            (false, true) => Some(Ordering::Less),
            _ if a.high < b.low => Some(Ordering::Less),
            _ if a.low > b.high => Some(Ordering::Greater),
            _ if a.is_point() && b.is_point() => Some(Ordering::Equal),
            _ => None,
        },
        _ => None,
    }
}

/// The position of the first extreme; NaN counts as an extreme.
pub(crate) fn first_extreme(combine: Combine, values: &[Number]) -> Number {
    let is_nan = |n: &Number| matches!(n, Number::Float(x) if x.is_nan());
    if values.iter().any(|n| matches!(n, Number::Undetermined)) {
        return Number::Undetermined;
    }
    if let Some(first) = values.iter().position(is_nan) {
        return Number::Integer(first as i128);
    }
    let better = if combine == Combine::Min { Ordering::Less } else { Ordering::Greater };
    let beats_all = |&best: &usize| {
        values.iter().enumerate().filter(|(i, _)| *i != best).all(|(i, other)| {
            match compare(values[best], *other) {
                Some(Ordering::Equal) => best < i,
                Some(order) => order == better,
                None => false,
            }
        })
    };
    // Only the extreme by value can be beyond all others.
    let key = |i: usize| match values[i] {
        Number::Integer(x) => (x, 0.0),
        Number::Float(x) => (0, x.value),
        Number::Undetermined => (0, 0.0),
    };
    let best = (0..values.len()).reduce(|a, b| {
        let order = key(b).partial_cmp(&key(a)).unwrap_or(Ordering::Equal);
        if order == better { b } else { a }
    });
    best.filter(beats_all).map_or(Number::Undetermined, |i| Number::Integer(i as i128))
}
