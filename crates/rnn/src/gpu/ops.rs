//! Operations on tensors of a device.

use neurenix::phynexus::{
    Tensor,
    op::composite::Cell,
    tensor::{AttentionOptions, GeluApproximation, Generator, RecurrentWeights},
};

use super::{GpuContext, GpuTensor};
use crate::{LossConfig, LossFunction, NetworkError, Result, error::within};

/// An activation by name.
pub type Activation = crate::ActivationFunction;

/// Which recurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecurrentKind {
    /// `h = tanh(W x + b + U h + c)`.
    Rnn,
    /// Long short-term memory, gates in PyTorch's order i, f, g, o.
    Lstm,
    /// Gated recurrent units, gates in PyTorch's order r, z, n.
    Gru,
}

/// The weights of a recurrence: PyTorch's.
#[derive(Clone, Copy, Debug)]
pub struct RecurrentParameters<'a> {
    /// `[gates * units, features]`.
    pub weight_ih: &'a GpuTensor,
    /// `[gates * units, units]`.
    pub weight_hh: &'a GpuTensor,
    /// `[gates * units]`.
    pub bias_ih: Option<&'a GpuTensor>,
    /// `[gates * units]`.
    pub bias_hh: Option<&'a GpuTensor>,
}

/// Operations on tensors of a context's device. Shapes are broadcast as NumPy does. What is recorded runs when somebody
/// reads; mistakes are said at once.
///
/// # Errors
/// All refuse tensors of another device, shapes that do not fit, and numbers out of their ranges.
pub trait GpuOps {
    /// The sum of elements.
    fn add(&mut self, a: &GpuTensor, b: &GpuTensor) -> Result<GpuTensor>;
    /// The difference of elements.
    fn subtract(&mut self, a: &GpuTensor, b: &GpuTensor) -> Result<GpuTensor>;
    /// The product of elements.
    fn multiply(&mut self, a: &GpuTensor, b: &GpuTensor) -> Result<GpuTensor>;
    /// The quotient of elements.
    fn divide(&mut self, a: &GpuTensor, b: &GpuTensor) -> Result<GpuTensor>;
    /// The matrix product `[.., M, K]` times `[.., K, N]`.
    fn matmul(&mut self, a: &GpuTensor, b: &GpuTensor) -> Result<GpuTensor>;
    /// The tensor repeated along dimensions of 1, or new ones in front.
    fn broadcast(&mut self, input: &GpuTensor, shape: &[usize]) -> Result<GpuTensor>;
    /// The tensor in another shape.
    fn reshape(&mut self, input: &GpuTensor, shape: &[usize]) -> Result<GpuTensor>;
    /// The last two dimensions exchanged; a vector or number as it is.
    fn transpose(&mut self, input: &GpuTensor) -> Result<GpuTensor>;
    /// The sum along an axis, or of all elements.
    fn sum(&mut self, input: &GpuTensor, axis: Option<usize>) -> Result<GpuTensor>;
    /// The mean along an axis, or of all elements.
    fn mean(&mut self, input: &GpuTensor, axis: Option<usize>) -> Result<GpuTensor>;
    /// The greatest along an axis, or of all elements.
    fn max(&mut self, input: &GpuTensor, axis: Option<usize>) -> Result<GpuTensor>;
    /// The least along an axis, or of all elements.
    fn min(&mut self, input: &GpuTensor, axis: Option<usize>) -> Result<GpuTensor>;
    /// An activation.
    fn activate(&mut self, input: &GpuTensor, activation: Activation) -> Result<GpuTensor>;
    /// `max(x, 0)`.
    fn relu(&mut self, input: &GpuTensor) -> Result<GpuTensor>;
    /// `1 / (1 + exp(-x))`.
    fn sigmoid(&mut self, input: &GpuTensor) -> Result<GpuTensor>;
    /// The hyperbolic tangent.
    fn tanh(&mut self, input: &GpuTensor) -> Result<GpuTensor>;
    /// `x * P(X <= x)` for a standard normal X.
    fn gelu(&mut self, input: &GpuTensor) -> Result<GpuTensor>;
    /// `x * sigmoid(x)`.
    fn swish(&mut self, input: &GpuTensor) -> Result<GpuTensor>;
    /// The softmax along the last dimension.
    fn softmax(&mut self, input: &GpuTensor) -> Result<GpuTensor>;
    /// `input * weightᵀ + bias` for a weight `[outputs, inputs]`.
    fn dense_forward(
        &mut self,
        input: &GpuTensor,
        weight: &GpuTensor,
        bias: Option<&GpuTensor>,
    ) -> Result<GpuTensor>;
    /// A loss of predictions `[rows, columns]` against targets.
    fn loss(&mut self, loss: LossFunction, predictions: &GpuTensor, targets: &GpuTensor)
    -> Result<GpuTensor>;
    /// Normalises each channel of `[N, C, ..]` by the batch's own statistics, times a weight `[C]` plus a bias `[C]`.
    fn batch_norm(
        &mut self,
        input: &GpuTensor,
        weight: Option<&GpuTensor>,
        bias: Option<&GpuTensor>,
        epsilon: f64,
    ) -> Result<GpuTensor>;
    /// Normalises each channel of `[N, C, ..]` by a mean and a variance `[C]`, as after training, times a weight plus a bias.
    fn batch_norm_by(
        &mut self,
        input: &GpuTensor,
        mean: &GpuTensor,
        variance: &GpuTensor,
        weight: Option<&GpuTensor>,
        bias: Option<&GpuTensor>,
        epsilon: f64,
    ) -> Result<GpuTensor>;
    /// The running mean and variance after a batch: `momentum` times the batch's (unbiased) one, the rest the one before.
    fn running_statistics(
        &mut self,
        input: &GpuTensor,
        mean: &GpuTensor,
        variance: &GpuTensor,
        momentum: f64,
    ) -> Result<(GpuTensor, GpuTensor)>;
    /// Zeros with this probability, and scales the others up by as much; the same seed drops the same.
    fn dropout(&mut self, input: &GpuTensor, probability: f64, seed: u64) -> Result<GpuTensor>;
    /// A convolution `[N, C, H, W]` with a kernel `[filters, C, h, w]`.
    fn conv2d(
        &mut self,
        input: &GpuTensor,
        kernel: &GpuTensor,
        stride: (usize, usize),
        padding: (usize, usize),
    ) -> Result<GpuTensor>;
    /// A convolution `[N, C, D, H, W]` with a kernel `[filters, C, d, h, w]`.
    fn conv3d(
        &mut self,
        input: &GpuTensor,
        kernel: &GpuTensor,
        stride: (usize, usize, usize),
        padding: (usize, usize, usize),
    ) -> Result<GpuTensor>;
    /// The greatest of each window of `[N, C, H, W]`.
    fn max_pool2d(
        &mut self,
        input: &GpuTensor,
        kernel_size: (usize, usize),
        stride: (usize, usize),
    ) -> Result<GpuTensor>;
    /// The mean of each window of `[N, C, H, W]`.
    fn avg_pool2d(
        &mut self,
        input: &GpuTensor,
        kernel_size: (usize, usize),
        stride: (usize, usize),
    ) -> Result<GpuTensor>;
    /// The greatest of each window of `[N, C, D, H, W]`.
    fn max_pool3d(
        &mut self,
        input: &GpuTensor,
        kernel_size: (usize, usize, usize),
        stride: (usize, usize, usize),
    ) -> Result<GpuTensor>;
    /// The mean of each window of `[N, C, D, H, W]`.
    fn avg_pool3d(
        &mut self,
        input: &GpuTensor,
        kernel_size: (usize, usize, usize),
        stride: (usize, usize, usize),
    ) -> Result<GpuTensor>;
    /// A recurrence over `[steps, batch, features]`: the states after all steps, `[steps, batch, units]`.
    fn recurrent(
        &mut self,
        kind: RecurrentKind,
        input: &GpuTensor,
        parameters: RecurrentParameters<'_>,
    ) -> Result<GpuTensor>;
    /// `softmax(q kᵀ / √E) v` for `[.., L, E]`, `[.., S, E]` and `[.., S, V]`; `causal`: of earlier positions only.
    fn attention(
        &mut self,
        query: &GpuTensor,
        key: &GpuTensor,
        value: &GpuTensor,
        causal: bool,
    ) -> Result<GpuTensor>;
    /// The derivatives of a scalar function of tensors at these tensors.
    fn gradients(
        &mut self,
        at: &[&GpuTensor],
        function: &mut dyn FnMut(&mut GpuContext, &[GpuTensor]) -> Result<GpuTensor>,
    ) -> Result<Vec<GpuTensor>>;
}

