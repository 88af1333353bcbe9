//! Normalisation layers.

use phynexus::{DType, Device, Tensor};

use super::{Mode, Module, Parameter, Visitor};
use crate::{Error, Result};

fn constant(shape: &[usize], value: f64, device: Device) -> Result<Parameter> {
    Parameter::new(&Tensor::full(shape, value, DType::F32, device)?)
}

/// Layer normalisation over the last dimensions, with a weight and a bias.
#[derive(Debug)]
pub struct LayerNorm {
    weight: Option<Parameter>,
    bias: Option<Parameter>,
    normalized_shape: Vec<usize>,
    epsilon: f64,
}

impl LayerNorm {
    /// Normalises over the last dimensions, of shape `normalized_shape`. PyTorch's default epsilon is 1e-5.
    pub fn new(normalized_shape: &[usize], epsilon: f64, affine: bool, device: Device) -> Result<LayerNorm> {
        let parameter =
            |value| if affine { constant(normalized_shape, value, device).map(Some) } else { Ok(None) };
        let (weight, bias) = (parameter(1.0)?, parameter(0.0)?);
        Ok(LayerNorm { weight, bias, normalized_shape: normalized_shape.to_vec(), epsilon })
    }
}

impl Module for LayerNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (leaf(&self.weight)?, leaf(&self.bias)?);
        Ok(input.layer_norm(&self.normalized_shape, weight.as_ref(), bias.as_ref(), self.epsilon)?)
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.optional("weight", &self.weight);
        visitor.optional("bias", &self.bias);
    }
    fn describe(&self) -> String {
        format!("LayerNorm({:?}, eps={})", self.normalized_shape, self.epsilon)
    }
}

fn leaf(parameter: &Option<Parameter>) -> Result<Option<Tensor>> {
    parameter.as_ref().map(Parameter::leaf).transpose()
}

/// RMS normalisation: divides by the root mean square over the last dimensions and multiplies by a weight.
#[derive(Debug)]
pub struct RMSNorm {
    weight: Option<Parameter>,
    normalized_shape: Vec<usize>,
    epsilon: Option<f64>,
}

impl RMSNorm {
    /// Normalises over the last dimensions, of shape `normalized_shape`. The default epsilon is the dtype's machine
    /// epsilon.
    pub fn new(
        normalized_shape: &[usize],
        epsilon: Option<f64>,
        affine: bool,
        device: Device,
    ) -> Result<RMSNorm> {
        let weight = if affine { Some(constant(normalized_shape, 1.0, device)?) } else { None };
        Ok(RMSNorm { weight, normalized_shape: normalized_shape.to_vec(), epsilon })
    }
}

impl Module for RMSNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        Ok(input.rms_norm(&self.normalized_shape, leaf(&self.weight)?.as_ref(), self.epsilon)?)
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.optional("weight", &self.weight);
    }
    fn describe(&self) -> String {
        format!("RMSNorm({:?})", self.normalized_shape)
    }
}

/// Group normalisation: normalises groups of channels of each sample.
#[derive(Debug)]
pub struct GroupNorm {
    weight: Option<Parameter>,
    bias: Option<Parameter>,
    groups: usize,
    epsilon: f64,
}

impl GroupNorm {
    /// Splits `channels` into `groups` groups. PyTorch's default epsilon is 1e-5.
    pub fn new(
        groups: usize,
        channels: usize,
        epsilon: f64,
        affine: bool,
        device: Device,
    ) -> Result<GroupNorm> {
        if groups == 0 || !channels.is_multiple_of(groups) {
            return Err(Error::data(
                "GroupNorm",
                format!("{channels} channels cannot be split evenly into {groups} groups"),
            ));
        }
        let parameter =
            |value| if affine { constant(&[channels], value, device).map(Some) } else { Ok(None) };
        Ok(GroupNorm { weight: parameter(1.0)?, bias: parameter(0.0)?, groups, epsilon })
    }
}

impl Module for GroupNorm {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (leaf(&self.weight)?, leaf(&self.bias)?);
        Ok(input.group_norm(self.groups, weight.as_ref(), bias.as_ref(), self.epsilon)?)
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.optional("weight", &self.weight);
        visitor.optional("bias", &self.bias);
    }
    fn describe(&self) -> String {
        format!("GroupNorm({}, eps={})", self.groups, self.epsilon)
    }
}

/// Normalises each channel by the batch's statistics in training and by running statistics in inference.
#[derive(Debug)]
struct BatchNorm {
    weight: Option<Parameter>,
    bias: Option<Parameter>,
    running: Option<Running>,
    momentum: Option<f64>,
    epsilon: f64,
    channels: usize,
    mode: Mode,
}

/// Running statistics of the batches.
#[derive(Debug)]
struct Running {
    mean: Parameter,
    var: Parameter,
    batches: Parameter,
}

impl Running {
    fn new(channels: usize, device: Device) -> Result<Running> {
        let buffer = |value: f64| -> Result<Parameter> {
            Ok(Parameter::buffer(Tensor::full(&[channels], value, DType::F32, device)?.evaluated()?))
        };
        let batches = Parameter::buffer(Tensor::scalar(0i64, device)?);
        Ok(Running { mean: buffer(0.0)?, var: buffer(1.0)?, batches })
    }

