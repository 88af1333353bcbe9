//! Builds a layer from its description and the shape of its input rows.

use std::sync::Arc;

use neurenix::{
    nn::{
        AttentionMasks, AvgPool2d, AvgPool3d, BatchNorm1d, BatchNorm2d, BatchNorm3d, BatchNormOptions,
        Conv2d, Conv3d, ConvOptions, Dropout, Embedding, GRU, LSTM, LayerNorm, Linear, MaxPool2d, MaxPool3d,
        Module, MultiheadAttention, RNN, Recurrent as FrameworkRecurrent, RecurrentOptions, Role, Visitor,
    },
    phynexus::{DType, Device, Tensor, no_grad, tensor::Generator},
};

use super::{
    Core, Layer, LayerBuilder, WeightInitialization, build_all,
    kind::{Cell, Convolution, LayerKind, Recurrent, Windows},
};
use crate::{NetworkError, Result, error::within};

/// Where layers are built, and random numbers for their weights and dropout.
pub(crate) struct Site<'a> {
    pub(crate) device: Device,
    pub(crate) dtype: DType,
    pub(crate) weights: &'a Generator,
    pub(crate) dropouts: &'a Arc<Generator>,
}

/// A result, or the reason of an error.
type Reason<T> = std::result::Result<T, String>;

/// `float32` represents all integers up to this one.
const WHOLE_F32: usize = 1 << 24;

/// The maximum number of stacked recurrent layers.
const MOST_LAYERS: usize = 1024;

/// A recurrent layer with its number of directions.
pub(super) enum Recurrence {
    Rnn(RNN, usize),
    Lstm(LSTM, usize),
    Gru(GRU, usize),
}

impl Recurrence {
    fn parts(&self) -> (&FrameworkRecurrent, &dyn Module, usize) {
        match self {
            Recurrence::Rnn(layer, sides) => (layer, layer, *sides),
            Recurrence::Lstm(layer, sides) => (layer, layer, *sides),
            Recurrence::Gru(layer, sides) => (layer, layer, *sides),
        }
    }

    /// The state of the last layer after the last step, with both directions concatenated.
    pub(super) fn last_state(&self, input: &Tensor) -> neurenix::Result<Tensor> {
        let (layer, _, sides) = self.parts();
        let states = layer.run(input, None, None)?.h_n;
        let first = states.shape()[0] - sides;
        let own: Vec<Tensor> = (0..sides)
            .map(|side| states.narrow(0, first + side, 1)?.squeeze(0))
            .collect::<neurenix::phynexus::Result<_>>()?;
        Ok(Tensor::cat(&own.iter().collect::<Vec<_>>(), -1)?)
    }

    pub(super) fn visit(&self, visitor: &mut Visitor<'_>) {
        self.parts().1.visit(visitor);
    }

    fn into_module(self) -> Box<dyn Module> {
        match self {
            Recurrence::Rnn(layer, _) => Box::new(layer),
            Recurrence::Lstm(layer, _) => Box::new(layer),
            Recurrence::Gru(layer, _) => Box::new(layer),
        }
    }
}

/// Self-attention, causal or not.
struct SelfAttention {
    attention: MultiheadAttention,
    causal: bool,
}

impl Module for SelfAttention {
    fn forward(&self, input: &Tensor) -> neurenix::Result<Tensor> {
        let masks = AttentionMasks { is_causal: self.causal, ..AttentionMasks::default() };
        self.attention.attend(input, input, input, masks)
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.attention.visit(visitor);
    }
}

/// Builds a layer for input rows of this shape.
pub(crate) fn build(
    description: &LayerBuilder,
    input: &[usize],
    place: usize,
    site: &Site<'_>,
) -> Result<Layer> {
    let kind = &description.kind;
    let name = || format!("layer {place} ({})", kind.layer_type().name());
    let wrong = |message: String| NetworkError::architecture(format!("{}: {message}", name()));
    if let Some(setting) = description.meaningless() {
        return Err(wrong(format!("it has no setting {setting}: leave it out")));
    }
    if let Some(rule) = description.weight_init {
        rule.check(site.dtype)?;
    }
    if matches!(kind, LayerKind::Embedding { .. }) && place > 0 {
        return Err(wrong("it takes integers: put it first".to_owned()));
    }
    let output = output_shape(kind, input).map_err(&wrong)?;
    let core = core(description, input, site).map_err(|error| wrong(error.to_string()))?;
    let activation = description.own_activation().module(site.device)?;
    let mut layer = Layer {
        description: description.clone(),
        input_shape: input.to_vec(),
        output_shape: output,
        core,
        activation,
        trainable: true,
    };
    if site.dtype != DType::F32 {
        layer.to_dtype(site.dtype)?;
    }
    begin(&layer, site)?;
    // Inner layers may be frozen although this layer is not.
    if !description.trainable {
        layer.freeze(true);
    }
    Ok(layer)
}

