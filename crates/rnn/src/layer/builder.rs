//! Descriptions of layers.

use serde::{Deserialize, Serialize};

use super::{
    WeightInitialization,
    kind::{Cell, Convolution, LayerKind, Recurrent, Windows},
};
use crate::{ActivationFunction, Result, error::within};

/// Describes a layer. Its input shape is known when the network is built, which reports invalid settings.
///
/// A row has a shape: `[features]`, an image `[channels, height, width]`, a volume `[channels, depth, height, width]`,
/// or a sequence `[steps, features]`. In input and output matrices, a row's elements are in that order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[must_use = "add it to a network"]
pub struct LayerBuilder {
    pub(crate) kind: LayerKind,
    activation: Option<ActivationFunction>,
    pub(crate) weight_init: Option<WeightInitialization>,
    pub(crate) use_bias: bool,
    pub(crate) name: Option<String>,
    pub(crate) trainable: bool,
    /// A setting that was given but does not exist for this kind of layer.
    pub(crate) misplaced: Option<String>,
}

/// Settings of some kinds of layers. Others keep the name of the setting, which is an error when the network is built.
macro_rules! settings {
    ($($(#[$about:meta])+ $name:ident($($value:ident: $type:ty)?): $kinds:pat => $set:expr;)+) => { $(
        $(#[$about])+
        pub fn $name(mut self, $($value: $type)?) -> LayerBuilder {
            match &mut self.kind {
                $kinds => $set,
                _ => {
                    self.misplaced.get_or_insert_with(|| stringify!($name).to_owned());
                }
            }
            self
        }
    )+ };
}

impl LayerBuilder {
    fn new(kind: LayerKind) -> LayerBuilder {
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

    /// A fully connected layer with `output_dim` units, and ReLU unless another activation is set. It takes rows of any
    /// shape, and applies to each step of a sequence.
    pub fn dense(output_dim: usize) -> LayerBuilder {
        LayerBuilder::new(LayerKind::Dense { units: output_dim })
    }

    /// Dropout: during training, sets each element to 0 with this probability, and scales the others to keep the mean.
    ///
    /// # Errors
    /// If the rate is not between 0 and 1.
    pub fn dropout(rate: f64) -> Result<LayerBuilder> {
        within("dropout rate", rate, 0.0, 1.0)?;
        Ok(LayerBuilder::new(LayerKind::Dropout { rate, seed: None }))
    }

    /// A convolution over images, from `[channels, height, width]` to `[filters, ..]`.
    pub fn conv2d(filters: usize, kernel_size: (usize, usize)) -> LayerBuilder {
        LayerBuilder::convolution(filters, vec![kernel_size.0, kernel_size.1])
    }

    /// A convolution over volumes, from `[channels, depth, height, width]` to `[filters, ..]`.
    pub fn conv3d(filters: usize, kernel_size: (usize, usize, usize)) -> LayerBuilder {
        LayerBuilder::convolution(filters, vec![kernel_size.0, kernel_size.1, kernel_size.2])
    }

    fn convolution(filters: usize, kernel: Vec<usize>) -> LayerBuilder {
        let dims = kernel.len();
        LayerBuilder::new(LayerKind::Convolution(Convolution {
            filters,
            kernel,
            stride: vec![1; dims],
            padding: vec![0; dims],
            dilation: vec![1; dims],
            groups: 1,
        }))
    }

    /// The maximum of each window of images. Windows do not overlap unless a stride is set.
    pub fn max_pool2d(size: (usize, usize)) -> LayerBuilder {
        LayerBuilder::pooling(vec![size.0, size.1], false)
    }

    /// The mean of each window of images.
    pub fn avg_pool2d(size: (usize, usize)) -> LayerBuilder {
        LayerBuilder::pooling(vec![size.0, size.1], true)
    }

    /// The maximum of each window of volumes.
    pub fn max_pool3d(size: (usize, usize, usize)) -> LayerBuilder {
        LayerBuilder::pooling(vec![size.0, size.1, size.2], false)
    }

    /// The mean of each window of volumes.
    pub fn avg_pool3d(size: (usize, usize, usize)) -> LayerBuilder {
        LayerBuilder::pooling(vec![size.0, size.1, size.2], true)
    }

    fn pooling(size: Vec<usize>, average: bool) -> LayerBuilder {
        let (stride, padding) = (size.clone(), vec![0; size.len()]);
        LayerBuilder::new(LayerKind::Pooling(Windows { size, stride, padding, average }))
    }

    /// Normalises each feature or channel, by the batch's statistics during training and by running statistics
    /// otherwise. For single features a batch needs two rows: a last single row joins the batch before.
    pub fn batch_norm() -> LayerBuilder {
        LayerBuilder::new(LayerKind::BatchNorm { momentum: 0.1, epsilon: 1e-5 })
    }

    /// Normalises the last dimension of each row.
    pub fn layer_norm() -> LayerBuilder {
        LayerBuilder::new(LayerKind::LayerNorm { epsilon: 1e-5 })
    }

    /// A vector of `features` elements for each of `count` integers, from `[steps]` to `[steps, features]`. It must be
    /// the first layer; the data are integers from 0 to `count - 1`.
    pub fn embedding(count: usize, features: usize) -> LayerBuilder {
        LayerBuilder::new(LayerKind::Embedding { count, features })
    }

    /// Simple recurrence (tanh) over sequences `[steps, features]`. Returns the state after the last step, `[units]`,
    /// or with [`LayerBuilder::return_sequences`] all states.
    pub fn rnn(units: usize) -> LayerBuilder {
        LayerBuilder::recurrent(Cell::Rnn, units)
    }

    /// Long short-term memory, with the shapes of [`LayerBuilder::rnn`].
    pub fn lstm(units: usize) -> LayerBuilder {
        LayerBuilder::recurrent(Cell::Lstm, units)
    }

    /// Gated recurrent units, with the shapes of [`LayerBuilder::rnn`].
    pub fn gru(units: usize) -> LayerBuilder {
        LayerBuilder::recurrent(Cell::Gru, units)
    }

    fn recurrent(cell: Cell, units: usize) -> LayerBuilder {
        let (layers, bidirectional, return_sequences) = (1, false, false);
        LayerBuilder::new(LayerKind::Recurrent(Recurrent {
            cell,
            units,
            layers,
            bidirectional,
            return_sequences,
        }))
    }

    /// Self-attention over a sequence `[steps, features]`, with this number of heads.
    pub fn attention(heads: usize) -> LayerBuilder {
        LayerBuilder::new(LayerKind::Attention { heads, causal: false })
    }

    /// Gives rows one dimension.
    pub fn flatten() -> LayerBuilder {
        LayerBuilder::new(LayerKind::Flatten)
    }

    /// Gives rows another shape with the same number of elements.
    pub fn reshape(shape: &[usize]) -> LayerBuilder {
        LayerBuilder::new(LayerKind::Reshape { shape: shape.to_vec() })
    }

    /// Adds the output of these layers to their input. They must not change the shape.
    pub fn residual(layers: Vec<LayerBuilder>) -> LayerBuilder {
        LayerBuilder::new(LayerKind::Residual { layers })
    }

    /// An activation without weights.
    pub fn activation_layer(activation: ActivationFunction) -> LayerBuilder {
        LayerBuilder::new(LayerKind::Activation).activation(activation)
    }

    /// Sets the activation. By default, dense layers have ReLU and others none.
    pub fn activation(mut self, activation: ActivationFunction) -> LayerBuilder {
        self.activation = Some(activation);
        self
    }

    /// Sets the distribution of initial weights. By default, dense layers and convolutions use
    /// [`WeightInitialization::XavierUniform`] with biases of 0, and other layers are initialised as in PyTorch.
    pub fn weight_init(mut self, weight_init: WeightInitialization) -> LayerBuilder {
        self.weight_init = Some(weight_init);
        self
    }

    /// Sets whether the layer has biases. The default is true.
    pub fn use_bias(mut self, use_bias: bool) -> LayerBuilder {
        self.use_bias = use_bias;
        self
    }

    /// Sets the name in summaries.
    pub fn name(mut self, name: impl Into<String>) -> LayerBuilder {
        self.name = Some(name.into());
        self
    }

    /// `false` freezes the layer, so that training does not change it.
    pub fn trainable(mut self, trainable: bool) -> LayerBuilder {
        self.trainable = trainable;
        self
    }

    settings! {
        /// Sets the stride of a convolution or pooling in every dimension.
        stride(stride: usize): LayerKind::Convolution(Convolution { stride: own, .. })
            | LayerKind::Pooling(Windows { stride: own, .. }) => own.fill(stride);
        /// Sets the padding of a convolution (with zeros) or pooling on all sides.
        padding(padding: usize): LayerKind::Convolution(Convolution { padding: own, .. })
            | LayerKind::Pooling(Windows { padding: own, .. }) => own.fill(padding);
        /// Sets the dilation of a convolution.
        dilation(dilation: usize): LayerKind::Convolution(convolution) => convolution.dilation.fill(dilation);
        /// Sets the number of channel groups of a convolution.
        groups(groups: usize): LayerKind::Convolution(convolution) => convolution.groups = groups;
        /// A recurrent layer returns its state after every step, `[steps, units]`.
        return_sequences(): LayerKind::Recurrent(recurrent) => recurrent.return_sequences = true;
        /// A recurrent layer runs in both directions, and returns twice as many features.
        bidirectional(): LayerKind::Recurrent(recurrent) => recurrent.bidirectional = true;
        /// Stacks this number of recurrent layers.
        layers(layers: usize): LayerKind::Recurrent(recurrent) => recurrent.layers = layers;
        /// Each step attends only to itself and earlier steps.
        causal(): LayerKind::Attention { causal, .. } => *causal = true;
        /// Gives a dropout layer its own random numbers, with this seed.
        seed(seed: u64): LayerKind::Dropout { seed: own, .. } => *own = Some(seed);
    }

    /// Freezes or unfreezes the layer and its inner layers.
    pub(super) fn freeze(&mut self, frozen: bool) {
        self.trainable = !frozen;
        if let LayerKind::Residual { layers } = &mut self.kind {
            layers.iter_mut().for_each(|layer| layer.freeze(frozen));
        }
    }

    /// Changes the seeds of dropout layers for copy `number` of the network. Copy 0 keeps them.
    pub(crate) fn reseed(&mut self, number: u64) {
        match &mut self.kind {
            LayerKind::Dropout { seed: Some(seed), .. } => {
                *seed = seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
            }
            LayerKind::Residual { layers } => layers.iter_mut().for_each(|layer| layer.reseed(number)),
            _ => {}
        }
    }

    /// A setting that was given but does not exist for this kind of layer.
    pub(super) fn meaningless(&self) -> Option<&str> {
        let draws = matches!(
            self.kind,
            LayerKind::Dense { .. }
                | LayerKind::Convolution(_)
                | LayerKind::Embedding { .. }
                | LayerKind::Recurrent(_)
                | LayerKind::Attention { .. }
        );
        let has_bias = draws && !matches!(self.kind, LayerKind::Embedding { .. });
        let misplaced = self.misplaced.as_deref();
        misplaced
            .or((self.weight_init.is_some() && !draws).then_some("weight_init"))
            .or((!self.use_bias && !has_bias).then_some("use_bias"))
    }

    /// The activation, with the default.
    pub(crate) fn own_activation(&self) -> ActivationFunction {
        self.activation.unwrap_or(match self.kind {
            LayerKind::Dense { .. } => ActivationFunction::ReLU,
            _ => ActivationFunction::Linear,
        })
    }
}
