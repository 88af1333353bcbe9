//! The steps of a layer, given what the input adds to them.

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
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// The steps of a recurrent layer. The sizes and the packed result are those of [`Recurrent`].
///
/// Inputs h0 `[B, H]`, for the LSTM c0 `[B, H]`, `W_ih x + b_ih` `[T, B, G H]` of the dtype that computes, W_hh `[G H,
/// H]` and with `bias` b_hh `[G H]`, the others of one dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecurrentSteps(
    /// The layer.
    pub Recurrent,
);

/// What a step computes.
struct Taken {
    /// The state before, and after.
    before: Formula,
    state: Formula,
    /// The cell state before, and after.
    cells: Option<[Formula; 2]>,
    /// What is saved of it.
    gates: Vec<Formula>,
}

/// Operands, computed in the dtype for it.
struct Given {
    h0: Formula,
    c0: Option<Formula>,
    from_input: Formula,
    /// `[H, G H]`.
    weights: Formula,
    bias: Option<Formula>,
    steps: usize,
    hidden: usize,
}

impl RecurrentSteps {
    fn given(&self, operands: &[Term]) -> Result<Given> {
        let hidden = operands[0].shape()[1];
        let rows = self.0.cell.gates() * hidden;
        let mut operands = Operands(operands);
        let h0 = Formula::wide(operands.next()?);
        let c0 = operands.next_if(self.0.cell.has_cell_state())?.map(Formula::wide);
        let from_input = operands.next()?;
        Ok(Given {
            h0,
            c0,
            steps: from_input.shape()[0],
            from_input: Formula::of(from_input),
            weights: Formula::wide(operands.next()?).transpose(),
            bias: operands.next_if(self.0.bias)?.map(|bias| Formula::wide(bias).reshape(&[1, rows])),
            hidden,
        })
    }

    /// The steps, each with its number, in the order in which they are taken.
    fn taken(&self, given: &Given) -> Result<Vec<(usize, Taken)>> {
        let mut h = given.h0.clone();
        let mut c = given.c0.clone();
        let mut taken = Vec::with_capacity(given.steps);
        for step in self.0.order(given.steps) {
            let from_input = given.from_input.select(0, step);
            let mut from_hidden = h.dot(&given.weights);
            if let Some(bias) = &given.bias {
                from_hidden = from_hidden + bias;
            }
            let gate = |of: &Formula, index: usize| gate(of, index, given.hidden);
            let before = h.clone();
            let (mut cells, mut gates) = (None, Vec::new());
            match (self.0.cell, &mut c) {
                (Cell::Lstm, Some(c)) => {
                    let sum = from_input + from_hidden;
                    let [i, f, o] = [0, 1, 3].map(|index| gate(&sum, index).sigmoid());
                    let g = gate(&sum, 2).tanh();
                    let after = &f * &*c + &i * &g;
                    h = &o * after.tanh();
                    cells = Some([std::mem::replace(c, after.clone()), after]);
                    gates = vec![i, f, g, o];
                }
                (Cell::Gru, _) => {
                    let [r, z] =
                        [0, 1].map(|index| (gate(&from_input, index) + gate(&from_hidden, index)).sigmoid());
                    let candidate = gate(&from_hidden, 2);
                    let n = (gate(&from_input, 2) + &r * &candidate).tanh();
                    h = &n + &z * (h - &n);
                    gates = vec![r, z, n, candidate];
                }
                (Cell::Tanh, _) => h = (from_input + from_hidden).tanh(),
                (Cell::Relu, _) => {
                    let sum = from_input + from_hidden;
                    h = sum.le(&sum.like(0.0)).choose(&sum.like(0.0), &sum);
                }
                (Cell::Lstm, None) => return Err(Error::internal("lstm", "there is no cell state")),
            }
            taken.push((step, Taken { before, state: h.clone(), cells, gates }));
        }
        Ok(taken)
    }

    /// The packed result: the parts of each step with its number, and the last cell state.
    fn packed(&self, mut parts: Vec<(usize, Parts)>) -> Formula {
        let last = parts.last().and_then(|(_, parts)| parts.cell.clone());
        parts.sort_by_key(|(step, _)| *step);
        let stack = |part: &dyn Fn(&Parts) -> Option<Formula>| {
            pack(&parts.iter().filter_map(|(_, parts)| part(parts)).collect::<Vec<_>>())
        };
        let mut results = vec![stack(&|parts| Some(parts.state.clone()))];
        results.extend(last);
        if self.0.save && self.0.cell.saves_gates() {
            results.push(stack(&|parts| Some(Formula::cat(&parts.gates, 1))));
        }
        if self.0.save && self.0.cell.has_cell_state() {
            results.push(stack(&|parts| parts.cell.clone()));
        }
        pack(&results)
    }
}

/// What a step contributes to the result.
struct Parts {
    state: Formula,
    cell: Option<Formula>,
    gates: Vec<Formula>,
}

/// One of the blocks of `hidden` columns.
fn gate(of: &Formula, index: usize, hidden: usize) -> Formula {
    of.narrow(1, index * hidden, hidden)
}

