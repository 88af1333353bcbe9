//! Sorting.

use std::cmp::Ordering;

use super::{Check, IrNode, Number, Op, Operation, OracleArray, Sample, SampleOperand, need, same_shape};
use crate::{DType, Result, op::reference::order};

/// The positions (`int64`) that sort the last axis. The sort is stable; NaN counts as the greatest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ArgSort {
    /// If true, from the greatest to the least.
    pub descending: bool,
}

impl Operation for ArgSort {
    fn name(&self) -> &'static str {
        "argsort"
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        same_shape(node, inputs)?;
        need(!node.shape.is_empty() && node.dtype == DType::I64, "positions along the last axis, int64")
    }

    fn reference(&self, _: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let width = inputs[0].shape.last().copied().unwrap_or(1).max(1);
        Ok(inputs[0].elements.chunks(width).flat_map(|row| self.sorted(row)).collect())
    }

    fn samples() -> Vec<Sample> {
        let shapes: [&[usize]; 5] = [&[1], &[0], &[257], &[3, 40], &[2, 3, 5]];
        let sample = |shape: &[usize], descending| {
            let op = Op::ArgSort(ArgSort { descending });
            Sample::primitive(op, shape, [SampleOperand::new(shape)]).giving(DType::I64)
        };
        shapes.into_iter().flat_map(|shape| [false, true].map(|down| sample(shape, down))).collect()
    }
}

impl ArgSort {
    fn sorted(&self, row: &[Number]) -> Vec<Number> {
        if row.iter().any(|n| matches!(n, Number::Undetermined)) {
            return vec![Number::Undetermined; row.len()];
        }
        let mut places: Vec<usize> = (0..row.len()).collect();
        let by_value = |&a: &usize, &b: &usize| {
            let order = match (row[a], row[b]) {
                (Number::Integer(x), Number::Integer(y)) => x.cmp(&y),
                (Number::Float(x), Number::Float(y)) => match (x.is_nan(), y.is_nan()) {
                    (false, false) => x.value.partial_cmp(&y.value).unwrap_or(Ordering::Equal),
                    (p, q) => p.cmp(&q),
                },
                _ => Ordering::Equal,
            };
            if self.descending { order.reverse() } else { order }
        };
        places.sort_by(by_value);
        // Leave out neighbours whose order is uncertain, and everything between them.
        let certain = |a: usize, b: usize| match order::compare(row[a], row[b]) {
            Some(Ordering::Equal) => a < b,
            Some(_) => true,
            None => false,
        };
        let mut doubtful = vec![false; row.len()];
        for first in 0..places.len() {
            let overlaps = |second: &usize| !certain(places[first], places[*second]);
            if let Some(last) = (first + 1..places.len()).rev().find(overlaps) {
                doubtful[first..=last].fill(true);
            }
        }
        let position = |(i, doubtful): (&usize, &bool)| {
            if *doubtful { Number::Undetermined } else { Number::Integer(*i as i128) }
        };
        places.iter().zip(&doubtful).map(position).collect()
    }
}
