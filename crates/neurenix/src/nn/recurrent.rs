//! Recurrent layers: RNN, LSTM and GRU, with several layers and both directions.

use std::sync::Arc;

use phynexus::{
    DType, Device, Tensor,
    op::composite::Cell,
    tensor::{Generator, RecurrentWeights},
    text::show_shape,
};

use super::{Dropout, Module, Parameter, Visitor, init};
use crate::{Error, Result};

/// Options of a recurrent layer, with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct RecurrentOptions {
    /// The number of stacked layers.
    pub num_layers: usize,
    /// Whether there are biases.
    pub bias: bool,
    /// Whether inputs are `[batch, steps, features]` instead of `[steps, batch, features]`.
    pub batch_first: bool,
    /// Whether to process the sequence in both directions.
    pub bidirectional: bool,
    /// The dropout probability, in training, of the outputs of every layer but the last.
    pub dropout: f64,
    /// The number of features to which an LSTM's hidden state is projected, less than its units; 0 for no projection.
    pub proj_size: usize,
}

impl Default for RecurrentOptions {
    fn default() -> RecurrentOptions {
        RecurrentOptions {
            num_layers: 1,
            bias: true,
            batch_first: false,
            bidirectional: false,
            dropout: 0.0,
            proj_size: 0,
        }
    }
}

/// The weights of one layer in one direction.
#[derive(Debug)]
struct Direction {
    weight_ih: Parameter,
    weight_hh: Parameter,
    bias: Option<(Parameter, Parameter)>,
    weight_hr: Option<Parameter>,
    suffix: String,
}

/// A recurrent layer with any cell.
#[derive(Debug)]
pub struct Recurrent {
    cell: Cell,
    hidden_size: usize,
    input_size: usize,
    options: RecurrentOptions,
    dropout: Dropout,
    /// Layer by layer, the forward direction first.
    directions: Vec<Direction>,
}

/// The outputs of a recurrent layer and its final states, of shape `[layers * directions, batch, hidden]`.
#[derive(Clone)]
pub struct RecurrentResult {
    /// The hidden states of the last layer at every step, with both directions concatenated.
    pub output: Tensor,
    /// The final hidden states.
    pub h_n: Tensor,
    /// The final cell states of an LSTM.
    pub c_n: Option<Tensor>,
}

impl Recurrent {
    /// Creates a layer with weights uniform within ±1/√hidden_size, as in PyTorch.
    pub fn new(
        cell: Cell,
        input_size: usize,
        hidden_size: usize,
        options: RecurrentOptions,
        device: Device,
        generator: &Generator,
    ) -> Result<Recurrent> {
        if input_size == 0 || hidden_size == 0 || options.num_layers == 0 {
            return Err(Error::data(cell.name(), "sizes and the number of layers must be at least 1"));
        }
        let projected = options.proj_size;
        if projected != 0 && (cell != Cell::Lstm || projected >= hidden_size) {
            let message = format!("proj_size is {projected}: it needs an LSTM with more units than that");
            return Err(Error::data(cell.name(), message));
        }
        let state = if projected == 0 { hidden_size } else { projected };
        let dropout = Dropout::new(options.dropout)?;
        let bound = 1.0 / (hidden_size as f64).sqrt();
        let draw = |shape: &[usize]| {
            Parameter::new(&init::uniform(shape, -bound, bound, DType::F32, device, generator)?)
        };
        let sides = 1 + usize::from(options.bidirectional);
        let sizes = (hidden_size.checked_mul(cell.gates()), state.checked_mul(sides));
        let (Some(gates), Some(outputs)) = sizes else {
            return Err(Error::data(cell.name(), format!("a hidden size of {hidden_size} is too large")));
        };
        let mut directions = Vec::new();
        for layer in 0..options.num_layers {
            let inputs = if layer == 0 { input_size } else { outputs };
            for side in 0..sides {
                let bias = if options.bias { Some((draw(&[gates])?, draw(&[gates])?)) } else { None };
                directions.push(Direction {
                    weight_ih: draw(&[gates, inputs])?,
                    weight_hh: draw(&[gates, state])?,
                    bias,
                    weight_hr: if projected == 0 { None } else { Some(draw(&[projected, hidden_size])?) },
                    suffix: format!("l{layer}{}", if side == 1 { "_reverse" } else { "" }),
                });
            }
        }
        Ok(Recurrent { cell, hidden_size, input_size, options, dropout, directions })
    }

