//! Class indices that are checked when they are computed: a label out of range is an error, not a silent zero.

use super::Composite;
use crate::{
    DType, Result,
    op::{
        IndexRange,
        formula::Formula,
        term::{TensorType, Term},
    },
    shape::Dims,
};

pub(super) fn check(composite: &Composite, inputs: &[TensorType]) -> Result<(DType, Dims)> {
    composite.check_count(inputs, 1)?;
    composite.check_dtype(&inputs[0], DType::I64)?;
    composite.check_shape(&inputs[0], &[inputs[0].len()], "the class indices")?;
    Ok((DType::I64, inputs[0].shape().into()))
}

/// Through a gather from the table of all classes, which refuses what is not in it.
pub(super) fn body(inputs: &[Term], classes: usize, ignore_index: Option<i64>) -> Result<Term> {
    let (x, count) = (Formula::of(&inputs[0]), inputs[0].len());
    let ignored = ignore_index.map(|index| (x.eq(&x.like(index)), index));
    let label = match &ignored {
        Some((ignored, _)) if classes > 0 => ignored.choose(&x.like(0i64), &x),
        _ => x.clone(),
    };
    // A gather counts negative numbers from the end, where no label may be.
    let row = label.lt(&label.like(0i64)).choose(&(&label - &label.like(classes as i64)), &label);
    let table = x.iota(DType::I64, &[classes, 1], 0);
    let found = table.gather(&row, IndexRange::Unknown).reshape(&[count]);
    match &ignored {
        Some((ignored, index)) => ignored.choose(&found.like(*index), &found).term(),
        None => found.term(),
    }
}
