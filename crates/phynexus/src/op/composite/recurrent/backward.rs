//! The layer's gradient: back through the steps for the gates, then products over all steps for weights and input.

use super::{
    super::{
        Composite, Operands, gradients_for,
        pack::{Unpack, pack, packed_len},
    },
    Cell, Recurrence,
};
use crate::{
    DType, Error, Result,
    op::{
        Axes,
        formula::Formula,
        gradient::rule::{Call, InputGradients},
        term::{TensorType, Term},
    },
    shape::Dims,
};

impl Recurrence {
    /// The shapes of the gradient's packed result.
    fn gradient_parts(&self, steps: usize, batch: usize, hidden: usize) -> Vec<Dims> {
        let sequence = Dims::from_slice(&[steps, batch, hidden.saturating_mul(self.cell.gates())]);
        let state = Dims::from_slice(&[batch, hidden]);
        match self.cell {
            Cell::Lstm => vec![sequence, state.clone(), state],
            Cell::Gru => vec![sequence.clone(), sequence, state],
            Cell::Tanh | Cell::Relu => vec![sequence, state],
        }
    }
}

pub(in super::super) fn check_gradient(
    composite: &Composite,
    recurrence: &Recurrence,
    inputs: &[TensorType],
) -> Result<(DType, Dims)> {
    let cell = recurrence.cell;
    let saved = recurrence.saved(0, 0, 0).len();
    composite.check_count(inputs, 4 + saved + 2 * usize::from(cell.has_cell_state()))?;
    let mut operands = Operands(inputs);
    let (weights, h0) = (operands.next()?, operands.next()?);
    let c0 = operands.next_if(cell.has_cell_state())?;
    let states = operands.next()?;
    composite.check_float(states)?;
    let &[steps, batch, hidden] = states.shape() else {
        return Err(Error::shape(
            composite.name(),
            &[states.shape()],
            "the hidden states are (steps, batch, units)",
        ));
    };
    composite.check_shape(
        weights,
        &[hidden.saturating_mul(cell.gates()), hidden],
        "the weights of the hidden state",
    )?;
    composite.check_shape(h0, &[batch, hidden], "the hidden state")?;
    if let Some(c0) = c0 {
        composite.check_shape(c0, &[batch, hidden], "the cell state")?;
    }
    for shape in recurrence.saved(steps, batch, hidden) {
        composite.check_shape(operands.next()?, &shape, "the saved gates and cell states")?;
    }
    composite.check_shape(operands.next()?, &[steps, batch, hidden], "the gradient of the hidden states")?;
    if let Some(gradient) = operands.next_if(cell.has_cell_state())? {
        composite.check_shape(gradient, &[batch, hidden], "the gradient of the cell state")?;
    }
    inputs.iter().try_for_each(|t| composite.check_dtype(t, states.dtype()))?;
    let size = packed_len(composite.name(), &recurrence.gradient_parts(steps, batch, hidden))?;
    Ok((states.dtype(), Dims::from_slice(&[size])))
}

pub(in super::super) fn gradient_body(recurrence: &Recurrence, inputs: &[Term]) -> Result<Term> {
    let cell = recurrence.cell;
    let dtype = inputs[0].dtype();
    let wide = |t: &Term| Formula::of(t).cast(dtype.compute());
    let mut operands = Operands(inputs);
    let (weights, h0) = (wide(operands.next()?), wide(operands.next()?));
    let c0 = operands.next_if(cell.has_cell_state())?.map(wide);
    let states = operands.next()?;
    let (steps, hidden) = (states.shape()[0], states.shape()[2]);
    let states = wide(states);
    let saves_gates = !recurrence.saved(0, 0, 0).is_empty();
    let gates = operands.next_if(saves_gates)?.map(wide);
    let cells = operands.next_if(cell.has_cell_state())?.map(wide);
    let of_states = wide(operands.next()?);
    let mut dc = operands.next_if(cell.has_cell_state())?.map(wide);

    let mut dh: Option<Formula> = None;
    let mut input_gates: Vec<Option<Formula>> = vec![None; steps];
    let mut hidden_gates: Vec<Option<Formula>> = vec![None; steps];
    let order = recurrence.order(steps);
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
            None => Formula::from(Err(Error::internal(recurrence.cell.name(), "there are no saved gates"))),
        };
        let slope_of_sigmoid = |s: &Formula| s * (1.0 - s);
        match (cell, &cells, &c0, &mut dc) {
            (Cell::Lstm, Some(cells), Some(c0), Some(dc)) => {
                let [i, f, g, o] = [0, 1, 2, 3].map(gate);
                let t = cells.select(0, step).tanh();
                *dc = &*dc + &total * &o * (1.0 - &t * &t);
                let sums = [
                    &*dc * &g * slope_of_sigmoid(&i),
                    &*dc * earlier(cells, c0) * slope_of_sigmoid(&f),
                    &*dc * &i * (1.0 - &g * &g),
                    &total * t * slope_of_sigmoid(&o),
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
                let dz = &total * (previous - n) * slope_of_sigmoid(&z);
                let dr = &dn * candidate * slope_of_sigmoid(&r);
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

/// By [`Composite::RecurrentGradient`] and one product over all steps for each weight; by the body where the saved parts
/// have a gradient of their own (second order) or were not saved.
pub(in super::super) fn gradient(recurrence: &Recurrence, call: &Call) -> Result<Option<InputGradients>> {
    if !recurrence.save {
        return Ok(None);
    }
    let cell = recurrence.cell;
    let (x, h0) = (&call.inputs[0], &call.inputs[1]);
    let (steps, batch, width) = (x.shape()[0], x.shape()[1], x.shape()[2]);
    let hidden = h0.shape()[1];
    let state = [batch, hidden];
    let sequence = [steps, batch, hidden];
    let saved_shapes = recurrence.saved(steps, batch, hidden);

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
    let packed = Composite::RecurrentGradient(*recurrence).term(&operands.iter().collect::<Vec<_>>())?;

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
        let parts = if recurrence.reverse {
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