    /// Updates the statistics with a batch. `momentum` is the weight of the batch; `None` averages all batches equally.
    fn update(&self, input: &Tensor, momentum: Option<f64>) -> Result<()> {
        let (mean, var) = (self.mean.tensor(), self.var.tensor());
        let batches = self.batches.tensor().add_scalar(1i64)?;
        let (new_mean, new_var) = match momentum {
            Some(momentum) => input.running_statistics(&mean, &var, momentum)?,
            None => {
                let (batch_mean, batch_var) = input.running_statistics(&mean, &var, 1.0)?;
                // The count is a tensor and not a constant, so that every batch reuses the same plan.
                let share = batches.to_dtype(mean.dtype())?.reciprocal()?;
                let towards = |old: &Tensor, new: &Tensor| old.add(&new.sub(old)?.mul(&share)?);
                (towards(&mean, &batch_mean)?, towards(&var, &batch_var)?)
            }
        };
        for (buffer, value) in [(&self.mean, new_mean), (&self.var, new_var), (&self.batches, batches)] {
            buffer.follow_step()?;
            buffer.set(value)?;
        }
        Ok(())
    }
}

impl BatchNorm {
    fn new(channels: usize, options: BatchNormOptions, device: Device) -> Result<BatchNorm> {
        if channels == 0 {
            return Err(Error::data("BatchNorm", "the number of channels must be at least 1"));
        }
        let parameter =
            |value| if options.affine { constant(&[channels], value, device).map(Some) } else { Ok(None) };
        let running = if options.track_running_stats { Some(Running::new(channels, device)?) } else { None };
        Ok(BatchNorm {
            weight: parameter(1.0)?,
            bias: parameter(0.0)?,
            running,
            momentum: options.momentum,
            epsilon: options.epsilon,
            channels,
            mode: Mode::default(),
        })
    }

    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let (weight, bias) = (leaf(&self.weight)?, leaf(&self.bias)?);
        let training = self.mode.is_training();
        let statistics = self.running.as_ref().map(|r| (r.mean.tensor(), r.var.tensor()));
        let output = input.batch_norm(
            statistics.as_ref().map(|s| &s.0),
            statistics.as_ref().map(|s| &s.1),
            weight.as_ref(),
            bias.as_ref(),
            training || statistics.is_none(),
            self.epsilon,
        )?;
        if let Some(running) = self.running.as_ref().filter(|_| training) {
            running.update(input, self.momentum)?;
        }
        Ok(output)
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.optional("weight", &self.weight);
        visitor.optional("bias", &self.bias);
        if let Some(running) = &self.running {
            visitor.buffer("running_mean", &running.mean);
            visitor.buffer("running_var", &running.var);
            visitor.buffer("num_batches_tracked", &running.batches);
        }
        visitor.mode(&self.mode);
    }
}

/// Options of batch normalisation, with PyTorch's defaults.
#[derive(Clone, Copy, Debug)]
pub struct BatchNormOptions {
    /// Added to the variance.
    pub epsilon: f64,
    /// The weight of a batch in the running statistics; `None` averages all batches equally.
    pub momentum: Option<f64>,
    /// Whether there is a weight and a bias.
    pub affine: bool,
    /// Whether to keep running statistics. If not, inference normalises by the batch's statistics too.
    pub track_running_stats: bool,
}

impl Default for BatchNormOptions {
    fn default() -> BatchNormOptions {
        BatchNormOptions { epsilon: 1e-5, momentum: Some(0.1), affine: true, track_running_stats: true }
    }
}

macro_rules! batch_norm {
    ($($layer:ident $shape:literal $ranks:pat)+) => { $(
        #[doc = concat!("Batch normalization of ", $shape, ".")]
        #[derive(Debug)]
        pub struct $layer(BatchNorm);

        impl $layer {
            /// Creates a layer for this number of channels.
            pub fn new(channels: usize, options: BatchNormOptions, device: Device) -> Result<$layer> {
                Ok($layer(BatchNorm::new(channels, options, device)?))
            }
        }

        impl Module for $layer {
            fn forward(&self, input: &Tensor) -> Result<Tensor> {
                if !matches!(input.rank(), $ranks) {
                    let hint = concat!("the input must be ", $shape);
                    return Err(phynexus::Error::shape(stringify!($layer), &[input.shape()], hint).into());
                }
                self.0.forward(input)
            }
            fn visit(&self, visitor: &mut Visitor<'_>) {
                self.0.visit(visitor);
            }
            fn describe(&self) -> String {
                let BatchNorm { channels, epsilon, momentum, .. } = &self.0;
                let momentum = momentum.map_or("none".to_owned(), |share| share.to_string());
                format!("{}({channels}, eps={epsilon}, momentum={momentum})", stringify!($layer))
            }
        }
    )+ };
}

batch_norm! {
    BatchNorm1d "[N, C] or [N, C, L]" 2 | 3
    BatchNorm2d "[N, C, H, W]" 4
    BatchNorm3d "[N, C, D, H, W]" 5
}
