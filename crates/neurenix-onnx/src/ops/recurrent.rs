//! Recurrent layers.

use phynexus::{
    Tensor,
    op::composite::Cell,
    tensor::{RecurrentOutput, RecurrentWeights},
};

use super::Rows;
use crate::{Error, Result, Value, graph::Call};

pub(super) const ROWS: Rows = &[
    ("GRU", |call| recurrent(call, Kind::Gru)),
    ("LSTM", |call| recurrent(call, Kind::Lstm)),
    ("RNN", |call| recurrent(call, Kind::Plain)),
];

#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Plain,
    Lstm,
    Gru,
}

impl Kind {
    /// The number of gates.
    fn gates(self) -> usize {
        match self {
            Kind::Plain => 1,
            Kind::Lstm => 4,
            Kind::Gru => 3,
        }
    }

    /// The usual activations.
    fn activations(self) -> &'static [&'static str] {
        match self {
            Kind::Plain => &["Tanh"],
            Kind::Lstm => &["Sigmoid", "Tanh", "Tanh"],
            Kind::Gru => &["Sigmoid", "Tanh"],
        }
    }

    /// The places of the engine's gates among ONNX's.
    fn order(self) -> &'static [usize] {
        match self {
            Kind::Plain => &[0],
            Kind::Lstm => &[0, 2, 3, 1],
            Kind::Gru => &[1, 0, 2],
        }
    }
}

/// The names of activations, and the usual values of their `alpha` and `beta`, if they have them.
const ACTIVATIONS: &[(&str, Option<f32>, Option<f32>)] = &[
    ("affine", Some(1.0), Some(0.0)),
    ("elu", Some(1.0), None),
    ("hardsigmoid", Some(0.2), Some(0.5)),
    ("leakyrelu", Some(0.01), None),
    ("relu", None, None),
    ("scaledtanh", Some(1.0), Some(1.0)),
    ("sigmoid", None, None),
    ("softplus", None, None),
    ("softsign", None, None),
    ("tanh", None, None),
    ("thresholdedrelu", Some(1.0), None),
];

/// An activation. Its input is clipped first.
struct Activation {
    name: &'static str,
    alpha: f64,
    beta: f64,
    clip: Option<f64>,
}

impl Activation {
    fn of(&self, x: &Tensor) -> Result<Tensor> {
        let clipped = self.clip.map(|clip| x.clamp(Some((-clip).into()), Some(clip.into()))).transpose()?;
        let x = clipped.as_ref().unwrap_or(x);
        let affine = |x: &Tensor| x.mul_scalar(self.alpha)?.add_scalar(self.beta);
        Ok(match self.name {
            "affine" => affine(x)?,
            "elu" => x.elu(self.alpha)?,
            "hardsigmoid" => affine(x)?.clamp(Some(0.0.into()), Some(1.0.into()))?,
            "leakyrelu" => x.leaky_relu(self.alpha)?,
            "relu" => x.relu()?,
            "scaledtanh" => x.mul_scalar(self.beta)?.tanh()?.mul_scalar(self.alpha)?,
            "sigmoid" => x.sigmoid()?,
            "softplus" => x.zeros_like()?.logaddexp(x)?,
            "softsign" => x.softsign()?,
            "tanh" => x.tanh()?,
            _ => x.ge_scalar(self.alpha)?.where_(x, &x.zeros_like()?)?,
        })
    }
}

/// The activations of the node, each with the next of the values that it takes.
fn activations(call: &Call<'_>, kind: Kind, directions: usize) -> Result<Vec<Activation>> {
    let count = kind.activations().len() * directions;
    let usual = || kind.activations().iter().cycle().take(count).map(|name| (*name).to_owned()).collect();
    let names = call.strings("activations")?.filter(|names| !names.is_empty()).unwrap_or_else(usual);
    if names.len() < count {
        return Err(Error::invalid(format!("expected {count} activations, there are {}", names.len())));
    }
    let mut alphas = call.float_list("activation_alpha")?.unwrap_or_default().into_iter();
    let mut betas = call.float_list("activation_beta")?.unwrap_or_default().into_iter();
    let clip = call.float("clip")?.filter(|&clip| clip > 0.0);
    let activation = |name: &String| {
        let row = ACTIVATIONS.iter().find(|(own, ..)| name.eq_ignore_ascii_case(own));
        let &(name, alpha, beta) =
            row.ok_or_else(|| Error::invalid(format!("there is no activation {name:?}")))?;
        let alpha = alpha.map_or(0.0, |usual| alphas.next().unwrap_or(usual));
        let beta = beta.map_or(0.0, |usual| betas.next().unwrap_or(usual));
        Ok(Activation { name, alpha: alpha.into(), beta: beta.into(), clip })
    };
    names.iter().take(count).map(activation).collect()
}

