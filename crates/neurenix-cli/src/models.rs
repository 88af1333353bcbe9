//! The networks that `neurenix train` offers, built from a description stored in the run's folder.

use std::sync::Arc;

use clap::ValueEnum;
use neurenix::{
    Error, Result,
    nn::{
        Conv2d, ConvOptions, Dropout, Function, LSTM, LayerNorm, Linear, MaxPool2d, Module, Parameter,
        RecurrentOptions, Sequential, TransformerEncoderLayer, TransformerOptions, Visitor, activation, init,
    },
    phynexus::{DType, Device, Tensor, tensor::Generator},
};
use serde::{Deserialize, Serialize};

/// The kind of network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ModelKind {
    /// Fully connected layers
    Mlp,
    /// Two convolutions with pooling, then a fully connected layer
    Cnn,
    /// An LSTM over the rows of an image, then a fully connected layer
    Lstm,
    /// A transformer over the rows of an image, then a fully connected layer
    Transformer,
}

impl ModelKind {
    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            ModelKind::Mlp => "mlp",
            ModelKind::Cnn => "cnn",
            ModelKind::Lstm => "lstm",
            ModelKind::Transformer => "transformer",
        }
    }

    /// The default hidden sizes: features, channels, state size or width.
    pub fn hidden(self) -> Vec<usize> {
        match self {
            ModelKind::Mlp => vec![256, 128],
            ModelKind::Cnn => vec![16, 32],
            ModelKind::Lstm => vec![96],
            ModelKind::Transformer => vec![64],
        }
    }
}

/// Everything needed to build a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelSpec {
    /// The kind of network.
    pub kind: ModelKind,
    /// The shape of one input.
    pub input: Vec<usize>,
    /// The number of classes, or of values to predict.
    pub outputs: usize,
    /// The hidden sizes: as many as [`ModelKind::hidden`] returns, or any number for the MLP and the CNN.
    pub hidden: Vec<usize>,
    /// The dropout probability.
    pub dropout: f64,
}

impl ModelSpec {
    /// Builds the network. Parameters and dropout masks are drawn from `generator`.
    ///
    /// # Errors
    /// If the input shape does not suit the kind, or a size is 0.
    pub fn build(&self, device: Device, generator: &Arc<Generator>) -> Result<Box<dyn Module>> {
        if self.outputs == 0 || self.hidden.contains(&0) || self.input.contains(&0) {
            return Err(Error::data(
                "model",
                "sizes of inputs, hidden layers and outputs must be at least 1",
            ));
        }
        match self.kind {
            ModelKind::Mlp => self.mlp(device, generator),
            ModelKind::Cnn => self.cnn(device, generator),
            ModelKind::Lstm => self.lstm(device, generator),
            ModelKind::Transformer => self.transformer(device, generator),
        }
    }

    /// The size of the only hidden layer.
    fn width(&self) -> Result<usize> {
        match self.hidden[..] {
            [width] => Ok(width),
            _ => {
                let message = format!("the {} takes one size, got {:?}", self.kind.name(), self.hidden);
                Err(Error::data("--hidden", message))
            }
        }
    }

    fn dropout(&self, generator: &Arc<Generator>) -> Result<Dropout> {
        Ok(Dropout::new(self.dropout)?.with_generator(generator.clone()))
    }

    /// Channels, height and width of an image; a matrix is a one-channel image.
    fn image(&self) -> Result<[usize; 3]> {
        match *self.input {
            [h, w] => Ok([1, h, w]),
            [c, h, w] => Ok([c, h, w]),
            _ => {
                let message = format!(
                    "the {} expects images, but the inputs have shape {:?}: use --model mlp",
                    self.kind.name(),
                    self.input
                );
                Err(Error::data("model", message))
            }
        }
    }

    fn mlp(&self, device: Device, generator: &Arc<Generator>) -> Result<Box<dyn Module>> {
        let mut features: usize = self.input.iter().product();
        let mut model = Sequential::new().with(activation::flatten());
        for &size in &self.hidden {
            model = model
                .with(Linear::new(features, size, true, device, generator)?)
                .with(activation::relu())
                .with(self.dropout(generator)?);
            features = size;
        }
        Ok(Box::new(model.with(Linear::new(features, self.outputs, true, device, generator)?)))
    }

