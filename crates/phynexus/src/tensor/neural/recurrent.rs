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

    /// Runs a layer of the LSTM with a projection (Sak, Senior and Beaufays, 2014): its state `h` is the projection of
    /// the units' outputs by `weight_hr`, `[P, H]`. `weights.weight_hh` is `[4 H, P]`; `h_0`, the outputs and `h_n` have
    /// `P` features. Otherwise as [`Tensor::recurrent`].
    ///
    /// The state is never formed step by step: what a step takes from it is `weight_hh * weight_hr` times the units'
    /// outputs, which is an LSTM with a product of the two weights.
    ///
    /// # Errors
    /// As for [`Tensor::recurrent`].
    pub fn projected_lstm(
        &self,
        weights: RecurrentWeights,
        weight_hr: &Tensor,
        h_0: Option<&Tensor>,
        c_0: Option<&Tensor>,
        reverse: bool,
    ) -> Result<RecurrentOutput> {
        let op = Cell::Lstm.name();
        let (&[steps, batch, _], &[projected, _], &[_, state]) =
            (self.shape(), weight_hr.shape(), weights.weight_hh.shape())
        else {
            let shapes = [self.shape(), weight_hr.shape(), weights.weight_hh.shape()];
            return Err(Error::shape(op, &shapes, "expected (steps, batch, features) and two matrices"));
        };
        if let Some(wrong) = h_0.filter(|h| h.shape() != [batch, projected]) {
            return Err(Error::shape(op, &[wrong.shape()], format!("h_0 must be ({batch}, {projected})")));
        }
        if state != projected || steps == 0 {
            let shapes = [self.shape(), weight_hr.shape(), weights.weight_hh.shape()];
            let hint = "there must be a step, and weight_hh must be (4 * units, rows of weight_hr)";
            return Err(Error::shape(op, &shapes, hint));
        }
        let weight_hh = weights.weight_hh.matmul(weight_hr)?;
        // The first step takes the initial state like an input.
        let first = match h_0 {
            Some(h) => {
                let rest = Tensor::zeros(&[steps - 1, batch, projected], h.dtype(), h.device())?;
                let h = h.unsqueeze(0)?;
                let states = if reverse { [&rest, &h] } else { [&h, &rest] };
                let input = Tensor::cat(&[self, &Tensor::cat(&states, 0)?], -1)?;
                Some((input, Tensor::cat(&[weights.weight_ih, weights.weight_hh], 1)?))
            }
            None => None,
        };
        let (input, weight_ih) = first.as_ref().map_or((self, weights.weight_ih), |(x, w)| (x, w));
        let weights = RecurrentWeights { weight_ih, weight_hh: &weight_hh, ..weights };
        let RecurrentOutput { output, c_n, .. } = input.recurrent(Cell::Lstm, weights, None, c_0, reverse)?;
        let output = output.matmul(&weight_hr.t()?)?;
        let last = if reverse { 0 } else { steps - 1 };
        let h_n = output.narrow(0, last, 1)?.squeeze(0)?;
        Ok(RecurrentOutput { output, h_n, c_n })
    }
}
