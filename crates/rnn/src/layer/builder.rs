//! The description of a layer, before it is built.

use serde::{Deserialize, Serialize};

use super::{
    WeightInitialization,
    kind::{Cell, Convolution, Kind, Recurrent, Windows},
};
use crate::{ActivationFunction, Result, error::within};

/// Describes a layer. What goes into it is known when the network is built; mistakes are said then.
///
/// Rows have a shape: `[features]`, an image `[channels, height, width]`, a volume `[channels, depth, height, width]`, a
/// sequence `[steps, features]`. Data comes and goes as matrices, a row each, whose elements are in that order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[must_use = "add it to a network"]
pub struct LayerBuilder {
    pub(crate) kind: Kind,
    activation: Option<ActivationFunction>,
    pub(crate) weight_init: Option<WeightInitialization>,
    pub(crate) use_bias: bool,
    pub(crate) name: Option<String>,
    pub(crate) trainable: bool,
    /// A setting that this kind of layer does not have.
    pub(crate) misplaced: Option<String>,
}

impl LayerBuilder {
    fn new(kind: Kind) -> LayerBuilder {
        LayerBuilder {
            kind,
            activation: None,
            weight_init: None,
            use_bias: true,
            name: None,
            trainable: true,
            misplaced: None,
        }
    }

    /// A fully connected layer of so many units, with ReLU unless another activation is named. It takes rows of any shape;
    /// of a sequence, each step.
    pub fn dense(output_dim: usize) -> LayerBuilder {
        LayerBuilder::new(Kind::Dense { units: output_dim })
    }

    /// Zeros each element with this probability while training, and scales the others up by as much.
    ///
    /// # Errors
    /// If the rate is not between 0 and 1.
    pub fn dropout(rate: f64) -> Result<LayerBuilder> {
        within("dropout rate", rate, 0.0, 1.0)?;
        Ok(LayerBuilder::new(Kind::Dropout { rate, seed: None }))
    }

    /// A convolution over images: `[channels, height, width]` to `[filters, ..]`.
    pub fn conv2d(filters: usize, kernel_size: (usize, usize)) -> LayerBuilder {
        LayerBuilder::convolution(filters, vec![kernel_size.0, kernel_size.1])
    }

    /// A convolution over volumes: `[channels, depth, height, width]` to `[filters, ..]`.
    pub fn conv3d(filters: usize, kernel_size: (usize, usize, usize)) -> LayerBuilder {
        LayerBuilder::convolution(filters, vec![kernel_size.0, kernel_size.1, kernel_size.2])
    }

    fn convolution(filters: usize, kernel: Vec<usize>) -> LayerBuilder {
        let dims = kernel.len();
        LayerBuilder::new(Kind::Convolution(Convolution {
            filters,
            kernel,
            stride: vec![1; dims],
            padding: vec![0; dims],
            dilation: vec![1; dims],
            groups: 1,
        }))
    }

    /// The greatest element of each window of images; windows lie side by side unless a stride is named.
    pub fn max_pool2d(size: (usize, usize)) -> LayerBuilder {
        LayerBuilder::pooling(vec![size.0, size.1], false)
    }

    /// The mean of each window of images.
    pub fn avg_pool2d(size: (usize, usize)) -> LayerBuilder {
        LayerBuilder::pooling(vec![size.0, size.1], true)
    }

    /// The greatest element of each window of volumes.
    pub fn max_pool3d(size: (usize, usize, usize)) -> LayerBuilder {
        LayerBuilder::pooling(vec![size.0, size.1, size.2], false)
    }

    /// The mean of each window of volumes.
    pub fn avg_pool3d(size: (usize, usize, usize)) -> LayerBuilder {
        LayerBuilder::pooling(vec![size.0, size.1, size.2], true)
    }

    fn pooling(size: Vec<usize>, average: bool) -> LayerBuilder {
        let (stride, padding) = (size.clone(), vec![0; size.len()]);
        LayerBuilder::new(Kind::Pooling(Windows { size, stride, padding, average }))
    }

