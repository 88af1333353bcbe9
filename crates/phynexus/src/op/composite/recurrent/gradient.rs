//! The layer's gradient: back through the steps for the gates.

use super::{
    super::{
        Definition, Operands, check,
        pack::{pack, packed_len},
        sample::{Sample, SampleOperand},
    },
    Cell, Recurrent,
};
use crate::{
    DType, Error, Result,
    op::{
        formula::Formula,
        gradient::rule::Reads,
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// What the gradients of a recurrent layer need of its time steps. The sizes are those of [`Recurrent`].
///
/// Inputs W_hh, h0, for the LSTM c0, the hidden states, the saved parts, the gradient of the hidden states `[T, B, H]` and
/// for the LSTM that of the final cell state `[B, H]`, all of one dtype. Packed: the gradient of `W_ih x + b_ih`
/// `[T, B, G H]`; for the GRU that of `W_hh h + b_hh` `[T, B, 3 H]` (for the others they are the same); the gradient of h0
/// `[B, H]`; for the LSTM that of c0 `[B, H]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecurrentGradient(
    /// What it is the gradient of.
    pub Recurrent,
);

/// The shapes of the gradient's packed result.
fn gradient_parts(cell: Cell, steps: usize, batch: usize, hidden: usize) -> Vec<Dims> {
    let sequence = Dims::from_slice(&[steps, batch, hidden.saturating_mul(cell.gates())]);
    let state = Dims::from_slice(&[batch, hidden]);
    match cell {
        Cell::Lstm => vec![sequence, state.clone(), state],
        Cell::Gru => vec![sequence.clone(), sequence, state],
        Cell::Tanh | Cell::Relu => vec![sequence, state],
    }
}

impl Definition for RecurrentGradient {
    fn name(&self) -> &'static str {
        self.0.cell.gradient_name()
    }

    fn attributes(&self) -> String {
        self.0.flags()
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        let cell = self.0.cell;
        let saved = self.0.saved(0, 0, 0).len();
        check::count(self.name(), operands, 4 + saved + 2 * usize::from(cell.has_cell_state()))?;
        let mut rest = Operands(operands);
        let (weights, h0) = (rest.next()?, rest.next()?);
        let c0 = rest.next_if(cell.has_cell_state())?;
        let states = rest.next()?;
        check::float(self.name(), states)?;
        let &[steps, batch, hidden] = states.shape() else {
            return Err(Error::shape(
                self.name(),
                &[states.shape()],
                "the hidden states are (steps, batch, units)",
            ));
        };
        check::shape(
            self.name(),
            weights,
            &[hidden.saturating_mul(cell.gates()), hidden],
            "the weights of the hidden state",
        )?;
        check::shape(self.name(), h0, &[batch, hidden], "the hidden state")?;
        if let Some(c0) = c0 {
            check::shape(self.name(), c0, &[batch, hidden], "the cell state")?;
        }
        for shape in self.0.saved(steps, batch, hidden) {
            check::shape(self.name(), rest.next()?, &shape, "the saved gates and cell states")?;
        }
        check::shape(
            self.name(),
            rest.next()?,
            &[steps, batch, hidden],
            "the gradient of the hidden states",
        )?;
        if let Some(gradient) = rest.next_if(cell.has_cell_state())? {
            check::shape(self.name(), gradient, &[batch, hidden], "the gradient of the cell state")?;
        }
        operands.iter().try_for_each(|t| check::dtype(self.name(), t, states.dtype()))?;
        let size = packed_len(self.name(), &gradient_parts(cell, steps, batch, hidden))?;
        Ok((states.dtype(), Dims::from_slice(&[size])))
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let cell = self.0.cell;
        let dtype = operands[0].dtype();
        let mut operands = Operands(operands);
        let (weights, h0) = (Formula::wide(operands.next()?), Formula::wide(operands.next()?));
        let c0 = operands.next_if(cell.has_cell_state())?.map(Formula::wide);
        let states = operands.next()?;
        let (steps, hidden) = (states.shape()[0], states.shape()[2]);
        let states = Formula::wide(states);
        let saves_gates = !self.0.saved(0, 0, 0).is_empty();
        let gates = operands.next_if(saves_gates)?.map(Formula::wide);
        let cells = operands.next_if(cell.has_cell_state())?.map(Formula::wide);
        let of_states = Formula::wide(operands.next()?);
        let mut dc = operands.next_if(cell.has_cell_state())?.map(Formula::wide);

        let mut dh: Option<Formula> = None;
        let mut input_gates: Vec<Option<Formula>> = vec![None; steps];
        let mut hidden_gates: Vec<Option<Formula>> = vec![None; steps];
        let order = self.0.order(steps);
        for (place, &step) in order.iter().enumerate().rev() {
            let before = place.checked_sub(1).map(|place| order[place]);
            let earlier = |sequence: &Formula, initial: &Formula| match before {
                Some(before) => sequence.select(0, before),
                None => initial.clone(),
            };
            let mut total = of_states.select(0, step);
            if let Some(dh) = dh {
                total = total + dh;
            }
            let gate = |index: usize| match &gates {
                Some(gates) => gates.select(0, step).narrow(1, index * hidden, hidden),
                None => Formula::from(Err(Error::internal(self.0.cell.name(), "there are no saved gates"))),
            };
            let sigmoid_derivative = |s: &Formula| s * (1.0 - s);
            match (cell, &cells, &c0, &mut dc) {
                (Cell::Lstm, Some(cells), Some(c0), Some(dc)) => {
                    let [i, f, g, o] = [0, 1, 2, 3].map(gate);
                    let t = cells.select(0, step).tanh();
                    *dc = &*dc + &total * &o * (1.0 - &t * &t);
                    let sums = [
                        &*dc * &g * sigmoid_derivative(&i),
                        &*dc * earlier(cells, c0) * sigmoid_derivative(&f),
                        &*dc * &i * (1.0 - &g * &g),
                        &total * t * sigmoid_derivative(&o),
                    ];
                    *dc = &*dc * f;
                    let sums = Formula::cat(&sums, 1);
                    dh = Some(sums.dot(&weights));
                    input_gates[step] = Some(sums);
                }
                (Cell::Gru, ..) => {
                    let [r, z, n, candidate] = [0, 1, 2, 3].map(gate);
                    let previous = earlier(&states, &h0);
                    let dn = &total * (1.0 - &z) * (1.0 - &n * &n);
                    let dz = &total * (previous - n) * sigmoid_derivative(&z);
                    let dr = &dn * candidate * sigmoid_derivative(&r);
                    let through_hidden = Formula::cat(&[dr.clone(), dz.clone(), &dn * r], 1);
                    dh = Some(total * z + through_hidden.dot(&weights));
                    hidden_gates[step] = Some(through_hidden);
                    input_gates[step] = Some(Formula::cat(&[dr, dz, dn], 1));
                }
                (Cell::Tanh, ..) => {
                    let h = states.select(0, step);
                    let sum = total * (1.0 - &h * &h);
                    dh = Some(sum.dot(&weights));
                    input_gates[step] = Some(sum);
                }
                (Cell::Relu, ..) => {
                    let h = states.select(0, step);
                    let sum = h.eq(&h.like(0.0)).choose(&total.like(0.0), &total);
                    dh = Some(sum.dot(&weights));
                    input_gates[step] = Some(sum);
                }
                (Cell::Lstm, ..) => return Err(Error::internal("lstm", "there is no cell state")),
            }
        }
        let mut results: Vec<Formula> = input_gates.into_iter().chain(hidden_gates).flatten().collect();
        results.extend(dh);
        results.extend(dc);
        pack(&results).cast(dtype).term()
    }

    fn gradient_reads(&self) -> Reads {
        Reads::EVERYTHING
    }

    fn samples() -> Vec<Sample> {
        let call = |cell: Cell, reverse: bool, [steps, batch, hidden]: [usize; 3]| {
            let layer = Recurrent { cell, reverse, bias: true, save: true };
            let state = || SampleOperand::new(&[batch, hidden]);
            let sequence = || SampleOperand::new(&[steps, batch, hidden]);
            let mut operands = vec![SampleOperand::new(&[cell.gates() * hidden, hidden]), state()];
            operands.extend(cell.has_cell_state().then(state));
            operands.push(sequence());
            operands.extend(layer.saved(steps, batch, hidden).iter().map(|shape| SampleOperand::new(shape)));
            operands.push(sequence());
            operands.extend(cell.has_cell_state().then(state));
            Sample::new(RecurrentGradient(layer), operands)
        };
        let both = |cell| [call(cell, false, [4, 3, 6]), call(cell, true, [3, 2, 2])];
        Cell::ALL.into_iter().flat_map(both).collect()
    }
}