/// Draws the initial weights.
fn begin(layer: &Layer, site: &Site<'_>) -> Result<()> {
    let description = &layer.description;
    let usual = match description.kind {
        LayerKind::Dense { .. } | LayerKind::Convolution(_) => Some(WeightInitialization::default()),
        _ => None,
    };
    let Some(rule) = description.weight_init.or(usual) else { return Ok(()) };
    let _guard = no_grad();
    for (name, role, parameter) in layer.named_state() {
        let shape = parameter.tensor().shape().to_vec();
        if role != Role::Weight || name.starts_with("activation") {
            continue;
        }
        let value = match name.contains("bias") || shape.len() < 2 {
            // Weights of normalisations are vectors, and keep their initial values.
            true if !name.contains("bias") => continue,
            true => Tensor::full(&shape, 0.0, site.dtype, site.device)?,
            false => rule.draw(&shape, site.dtype, site.device, site.weights)?,
        };
        parameter.set(value.evaluated()?)?;
        parameter.leaf()?;
    }
    Ok(())
}

/// The shape of an output row.
fn output_shape(kind: &LayerKind, input: &[usize]) -> Reason<Vec<usize>> {
    let output = shape_by_kind(kind, input)?;
    let size = output.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
    match size.is_some_and(|n| (1..=isize::MAX as usize / 16).contains(&n)) && !output.is_empty() {
        true => Ok(output),
        false => Err(format!(
            "its output rows would have the shape {output:?}: sizes must be at least 1, and a row must fit into memory"
        )),
    }
}

/// The shape of an output row, before its size is checked.
fn shape_by_kind(kind: &LayerKind, input: &[usize]) -> Reason<Vec<usize>> {
    match kind {
        LayerKind::Dense { units } => Ok(match input {
            [steps, _] => vec![*steps, *units],
            _ => vec![*units],
        }),
        LayerKind::Convolution(convolution) => {
            let Convolution { filters, kernel, stride, padding, dilation, .. } = convolution;
            same_lengths(&[kernel, stride, padding, dilation])?;
            if dilation.contains(&0) {
                return Err("the dilation must be at least 1".to_owned());
            }
            let sizes = spatial(input, kernel.len())?;
            let window =
                |i: usize| dilation[i].checked_mul(kernel[i].saturating_sub(1)).map(|n| n.saturating_add(1));
            let mut output = vec![*filters];
            for (i, &size) in sizes.iter().enumerate() {
                let window = window(i).ok_or("the window is too large")?;
                output.push(extent(size, window, stride[i], padding[i])?);
            }
            Ok(output)
        }
        LayerKind::Pooling(Windows { size, stride, padding, .. }) => {
            same_lengths(&[size, stride, padding])?;
            let sizes = spatial(input, size.len())?;
            let mut output = vec![input[0]];
            for (i, &extent_in) in sizes.iter().enumerate() {
                if padding[i].saturating_mul(2) > size[i] {
                    return Err(format!(
                        "the padding {} is more than half of the window {}",
                        padding[i], size[i]
                    ));
                }
                output.push(extent(extent_in, size[i], stride[i], padding[i])?);
            }
            Ok(output)
        }
        LayerKind::Embedding { features, .. } => match input {
            [steps] => Ok(vec![*steps, *features]),
            _ => Err(format!("expected rows of integers with shape [steps], got {input:?}")),
        },
        LayerKind::Recurrent(Recurrent { units, bidirectional, return_sequences, layers, .. }) => {
            if !(1..=MOST_LAYERS).contains(layers) {
                return Err(format!("expected 1 to {MOST_LAYERS} stacked layers, got {layers}"));
            }
            let &[steps, _] = input else {
                return Err(format!(
                    "expected sequences of shape [steps, features], got {input:?}: add a reshape layer before it"
                ));
            };
            let width = units.checked_mul(1 + usize::from(*bidirectional)).ok_or("too many units")?;
            Ok(if *return_sequences { vec![steps, width] } else { vec![width] })
        }
        LayerKind::Attention { heads, .. } => match input {
            &[_, features] if *heads > 0 && features.is_multiple_of(*heads) => Ok(input.to_vec()),
            [_, features] => Err(format!("{features} features are not divisible by {heads} heads")),
            _ => Err(format!(
                "expected sequences of shape [steps, features], got {input:?}: add a reshape layer before it"
            )),
        },
        LayerKind::Flatten => Ok(vec![input.iter().product()]),
        LayerKind::Reshape { shape } => {
            let own = shape.iter().try_fold(1usize, |n, &d| n.checked_mul(d));
            match own == Some(input.iter().product()) {
                true => Ok(shape.clone()),
                false => Err(format!(
                    "cannot reshape rows from {input:?} to {shape:?}: the number of elements must stay the same"
                )),
            }
        }
        LayerKind::Residual { layers } => {
            let end =
                layers.iter().try_fold(input.to_vec(), |shape, layer| output_shape(&layer.kind, &shape))?;
            match end == input {
                true => Ok(end),
                false => Err(format!(
                    "its layers change the shape of rows from {input:?} to {end:?}: it must stay the same"
                )),
            }
        }
        LayerKind::Dropout { .. }
        | LayerKind::BatchNorm { .. }
        | LayerKind::LayerNorm { .. }
        | LayerKind::Activation => Ok(input.to_vec()),
    }
}

