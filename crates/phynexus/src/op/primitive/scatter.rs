//! Updates of rows.

use super::{
    Call, Check, Formula, InputGradients, IrNode, Number, Op, Operation, OracleArray, Reads, Sample,
    SampleOperand,
    gather::{IndexRange, SIZES, row},
    need,
};
use crate::{
    DType, Error, Result, Scalar,
    op::{Combine, reference::Accumulator},
    shape::element_count,
};

/// How a scatter combines an update with an element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum ScatterMode {
    /// The last update (in index order) wins.
    Set,
    Combine(Combine),
}

/// Inputs x `[N, D]`, index `[M]` and updates `[M, D]`: x with rows updated, in index order.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Scatter(pub ScatterMode, pub IndexRange);

impl Operation for Scatter {
    fn name(&self) -> &'static str {
        "scatter"
    }

    fn operands(&self) -> Option<usize> {
        Some(3)
    }

    fn check(&self, node: &IrNode, inputs: &[&IrNode]) -> Check {
        let (table, index, updates) = (inputs[0], inputs[1], inputs[2]);
        need(table.shape.len() == 2 && index.shape.len() == 1, "rows of a matrix by a vector")?;
        need(updates.shape.as_slice() == [index.shape[0], table.shape[1]], "updates have another shape")?;
        need(table.shape == node.shape, "the result has another shape")?;
        need(index.dtype.is_integer(), "the index is not of integers")?;
        need(table.dtype == node.dtype && updates.dtype == node.dtype, "wrong dtypes")?;
        need(updates.is_empty() || table.shape[0] > 0, "no row to update")?;
        need(
            !matches!(self.0, ScatterMode::Combine(c) if !c.binary().accepts(node.dtype)),
            "not a dtype this combination takes",
        )
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        call.each(|position| self.operand_gradient(call, position))
    }

    fn gradient_reads(&self) -> Reads {
        Reads::EVERYTHING
    }

    fn can_fail(&self) -> bool {
        self.1 == IndexRange::Unknown
    }

    fn reference(&self, node: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let (x, index, updates) = (inputs[0], inputs[1], inputs[2]);
        let (rows, width) = (x.shape[0], x.shape[1]);
        let targets: Option<Vec<usize>> =
            index.elements.iter().map(|&i| row(self.name(), i, rows)).collect::<Result<Option<_>>>()?;
        let Some(targets) = targets else {
            return Ok(vec![Number::Undetermined; x.elements.len()]);
        };
        let mut out = x.elements.clone();
        match self.0 {
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
                        let update = updates.elements[update * width + column];
                        running[place].get_or_insert_with(start).push(update);
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

    fn samples() -> Vec<Sample> {
        let mut samples = Vec::new();
        let modes = Combine::ALL.into_iter().map(ScatterMode::Combine).chain([ScatterMode::Set]);
        for mode in modes {
            for (rows, width, count) in SIZES {
                let dtype = DType::INTEGERS[samples.len() % DType::INTEGERS.len()];
                let index = SampleOperand::new(&[count]).fixed(dtype).index(rows);
                let table = SampleOperand::new(&[rows, width]);
                let op = Op::Scatter(Scatter(mode, IndexRange::Unknown));
                let operands = [table, index, SampleOperand::new(&[count, width])];
                samples.push(Sample::primitive(op, &[rows, width], operands));
            }
        }
        samples
    }
}

const SUM: ScatterMode = ScatterMode::Combine(Combine::Sum);

impl Scatter {
    /// The gradient of a scatter's target (position 0) or of its updates (position 2).
    ///
    /// Equal elements share the gradient of a maximum or minimum. The gradient of a product is exact only to first
    /// order where a row has zeros among its factors.
    fn operand_gradient(&self, call: &Call, position: usize) -> Formula {
        let &Scatter(mode, range) = self;
        let (x, index, updates) = (call.input(0), call.input(1), call.input(2));
        let (g, y) = (call.gradient(), call.output());
        let to_target = position == 0;
        match mode {
            ScatterMode::Combine(Combine::Sum) => {
                if to_target {
                    g
                } else {
                    g.gather(&index, range)
                }
            }
            ScatterMode::Set if to_target => g.scatter((mode, range), &index, &updates.like(0.0)),
            ScatterMode::Set => {
                // Only the last update of a row affects the result.
                let numbers = updates.narrow(1, 0, 1).iota_like(DType::I64, 0);
                let last = x.narrow(1, 0, 1).iota_like(DType::I64, 0).scatter(
                    (ScatterMode::Set, range),
                    &index,
                    &numbers,
                );
                let reached = last.gather(&index, range).eq(&numbers);
                updates.then(|u| g.gather(&index, range).only_where(&reached.expand(u.shape())).term())
            }
            ScatterMode::Combine(Combine::Max | Combine::Min) => {
                let dtype = call.gradient.dtype();
                let target_holds = x.eq(&y).cast(dtype);
                let update_holds = updates.eq(&y.gather(&index, range)).cast(dtype);
                let holders = target_holds.scatter((SUM, range), &index, &update_holds);
                let share = g / holders;
                if to_target { target_holds * share } else { update_holds * share.gather(&index, range) }
            }
            ScatterMode::Combine(Combine::Prod) => {
                let is_zero = |f: &Formula| f.eq(&f.like(0.0));
                let nonzero = |f: &Formula| is_zero(f).choose(&f.like(1.0), f);
                let zeros = is_zero(&x).cast(DType::I64).scatter(
                    (SUM, range),
                    &index,
                    &is_zero(&updates).cast(DType::I64),
                );
                let product = nonzero(&x).scatter((mode, range), &index, &nonzero(&updates));
                let of = |factor: &Formula, zeros: &Formula, product: &Formula, g: &Formula| {
                    let none = zeros.eq(&zeros.like(0i64));
                    let alone = zeros.eq(&zeros.like(1i64)).and(&is_zero(factor));
                    g * (product / nonzero(factor)).only_where(&none.or(&alone))
                };
                if to_target {
                    of(&x, &zeros, &product, &g)
                } else {
                    of(
                        &updates,
                        &zeros.gather(&index, range),
                        &product.gather(&index, range),
                        &g.gather(&index, range),
                    )
                }
            }
        }
    }
}

/// Zeros of `shape` with `values` added at `positions` along `axis`, which must be in range. The other coordinates are
/// kept.
pub(in crate::op) fn scatter_along(
    values: &Formula,
    positions: &Formula,
    axis: usize,
    shape: &[usize],
) -> Formula {
    let flat = flat_positions(positions, axis, shape);
    values.then(|v| {
        let zeros = values.constant(v.dtype(), &[element_count(shape), 1], Scalar::Float(0.0));
        let mode = (ScatterMode::Combine(Combine::Sum), IndexRange::Known);
        zeros.scatter(mode, &flat, &Formula::of(v).reshape(&[v.len(), 1])).reshape(shape).term()
    })
}

/// Converts positions along `axis` of a tensor of `shape` to flat positions, as a vector.
fn flat_positions(positions: &Formula, axis: usize, shape: &[usize]) -> Formula {
    positions.then(|p| {
        if p.rank() != shape.len() {
            return Err(Error::internal("scatter_along", "positions and target have different ranks"));
        }
        let index = Formula::of(p);
        let mut flat = index.like(0i64);
        let mut stride = 1usize;
        for other in (0..shape.len()).rev() {
            let coordinate = if other == axis { index.clone() } else { index.iota_like(DType::I64, other) };
            let step = coordinate.like(stride as i64);
            flat = flat + coordinate * step;
            stride *= shape[other];
        }
        flat.reshape(&[p.len()]).term()
    })
}
