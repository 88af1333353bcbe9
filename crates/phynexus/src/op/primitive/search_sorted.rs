//! Searching.

use std::cmp::Ordering;

use super::{Check, IrNode, Number, Op, Operation, OracleArray, Sample, SampleOperand, need};
use crate::{DType, Result, op::reference::order::compare};

/// Inputs sorted `[N]` and values `[M]`: the positions (`int64`) at which the values would be inserted.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SearchSorted {
    /// If true, after equal elements rather than before.
    pub right: bool,
}

impl Operation for SearchSorted {
    fn name(&self) -> &'static str {
        "searchsorted"
    }

    fn operands(&self) -> Option<usize> {
        Some(2)
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        need(inputs[0].shape.len() == 1 && inputs[1].shape.len() == 1, "vectors only")?;
        need(inputs[0].dtype == inputs[1].dtype && node.dtype == DType::I64, "wrong dtypes")?;
        need(inputs[1].shape == node.shape, "expected one position per value")
    }

    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let sorted = &inputs[0].elements;
        let place = |value: &Number| {
            let mut count = 0;
            for element in sorted {
                match compare(*element, *value) {
                    None => return Number::Undetermined,
                    Some(Ordering::Less) => count += 1,
                    Some(Ordering::Equal) if self.right => count += 1,
                    Some(_) => {}
                }
            }
            Number::Integer(count)
        };
        let in_order =
            |pair: &[Number]| matches!(compare(pair[0], pair[1]), Some(Ordering::Less | Ordering::Equal));
        if !sorted.windows(2).all(in_order) {
            return Ok(vec![Number::Undetermined; node.len()]);
        }
        Ok(inputs[1].elements.iter().map(place).collect())
    }

    fn samples() -> Vec<Sample> {
        let sample = |(count, values): (usize, usize), right| {
            let operands = [SampleOperand::new(&[count]).sorted(), SampleOperand::new(&[values])];
            Sample::primitive(Op::SearchSorted(SearchSorted { right }), &[values], operands)
                .giving(DType::I64)
        };
        let sizes = [(0, 3), (1, 4), (40, 70)];
        sizes.into_iter().flat_map(|size| [false, true].map(|right| sample(size, right))).collect()
    }
}