    /// Normalises each feature, or channel, by the batch's statistics while training and by running ones afterwards. Of single
    /// features a batch needs two rows: a last row by itself joins the batch before.
    pub fn batch_norm() -> LayerBuilder {
        LayerBuilder::new(Kind::BatchNorm { momentum: 0.1, epsilon: 1e-5 })
    }

    /// Normalises the last dimension of each row.
    pub fn layer_norm() -> LayerBuilder {
        LayerBuilder::new(Kind::LayerNorm { epsilon: 1e-5 })
    }

    /// A vector of so many features for each of `count` integers: `[steps]` to `[steps, features]`. It comes first in a
    /// network; the data are whole numbers from 0 to `count - 1`.
    pub fn embedding(count: usize, features: usize) -> LayerBuilder {
        LayerBuilder::new(Kind::Embedding { count, features })
    }

    /// Plain recurrence (tanh) over sequences: `[steps, features]` to the state after the last step, `[units]`, or with
    /// [`LayerBuilder::return_sequences`] to all states.
    pub fn rnn(units: usize) -> LayerBuilder {
        LayerBuilder::recurrent(Cell::Rnn, units)
    }

    /// Long short-term memory, as [`LayerBuilder::rnn`].
    pub fn lstm(units: usize) -> LayerBuilder {
        LayerBuilder::recurrent(Cell::Lstm, units)
    }

    /// Gated recurrent units, as [`LayerBuilder::rnn`].
    pub fn gru(units: usize) -> LayerBuilder {
        LayerBuilder::recurrent(Cell::Gru, units)
    }

    fn recurrent(cell: Cell, units: usize) -> LayerBuilder {
        let (layers, bidirectional, return_sequences) = (1, false, false);
        LayerBuilder::new(Kind::Recurrent(Recurrent { cell, units, layers, bidirectional, return_sequences }))
    }

    /// Attention of a sequence `[steps, features]` to itself, with so many heads.
    pub fn attention(heads: usize) -> LayerBuilder {
        LayerBuilder::new(Kind::Attention { heads, causal: false })
    }

    /// A row as one dimension.
    pub fn flatten() -> LayerBuilder {
        LayerBuilder::new(Kind::Flatten)
    }

    /// A row in another shape of as many elements.
    pub fn reshape(shape: &[usize]) -> LayerBuilder {
        LayerBuilder::new(Kind::Reshape { shape: shape.to_vec() })
    }

    /// What these layers make of a row, added to the row; they must not change its shape.
    pub fn residual(layers: Vec<LayerBuilder>) -> LayerBuilder {
        LayerBuilder::new(Kind::Residual { layers })
    }

    /// An activation by itself.
    pub fn activation_layer(activation: ActivationFunction) -> LayerBuilder {
        LayerBuilder::new(Kind::Activation).activation(activation)
    }

    /// The activation. Dense layers have ReLU without; all others none.
    pub fn activation(mut self, activation: ActivationFunction) -> LayerBuilder {
        self.activation = Some(activation);
        self
    }

    /// How weights begin. Without, dense layers and convolutions begin by Glorot and Bengio (uniform) with biases of 0,
    /// other layers as PyTorch's.
    pub fn weight_init(mut self, weight_init: WeightInitialization) -> LayerBuilder {
        self.weight_init = Some(weight_init);
        self
    }

    /// With (as without this call) or without biases.
    pub fn use_bias(mut self, use_bias: bool) -> LayerBuilder {
        self.use_bias = use_bias;
        self
    }

    /// A name for summaries.
    pub fn name(mut self, name: impl Into<String>) -> LayerBuilder {
        self.name = Some(name.into());
        self
    }

    /// `false` freezes the layer: training leaves it as it is.
    pub fn trainable(mut self, trainable: bool) -> LayerBuilder {
        self.trainable = trainable;
        self
    }

    /// Steps between windows of a convolution or pooling, the same in every dimension.
    pub fn stride(mut self, stride: usize) -> LayerBuilder {
        match &mut self.kind {
            Kind::Convolution(Convolution { stride: own, .. })
            | Kind::Pooling(Windows { stride: own, .. }) => {
                own.fill(stride);
            }
            _ => return self.misplace("stride"),
        }
        self
    }