    /// Processes a sequence from the given initial states, of shape `[layers * directions, batch, hidden]`; `h_0` has
    /// `proj_size` features with a projection. The default is zeros.
    ///
    /// # Errors
    /// If the shape of the input or of a state does not match.
    pub fn run(&self, input: &Tensor, h_0: Option<&Tensor>, c_0: Option<&Tensor>) -> Result<RecurrentResult> {
        let mut x = if self.options.batch_first { input.transpose(0, 1)? } else { input.clone() };
        let sides = 1 + usize::from(self.options.bidirectional);
        if let Some(&batch) = x.shape().get(1) {
            let state = if self.options.proj_size == 0 { self.hidden_size } else { self.options.proj_size };
            for (states, features) in [(h_0, state), (c_0, self.hidden_size)] {
                let expected = [self.directions.len(), batch, features];
                if let Some(wrong) = states.filter(|states| states.shape() != expected) {
                    let hint = format!("the states must have shape {}", show_shape(&expected));
                    return Err(phynexus::Error::shape(self.cell.name(), &[wrong.shape()], hint).into());
                }
            }
        }
        let (mut hidden, mut cells) = (Vec::new(), Vec::new());
        for (layer, directions) in self.directions.chunks(sides).enumerate() {
            if layer > 0 {
                x = self.dropout.forward(&x)?;
            }
            let mut outputs = Vec::with_capacity(sides);
            for (side, direction) in directions.iter().enumerate() {
                let number = layer * sides + side;
                let state = |states: Option<&Tensor>| -> Result<Option<Tensor>> {
                    states.map(|s| Ok(s.narrow(0, number, 1)?.squeeze(0)?)).transpose()
                };
                let (h, c) = (state(h_0)?, state(c_0)?);
                let (weight_ih, weight_hh) = (direction.weight_ih.leaf()?, direction.weight_hh.leaf()?);
                let biases = match &direction.bias {
                    Some((ih, hh)) => Some((ih.leaf()?, hh.leaf()?)),
                    None => None,
                };
                let weights = RecurrentWeights {
                    weight_ih: &weight_ih,
                    weight_hh: &weight_hh,
                    bias_ih: biases.as_ref().map(|b| &b.0),
                    bias_hh: biases.as_ref().map(|b| &b.1),
                };
                let (h, c, reverse) = (h.as_ref(), c.as_ref(), side == 1);
                let result = match &direction.weight_hr {
                    Some(weight_hr) => x.projected_lstm(weights, &weight_hr.leaf()?, h, c, reverse)?,
                    None => x.recurrent(self.cell, weights, h, c, reverse)?,
                };
                outputs.push(result.output);
                hidden.push(result.h_n);
                cells.extend(result.c_n);
            }
            x = match outputs.as_slice() {
                [one] => one.clone(),
                both => Tensor::cat(&both.iter().collect::<Vec<_>>(), -1)?,
            };
        }
        let stack = |states: &[Tensor]| Tensor::stack(&states.iter().collect::<Vec<_>>(), 0);
        let output = if self.options.batch_first { x.transpose(0, 1)? } else { x };
        let c_n = if cells.is_empty() { None } else { Some(stack(&cells)?) };
        Ok(RecurrentResult { output, h_n: stack(&hidden)?, c_n })
    }

    fn visit_parts(&self, visitor: &mut Visitor<'_>) {
        self.dropout.visit(visitor);
        for direction in &self.directions {
            let suffix = &direction.suffix;
            visitor.weight(&format!("weight_ih_{suffix}"), &direction.weight_ih);
            visitor.weight(&format!("weight_hh_{suffix}"), &direction.weight_hh);
            if let Some((ih, hh)) = &direction.bias {
                visitor.weight(&format!("bias_ih_{suffix}"), ih);
                visitor.weight(&format!("bias_hh_{suffix}"), hh);
            }
            if let Some(weight_hr) = &direction.weight_hr {
                visitor.weight(&format!("weight_hr_{suffix}"), weight_hr);
            }
        }
    }
}

macro_rules! recurrent {
    ($($layer:ident $cell:expr, $text:literal;)+) => { $(
        #[doc = $text]
        ///
        /// As a [`Module`] it returns the hidden states of every step. [`Recurrent::run`] (through `Deref`) also
        /// returns the final states.
        #[derive(Debug)]
        pub struct $layer(Recurrent);

        impl $layer {
            /// Creates a layer from `input_size` features to `hidden_size` units.
            pub fn new(
                input_size: usize,
                hidden_size: usize,
                options: RecurrentOptions,
                device: Device,
                generator: &Generator,
            ) -> Result<$layer> {
                Ok($layer(Recurrent::new($cell, input_size, hidden_size, options, device, generator)?))
            }

            /// Replaces the random generator of dropout.
            #[must_use]
            pub fn with_generator(mut self, generator: Arc<Generator>) -> $layer {
                self.0.dropout = self.0.dropout.with_generator(generator);
                self
            }
        }

        impl std::ops::Deref for $layer {
            type Target = Recurrent;
            fn deref(&self) -> &Recurrent {
                &self.0
            }
        }

        impl Module for $layer {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                Ok(self.0.run(input, None, None)?.output)
            }
            fn visit(&self, visitor: &mut Visitor<'_>) {
                self.0.visit_parts(visitor);
            }
            fn describe(&self) -> String {
                let Recurrent { input_size, hidden_size, options, .. } = &self.0;
                format!(
                    "{}({input_size}, {hidden_size}, num_layers={}, bidirectional={}, dropout={})",
                    stringify!($layer), options.num_layers, options.bidirectional, options.dropout
                )
            }
        }
    )+ };
}

recurrent! {
    RNN Cell::Tanh, "Elman RNN: `h = tanh(W x + b + U h + c)`.";
    LSTM Cell::Lstm, "Long short-term memory (Hochreiter and Schmidhuber, 1997), gates in PyTorch's order i, f, g, o.";
    GRU Cell::Gru, "Gated recurrent units (Cho et al., 2014), gates in PyTorch's order r, z, n.";
}

impl RNN {
    /// Uses `max(x, 0)` instead of tanh: PyTorch's `nonlinearity="relu"`.
    #[must_use]
    pub fn with_relu(mut self) -> RNN {
        self.0.cell = Cell::Relu;
        self
    }
}
