//! Operations on tensors of a device.

use neurenix::phynexus::{
    Tensor,
    op::composite::Cell,
    tensor::{AttentionOptions, GeluApproximation, Generator, RecurrentWeights},
};

use super::{GpuContext, GpuTensor};
use crate::{LossConfig, LossFunction, NetworkError, Result, error::within};

/// An activation.
pub type Activation = crate::ActivationFunction;

/// A kind of recurrence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecurrentKind {
    /// `h = tanh(W x + b + U h + c)`.
    Rnn,
    /// Long short-term memory, gates in PyTorch's order i, f, g, o.
    Lstm,
    /// Gated recurrent units, gates in PyTorch's order r, z, n.
    Gru,
}

/// The weights of a recurrence, in PyTorch's layout.
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

type Pair = (usize, usize);
type Triple = (usize, usize, usize);

/// Methods whose value is an operation of the engine.
macro_rules! operations {
    ($($(#[$doc:meta])+ $name:ident($($argument:ident: $type:ty),*) = |$context:ident| $value:expr;)+) => { $(
        $(#[$doc])+
        fn $name(&mut self, $($argument: $type),*) -> Result<GpuTensor> {
            let $context = &*self.context();
            $context.result($value)
        }
    )+ };
}

/// Operations on tensors of a context's device. Shapes are broadcast as in NumPy. Operations are recorded, and computed
/// when a result is read; invalid arguments are errors at once.
///
/// # Errors
/// All methods refuse tensors of another device, shapes that do not fit, and numbers out of range.
pub trait GpuOps {
    /// The context whose device computes.
    fn context(&mut self) -> &mut GpuContext;

    operations! {
        /// Adds elements.
        add(a: &GpuTensor, b: &GpuTensor) = |context| context.own(a)?.add(context.own(b)?);
        /// Subtracts elements.
        subtract(a: &GpuTensor, b: &GpuTensor) = |context| context.own(a)?.sub(context.own(b)?);
        /// Multiplies elements.
        multiply(a: &GpuTensor, b: &GpuTensor) = |context| context.own(a)?.mul(context.own(b)?);
        /// Divides elements.
        divide(a: &GpuTensor, b: &GpuTensor) = |context| context.own(a)?.div(context.own(b)?);
        /// The matrix product of `[.., M, K]` and `[.., K, N]`.
        matmul(a: &GpuTensor, b: &GpuTensor) = |context| context.own(a)?.matmul(context.own(b)?);
        /// Repeats the tensor along dimensions of size 1, and along new dimensions in front.
        broadcast(input: &GpuTensor, shape: &[usize]) = |context| context.own(input)?.broadcast_to(shape);
        /// The tensor in another shape.
        reshape(input: &GpuTensor, shape: &[usize]) = |context| context.own(input)?.reshape(shape);
        /// Exchanges the last two dimensions; a vector or a scalar stays as it is.
        transpose(input: &GpuTensor) = |context| match context.own(input)? {
            input if input.rank() < 2 => input.t(),
            input => input.transpose(-2, -1),
        };
        /// The sum along an axis, or of all elements.
        sum(input: &GpuTensor, axis: Option<usize>) = |context| context.own(input)?.sum(&axes(axis), false);
        /// The mean along an axis, or of all elements.
        mean(input: &GpuTensor, axis: Option<usize>) = |context| context.own(input)?.mean(&axes(axis), false);
        /// The maximum along an axis, or of all elements.
        max(input: &GpuTensor, axis: Option<usize>) = |context| context.own(input)?.max(&axes(axis), false);
        /// The minimum along an axis, or of all elements.
        min(input: &GpuTensor, axis: Option<usize>) = |context| context.own(input)?.min(&axes(axis), false);
        /// An activation.
        activate(input: &GpuTensor, activation: Activation) = |context| activation.apply(context.own(input)?);
        /// `max(x, 0)`.
        relu(input: &GpuTensor) = |context| context.own(input)?.relu();
        /// `1 / (1 + exp(-x))`.
        sigmoid(input: &GpuTensor) = |context| context.own(input)?.sigmoid();
        /// The hyperbolic tangent.
        tanh(input: &GpuTensor) = |context| context.own(input)?.tanh();
        /// `x * P(X <= x)` for a standard normal X.
        gelu(input: &GpuTensor) = |context| context.own(input)?.gelu(GeluApproximation::None);
        /// `x * sigmoid(x)`.
        swish(input: &GpuTensor) = |context| context.own(input)?.silu();
        /// The softmax along the last dimension.
        softmax(input: &GpuTensor) = |context| context.own(input)?.softmax(-1);
        /// Sets elements to 0 with this probability and scales the others to keep the mean. The same seed gives the
        /// same result.
        dropout(input: &GpuTensor, probability: f64, seed: u64) = |context|
            context.own(input)?.dropout_with(probability, true, &Generator::new(seed));
        /// A convolution of `[N, C, H, W]` with a kernel `[filters, C, h, w]`.
        conv2d(input: &GpuTensor, kernel: &GpuTensor, stride: Pair, padding: Pair) = |context|
            context.own(input)?.conv2d(context.own(kernel)?, None, stride.into(), padding.into(), [1; 2], 1);
        /// A convolution of `[N, C, D, H, W]` with a kernel `[filters, C, d, h, w]`.
        conv3d(input: &GpuTensor, kernel: &GpuTensor, stride: Triple, padding: Triple) = |context|
            context.own(input)?.conv3d(context.own(kernel)?, None, stride.into(), padding.into(), [1; 3], 1);
        /// The maximum of each window of `[N, C, H, W]`.
        max_pool2d(input: &GpuTensor, kernel_size: Pair, stride: Pair) = |context|
            context.own(input)?.max_pool2d(kernel_size.into(), Some(stride.into()), [0; 2], [1; 2], false);
        /// The mean of each window of `[N, C, H, W]`.
        avg_pool2d(input: &GpuTensor, kernel_size: Pair, stride: Pair) = |context|
            context.own(input)?.avg_pool2d(kernel_size.into(), Some(stride.into()), [0; 2], false, true);
        /// The maximum of each window of `[N, C, D, H, W]`.
        max_pool3d(input: &GpuTensor, kernel_size: Triple, stride: Triple) = |context|
            context.own(input)?.max_pool3d(kernel_size.into(), Some(stride.into()), [0; 3], [1; 3], false);
        /// The mean of each window of `[N, C, D, H, W]`.
        avg_pool3d(input: &GpuTensor, kernel_size: Triple, stride: Triple) = |context|
            context.own(input)?.avg_pool3d(kernel_size.into(), Some(stride.into()), [0; 3], false, true);
        /// `softmax(q kᵀ / √E) v` for `[.., L, E]`, `[.., S, E]` and `[.., S, V]`; `causal` attends to earlier
        /// positions only.
        attention(query: &GpuTensor, key: &GpuTensor, value: &GpuTensor, causal: bool) = |context|
            context.own(query)?.scaled_dot_product_attention(
                context.own(key)?,
                context.own(value)?,
                None,
                AttentionOptions { is_causal: causal, ..AttentionOptions::default() },
            );
        /// `input * weightᵀ + bias` for a weight `[outputs, inputs]`.
        dense_forward(input: &GpuTensor, weight: &GpuTensor, bias: Option<&GpuTensor>) = |context| {
            let product = context.own(input)?.matmul(&context.own(weight)?.t()?)?;
            context.maybe(bias)?.map_or(Ok(product.clone()), |bias| product.add(bias))
        };
        /// A loss of predictions `[rows, columns]` against targets.
        loss(loss: LossFunction, predictions: &GpuTensor, targets: &GpuTensor) = |context|
            Ok(LossConfig::new(loss).of(context.own(predictions)?, context.own(targets)?, false)?);
        /// Normalises each channel of `[N, C, ..]` by the batch's statistics, then applies a weight `[C]` and a bias
        /// `[C]`.
        batch_norm(input: &GpuTensor, weight: Option<&GpuTensor>, bias: Option<&GpuTensor>, epsilon: f64) = |context| {
            within("epsilon", epsilon, 0.0, f64::INFINITY)?;
            let (weight, bias) = (context.maybe(weight)?, context.maybe(bias)?);
            context.own(input)?.batch_norm(None, None, weight, bias, true, epsilon)
        };
        /// Normalises each channel of `[N, C, ..]` by a given mean and variance `[C]`, then applies a weight and a
        /// bias.
        batch_norm_by(
            input: &GpuTensor,
            mean: &GpuTensor,
            variance: &GpuTensor,
            weight: Option<&GpuTensor>,
            bias: Option<&GpuTensor>,
            epsilon: f64
        ) = |context| {
            within("epsilon", epsilon, 0.0, f64::INFINITY)?;
            let (mean, variance) = (Some(context.own(mean)?), Some(context.own(variance)?));
            let (weight, bias) = (context.maybe(weight)?, context.maybe(bias)?);
            context.own(input)?.batch_norm(mean, variance, weight, bias, false, epsilon)
        };
        /// A recurrence over `[steps, batch, features]`. Returns the states after all steps, `[steps, batch, units]`.
        recurrent(kind: RecurrentKind, input: &GpuTensor, parameters: RecurrentParameters<'_>) = |context| {
            let cell = match kind {
                RecurrentKind::Rnn => Cell::Tanh,
                RecurrentKind::Lstm => Cell::Lstm,
                RecurrentKind::Gru => Cell::Gru,
            };
            let weights = RecurrentWeights {
                weight_ih: context.own(parameters.weight_ih)?,
                weight_hh: context.own(parameters.weight_hh)?,
                bias_ih: context.maybe(parameters.bias_ih)?,
                bias_hh: context.maybe(parameters.bias_hh)?,
            };
            Ok(context.own(input)?.recurrent(cell, weights, None, None, false)?.output)
        };
    }

    /// The running mean and variance after a batch: `momentum` is the weight of the batch's mean and (unbiased)
    /// variance.
    fn running_statistics(
        &mut self,
        input: &GpuTensor,
        mean: &GpuTensor,
        variance: &GpuTensor,
        momentum: f64,
    ) -> Result<(GpuTensor, GpuTensor)> {
        let context = self.context();
        within("momentum", momentum, 0.0, 1.0)?;
        let (mean, variance) = (context.own(mean)?, context.own(variance)?);
        let (mean, variance) = context.own(input)?.running_statistics(mean, variance, momentum)?;
        Ok((GpuTensor::of(mean, context.device_id()), GpuTensor::of(variance, context.device_id())))
    }
    /// The derivatives of a scalar function with respect to tensors, at these tensors.
    fn gradients(
        &mut self,
        at: &[&GpuTensor],
        function: &mut dyn FnMut(&mut GpuContext, &[GpuTensor]) -> Result<GpuTensor>,
    ) -> Result<Vec<GpuTensor>> {
        let context = self.context();
        let mut leaves = Vec::with_capacity(at.len());
        for tensor in at {
            leaves.push(GpuTensor::of(context.own(tensor)?.with_grad()?, context.device_id()));
        }
        let value = function(context, &leaves)?;
        let engine: Vec<&Tensor> = leaves.iter().map(GpuTensor::engine).collect();
        let gradients = context.own(&value)?.gradients(&engine)?;
        Ok(gradients.into_iter().map(|gradient| GpuTensor::of(gradient, context.device_id())).collect())
    }
}

impl GpuOps for GpuContext {
    fn context(&mut self) -> &mut GpuContext {
        self
    }
}

impl GpuContext {
    fn result(&self, tensor: neurenix::phynexus::Result<Tensor>) -> Result<GpuTensor> {
        Ok(GpuTensor::of(tensor?, self.device_id()))
    }

    /// The engine's tensor, if it is on this context's device.
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

/// The axis as the engine takes it; no axis means all.
fn axes(axis: Option<usize>) -> Vec<i64> {
    axis.map(|axis| i64::try_from(axis).unwrap_or(i64::MAX)).into_iter().collect()
}