/// Checks that sizes, strides and so on have two or three dimensions: files may contain others.
fn same_lengths(lists: &[&Vec<usize>]) -> Reason<()> {
    let dims = lists.first().map_or(0, |list| list.len());
    match (2..=3).contains(&dims) && lists.iter().all(|list| list.len() == dims) {
        true => Ok(()),
        false => Err(format!("expected windows with two or three dimensions, got {lists:?}")),
    }
}

/// The sizes after the channels.
fn spatial(input: &[usize], dims: usize) -> Reason<&[usize]> {
    match input {
        [_, sizes @ ..] if sizes.len() == dims => Ok(sizes),
        _ => {
            let needed =
                if dims == 3 { "[channels, depth, height, width]" } else { "[channels, height, width]" };
            Err(format!(
                "expected rows of shape {needed}, got {input:?}: use Network::with_input_shape or a reshape layer"
            ))
        }
    }
}

/// The number of windows along an axis.
fn extent(size: usize, window: usize, stride: usize, padding: usize) -> Reason<usize> {
    if window == 0 || stride == 0 {
        return Err("windows and strides must be at least 1".to_owned());
    }
    let padded =
        padding.checked_mul(2).and_then(|p| p.checked_add(size)).ok_or("the padding is too large")?;
    match padded.checked_sub(window) {
        Some(rest) => Ok(rest / stride + 1),
        None => {
            Err(format!("a window of {window} does not fit into a size of {size} with padding {padding}"))
        }
    }
}

fn core(description: &LayerBuilder, input: &[usize], site: &Site<'_>) -> Result<Core> {
    let &Site { device, weights, .. } = site;
    let bias = description.use_bias;
    let module = |module: Box<dyn Module>| Ok(Core::Module(module));
    match &description.kind {
        LayerKind::Dense { units } => {
            let features = match input {
                [_, features] => *features,
                _ => input.iter().product(),
            };
            let linear = Linear::new(features, *units, bias, device, weights)?;
            match input.len() {
                1 | 2 => module(Box::new(linear)),
                _ => module(Box::new(OfWholeRows(linear))),
            }
        }
        LayerKind::Convolution(convolution) => convolve(convolution, input[0], bias, site).map(Core::Module),
        LayerKind::Pooling(windows) => pool(windows).map(Core::Module),
        LayerKind::Dropout { rate, seed } => {
            let generator = match seed {
                Some(seed) => Arc::new(Generator::new(*seed)),
                None => site.dropouts.clone(),
            };
            module(Box::new(Dropout::new(*rate)?.with_generator(generator)))
        }
        LayerKind::BatchNorm { momentum, epsilon } => {
            within("momentum", *momentum, 0.0, 1.0)?;
            within("epsilon", *epsilon, 0.0, f64::INFINITY)?;
            let options = BatchNormOptions {
                epsilon: *epsilon,
                momentum: Some(*momentum),
                ..BatchNormOptions::default()
            };
            // The features of a sequence are channels, but come last.
            match input.len() {
                1 => module(Box::new(BatchNorm1d::new(input[0], options, device)?)),
                2 => module(Box::new(LastChannel(BatchNorm1d::new(input[1], options, device)?))),
                3 => module(Box::new(BatchNorm2d::new(input[0], options, device)?)),
                4 => module(Box::new(BatchNorm3d::new(input[0], options, device)?)),
                _ => Err(NetworkError::computation(format!(
                    "rows of shape {input:?} have too many dimensions"
                ))),
            }
        }
        LayerKind::LayerNorm { epsilon } => {
            within("epsilon", *epsilon, 0.0, f64::INFINITY)?;
            let last = input.last().copied().unwrap_or(1);
            module(Box::new(LayerNorm::new(&[last], *epsilon, true, device)?))
        }
        LayerKind::Embedding { count, features } => {
            if *count == 0 || *features == 0 || *count > WHOLE_F32 {
                let message =
                    format!("an embedding has 1 to {WHOLE_F32} integers, with at least 1 feature each");
                return Err(NetworkError::computation(message));
            }
            Ok(Core::Integers(Box::new(Embedding::new(*count, *features, None, device, weights)?)))
        }
        LayerKind::Recurrent(recurrent) => {
            let layer = recur(recurrent, input[1], bias, site)?;
            Ok(match recurrent.return_sequences {
                true => Core::Module(layer.into_module()),
                false => Core::LastState(Box::new(layer)),
            })
        }
        LayerKind::Attention { heads, causal } => {
            let attention = MultiheadAttention::new(input[1], *heads, 0.0, bias, device, weights)?;
            module(Box::new(SelfAttention { attention, causal: *causal }))
        }
        LayerKind::Flatten => Ok(Core::Shape(vec![input.iter().product()])),
        LayerKind::Reshape { shape } => Ok(Core::Shape(shape.clone())),
        LayerKind::Residual { layers } => {
            // An embedding may only be the first layer of the network.
            if layers.iter().any(|layer| matches!(layer.kind, LayerKind::Embedding { .. })) {
                return Err(NetworkError::computation("an embedding must be the first layer of the network"));
            }
            Ok(Core::Residual(build_all(layers, input, site)?))
        }
        LayerKind::Activation => Ok(Core::Nothing),
    }
}

