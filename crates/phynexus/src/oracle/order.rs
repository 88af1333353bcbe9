//! Ops that depend on the order of values: positions of extremes, sorting, searching. NaN is beyond every number.

use std::cmp::Ordering;

use super::{
    array::{OracleArray, every_coordinate, flat_index},
    number::Number,
};
use crate::op::{Combine, ir::IrNode};

/// Compares two numbers, with NaN as the greatest and equal to itself; `None` if their bounds overlap.
fn compare(a: Number, b: Number) -> Option<Ordering> {
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
pub(super) fn first_extreme(combine: Combine, values: &[Number]) -> Number {
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

/// The position of the extreme along an axis.
pub(super) fn arg_reduce(node: &IrNode, x: &OracleArray, combine: Combine, axis: usize) -> Vec<Number> {
    let along = |mut at: crate::shape::Dims| {
        let values: Vec<Number> = (0..x.shape[axis])
            .map(|i| {
                at[axis] = i;
                x.at(&at)
            })
            .collect();
        first_extreme(combine, &values)
    };
    every_coordinate(&node.shape).map(along).collect()
}

/// The positions that sort each row of the last axis.
pub(super) fn arg_sort(x: &OracleArray, descending: bool) -> Vec<Number> {
    let width = x.shape.last().copied().unwrap_or(1);
    if width == 0 {
        return Vec::new();
    }
    x.elements.chunks(width).flat_map(|row| sort_row(row, descending)).collect()
}

fn sort_row(row: &[Number], descending: bool) -> Vec<Number> {
    if row.iter().any(|n| matches!(n, Number::Undetermined)) {
        return vec![Number::Undetermined; row.len()];
    }
    let mut order: Vec<usize> = (0..row.len()).collect();
    let by_value = |&a: &usize, &b: &usize| {
        let order = match (row[a], row[b]) {
            (Number::Integer(x), Number::Integer(y)) => x.cmp(&y),
            (Number::Float(x), Number::Float(y)) => match (x.is_nan(), y.is_nan()) {
                (false, false) => x.value.partial_cmp(&y.value).unwrap_or(Ordering::Equal),
                (p, q) => p.cmp(&q),
            },
            _ => Ordering::Equal,
        };
        if descending { order.reverse() } else { order }
    };
    order.sort_by(by_value);
    // Leave out neighbours whose order is uncertain, and everything between them.
    let certain = |a: usize, b: usize| match compare(row[a], row[b]) {
        Some(Ordering::Equal) => a < b,
        Some(_) => true,
        None => false,
    };
    let mut doubtful = vec![false; row.len()];
    for first in 0..order.len() {
        let overlaps = |second: &usize| !certain(order[first], order[*second]);
        if let Some(last) = (first + 1..order.len()).rev().find(overlaps) {
            doubtful[first..=last].fill(true);
        }
    }
    let position = |(i, doubtful): (&usize, &bool)| {
        if *doubtful { Number::Undetermined } else { Number::Integer(*i as i128) }
    };
    order.iter().zip(&doubtful).map(position).collect()
}

/// The positions at which values would be inserted into a sorted vector.
pub(super) fn search_sorted(sorted: &OracleArray, values: &OracleArray, right: bool) -> Vec<Number> {
    let place = |value: &Number| {
        let mut count = 0;
        for element in &sorted.elements {
            match compare(*element, *value) {
                None => return Number::Undetermined,
                Some(Ordering::Less) => count += 1,
                Some(Ordering::Equal) if right => count += 1,
                Some(_) => {}
            }
        }
        Number::Integer(count)
    };
    let in_order =
        |pair: &[Number]| matches!(compare(pair[0], pair[1]), Some(Ordering::Less | Ordering::Equal));
    if !sorted.elements.windows(2).all(in_order) {
        return vec![Number::Undetermined; values.elements.len()];
    }
    values.elements.iter().map(place).collect()
}

/// Applies `f` to every line along an axis and writes its results back.
pub(super) fn map_lines(
    x: &OracleArray,
    axis: usize,
    mut f: impl FnMut(&[Number]) -> Vec<Number>,
) -> Vec<Number> {
    let mut out = x.elements.clone();
    let mut starts = x.shape.clone();
    starts[axis] = starts[axis].min(1);
    for mut at in every_coordinate(&starts) {
        let places: Vec<usize> = (0..x.shape[axis])
            .map(|i| {
                at[axis] = i;
                flat_index(&x.shape, &at)
            })
            .collect();
        let line: Vec<Number> = places.iter().map(|&p| x.elements[p]).collect();
        places.iter().zip(f(&line)).for_each(|(&p, value)| out[p] = value);
    }
    out
}
