//! Recurrent layers and cells: one layer, one direction.

use crate::{
    Error, Result, Tensor,
    op::{
        composite::{Cell, Composite, Recurrent},
        gradient,
    },
};

/// The weights of a recurrent layer with `H` units. Names and the order of the `G` gates are PyTorch's. `G` is 4 for
/// the LSTM, 3 for the GRU, 1 for a plain recurrent layer.
#[derive(Clone, Copy)]
pub struct RecurrentWeights<'a> {
    /// `[G H, features]`.
    pub weight_ih: &'a Tensor,
    /// `[G H, H]`.
    pub weight_hh: &'a Tensor,
    /// `[G H]`; defaults to zeros.
    pub bias_ih: Option<&'a Tensor>,
    /// `[G H]`; defaults to zeros.
    pub bias_hh: Option<&'a Tensor>,
}

/// The result of a recurrent layer.
#[derive(Clone)]
pub struct RecurrentOutput {
    /// The hidden state of each step, `[T, B, H]`.
    pub output: Tensor,
    /// The hidden state after the last step processed, `[B, H]`.
    pub h_n: Tensor,
    /// The cell state of the LSTM after the last step processed, `[B, H]`.
    pub c_n: Option<Tensor>,
}

impl Tensor {
    /// Runs a recurrent layer over this sequence `[T, B, features]`. `h_0` is the initial hidden state and `c_0` the
    /// initial cell state of the LSTM (both `[B, H]`, default zeros). If `reverse`, runs backwards in time.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes do not fit or there are no steps; [`Error::DType`] unless all operands are floats
    /// of the same dtype; [`Error::Argument`] for a cell state if the cell has none.
    pub fn recurrent(
        &self,
        cell: Cell,
        weights: RecurrentWeights,
        h_0: Option<&Tensor>,
        c_0: Option<&Tensor>,
        reverse: bool,
    ) -> Result<RecurrentOutput> {
        let op = cell.name();
        let &[steps, batch, _] = self.shape() else {
            return Err(Error::shape(op, &[self.shape()], "the input must be (steps, batch, features)"));
        };
        let Some(&hidden) = weights.weight_hh.shape().get(1) else {
            let hint = "the weights of the hidden state must be (gates * units, units)";
            return Err(Error::shape(op, &[weights.weight_hh.shape()], hint));
        };
        if c_0.is_some() && !cell.has_cell_state() {
            return Err(Error::argument(op, "only the LSTM has a cell state"));
        }
        let state = |given: Option<&Tensor>| match given {
            Some(state) => Ok(state.clone()),
            None => Tensor::zeros(&[batch, hidden], self.dtype(), self.device()),
        };
        let mut operands = vec![self.clone(), state(h_0)?];
        if cell.has_cell_state() {
            operands.push(state(c_0)?);
        }
        operands.extend([weights.weight_ih.clone(), weights.weight_hh.clone()]);
        let bias = weights.bias_ih.is_some() || weights.bias_hh.is_some();
        if bias {
            for given in [weights.bias_ih, weights.bias_hh] {
                operands.push(match given {
                    Some(bias) => bias.clone(),
                    None => {
                        Tensor::zeros(&[hidden.saturating_mul(cell.gates())], self.dtype(), self.device())?
                    }
                });
            }
        }
        let save = gradient::is_enabled() && operands.iter().any(Tensor::requires_grad);
        let layer = Recurrent { cell, reverse, bias, save };
        let packed = Composite::apply(layer, &operands.iter().collect::<Vec<_>>())?;
        let (output, h_n, c_n) = layer.unpack(&packed.term(), steps, batch, hidden)?;
        let c_n = c_n.as_ref().map(Tensor::from_term).transpose()?;
        Ok(RecurrentOutput { output: Tensor::from_term(&output)?, h_n: Tensor::from_term(&h_n)?, c_n })
    }
}