impl Definition for RecurrentSteps {
    fn name(&self) -> &'static str {
        self.0.cell.steps_name()
    }

    fn attributes(&self) -> String {
        self.0.flags()
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        let cell = self.0.cell;
        let count = 3 + usize::from(cell.has_cell_state()) + usize::from(self.0.bias);
        check::count(self.name(), operands, count)?;
        let mut rest = Operands(operands);
        let h0 = rest.next()?;
        check::float(self.name(), h0)?;
        let c0 = rest.next_if(cell.has_cell_state())?;
        let from_input = rest.next()?;
        let (&[batch, hidden], &[steps, ..]) = (h0.shape(), from_input.shape()) else {
            let hint = "the state must be (batch, units)";
            return Err(Error::shape(self.name(), &[h0.shape(), from_input.shape()], hint));
        };
        let rows = hidden.saturating_mul(cell.gates());
        if let Some(c0) = c0 {
            check::shape(self.name(), c0, &[batch, hidden], "the cell state")?;
        }
        check::shape(self.name(), from_input, &[steps, batch, rows], "what the input adds")?;
        check::dtype(self.name(), from_input, h0.dtype().compute())?;
        let weights = rest.next()?;
        check::shape(self.name(), weights, &[rows, hidden], "the weights of the hidden state")?;
        let bias = rest.next_if(self.0.bias)?;
        if let Some(bias) = bias {
            check::shape(self.name(), bias, &[rows], "the biases")?;
        }
        let others = c0.into_iter().chain([weights]).chain(bias);
        others.into_iter().try_for_each(|operand| check::dtype(self.name(), operand, h0.dtype()))?;
        if steps == 0 {
            return Err(Error::shape(self.name(), &[from_input.shape()], "there must be at least one step"));
        }
        let size = packed_len(self.name(), &self.0.parts(steps, batch, hidden))?;
        Ok((h0.dtype(), Dims::from_slice(&[size])))
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let taken = self.taken(&self.given(operands)?)?;
        let parts = taken.into_iter().map(|(step, Taken { state, cells, gates, .. })| {
            (step, Parts { state, cell: cells.map(|[_, after]| after), gates })
        });
        self.packed(parts.collect()).cast(operands[0].dtype()).term()
    }

    /// States may be rounded where the next step multiplies them. What that changes by the mean value theorem, with
    /// the greatest derivatives of the functions and the greatest values of the gates.
    fn rounded(&self) -> Option<Build<'_>> {
        Some(Box::new(|operands| {
            let given = self.given(operands)?;
            let weights = magnitude(&given.weights);
            let mut error = given.h0.like(0.0);
            let mut rounded = error.clone();
            let mut cell_error = given.c0.as_ref().map(|c0| c0.like(0.0));
            let mut parts = Vec::new();
            for (step, taken) in self.taken(&given)? {
                let sum = rounded.dot(&weights);
                let of = |index: usize| gate(&sum, index, given.hidden);
                let sigmoid = |index: usize| 0.25 * of(index);
                let mut gates = Vec::new();
                match (self.0.cell, &mut cell_error, &taken.cells) {
                    (Cell::Lstm, Some(cell_error), Some([before, _])) => {
                        *cell_error = &*cell_error + magnitude(before) * sigmoid(1) + sigmoid(0) + of(2);
                        error = &*cell_error + sigmoid(3);
                        gates = vec![sigmoid(0), sigmoid(1), of(2), sigmoid(3)];
                    }
                    (Cell::Gru, ..) => {
                        let [_, _, n, candidate] = taken.gates.as_slice() else {
                            return Err(Error::internal("gru", "there are no gates"));
                        };
                        let of_n = magnitude(candidate) * sigmoid(0) + of(2);
                        error = &of_n + error + magnitude(&(taken.before - n)) * sigmoid(1);
                        gates = vec![sigmoid(0), sigmoid(1), of_n, of(2)];
                    }
                    _ => error = sum,
                }
                rounded = &error + magnitude(&taken.state) + LEAST;
                parts.push((step, Parts { state: error.clone(), cell: cell_error.clone(), gates }));
            }
            self.packed(parts).term()
        }))
    }

    fn samples() -> Vec<Sample> {
        let small = [(false, true, true), (true, false, true)].map(|flags| ([3, 2, 2], flags));
        // With pieces of rows that can be copied by themselves, several groups of units, and sequences beyond a group.
        let large = [(false, true, true), (true, false, false)].map(|flags| ([3, 11, 40], flags));
        let call = |cell: Cell, ([steps, batch, hidden], flags): ([usize; 3], (bool, bool, bool))| {
            let (reverse, bias, save) = flags;
            let rows = cell.gates() * hidden;
            let state = || SampleOperand::new(&[batch, hidden]);
            let mut operands = vec![state()];
            operands.extend(cell.has_cell_state().then(state));
            operands.push(SampleOperand::new(&[steps, batch, rows]).compute());
            operands.push(SampleOperand::new(&[rows, hidden]).weights());
            operands.extend(bias.then(|| SampleOperand::new(&[rows])));
            Sample::new(RecurrentSteps(Recurrent { cell, reverse, bias, save }), operands)
        };
        let sizes = || small.into_iter().chain(large);
        Cell::ALL.into_iter().flat_map(|cell| sizes().map(move |size| call(cell, size))).collect()
    }
}