/// One direction of a layer. Weights have a row for each gate and unit.
struct Direction<'a> {
    kind: Kind,
    reverse: bool,
    units: usize,
    activations: &'a [Activation],
    weight_input: Tensor,
    weight_hidden: Tensor,
    biases: Option<[Tensor; 2]>,
    /// Of the input, output and forget gates, each `[units]`.
    peepholes: Option<Tensor>,
    hidden: Tensor,
    cell: Option<Tensor>,
    /// The number of steps of each sample, `[batch, 1]`.
    lengths: Option<Tensor>,
    linear_before_reset: bool,
    input_forget: bool,
}

fn recurrent(call: &Call<'_>, kind: Kind) -> Result<Vec<Value>> {
    let batch_first = call.int_or("layout", 0)? != 0;
    let swapped = |x: Tensor| if batch_first { x.transpose(0, 1) } else { Ok(x) };
    let (given, weight_input, weight_hidden) = (call.tensor(0)?, call.tensor(1)?, call.tensor(2)?);
    let (&[_, _, features], &[.., units]) = (given.shape(), weight_hidden.shape()) else {
        return Err(Error::invalid(format!(
            "the input must have three dimensions, it has {:?}",
            given.shape()
        )));
    };
    let x = swapped(given)?;
    let (steps, batch) = (x.shape()[0], x.shape()[1]);
    let directions = match call.string_or("direction", "forward")? {
        "forward" => &[false][..],
        "reverse" => &[true],
        "bidirectional" => &[false, true],
        other => return Err(Error::invalid(format!("there is no direction {other:?}"))),
    };
    let count = directions.len();
    let checked = |tensor: Tensor, shape: &[usize], what: &str| match tensor.shape() == shape {
        true => Ok(tensor.to_dtype(x.dtype())?),
        false => Err(Error::invalid(format!("{what} must be {shape:?}, it is {:?}", tensor.shape()))),
    };
    let rows = |per_unit: usize| per_unit.saturating_mul(units);
    let weight_input = checked(weight_input, &[count, rows(kind.gates()), features], "W")?;
    let weight_hidden = checked(weight_hidden, &[count, rows(kind.gates()), units], "R")?;
    let optional = |input: usize, shape: &[usize], what: &str| -> Result<Option<Tensor>> {
        call.optional(input)?.map(|tensor| checked(tensor, shape, what)).transpose()
    };
    let bias = optional(3, &[count, rows(2 * kind.gates())], "B")?;
    let initial = |input: usize, what: &str| -> Result<Tensor> {
        match call.optional(input)? {
            Some(state) => checked(swapped(state)?, &[count, batch, units], what),
            None => Ok(Tensor::zeros(&[count, batch, units], x.dtype(), x.device())?),
        }
    };
    let hidden = initial(5, "initial_h")?;
    let cell = if kind == Kind::Lstm { Some(initial(6, "initial_c")?) } else { None };
    let peepholes = if kind == Kind::Lstm { optional(7, &[count, rows(3)], "P")? } else { None };
    let lengths = match call.optional_integers(4)? {
        Some(all) if all.len() != batch => {
            return Err(Error::invalid(format!(
                "sequence_lens must have {batch} lengths, it has {}",
                all.len()
            )));
        }
        Some(all) if all.iter().any(|&length| length < steps as i64) => Some(call.tensor(4)?.unsqueeze(1)?),
        _ => None,
    };
    let activations = activations(call, kind, count)?;
    let per_direction = kind.activations().len();
    let mut runs = Vec::new();
    for ((place, &reverse), activations) in
        directions.iter().enumerate().zip(activations.chunks(per_direction))
    {
        let of = |all: &Tensor| all.narrow(0, place, 1)?.squeeze(0);
        let bias = bias.as_ref().map(of).transpose()?;
        let half = |start: usize| bias.as_ref().map(|bias| bias.narrow(0, start, rows(kind.gates())));
        let direction = Direction {
            kind,
            reverse,
            units,
            activations,
            weight_input: of(&weight_input)?,
            weight_hidden: of(&weight_hidden)?,
            biases: match (half(0).transpose()?, half(rows(kind.gates())).transpose()?) {
                (Some(input), Some(hidden)) => Some([input, hidden]),
                _ => None,
            },
            peepholes: peepholes.as_ref().map(of).transpose()?,
            hidden: of(&hidden)?,
            cell: cell.as_ref().map(of).transpose()?,
            lengths: lengths.clone(),
            linear_before_reset: call.int_or("linear_before_reset", 0)? != 0,
            input_forget: call.int_or("input_forget", 0)? != 0,
        };
        runs.push(direction.run(&x)?);
    }
    let outputs: Vec<&Tensor> = runs.iter().map(|run| &run.output).collect();
    let output = Tensor::stack(&outputs, 1)?;
    let output = if batch_first { output.permute(&[2, 0, 1, 3])? } else { output };
    let states = |all: Vec<&Tensor>| swapped(Tensor::stack(&all, 0)?);
    let mut results = vec![output.into(), states(runs.iter().map(|run| &run.h_n).collect())?.into()];
    let cells: Vec<&Tensor> = runs.iter().filter_map(|run| run.c_n.as_ref()).collect();
    if !cells.is_empty() {
        results.push(states(cells)?.into());
    }
    Ok(results)
}

