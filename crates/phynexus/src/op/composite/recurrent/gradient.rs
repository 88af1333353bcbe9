//! The layer's gradient: back through the steps for the gates.

use super::{
    super::{
        Build, Definition, Operands,
        attention::{LEAST, magnitude},
        check,
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

/// What a step multiplies the gradients of its state and cell state with.
struct Factors {
    /// First with the one, then with the other, which is the order of routines.
    pairs: Vec<[Formula; 2]>,
    factors: Vec<Formula>,
    /// Where the step passes nothing on.
    is_off: Option<Formula>,
}

/// What a step makes of these gradients.
struct Passed {
    /// The gradients of the gates' sums: of what the input adds, and of what the state does, if that differs.
    sums: Vec<Formula>,
    of_state: Option<Vec<Formula>>,
    /// What goes to the state before without a product.
    direct: Option<Formula>,
    cell: Option<Formula>,
}

impl Factors {
    fn magnitudes(&self) -> Factors {
        let pairs = self.pairs.iter().map(|pair| pair.each_ref().map(magnitude)).collect();
        Factors { pairs, factors: self.factors.iter().map(magnitude).collect(), is_off: self.is_off.clone() }
    }

    fn pass(&self, cell: Cell, total: &Formula, dc: Option<&Formula>) -> Passed {
        let passed = |sums| Passed { sums, of_state: None, direct: None, cell: None };
        let times = |x: &Formula, [first, second]: &[Formula; 2]| x * first * second;
        match (cell, self.pairs.as_slice(), self.factors.as_slice(), dc) {
            (Cell::Lstm, [to_cell, i, f, g, o], [forget], Some(dc)) => {
                let dc = dc + times(total, to_cell);
                let sums = vec![times(&dc, i), times(&dc, f), times(&dc, g), times(total, o)];
                Passed { cell: Some(dc * forget), ..passed(sums) }
            }
            (Cell::Gru, [n, z, to_r], [r, keep], _) => {
                let (dn, dz) = (times(total, n), times(total, z));
                let dr = times(&dn, to_r);
                let of_state = Some(vec![dr.clone(), dz.clone(), &dn * r]);
                Passed { of_state, direct: Some(total * keep), ..passed(vec![dr, dz, dn]) }
            }
            (_, [], [factor], _) => passed(vec![total * factor]),
            _ => match &self.is_off {
                Some(is_off) => passed(vec![is_off.choose(&total.like(0.0), total)]),
                None => {
                    passed(vec![Formula::from(Err(Error::internal(cell.name(), "there are no factors")))])
                }
            },
        }
    }
}

impl Passed {
    /// The gradients of what the state adds to the sums.
    fn of_state(&self) -> Formula {
        Formula::cat(self.of_state.as_ref().unwrap_or(&self.sums), 1)
    }
}

impl RecurrentGradient {
    /// The gradients, or by how much roundings change them.
    fn back(&self, operands: &[Term], wants_errors: bool) -> Result<Formula> {
        let cell = self.0.cell;
        let mut operands = Operands(operands);
        let (weights, h0) = (Formula::wide(operands.next()?), Formula::wide(operands.next()?));
        let c0 = operands.next_if(cell.has_cell_state())?.map(Formula::wide);
        let states = operands.next()?;
        let (steps, hidden) = (states.shape()[0], states.shape()[2]);
        let states = Formula::wide(states);
        let gates = operands.next_if(cell.saves_gates())?.map(Formula::wide);
        let cells = operands.next_if(cell.has_cell_state())?.map(Formula::wide);
        let of_states = Formula::wide(operands.next()?);
        let mut dc = operands.next_if(cell.has_cell_state())?.map(Formula::wide);
        let magnitudes = magnitude(&weights);
        let (mut dh, mut dh_error): (Option<Formula>, Option<Formula>) = (None, None);
        let mut dc_error = dc.as_ref().map(|dc| dc.like(0.0));
        let mut sums: Vec<Option<Formula>> = vec![None; steps];
        let mut sums_of_state: Vec<Option<Formula>> = vec![None; steps];
        let order = self.0.order(steps);
        for (place, &step) in order.iter().enumerate().rev() {
            let earlier = |sequence: &Formula, initial: &Formula| match place.checked_sub(1) {
                Some(before) => sequence.select(0, order[before]),
                None => initial.clone(),
            };
            let gate = |index: usize| match &gates {
                Some(gates) => gates.select(0, step).narrow(1, index * hidden, hidden),
                None => Formula::from(Err(Error::internal(cell.name(), "there are no saved gates"))),
            };
            let sigmoid_derivative = |s: &Formula| s * (1.0 - s);
            let (mut pairs, mut factors, mut is_off) = (Vec::new(), Vec::new(), None);
            match (cell, &cells, &c0) {
                (Cell::Lstm, Some(cells), Some(c0)) => {
                    let [i, f, g, o] = [0, 1, 2, 3].map(gate);
                    let t = cells.select(0, step).tanh();
                    let [of_i, of_f, of_o] = [&i, &f, &o].map(sigmoid_derivative);
                    let (of_g, of_t) = (1.0 - &g * &g, 1.0 - &t * &t);
                    pairs.extend([[o, of_t], [g, of_i], [earlier(cells, c0), of_f], [i, of_g], [t, of_o]]);
                    factors.push(f);
                }
                (Cell::Lstm, ..) => return Err(Error::internal("lstm", "there is no cell state")),
                (Cell::Gru, ..) => {
                    let [r, z, n, candidate] = [0, 1, 2, 3].map(gate);
                    let [of_r, of_z] = [&r, &z].map(sigmoid_derivative);
                    pairs.push([1.0 - &z, 1.0 - &n * &n]);
                    pairs.extend([[earlier(&states, &h0) - n, of_z], [candidate, of_r]]);
                    factors.extend([r, z]);
                }
                (Cell::Tanh, ..) => {
                    let h = states.select(0, step);
                    factors.push(1.0 - &h * &h);
                }
                (Cell::Relu, ..) => {
                    let h = states.select(0, step);
                    is_off = Some(h.eq(&h.like(0.0)));
                }
            }
            let factors = Factors { pairs, factors, is_off };
            let mut total = of_states.select(0, step);
            if let Some(dh) = dh {
                total = total + dh;
            }
            let added = |product: Formula, direct: &Option<Formula>| match direct {
                Some(direct) => product + direct,
                None => product,
            };
            let mut passed = factors.pass(cell, &total, dc.as_ref());
            let of_state = passed.of_state();
            dh = Some(added(of_state.dot(&weights), &passed.direct));
            dc = passed.cell.take();
            if wants_errors {
                let error = dh_error.unwrap_or_else(|| total.like(0.0));
                passed = factors.magnitudes().pass(cell, &error, dc_error.as_ref());
                let of_state = passed.of_state() + magnitude(&of_state) + LEAST;
                dh_error = Some(added(of_state.dot(&magnitudes), &passed.direct));
                dc_error = passed.cell.take();
            } else {
                dh_error = None;
            }
            sums_of_state[step] = passed.of_state.is_some().then(|| passed.of_state());
            sums[step] = Some(Formula::cat(&passed.sums, 1));
        }
        let mut results: Vec<Formula> = sums.into_iter().chain(sums_of_state).flatten().collect();
        results.extend(if wants_errors { [dh_error, dc_error] } else { [dh, dc] }.into_iter().flatten());
        Ok(pack(&results))
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
        self.back(operands, false)?.cast(operands[0].dtype()).term()
    }

    /// Gradients of a step's sums may be rounded where the step before multiplies them; all else is linear in them.
    fn rounded(&self) -> Option<Build<'_>> {
        Some(Box::new(|operands| self.back(operands, true)?.term()))
    }

    fn gradient_reads(&self) -> Reads {
        Reads::EVERYTHING
    }

    fn samples() -> Vec<Sample> {
        let call = |cell: Cell, reverse: bool, [steps, batch, hidden]: [usize; 3]| {
            let layer = Recurrent { cell, reverse, bias: true, save: true };
            let state = || SampleOperand::new(&[batch, hidden]);
            let sequence = || SampleOperand::new(&[steps, batch, hidden]);
            let mut operands = vec![SampleOperand::new(&[cell.gates() * hidden, hidden]).weights(), state()];
            operands.extend(cell.has_cell_state().then(state));
            operands.push(sequence());
            operands.extend(
                layer.saved(steps, batch, hidden).iter().map(|shape| SampleOperand::new(shape).probability()),
            );
            operands.push(sequence());
            operands.extend(cell.has_cell_state().then(state));
            Sample::new(RecurrentGradient(layer), operands)
        };
        let both = |cell| {
            [call(cell, false, [4, 3, 6]), call(cell, true, [3, 2, 2]), call(cell, false, [3, 11, 40])]
        };
        Cell::ALL.into_iter().flat_map(both).collect()
    }
}
