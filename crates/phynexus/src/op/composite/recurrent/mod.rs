//! Recurrent layers over whole sequences: one layer, one direction. Libraries and exchange formats know them so; the
//! body is the unrolled loop.

mod backward;
mod forward;

use std::fmt;

pub(super) use backward::{check_gradient, gradient, gradient_body};
pub(super) use forward::{body, check};

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

/// A recurrent layer, `T` steps of `B` sequences, `I` inputs and `H` units; `G` is [`Cell::gates`].
///
/// Operands of the layer: x `[T, B, I]`, h0 `[B, H]`, for the LSTM c0 `[B, H]`, then W_ih `[G H, I]`, W_hh `[G H, H]`,
/// and with `bias` b_ih and b_hh `[G H]`. Packed result:
/// 1. the hidden states `[T, B, H]`, at the step that gave them;
/// 2. for the LSTM the final cell state `[B, H]`;
/// 3. with `save`, what the gradient needs: for the LSTM the gates after their functions `[T, B, 4 H]` (i, f, g, o) and
///    the cell states `[T, B, H]`; for the GRU r, z, n and `W_hn h + b_hn` `[T, B, 4 H]`; else nothing.
///
/// Operands of the gradient: W_hh, h0, for the LSTM c0, the hidden states, the saved parts, the gradient of the hidden
/// states `[T, B, H]` and for the LSTM that of the final cell state `[B, H]`. Packed result: the gradient of
/// `W_ih x + b_ih` `[T, B, G H]`; for the GRU that of `W_hh h + b_hh` `[T, B, 3 H]` (for the others they are the same);
/// the gradient of h0 `[B, H]`; for the LSTM that of c0 `[B, H]`.
///
/// All are of x's dtype.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Recurrence {
    /// What a step computes.
    pub cell: Cell,
    /// From the last step to the first.
    pub reverse: bool,
    /// There are biases.
    pub bias: bool,
    /// The result holds what the gradient needs.
    pub save: bool,
}

impl Cell {
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
    pub(super) fn gradient_name(self) -> &'static str {
        match self {
            Cell::Lstm => "lstm_gradient",
            Cell::Gru => "gru_gradient",
            Cell::Tanh => "rnn_tanh_gradient",
            Cell::Relu => "rnn_relu_gradient",
        }
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

impl fmt::Display for Recurrence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = [("reverse", self.reverse), ("bias", self.bias), ("save", self.save)];
        let names: Vec<&str> = flags.iter().filter(|(_, there)| *there).map(|(name, _)| *name).collect();
        f.write_str(&names.join(", "))
    }
}

impl Recurrence {
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
    pub(super) fn saved(&self, steps: usize, batch: usize, hidden: usize) -> Vec<Dims> {
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
