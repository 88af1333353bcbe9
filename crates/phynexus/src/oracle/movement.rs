//! Ops that move elements: views, concatenation, gather and scatter.

use super::{
    accumulate::Accumulator,
    array::{OracleArray, every_coordinate, flat_index, from_scalar},
    number::Number,
};
use crate::{
    Error, Result,
    op::{Op, ScatterMode, ir::IrNode},
};

/// The elements of a view, a padding or a concatenation.
pub(super) fn moved(node: &IrNode, inputs: &[&OracleArray]) -> Vec<Number> {
    let x = inputs[0];
    let element = |mut at: crate::shape::Dims| match &node.op {
        Op::Permute(permutation) => {
            let mut source = at.clone();
            permutation.iter().zip(&at).for_each(|(&p, &c)| source[usize::from(p)] = c);
            x.at(&source)
        }
        Op::Expand => {
            at.iter_mut().zip(&x.shape).for_each(|(c, &size)| *c = if size == 1 { 0 } else { *c });
            x.at(&at)
        }
        Op::Slice { start, step } => {
            let along = |(c, (&s, &d)): (&usize, (&usize, &isize))| s.wrapping_add_signed(*c as isize * d);
            let source: Vec<usize> = at.iter().zip(start.iter().zip(step)).map(along).collect();
            x.at(&source)
        }
        Op::Pad { padding, value } => {
            let inside =
                at.iter().zip(padding).zip(&x.shape).all(|((&c, &(b, _)), &size)| c >= b && c < b + size);
            if !inside {
                return from_scalar(value.cast(node.dtype));
            }
            at.iter_mut().zip(padding).for_each(|(c, &(before, _))| *c -= before);
            x.at(&at)
        }
        Op::Cat { axis } => {
            let mut part = 0;
            while at[*axis] >= inputs[part].shape[*axis] {
                at[*axis] -= inputs[part].shape[*axis];
                part += 1;
            }
            inputs[part].at(&at)
        }
        _ => x.elements[flat_index(&node.shape, &at)],
    };
    every_coordinate(&node.shape).map(element).collect()
}

/// Maps a row index from -N to N-1 to 0 to N-1; `None` if the index is undetermined.
fn row(op: &'static str, index: Number, rows: usize) -> Result<Option<usize>> {
    match index {
        Number::Integer(i) => {
            let wrapped = if i < 0 { i + rows as i128 } else { i };
            usize::try_from(wrapped).ok().filter(|r| *r < rows).map(Some).ok_or(Error::Index {
                op,
                index: i as i64,
                size: rows,
                axis: None,
            })
        }
        _ => Ok(None),
    }
}

/// Selects rows of a matrix.
pub(super) fn gather(x: &OracleArray, index: &OracleArray) -> Result<Vec<Number>> {
    let (rows, width) = (x.shape[0], x.shape[1]);
    let mut out = Vec::with_capacity(index.elements.len() * width);
    for &i in &index.elements {
        match row("gather", i, rows)? {
            Some(r) => out.extend_from_slice(&x.elements[r * width..(r + 1) * width]),
            None => out.extend(std::iter::repeat_n(Number::Undetermined, width)),
        }
    }
    Ok(out)
}

/// Updates rows of a matrix.
pub(super) fn scatter(mode: ScatterMode, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
    let (x, index, updates) = (inputs[0], inputs[1], inputs[2]);
    let (rows, width) = (x.shape[0], x.shape[1]);
    let targets: Option<Vec<usize>> =
        index.elements.iter().map(|&i| row("scatter", i, rows)).collect::<Result<Option<_>>>()?;
    let Some(targets) = targets else {
        return Ok(vec![Number::Undetermined; x.elements.len()]);
    };
    let mut out = x.elements.clone();
    match mode {
        ScatterMode::Set => {
            for (update, &target) in targets.iter().enumerate() {
                let source = &updates.elements[update * width..(update + 1) * width];
                out[target * width..(target + 1) * width].copy_from_slice(source);
            }
        }
        ScatterMode::Combine(combine) => {
            // A device may keep the running value in a buffer of the node's dtype.
            let mut running: Vec<Option<Accumulator>> = vec![None; out.len()];
            for (update, &target) in targets.iter().enumerate() {
                for column in 0..width {
                    let place = target * width + column;
                    let start = || {
                        let mut first = Accumulator::with_precision(combine, node.dtype, node.dtype);
                        first.push(x.elements[place]);
                        first
                    };
                    running[place].get_or_insert_with(start).push(updates.elements[update * width + column]);
                }
            }
            for (element, accumulator) in out.iter_mut().zip(running) {
                if let Some(accumulator) = accumulator {
                    *element = accumulator.result();
                }
            }
        }
    }
    Ok(out)
}
