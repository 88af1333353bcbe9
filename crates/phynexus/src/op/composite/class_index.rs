//! Class indices that are checked when they are computed: a label out of range is an error, not a silent zero.

use super::{
    Definition, check,
    sample::{Sample, SampleOperand},
};
use crate::{
    DType, Result,
    op::{
        IndexRange,
        formula::Formula,
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// Input class indices `[N]`, `int64`: the same, but an error when they are computed if one is neither a class nor
/// `ignore_index`. A device's own routine names the loss and the label; the body's error is a gather's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ClassIndex {
    /// The loss they are for.
    pub loss: &'static str,
    /// The number of classes.
    pub classes: usize,
    /// A number that is allowed besides.
    pub ignore_index: Option<i64>,
}

impl Definition for ClassIndex {
    fn name(&self) -> &'static str {
        "class_index"
    }

    fn attributes(&self) -> String {
        let ignored = self.ignore_index.map(|index| format!(", ignore_index={index}")).unwrap_or_default();
        format!("loss={}, classes={}{ignored}", self.loss, self.classes)
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        check::count(self.name(), operands, 1)?;
        let index = &operands[0];
        check::dtype(self.name(), index, DType::I64)?;
        check::shape(self.name(), index, &[index.len()], "the class indices")?;
        Ok((DType::I64, index.shape().into()))
    }

    fn can_fail(&self) -> bool {
        true
    }

    /// Through a gather from the table of all classes, which refuses what is not in it.
    fn body(&self, operands: &[Term]) -> Result<Term> {
        let (x, count) = (Formula::of(&operands[0]), operands[0].len());
        let ignored = self.ignore_index.map(|index| (x.eq(&x.like(index)), index));
        let label = match &ignored {
            Some((ignored, _)) if self.classes > 0 => ignored.choose(&x.like(0i64), &x),
            _ => x.clone(),
        };
        // A gather counts negative numbers from the end, where no label may be.
        let row = label.lt(&label.like(0i64)).choose(&(&label - &label.like(self.classes as i64)), &label);
        let table = x.iota(DType::I64, &[self.classes, 1], 0);
        let found = table.gather(&row, IndexRange::Unknown).reshape(&[count]);
        match &ignored {
            Some((ignored, index)) => ignored.choose(&found.like(*index), &found).term(),
            None => found.term(),
        }
    }

    /// With an ignored number that is a class, so that it occurs, and with one that is not.
    fn samples() -> Vec<Sample> {
        let calls = [(1, 3, None), (2, 3, Some(-100)), (40, 10, Some(2)), (1500, 100, None)];
        let call = |(count, classes, ignore_index): (usize, usize, Option<i64>)| {
            let index = SampleOperand::new(&[count]).fixed(DType::I64).class(classes);
            Sample::new(ClassIndex { loss: "cross_entropy", classes, ignore_index }, [index])
        };
        calls.map(call).to_vec()
    }
}