impl Direction<'_> {
    fn run(&self, x: &Tensor) -> Result<RecurrentOutput> {
        match self.engine_cell() {
            Some(cell) if !x.is_empty() && self.units > 0 => self.run_by_engine(cell, x),
            _ => self.run_by_step(x),
        }
    }

    /// The engine's layer that computes the same.
    fn engine_cell(&self) -> Option<Cell> {
        let is_special = self.peepholes.is_some() || self.lengths.is_some() || self.input_forget;
        if is_special || self.activations.iter().any(|activation| activation.clip.is_some()) {
            return None;
        }
        let names: Vec<&str> = self.activations.iter().map(|activation| activation.name).collect();
        match (self.kind, &names[..]) {
            (Kind::Plain, ["tanh"]) => Some(Cell::Tanh),
            (Kind::Plain, ["relu"]) => Some(Cell::Relu),
            (Kind::Lstm, ["sigmoid", "tanh", "tanh"]) => Some(Cell::Lstm),
            (Kind::Gru, ["sigmoid", "tanh"]) if self.linear_before_reset => Some(Cell::Gru),
            _ => None,
        }
    }

    fn run_by_engine(&self, cell: Cell, x: &Tensor) -> Result<RecurrentOutput> {
        let ordered = |rows: &Tensor| -> Result<Tensor> {
            let gate = |&gate: &usize| rows.narrow(0, gate * self.units, self.units);
            let gates = self.kind.order().iter().map(gate).collect::<Result<Vec<_>, _>>()?;
            Ok(Tensor::cat(&gates.iter().collect::<Vec<_>>(), 0)?)
        };
        let biases =
            self.biases.as_ref().map(|[input, hidden]| Ok::<_, Error>([ordered(input)?, ordered(hidden)?]));
        let biases = biases.transpose()?;
        let weights = RecurrentWeights {
            weight_ih: &ordered(&self.weight_input)?,
            weight_hh: &ordered(&self.weight_hidden)?,
            bias_ih: biases.as_ref().map(|[input, _]| input),
            bias_hh: biases.as_ref().map(|[_, hidden]| hidden),
        };
        Ok(x.recurrent(cell, weights, Some(&self.hidden), self.cell.as_ref(), self.reverse)?)
    }

    fn run_by_step(&self, x: &Tensor) -> Result<RecurrentOutput> {
        let (steps, dtype) = (x.shape()[0], x.dtype());
        let wide = |tensor: &Tensor| tensor.to_dtype(dtype.compute());
        let mut inputs = wide(x)?.matmul(&wide(&self.weight_input)?.t()?)?;
        if let Some([bias, _]) = &self.biases {
            inputs = inputs.add(&wide(bias)?)?;
        }
        let step = Step {
            direction: self,
            weight: wide(&self.weight_hidden)?.t()?,
            bias: self.biases.as_ref().map(|[_, bias]| wide(bias)).transpose()?,
            peepholes: self.peepholes.as_ref().map(wide).transpose()?,
        };
        let (mut hidden, mut cell) = (wide(&self.hidden)?, self.cell.as_ref().map(wide).transpose()?);
        let mut outputs =
            vec![Tensor::zeros(&[0, x.shape()[1], self.units], hidden.dtype(), x.device())?; steps + 1];
        for at in 0..steps {
            let at = if self.reverse { steps - 1 - at } else { at };
            let (next, next_cell) =
                step.run(&inputs.narrow(0, at, 1)?.squeeze(0)?, &hidden, cell.as_ref())?;
            let output = match &self.lengths {
                None => {
                    (hidden, cell) = (next.clone(), next_cell);
                    next
                }
                // The state of a sample stays as it is where the sample has no steps.
                Some(lengths) => {
                    let takes_part = lengths.gt_scalar(at as i64)?;
                    hidden = takes_part.where_(&next, &hidden)?;
                    cell = match (next_cell, cell) {
                        (Some(next), Some(cell)) => Some(takes_part.where_(&next, &cell)?),
                        _ => None,
                    };
                    takes_part.where_(&next, &next.zeros_like()?)?
                }
            };
            outputs[at] = output.unsqueeze(0)?;
        }
        Ok(RecurrentOutput {
            output: Tensor::cat(&outputs.iter().collect::<Vec<_>>(), 0)?.to_dtype(dtype)?,
            h_n: hidden.to_dtype(dtype)?,
            c_n: cell.map(|cell| cell.to_dtype(dtype)).transpose()?,
        })
    }
}