    fn cnn(&self, device: Device, generator: &Arc<Generator>) -> Result<Box<dyn Module>> {
        let [mut channels, mut height, mut width] = self.image()?;
        let shape = [channels, height, width];
        let as_image = Function::new("Unflatten()", move |x| {
            x.reshape(&[x.shape().first().copied().unwrap_or(0), shape[0], shape[1], shape[2]])
        });
        let mut model = Sequential::new().with(as_image);
        for &size in &self.hidden {
            let options = ConvOptions { padding: [1, 1], ..ConvOptions::default() };
            model = model
                .with(Conv2d::new(channels, size, [3, 3], options, device, generator)?)
                .with(activation::relu());
            if height >= 2 && width >= 2 {
                model = model.with(MaxPool2d::new([2, 2]));
                (height, width) = (height / 2, width / 2);
            }
            channels = size;
        }
        let features = channels * height * width;
        Ok(Box::new(model.with(activation::flatten()).with(self.dropout(generator)?).with(Linear::new(
            features,
            self.outputs,
            true,
            device,
            generator,
        )?)))
    }

    /// Treats images as sequences of rows: `[batch, height, channels * width]`.
    fn rows(&self) -> Result<(Function, usize, usize)> {
        let [channels, height, width] = self.image()?;
        let rows = Function::new("Rows()", move |x| {
            let batch = x.shape().first().copied().unwrap_or(0);
            let image = x.reshape(&[batch, channels, height, width])?;
            image.permute(&[0, 2, 1, 3])?.reshape(&[batch, height, channels * width])
        });
        Ok((rows, height, channels * width))
    }

    fn lstm(&self, device: Device, generator: &Arc<Generator>) -> Result<Box<dyn Module>> {
        let (rows, _, features) = self.rows()?;
        let hidden = self.width()?;
        let options = RecurrentOptions { batch_first: true, ..RecurrentOptions::default() };
        let last =
            Function::new("LastStep()", |x| x.narrow(1, x.shape()[1].saturating_sub(1), 1)?.squeeze(1));
        Ok(Box::new(
            Sequential::new()
                .with(rows)
                .with(LSTM::new(features, hidden, options, device, generator)?)
                .with(last)
                .with(self.dropout(generator)?)
                .with(Linear::new(hidden, self.outputs, true, device, generator)?),
        ))
    }

    fn transformer(&self, device: Device, generator: &Arc<Generator>) -> Result<Box<dyn Module>> {
        let (rows, positions, features) = self.rows()?;
        let width = self.width()?;
        let heads = [4, 2, 1].into_iter().find(|h| width.is_multiple_of(*h)).unwrap_or(1);
        let mut model = Sequential::new()
            .with(rows)
            .with(Linear::new(features, width, true, device, generator)?)
            .with(Positions::new(positions, width, device, generator)?);
        for _ in 0..2 {
            let options = TransformerOptions {
                feedforward: 2 * width,
                dropout: self.dropout,
                gelu: true,
                norm_first: true,
                generator: Some(generator.clone()),
                ..TransformerOptions::default()
            };
            model = model.with(TransformerEncoderLayer::new(width, heads, options, device, generator)?);
        }
        Ok(Box::new(
            model
                .with(LayerNorm::new(&[width], 1e-5, true, device)?)
                .with(Function::new("Mean()", |x| x.mean(&[1], false)))
                .with(Linear::new(width, self.outputs, true, device, generator)?),
        ))
    }
}

/// Adds a learned vector to each position of `[batch, positions, width]`.
struct Positions(Parameter);

impl Positions {
    fn new(positions: usize, width: usize, device: Device, generator: &Generator) -> Result<Positions> {
        let table = init::normal(&[positions, width], 0.0, 0.02, DType::F32, device, generator)?;
        Ok(Positions(Parameter::new(&table)?))
    }
}

impl Module for Positions {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        Ok(input.add(&self.0.leaf()?)?)
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.weight("weight", &self.0);
    }
    fn describe(&self) -> String {
        format!("Positions{:?}", self.0.tensor().shape())
    }
}
