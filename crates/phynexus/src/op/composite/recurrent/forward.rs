//! The layer: its check and its body.

use super::{
    super::{
        Composite, Operands,
        pack::{pack, packed_len},
    },
    Cell, Recurrence,
};
use crate::{
    DType, Error, Result,
    op::{
        formula::Formula,
        term::{TensorType, Term},
    },
    shape::Dims,
};

pub(in super::super) fn check(
    composite: &Composite,
    recurrence: &Recurrence,
    inputs: &[TensorType],
) -> Result<(DType, Dims)> {
    let cell = recurrence.cell;
    composite
        .check_count(inputs, 4 + usize::from(cell.has_cell_state()) + 2 * usize::from(recurrence.bias))?;
    let x = &inputs[0];
    composite.check_float(x)?;
    let (&[steps, batch, width], &[_, hidden]) = (x.shape(), inputs[1].shape()) else {
        let hint = "the input must be (steps, batch, features) and the state (batch, hidden units)";
        return Err(Error::shape(composite.name(), &[x.shape(), inputs[1].shape()], hint));
    };
    if steps == 0 {
        return Err(Error::shape(composite.name(), &[x.shape()], "there must be at least one step"));
    }
    // No tensor is as long as a product that saturates, so that the checks below refuse it.
    let rows = hidden.saturating_mul(cell.gates());
    let mut operands = Operands(&inputs[1..]);
    composite.check_shape(operands.next()?, &[batch, hidden], "the hidden state")?;
    if let Some(state) = operands.next_if(cell.has_cell_state())? {
        composite.check_shape(state, &[batch, hidden], "the cell state")?;
    }
    let weight_ih = operands.next()?;
    if let &[own_rows, own_width] = weight_ih.shape()
        && own_rows == rows
        && own_width != width
    {
        let hint = format!(
            "the input's last dimension must be input_size, which is {own_width}: the columns of weight_ih"
        );
        return Err(Error::shape(composite.name(), &[x.shape(), weight_ih.shape()], hint));
    }
    composite.check_shape(weight_ih, &[rows, width], "the weights of the input")?;
    composite.check_shape(operands.next()?, &[rows, hidden], "the weights of the hidden state")?;
    if recurrence.bias {
        composite.check_shape(operands.next()?, &[rows], "the biases")?;
        composite.check_shape(operands.next()?, &[rows], "the biases")?;
    }
    inputs.iter().try_for_each(|t| composite.check_dtype(t, x.dtype()))?;
    let size = packed_len(composite.name(), &recurrence.parts(steps, batch, hidden))?;
    Ok((x.dtype(), Dims::from_slice(&[size])))
}

pub(in super::super) fn body(recurrence: &Recurrence, inputs: &[Term]) -> Result<Term> {
    let dtype = inputs[0].dtype();
    let wide = |t: &Term| Formula::of(t).cast(dtype.compute());
    let (steps, batch, width) = (inputs[0].shape()[0], inputs[0].shape()[1], inputs[0].shape()[2]);
    let hidden = inputs[1].shape()[1];
    let rows = recurrence.cell.gates() * hidden;
    let mut operands = Operands(inputs);
    let x = wide(operands.next()?);
    let mut h = wide(operands.next()?);
    let mut c = operands.next_if(recurrence.cell.has_cell_state())?.map(wide);
    let input_weights = wide(operands.next()?).transpose();
    let hidden_weights = wide(operands.next()?).transpose();
    let input_bias = operands.next_if(recurrence.bias)?.map(|b| wide(b).reshape(&[1, rows]));
    let hidden_bias = operands.next_if(recurrence.bias)?.map(|b| wide(b).reshape(&[1, rows]));

    // The input's share of every step is one product.
    let mut from_input = x.reshape(&[steps * batch, width]).dot(&input_weights);
    if let Some(bias) = &input_bias {
        from_input = from_input + bias;
    }
    let from_input = from_input.reshape(&[steps, batch, rows]);

    let mut states: Vec<Option<Formula>> = vec![None; steps];
    let mut gates: Vec<Option<Formula>> = vec![None; steps];
    let mut cells: Vec<Option<Formula>> = vec![None; steps];
    for step in recurrence.order(steps) {
        let from_input = from_input.select(0, step);
        let mut from_hidden = h.dot(&hidden_weights);
        if let Some(bias) = &hidden_bias {
            from_hidden = from_hidden + bias;
        }
        let gate = |of: &Formula, index: usize| of.narrow(1, index * hidden, hidden);
        match (recurrence.cell, &mut c) {
            (Cell::Lstm, Some(c)) => {
                let sum = from_input + from_hidden;
                let [i, f, o] = [0, 1, 3].map(|index| gate(&sum, index).sigmoid());
                let g = gate(&sum, 2).tanh();
                *c = &f * &*c + &i * &g;
                h = &o * c.tanh();
                gates[step] = Some(Formula::cat(&[i, f, g, o], 1));
                cells[step] = Some(c.clone());
            }
            (Cell::Gru, _) => {
                let [r, z] =
                    [0, 1].map(|index| (gate(&from_input, index) + gate(&from_hidden, index)).sigmoid());
                let candidate = gate(&from_hidden, 2);
                let n = (gate(&from_input, 2) + &r * &candidate).tanh();
                h = &n + &z * (h - &n);
                gates[step] = Some(Formula::cat(&[r, z, n, candidate], 1));
            }
            (Cell::Tanh, _) => h = (from_input + from_hidden).tanh(),
            (Cell::Relu, _) => {
                let sum = from_input + from_hidden;
                h = sum.le(&sum.like(0.0)).choose(&sum.like(0.0), &sum);
            }
            (Cell::Lstm, None) => return Err(Error::internal("lstm", "there is no cell state")),
        }
        states[step] = Some(h.clone());
    }
    let stack = |parts: Vec<Option<Formula>>| pack(&parts.into_iter().flatten().collect::<Vec<_>>());
    let mut results = vec![stack(states)];
    results.extend(c);
    if recurrence.save {
        match recurrence.cell {
            Cell::Lstm => results.extend([stack(gates), stack(cells)]),
            Cell::Gru => results.push(stack(gates)),
            Cell::Tanh | Cell::Relu => {}
        }
    }
    pack(&results).cast(dtype).term()
}