/// What the steps of a direction need of the hidden state, in the dtype in which it is computed.
struct Step<'a> {
    direction: &'a Direction<'a>,
    /// `[units, gates * units]`.
    weight: Tensor,
    bias: Option<Tensor>,
    peepholes: Option<Tensor>,
}

impl Step<'_> {
    /// The columns of the gates from `first` on.
    fn gates(&self, all: &Tensor, first: usize, count: usize) -> Result<Tensor> {
        let units = self.direction.units;
        Ok(all.narrow(-1, first * units, count * units)?)
    }

    /// What the hidden state adds to the gates from `first` on.
    fn of_hidden(&self, hidden: &Tensor, first: usize, count: usize) -> Result<Tensor> {
        let product = hidden.matmul(&self.gates(&self.weight, first, count)?)?;
        match &self.bias {
            Some(bias) => Ok(product.add(&self.gates(bias, first, count)?)?),
            None => Ok(product),
        }
    }

    /// The states after a step, given what its input adds to the gates.
    fn run(
        &self,
        input: &Tensor,
        hidden: &Tensor,
        cell: Option<&Tensor>,
    ) -> Result<(Tensor, Option<Tensor>)> {
        match (self.direction.activations, cell) {
            ([f, g, h], Some(cell)) => {
                let all = input.add(&self.of_hidden(hidden, 0, 4)?)?;
                let gate = |place: usize, cell: &Tensor| -> Result<Tensor> {
                    let gate = self.gates(&all, place, 1)?;
                    match &self.peepholes {
                        Some(peepholes) => Ok(gate.add(&cell.mul(&self.gates(peepholes, place, 1)?)?)?),
                        None => Ok(gate),
                    }
                };
                let take = f.of(&gate(0, cell)?)?;
                let keep = match self.direction.input_forget {
                    true => take.rsub_scalar(1)?,
                    false => f.of(&gate(2, cell)?)?,
                };
                let new = g.of(&self.gates(&all, 3, 1)?)?;
                let cell = keep.mul(cell)?.add(&take.mul(&new)?)?;
                let show = f.of(&gate(1, &cell)?)?;
                Ok((show.mul(&h.of(&cell)?)?, Some(cell)))
            }
            ([f, g], _) => {
                let both = f.of(&self.gates(input, 0, 2)?.add(&self.of_hidden(hidden, 0, 2)?)?)?;
                let (keep, reset) = (self.gates(&both, 0, 1)?, self.gates(&both, 1, 1)?);
                let past = match self.direction.linear_before_reset {
                    true => reset.mul(&self.of_hidden(hidden, 2, 1)?)?,
                    false => self.of_hidden(&reset.mul(hidden)?, 2, 1)?,
                };
                let new = g.of(&self.gates(input, 2, 1)?.add(&past)?)?;
                Ok((new.lerp(hidden, &keep)?, None))
            }
            ([f, ..], _) => Ok((f.of(&input.add(&self.of_hidden(hidden, 0, 1)?)?)?, None)),
            ([], _) => Err(Error::invalid("a recurrent layer needs an activation")),
        }
    }
}
