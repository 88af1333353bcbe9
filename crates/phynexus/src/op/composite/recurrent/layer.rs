//! The layer.

use super::{
    super::{
        Composite, Definition, Operands, check, gradients_for,
        pack::{Unpack, packed_len},
        sample::{Sample, SampleOperand},
    },
    Cell, RecurrentGradient, RecurrentSteps,
};
use crate::{
    DType, Error, Result,
    op::{
        Axes,
        formula::Formula,
        gradient::rule::{Call, InputGradients, Reads},
        term::{TensorType, Term},
    },
    shape::Dims,
};

/// A recurrent layer over a whole sequence: `T` steps of `B` sequences, `I` inputs and `H` units; `G` is [`Cell::gates`].
///
/// Inputs x `[T, B, I]`, h0 `[B, H]`, for the LSTM c0 `[B, H]`, then W_ih `[G H, I]`, W_hh `[G H, H]`, and with `bias` b_ih
/// and b_hh `[G H]`, all of x's dtype. Packed:
/// 1. the hidden states `[T, B, H]`, at the step that gave them;
/// 2. for the LSTM the final cell state `[B, H]`;
/// 3. with `save`, what the gradient needs: for the LSTM the gates after their functions `[T, B, 4 H]` (i, f, g, o) and
///    the cell states `[T, B, H]`; for the GRU r, z, n and `W_hn h + b_hn` `[T, B, 4 H]`; else nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recurrent {
    /// What a step computes.
    pub cell: Cell,
    /// From the last step to the first.
    pub reverse: bool,
    /// There are biases.
    pub bias: bool,
    /// The result holds what the gradient needs.
    pub save: bool,
}

