//! Recurrent layers over whole sequences: one layer, one direction. Libraries and exchange formats know them so; the
//! body is the unrolled loop.

mod gradient;
mod layer;
mod steps;

pub use gradient::RecurrentGradient;
pub use layer::Recurrent;
pub use steps::RecurrentSteps;

use super::pack::Unpack;
use crate::{Result, op::term::Term, shape::Dims};

/// What a time step computes. Gates lie in PyTorch's order in weights and biases.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cell {
    /// Input, forget, cell, output gates: `c' = f c + i g`, `h' = o tanh(c')` (Hochreiter and Schmidhuber, 1997).
    Lstm,
    /// Reset, update, new gates: `h' = (1 - z) n + z h`, `n = tanh(W_in x + b_in + r (W_hn h + b_hn))` (Cho, 2014).
    Gru,
    /// `h' = tanh(W_ih x + b_ih + W_hh h + b_hh)`.
    Tanh,
    /// `h' = max(0, W_ih x + b_ih + W_hh h + b_hh)`.
    Relu,
}

impl Cell {
    const ALL: [Cell; 4] = [Cell::Lstm, Cell::Gru, Cell::Tanh, Cell::Relu];

    /// The name of the layer.
    pub fn name(self) -> &'static str {
        match self {
            Cell::Lstm => "lstm",
            Cell::Gru => "gru",
            Cell::Tanh => "rnn_tanh",
            Cell::Relu => "rnn_relu",
        }
    }

    /// The name of the layer's gradient.
    fn gradient_name(self) -> &'static str {
        match self {
            Cell::Lstm => "lstm_gradient",
            Cell::Gru => "gru_gradient",
            Cell::Tanh => "rnn_tanh_gradient",
            Cell::Relu => "rnn_relu_gradient",
        }
    }

    /// The name of the layer's steps.
    fn steps_name(self) -> &'static str {
        match self {
            Cell::Lstm => "lstm_steps",
            Cell::Gru => "gru_steps",
            Cell::Tanh => "rnn_tanh_steps",
            Cell::Relu => "rnn_relu_steps",
        }
    }

    /// Whether its gradient needs the gates, of which there are four blocks.
    pub(crate) fn saves_gates(self) -> bool {
        matches!(self, Cell::Lstm | Cell::Gru)
    }

    /// How many blocks of `H` rows the weights have.
    pub fn gates(self) -> usize {
        match self {
            Cell::Lstm => 4,
            Cell::Gru => 3,
            Cell::Tanh | Cell::Relu => 1,
        }
    }

    /// True if there is a cell state beside the hidden state.
    pub fn has_cell_state(self) -> bool {
        self == Cell::Lstm
    }
}

impl Recurrent {
    /// The attributes for listings.
    fn flags(&self) -> String {
        let flags = [("reverse", self.reverse), ("bias", self.bias), ("save", self.save)];
        let names: Vec<&str> = flags.iter().filter(|(_, there)| *there).map(|(name, _)| *name).collect();
        names.join(", ")
    }

    /// The steps in the order in which they are taken.
    fn order(&self, steps: usize) -> Vec<usize> {
        if self.reverse { (0..steps).rev().collect() } else { (0..steps).collect() }
    }

    /// The shapes of the packed result.
    fn parts(&self, steps: usize, batch: usize, hidden: usize) -> Vec<Dims> {
        let sequence = |width: usize| Dims::from_slice(&[steps, batch, width]);
        let state = Dims::from_slice(&[batch, hidden]);
        let mut parts = vec![sequence(hidden)];
        if self.cell.has_cell_state() {
            parts.push(state);
        }
        if self.save {
            parts.extend(self.saved(steps, batch, hidden));
        }
        parts
    }

    /// The shapes of what the gradient needs.
    fn saved(&self, steps: usize, batch: usize, hidden: usize) -> Vec<Dims> {
        let sequence = |width: usize| Dims::from_slice(&[steps, batch, width]);
        match self.cell {
            Cell::Lstm => vec![sequence(hidden.saturating_mul(4)), sequence(hidden)],
            Cell::Gru => vec![sequence(hidden.saturating_mul(4))],
            Cell::Tanh | Cell::Relu => Vec::new(),
        }
    }

    /// The hidden states `[T, B, H]`, the final hidden state and, for the LSTM, the final cell state of a packed result.
    pub(crate) fn unpack(
        &self,
        packed: &Term,
        steps: usize,
        batch: usize,
        hidden: usize,
    ) -> Result<(Term, Term, Option<Term>)> {
        let mut parts = Unpack::new(packed);
        let states = parts.next(&[steps, batch, hidden]);
        let last = states.select(0, if self.reverse { 0 } else { steps - 1 });
        let cell = self.cell.has_cell_state().then(|| parts.next(&[batch, hidden]).term()).transpose()?;
        Ok((states.term()?, last.term()?, cell))
    }
}