impl GpuContext {
    fn result(&self, tensor: neurenix::phynexus::Result<Tensor>) -> Result<GpuTensor> {
        Ok(GpuTensor::of(tensor?, self.device_id()))
    }

    /// A tensor of this context's device.
    fn own<'a>(&self, tensor: &'a GpuTensor) -> Result<&'a Tensor> {
        let engine = tensor.engine();
        if engine.device() == self.engine() {
            return Ok(engine);
        }
        let (expected, actual) = (self.device_name(), engine.device().name());
        Err(NetworkError::dimension_mismatch("the tensor's device", expected, actual))
    }

    fn maybe<'a>(&self, tensor: Option<&'a GpuTensor>) -> Result<Option<&'a Tensor>> {
        tensor.map(|tensor| self.own(tensor)).transpose()
    }
}

/// The axis as the engine takes it; none is all.
fn axes(axis: Option<usize>) -> Vec<i64> {
    axis.map(|axis| i64::try_from(axis).unwrap_or(i64::MAX)).into_iter().collect()
}

macro_rules! forward {
    ($($name:ident = $method:ident($($argument:ident),*);)+) => { $(
        fn $name(&mut self, $($argument: &GpuTensor),*) -> Result<GpuTensor> {
            forward!(@call self $method $($argument)*)
        }
    )+ };
    (@call $self:ident $method:ident $first:ident $second:ident) => {
        $self.result($self.own($first)?.$method($self.own($second)?))
    };
    (@call $self:ident $method:ident $only:ident) => {
        $self.result($self.own($only)?.$method())
    };
}