    /// What is added on all sides before a convolution (zeros) or pooling.
    pub fn padding(mut self, padding: usize) -> LayerBuilder {
        match &mut self.kind {
            Kind::Convolution(Convolution { padding: own, .. })
            | Kind::Pooling(Windows { padding: own, .. }) => own.fill(padding),
            _ => return self.misplace("padding"),
        }
        self
    }

    /// Steps between the elements of a convolution's window.
    pub fn dilation(mut self, dilation: usize) -> LayerBuilder {
        match &mut self.kind {
            Kind::Convolution(convolution) => convolution.dilation.fill(dilation),
            _ => return self.misplace("dilation"),
        }
        self
    }

    /// Groups of channels of a convolution.
    pub fn groups(mut self, groups: usize) -> LayerBuilder {
        match &mut self.kind {
            Kind::Convolution(convolution) => convolution.groups = groups,
            _ => return self.misplace("groups"),
        }
        self
    }

    /// A recurrent layer gives its state after every step: `[steps, units]`.
    pub fn return_sequences(mut self) -> LayerBuilder {
        match &mut self.kind {
            Kind::Recurrent(recurrent) => recurrent.return_sequences = true,
            _ => return self.misplace("return_sequences"),
        }
        self
    }

    /// A recurrent layer runs in both directions; its results are twice as wide.
    pub fn bidirectional(mut self) -> LayerBuilder {
        match &mut self.kind {
            Kind::Recurrent(recurrent) => recurrent.bidirectional = true,
            _ => return self.misplace("bidirectional"),
        }
        self
    }

    /// So many recurrent layers, each fed by the one before.
    pub fn layers(mut self, layers: usize) -> LayerBuilder {
        match &mut self.kind {
            Kind::Recurrent(recurrent) => recurrent.layers = layers,
            _ => return self.misplace("layers"),
        }
        self
    }

    /// Attention to earlier steps and itself only.
    pub fn causal(mut self) -> LayerBuilder {
        match &mut self.kind {
            Kind::Attention { causal, .. } => *causal = true,
            _ => return self.misplace("causal"),
        }
        self
    }

    /// A dropout with random numbers of its own.
    pub fn seed(mut self, own: u64) -> LayerBuilder {
        match &mut self.kind {
            Kind::Dropout { seed, .. } => *seed = Some(own),
            _ => return self.misplace("seed"),
        }
        self
    }

    /// Freezes or thaws it, with all layers in it.
    pub(super) fn freeze(&mut self, frozen: bool) {
        self.trainable = !frozen;
        if let Kind::Residual { layers } = &mut self.kind {
            layers.iter_mut().for_each(|layer| layer.freeze(frozen));
        }
    }

    /// Gives dropouts with seeds of their own other ones, in a copy of this number; the first copy keeps them.
    pub(crate) fn reseed(&mut self, number: u64) {
        match &mut self.kind {
            Kind::Dropout { seed: Some(seed), .. } => {
                *seed = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            }
            Kind::Residual { layers } => layers.iter_mut().for_each(|layer| layer.reseed(number)),
            _ => {}
        }
    }

    /// A setting that this kind of layer does not have, if it was given one.
    pub(super) fn meaningless(&self) -> Option<&str> {
        let draws = matches!(
            self.kind,
            Kind::Dense { .. }
                | Kind::Convolution(_)
                | Kind::Embedding { .. }
                | Kind::Recurrent(_)
                | Kind::Attention { .. }
        );
        let has_bias = draws && !matches!(self.kind, Kind::Embedding { .. });
        let misplaced = self.misplaced.as_deref();
        misplaced
            .or((self.weight_init.is_some() && !draws).then_some("weight_init"))
            .or((!self.use_bias && !has_bias).then_some("use_bias"))
    }

    fn misplace(mut self, setting: &str) -> LayerBuilder {
        self.misplaced.get_or_insert_with(|| setting.to_owned());
        self
    }

    /// The activation that it has.
    pub(crate) fn own_activation(&self) -> ActivationFunction {
        self.activation.unwrap_or(match self.kind {
            Kind::Dense { .. } => ActivationFunction::ReLU,
            _ => ActivationFunction::Linear,
        })
    }
}