impl Definition for Recurrent {
    fn name(&self) -> &'static str {
        self.cell.name()
    }

    fn attributes(&self) -> String {
        self.flags()
    }

    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        let cell = self.cell;
        check::count(
            self.name(),
            operands,
            4 + usize::from(cell.has_cell_state()) + 2 * usize::from(self.bias),
        )?;
        let x = &operands[0];
        check::float(self.name(), x)?;
        let (&[steps, batch, width], &[_, hidden]) = (x.shape(), operands[1].shape()) else {
            let hint = "the input must be (steps, batch, features) and the state (batch, hidden units)";
            return Err(Error::shape(self.name(), &[x.shape(), operands[1].shape()], hint));
        };
        if steps == 0 {
            return Err(Error::shape(self.name(), &[x.shape()], "there must be at least one step"));
        }
        // No tensor is as long as a product that saturates, so that the checks below refuse it.
        let rows = hidden.saturating_mul(cell.gates());
        let mut rest = Operands(&operands[1..]);
        check::shape(self.name(), rest.next()?, &[batch, hidden], "the hidden state")?;
        if let Some(state) = rest.next_if(cell.has_cell_state())? {
            check::shape(self.name(), state, &[batch, hidden], "the cell state")?;
        }
        let weight_ih = rest.next()?;
        if let &[own_rows, own_width] = weight_ih.shape()
            && own_rows == rows
            && own_width != width
        {
            let hint = format!(
                "the input's last dimension must be input_size, which is {own_width}: the columns of weight_ih"
            );
            return Err(Error::shape(self.name(), &[x.shape(), weight_ih.shape()], hint));
        }
        check::shape(self.name(), weight_ih, &[rows, width], "the weights of the input")?;
        check::shape(self.name(), rest.next()?, &[rows, hidden], "the weights of the hidden state")?;
        if self.bias {
            check::shape(self.name(), rest.next()?, &[rows], "the biases")?;
            check::shape(self.name(), rest.next()?, &[rows], "the biases")?;
        }
        operands.iter().try_for_each(|t| check::dtype(self.name(), t, x.dtype()))?;
        let size = packed_len(self.name(), &self.parts(steps, batch, hidden))?;
        Ok((x.dtype(), Dims::from_slice(&[size])))
    }

    fn body(&self, operands: &[Term]) -> Result<Term> {
        let (steps, batch, width) = (operands[0].shape()[0], operands[0].shape()[1], operands[0].shape()[2]);
        let rows = self.cell.gates() * operands[1].shape()[1];
        let mut operands = Operands(operands);
        let x = operands.next()?;
        let mut inputs = vec![operands.next()?];
        inputs.extend(operands.next_if(self.cell.has_cell_state())?);
        let weights = Formula::of(operands.next()?).transpose();
        let hidden_weights = operands.next()?;
        let bias = operands.next_if(self.bias)?.map(|bias| Formula::wide(bias).reshape(&[1, rows]));

        // The input's share of every step is one product.
        let x_rows = Formula::of(x).reshape(&[steps * batch, width]);
        let mut from_input = x_rows.dot_as(&weights, x.dtype().compute());
        if let Some(bias) = &bias {
            from_input = from_input + bias;
        }
        let from_input = from_input.reshape(&[steps, batch, rows]).term()?;
        inputs.extend([&from_input, hidden_weights]);
        inputs.extend(operands.next_if(self.bias)?);
        Composite::term(RecurrentSteps(*self), &inputs)
    }

    /// By [`RecurrentGradient`] and one product over all steps for each weight; by the body where the saved parts
    /// have a gradient of their own (second order) or were not saved.
    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        if !self.save {
            return Ok(None);
        }
        let cell = self.cell;
        let (x, h0) = (&call.inputs[0], &call.inputs[1]);
        let (steps, batch, width) = (x.shape()[0], x.shape()[1], x.shape()[2]);
        let hidden = h0.shape()[1];
        let state = [batch, hidden];
        let sequence = [steps, batch, hidden];
        let saved_shapes = self.saved(steps, batch, hidden);

        let mut gradients = Unpack::new(call.gradient);
        let of_states = gradients.next_gradient(&sequence)?;
        let of_cell = if cell.has_cell_state() { gradients.next_gradient(&state)? } else { None };
        for shape in &saved_shapes {
            if gradients.next_gradient(shape)?.is_some() {
                return Ok(None);
            }
        }
        let mut results = Unpack::new(call.output);
        let states = results.next(&sequence);
        if cell.has_cell_state() {
            results.next(&state).term()?;
        }
        let first_weight = 2 + usize::from(cell.has_cell_state());
        let mut operands = vec![call.input(first_weight + 1), call.input(1)];
        if cell.has_cell_state() {
            operands.push(call.input(2));
        }
        operands.push(states.clone());
        operands.extend(saved_shapes.iter().map(|shape| results.next(shape)));
        operands.push(of_states.unwrap_or_else(|| states.like(0.0)));
        if cell.has_cell_state() {
            operands.push(of_cell.unwrap_or_else(|| call.input(2).like(0.0)));
        }
        let operands: Vec<Term> = operands.into_iter().map(Formula::term).collect::<Result<_>>()?;
        let packed = Composite::term(RecurrentGradient(*self), &operands.iter().collect::<Vec<_>>())?;

        let rows = cell.gates() * hidden;
        let mut parts = Unpack::new(&packed);
        let input_gates = parts.next(&[steps * batch, rows]);
        let hidden_gates =
            if cell == Cell::Gru { parts.next(&[steps * batch, rows]) } else { input_gates.clone() };
        let of_h0 = parts.next(&state);
        let mut of_c0 = cell.has_cell_state().then(|| parts.next(&state));
        // The state that every step started from.
        let before = || {
            let first = call.input(1).reshape(&[1, batch, hidden]);
            let parts = if self.reverse {
                [states.narrow(0, 1, steps - 1), first]
            } else {
                [first, states.narrow(0, 0, steps - 1)]
            };
            Formula::cat(&parts, 0).reshape(&[steps * batch, hidden])
        };
        let column_sum = |of: &Formula| of.sum(Axes::of([0])).reshape(&[rows]);
        let mut found = Vec::with_capacity(call.inputs.len());
        for (place, _) in call.needs.iter().enumerate().filter(|(_, needed)| **needed) {
            let gradient = match place {
                0 => input_gates.dot(&call.input(first_weight)).reshape(x.shape()),
                1 => of_h0.clone(),
                2 if cell.has_cell_state() => match of_c0.take() {
                    Some(of_c0) => of_c0,
                    None => return Err(Error::internal("lstm", "the cell state has one gradient")),
                },
                _ => match place - first_weight {
                    0 => input_gates.transpose().dot(&call.input(0).reshape(&[steps * batch, width])),
                    1 => hidden_gates.transpose().dot(&before()),
                    2 => column_sum(&input_gates),
                    _ => column_sum(&hidden_gates),
                },
            };
            found.push((place, gradient.term()?));
        }
        Ok(Some(gradients_for(call.inputs.len(), found)))
    }

    fn gradient_reads(&self) -> Reads {
        Reads::EVERYTHING
    }

    fn samples() -> Vec<Sample> {
        let small =
            [(false, true, true), (true, false, true), (true, true, false)].map(|f| ([3, 2, 2, 2], f));
        let large = [(false, true, true), (true, false, false)].map(|flags| ([4, 3, 5, 6], flags));
        let call = |cell: Cell, ([steps, batch, width, hidden], flags): ([usize; 4], _)| {
            let (reverse, bias, save) = flags;
            let rows = cell.gates() * hidden;
            let mut shapes = vec![vec![steps, batch, width], vec![batch, hidden]];
            shapes.extend(cell.has_cell_state().then(|| vec![batch, hidden]));
            shapes.extend([vec![rows, width], vec![rows, hidden]]);
            if bias {
                shapes.extend([vec![rows], vec![rows]]);
            }
            let operands = shapes.iter().map(|shape| SampleOperand::new(shape));
            Sample::new(Recurrent { cell, reverse, bias, save }, operands)
        };
        let sizes = || small.into_iter().chain(large);
        Cell::ALL.into_iter().flat_map(|cell| sizes().map(move |size| call(cell, size))).collect()
    }
}