macro_rules! reduce {
    ($($name:ident)+) => { $(
        fn $name(&mut self, input: &GpuTensor, axis: Option<usize>) -> Result<GpuTensor> {
            self.result(self.own(input)?.$name(&axes(axis), false))
        }
    )+ };
}

impl GpuOps for GpuContext {
    forward! {
        add = add(a, b);
        subtract = sub(a, b);
        multiply = mul(a, b);
        divide = div(a, b);
        matmul = matmul(a, b);
        relu = relu(input);
        sigmoid = sigmoid(input);
        tanh = tanh(input);
        swish = silu(input);
    }
    reduce! { sum mean max min }

    fn transpose(&mut self, input: &GpuTensor) -> Result<GpuTensor> {
        let input = self.own(input)?;
        self.result(if input.rank() < 2 { input.t() } else { input.transpose(-2, -1) })
    }
    fn broadcast(&mut self, input: &GpuTensor, shape: &[usize]) -> Result<GpuTensor> {
        self.result(self.own(input)?.broadcast_to(shape))
    }
    fn reshape(&mut self, input: &GpuTensor, shape: &[usize]) -> Result<GpuTensor> {
        self.result(self.own(input)?.reshape(shape))
    }
    fn activate(&mut self, input: &GpuTensor, activation: Activation) -> Result<GpuTensor> {
        Ok(GpuTensor::of(activation.apply(self.own(input)?)?, self.device_id()))
    }
    fn gelu(&mut self, input: &GpuTensor) -> Result<GpuTensor> {
        self.result(self.own(input)?.gelu(GeluApproximation::None))
    }
    fn softmax(&mut self, input: &GpuTensor) -> Result<GpuTensor> {
        self.result(self.own(input)?.softmax(-1))
    }
    fn dense_forward(
        &mut self,
        input: &GpuTensor,
        weight: &GpuTensor,
        bias: Option<&GpuTensor>,
    ) -> Result<GpuTensor> {
        let product = self.own(input)?.matmul(&self.own(weight)?.t()?);
        match self.maybe(bias)? {
            Some(bias) => self.result(product?.add(bias)),
            None => self.result(product),
        }
    }
    fn loss(
        &mut self,
        loss: LossFunction,
        predictions: &GpuTensor,
        targets: &GpuTensor,
    ) -> Result<GpuTensor> {
        let loss = LossConfig::new(loss).of(self.own(predictions)?, self.own(targets)?, false)?;
        Ok(GpuTensor::of(loss, self.device_id()))
    }
    fn batch_norm(
        &mut self,
        input: &GpuTensor,
        weight: Option<&GpuTensor>,
        bias: Option<&GpuTensor>,
        epsilon: f64,
    ) -> Result<GpuTensor> {
        within("epsilon", epsilon, 0.0, f64::INFINITY)?;
        let (weight, bias) = (self.maybe(weight)?, self.maybe(bias)?);
        self.result(self.own(input)?.batch_norm(None, None, weight, bias, true, epsilon))
    }
    fn batch_norm_by(
        &mut self,
        input: &GpuTensor,
        mean: &GpuTensor,
        variance: &GpuTensor,
        weight: Option<&GpuTensor>,
        bias: Option<&GpuTensor>,
        epsilon: f64,
    ) -> Result<GpuTensor> {
        within("epsilon", epsilon, 0.0, f64::INFINITY)?;
        let (mean, variance) = (Some(self.own(mean)?), Some(self.own(variance)?));
        let (weight, bias) = (self.maybe(weight)?, self.maybe(bias)?);
        self.result(self.own(input)?.batch_norm(mean, variance, weight, bias, false, epsilon))
    }
    fn running_statistics(
        &mut self,
        input: &GpuTensor,
        mean: &GpuTensor,
        variance: &GpuTensor,
        momentum: f64,
    ) -> Result<(GpuTensor, GpuTensor)> {
        within("momentum", momentum, 0.0, 1.0)?;
        let (mean, variance) = (self.own(mean)?, self.own(variance)?);
        let (mean, variance) = self.own(input)?.running_statistics(mean, variance, momentum)?;
        Ok((GpuTensor::of(mean, self.device_id()), GpuTensor::of(variance, self.device_id())))
    }
    fn dropout(&mut self, input: &GpuTensor, probability: f64, seed: u64) -> Result<GpuTensor> {
        self.result(self.own(input)?.dropout_with(probability, true, &Generator::new(seed)))
    }
    fn conv2d(
        &mut self,
        input: &GpuTensor,
        kernel: &GpuTensor,
        stride: (usize, usize),
        padding: (usize, usize),
    ) -> Result<GpuTensor> {
        let (stride, padding) = ([stride.0, stride.1], [padding.0, padding.1]);
        self.result(self.own(input)?.conv2d(self.own(kernel)?, None, stride, padding, [1; 2], 1))
    }
    fn conv3d(
        &mut self,
        input: &GpuTensor,
        kernel: &GpuTensor,
        stride: (usize, usize, usize),
        padding: (usize, usize, usize),
    ) -> Result<GpuTensor> {
        let (stride, padding) = ([stride.0, stride.1, stride.2], [padding.0, padding.1, padding.2]);
        self.result(self.own(input)?.conv3d(self.own(kernel)?, None, stride, padding, [1; 3], 1))
    }
    fn max_pool2d(
        &mut self,
        input: &GpuTensor,
        kernel_size: (usize, usize),
        stride: (usize, usize),
    ) -> Result<GpuTensor> {
        let (window, stride) = ([kernel_size.0, kernel_size.1], Some([stride.0, stride.1]));
        self.result(self.own(input)?.max_pool2d(window, stride, [0; 2], [1; 2], false))
    }
    fn avg_pool2d(
        &mut self,
        input: &GpuTensor,
        kernel_size: (usize, usize),
        stride: (usize, usize),
    ) -> Result<GpuTensor> {
        let (window, stride) = ([kernel_size.0, kernel_size.1], Some([stride.0, stride.1]));
        self.result(self.own(input)?.avg_pool2d(window, stride, [0; 2], false, true))
    }
    fn max_pool3d(
        &mut self,
        input: &GpuTensor,
        kernel_size: (usize, usize, usize),
        stride: (usize, usize, usize),
    ) -> Result<GpuTensor> {
        let (window, stride) = (kernel_size.into(), Some(stride.into()));
        self.result(self.own(input)?.max_pool3d(window, stride, [0; 3], [1; 3], false))
    }
    fn avg_pool3d(
        &mut self,
        input: &GpuTensor,
        kernel_size: (usize, usize, usize),
        stride: (usize, usize, usize),
    ) -> Result<GpuTensor> {
        let (window, stride) = (kernel_size.into(), Some(stride.into()));
        self.result(self.own(input)?.avg_pool3d(window, stride, [0; 3], false, true))
    }
    fn recurrent(
        &mut self,
        kind: RecurrentKind,
        input: &GpuTensor,
        parameters: RecurrentParameters<'_>,
    ) -> Result<GpuTensor> {
        let cell = match kind {
            RecurrentKind::Rnn => Cell::Tanh,
            RecurrentKind::Lstm => Cell::Lstm,
            RecurrentKind::Gru => Cell::Gru,
        };
        let weights = RecurrentWeights {
            weight_ih: self.own(parameters.weight_ih)?,
            weight_hh: self.own(parameters.weight_hh)?,
            bias_ih: self.maybe(parameters.bias_ih)?,
            bias_hh: self.maybe(parameters.bias_hh)?,
        };
        let output = self.own(input)?.recurrent(cell, weights, None, None, false)?.output;
        Ok(GpuTensor::of(output, self.device_id()))
    }
    fn attention(
        &mut self,
        query: &GpuTensor,
        key: &GpuTensor,
        value: &GpuTensor,
        causal: bool,
    ) -> Result<GpuTensor> {
        let options = AttentionOptions { is_causal: causal, ..AttentionOptions::default() };
        let (query, key, value) = (self.own(query)?, self.own(key)?, self.own(value)?);
        self.result(query.scaled_dot_product_attention(key, value, None, options))
    }
    fn gradients(
        &mut self,
        at: &[&GpuTensor],
        function: &mut dyn FnMut(&mut GpuContext, &[GpuTensor]) -> Result<GpuTensor>,
    ) -> Result<Vec<GpuTensor>> {
        let mut leaves = Vec::with_capacity(at.len());
        for tensor in at {
            leaves.push(GpuTensor::of(self.own(tensor)?.with_grad()?, self.device_id()));
        }
        let value = function(self, &leaves)?;
        let engine: Vec<&Tensor> = leaves.iter().map(GpuTensor::engine).collect();
        let gradients = self.own(&value)?.gradients(&engine)?;
        Ok(gradients.into_iter().map(|gradient| GpuTensor::of(gradient, self.device_id())).collect())
    }
}