/// Batch normalisation of `[rows, steps, channels]`.
struct LastChannel(BatchNorm1d);

impl Module for LastChannel {
    fn forward(&self, input: &Tensor) -> neurenix::Result<Tensor> {
        Ok(self.0.forward(&input.transpose(1, 2)?)?.transpose(1, 2)?)
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.0.visit(visitor);
    }
}

/// A dense layer that flattens its input rows.
struct OfWholeRows(Linear);

impl Module for OfWholeRows {
    fn forward(&self, input: &Tensor) -> neurenix::Result<Tensor> {
        self.0.forward(&input.flatten(1, -1)?)
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        self.0.visit(visitor);
    }
}

fn sizes<const D: usize>(list: &[usize]) -> Result<[usize; D]> {
    list.try_into().map_err(|_| NetworkError::computation(format!("expected {D} sizes, got {list:?}")))
}

fn convolve(
    convolution: &Convolution,
    channels: usize,
    bias: bool,
    site: &Site<'_>,
) -> Result<Box<dyn Module>> {
    fn options<const D: usize>(convolution: &Convolution, bias: bool) -> Result<ConvOptions<D>> {
        Ok(ConvOptions {
            stride: sizes(&convolution.stride)?,
            padding: sizes(&convolution.padding)?,
            dilation: sizes(&convolution.dilation)?,
            groups: convolution.groups,
            bias,
            ..ConvOptions::default()
        })
    }
    let (filters, kernel) = (convolution.filters, &convolution.kernel);
    let (device, weights) = (site.device, site.weights);
    macro_rules! convolution {
        ($Layer:ident) => {
            Ok(Box::new($Layer::new(
                channels,
                filters,
                sizes(kernel)?,
                options(convolution, bias)?,
                device,
                weights,
            )?))
        };
    }
    if kernel.len() == 3 { convolution!(Conv3d) } else { convolution!(Conv2d) }
}

fn pool(windows: &Windows) -> Result<Box<dyn Module>> {
    let Windows { size, stride, padding, average } = windows;
    macro_rules! pooling {
        ($Layer:ident) => {{
            let (stride, padding) = (Some(sizes(stride)?), sizes(padding)?);
            Ok(Box::new($Layer { stride, padding, ..$Layer::new(sizes(size)?) }))
        }};
    }
    match (size.len(), average) {
        (3, true) => pooling!(AvgPool3d),
        (3, false) => pooling!(MaxPool3d),
        (_, true) => pooling!(AvgPool2d),
        (_, false) => pooling!(MaxPool2d),
    }
}

fn recur(recurrent: &Recurrent, features: usize, bias: bool, site: &Site<'_>) -> Result<Recurrence> {
    let &Recurrent { cell, units, layers, bidirectional, .. } = recurrent;
    let options = RecurrentOptions {
        num_layers: layers,
        bias,
        batch_first: true,
        bidirectional,
        ..RecurrentOptions::default()
    };
    let (device, weights) = (site.device, site.weights);
    let sides = 1 + usize::from(bidirectional);
    Ok(match cell {
        Cell::Rnn => Recurrence::Rnn(RNN::new(features, units, options, device, weights)?, sides),
        Cell::Lstm => Recurrence::Lstm(LSTM::new(features, units, options, device, weights)?, sides),
        Cell::Gru => Recurrence::Gru(GRU::new(features, units, options, device, weights)?, sides),
    })
}
