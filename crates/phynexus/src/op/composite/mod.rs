//! Composites: named operations with a body of other operations. A device may claim the name; where nobody does, the
//! body is used. So fast libraries, exchange formats and whole-graph runtimes see the operation, and every device can
//! run it.
//!
//! A body depends on its operands' shapes and dtypes and on the attributes only, never on data, so that it can be
//! recorded over operands that have none. Bodies compute 16-bit floats in `float32` and round the result.
//!
//! An operation with several results writes them one after another into one flat buffer; the results are slices of it.

mod activation;
mod attention;
mod binary_cross_entropy;
mod class_index;
mod cross_entropy;
mod normalization;
mod pack;
mod quantize;
mod recurrent;
mod softmax;
#[cfg(test)]
mod tests;
pub(crate) mod tf32;

pub use attention::AttentionAttributes;
pub(crate) use attention::output as attention_output;
pub use recurrent::{Cell, Recurrence};
pub use tf32::{MatmulPrecision, float32_matmul_precision, set_float32_matmul_precision};

use smallvec::SmallVec;

use super::{
    ConvKind, Op,
    gradient::rule::{self, Call, InputGradients, Reads},
    ir::Ir,
    term::draft,
};
use crate::{
    DType, Error, Result, Scalar,
    op::term::{TensorType, Term},
    shape::Dims,
};

/// A named operation with a body.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Composite {
    /// `exp(x) / sum(exp(x))` along an axis.
    Softmax {
        /// The axis.
        axis: usize,
    },
    /// The logarithm of the softmax along an axis.
    LogSoftmax {
        /// The axis.
        axis: usize,
    },
    /// `x * P(X <= x)` for a standard normal X (Hendrycks and Gimpel, 2016).
    Gelu {
        /// With the paper's tanh approximation of the distribution function rather than erf.
        tanh: bool,
    },
    /// `x * sigmoid(x)`.
    Silu,
    /// `log(1 + exp(beta * x)) / beta`, and `x` itself where `beta * x` exceeds the threshold.
    Softplus {
        /// The steepness.
        beta: Scalar,
        /// From where on it is the identity.
        threshold: Scalar,
    },
    /// `x * tanh(softplus(x))`.
    Mish,
    /// Inputs x, then weight and bias (of the normalised axes' shape) where there are such. `(x - mean) / sqrt(variance
    /// + epsilon) * weight + bias` over the last axes.
    LayerNorm {
        /// How many of the last axes are normalised together.
        axes: usize,
        /// Added to the variance.
        epsilon: Scalar,
        /// There is a weight.
        weight: bool,
        /// There is a bias.
        bias: bool,
    },
    /// Inputs x, then weight where there is one. `x / sqrt(mean(x^2) + epsilon) * weight` over the last axes.
    RmsNorm {
        /// How many of the last axes are normalised together.
        axes: usize,
        /// Added to the mean square.
        epsilon: Scalar,
        /// There is a weight.
        weight: bool,
    },
    /// Inputs x `[N, C, ..]`, then weight and bias `[C]` where there are such. Each group of channels of each sample is
    /// normalised.
    GroupNorm {
        /// How many groups the channels form.
        groups: usize,
        /// Added to the variance.
        epsilon: Scalar,
        /// There is a weight.
        weight: bool,
        /// There is a bias.
        bias: bool,
    },
    /// Inputs x `[N, C, ..]`, when not training mean and variance `[C]`, then weight and bias `[C]` where there are such.
    BatchNorm {
        /// Each channel is normalised by the batch's own (biased) statistics rather than by given ones.
        training: bool,
        /// Added to the variance.
        epsilon: Scalar,
        /// There is a weight.
        weight: bool,
        /// There is a bias.
        bias: bool,
    },
    /// Inputs x and target of one shape and dtype, probabilities: `-(target log(x) + (1 - target) log(1 - x))` with
    /// logarithms of at least -100.
    BinaryCrossEntropy,
    /// Input class indices `[N]`, `int64`: the same, but an error when they are computed if one is neither a class nor
    /// `ignore_index`. A device's own routine names the loss and the label; the body's error is a gather's.
    ClassIndex {
        /// The loss they are for.
        loss: &'static str,
        /// The number of classes.
        classes: usize,
        /// A number that is allowed besides.
        ignore_index: Option<i64>,
    },
    /// Inputs logits `[N, C]`, target `[N]` (class indices, any integer dtype), then class weights `[C]` where there are
    /// such; result `[N]`: `-log(softmax(logits))[target]`, weighted and smoothed. NaN for a target that is no class.
    CrossEntropy {
        /// The part of the target spread over all classes.
        label_smoothing: Scalar,
        /// Rows with this target give 0.
        ignore_index: Option<i64>,
        /// There are class weights.
        weighted: bool,
    },
    /// Inputs q `[B, H, L, E]`, k `[B, H, S, E]`, v `[B, H, S, V]`, then a mask `[B, H, L, S]` (`bool`: true takes part;
    /// float: added) where there is one. Packed: `softmax(scale * q k^T) v` `[B, H, L, V]`, and the logarithms of the
    /// softmax's denominators `[B, H, L]`. The dtype is q's, `float32` for 16-bit floats. A row that may attend to
    /// nothing gives 0, and minus infinity.
    Attention(AttentionAttributes),
    /// Inputs q, k, v, the mask where there is one, the logarithms `[B, H, L]`, the output's gradient `[B, H, L, V]` and
    /// `delta = sum(output * output's gradient) - logarithms' gradient` `[B, H, L]` (these three in the packed dtype).
    /// Packed: the gradients of q, k and v.
    AttentionGradient(AttentionAttributes),
    /// A recurrent layer over a whole sequence: see [`Recurrence`].
    Recurrent(Recurrence),
    /// What the gradients of a recurrent layer need of its time steps: see [`Recurrence`].
    RecurrentGradient(Recurrence),
    /// Inputs x, scale, zero point (the result's dtype; like scale `[]`, or one an index of the axis). `round(x / scale) +
    /// zero_point`, saturated: ONNX's operator.
    QuantizeLinear {
        /// The axis that scale and zero point vary along.
        axis: Option<usize>,
    },
    /// Inputs q, scale, zero point. `(q - zero_point) * scale`, in scale's dtype: ONNX's operator.
    DequantizeLinear {
        /// The axis that scale and zero point vary along.
        axis: Option<usize>,
    },
    /// Two inputs. A product or convolution of `float32` whose factors a device may round to TF32: to 11 bits of a
    /// significand. See [`set_float32_matmul_precision`].
    Tf32 {
        /// What it is without roundings.
        op: Box<Op>,
        /// The result's shape.
        shape: Dims,
    },
}

impl Composite {
    /// The name in messages and listings.
    pub fn name(&self) -> &'static str {
        match self {
            Composite::Softmax { .. } => "softmax",
            Composite::LogSoftmax { .. } => "log_softmax",
            Composite::Gelu { .. } => "gelu",
            Composite::Silu => "silu",
            Composite::Softplus { .. } => "softplus",
            Composite::Mish => "mish",
            Composite::LayerNorm { .. } => "layer_norm",
            Composite::RmsNorm { .. } => "rms_norm",
            Composite::GroupNorm { .. } => "group_norm",
            Composite::BatchNorm { .. } => "batch_norm",
            Composite::BinaryCrossEntropy => "binary_cross_entropy",
            Composite::ClassIndex { .. } => "class_index",
            Composite::CrossEntropy { .. } => "cross_entropy",
            Composite::Attention(_) => "attention",
            Composite::AttentionGradient(_) => "attention_gradient",
            Composite::Recurrent(recurrence) => recurrence.cell.name(),
            Composite::RecurrentGradient(recurrence) => recurrence.cell.gradient_name(),
            Composite::QuantizeLinear { .. } => "quantize_linear",
            Composite::DequantizeLinear { .. } => "dequantize_linear",
            Composite::Tf32 { op, .. } => match **op {
                Op::Dot => "dot_tf32",
                Op::Conv(ConvKind::InputGradient, _) => "conv_input_gradient_tf32",
                Op::Conv(ConvKind::FilterGradient, _) => "conv_filter_gradient_tf32",
                _ => "conv_tf32",
            },
        }
    }

    /// The attributes for listings: `axis=1`.
    pub fn attributes(&self) -> String {
        let norm = |epsilon: &Scalar, weight: bool, bias: bool| {
            let mut text = format!("epsilon={epsilon}");
            for (name, _) in [("weight", weight), ("bias", bias)].iter().filter(|(_, there)| *there) {
                text.push_str(", ");
                text.push_str(name);
            }
            text
        };
        let along = |axis: &Option<usize>| axis.map(|axis| format!("axis={axis}")).unwrap_or_default();
        match self {
            Composite::Softmax { axis } | Composite::LogSoftmax { axis } => format!("axis={axis}"),
            Composite::Gelu { tanh } => format!("approximate={}", if *tanh { "tanh" } else { "none" }),
            Composite::Silu | Composite::Mish | Composite::BinaryCrossEntropy => String::new(),
            Composite::Softplus { beta, threshold } => format!("beta={beta}, threshold={threshold}"),
            Composite::LayerNorm { axes, epsilon, weight, bias } => {
                format!("axes={axes}, {}", norm(epsilon, *weight, *bias))
            }
            Composite::RmsNorm { axes, epsilon, weight } => {
                format!("axes={axes}, {}", norm(epsilon, *weight, false))
            }
            Composite::GroupNorm { groups, epsilon, weight, bias } => {
                format!("groups={groups}, {}", norm(epsilon, *weight, *bias))
            }
            Composite::BatchNorm { training, epsilon, weight, bias } => {
                format!("training={training}, {}", norm(epsilon, *weight, *bias))
            }
            Composite::ClassIndex { loss, classes, ignore_index } => {
                let ignored = ignore_index.map(|index| format!(", ignore_index={index}")).unwrap_or_default();
                format!("loss={loss}, classes={classes}{ignored}")
            }
            Composite::CrossEntropy { label_smoothing, ignore_index, weighted } => {
                let ignored = ignore_index.map(|index| format!(", ignore_index={index}")).unwrap_or_default();
                let weighted = if *weighted { ", weighted" } else { "" };
                format!("label_smoothing={label_smoothing}{ignored}{weighted}")
            }
            Composite::Attention(a) | Composite::AttentionGradient(a) => a.to_string(),
            Composite::Recurrent(r) | Composite::RecurrentGradient(r) => r.to_string(),
            Composite::QuantizeLinear { axis } | Composite::DequantizeLinear { axis } => along(axis),
            Composite::Tf32 { shape, .. } => format!("shape={}", crate::text::show_shape(shape)),
        }
    }

    /// Checks the operands and records the operation.
    pub(crate) fn term(self, inputs: &[&Term]) -> Result<Term> {
        let types: SmallVec<[TensorType; 4]> = inputs.iter().map(|input| input.tensor_type()).collect();
        let (dtype, shape) = self.result(&types)?;
        Term::record(Op::Composite(self), dtype, shape, inputs)
    }

    /// The body over leaves of these types, as an IR with one output.
    ///
    /// # Errors
    /// If the body cannot be built, which is a bug.
    pub fn draft(&self, operands: &[TensorType]) -> Result<Ir> {
        draft(operands, |inputs| self.body(inputs))
    }

    /// The result's dtype and shape.
    ///
    /// # Errors
    /// If the operands' number, shapes or dtypes do not fit.
    pub(crate) fn result(&self, inputs: &[TensorType]) -> Result<(DType, Dims)> {
        let x = inputs.first().ok_or_else(|| self.wrong_count(inputs, 1))?;
        match self {
            Composite::Softmax { axis } | Composite::LogSoftmax { axis } => {
                self.check_count(inputs, 1)?;
                self.check_axis(x, *axis)?;
                self.check_float(x)?;
                Ok((x.dtype(), x.shape().into()))
            }
            Composite::Gelu { .. } | Composite::Silu | Composite::Softplus { .. } | Composite::Mish => {
                self.check_count(inputs, 1)?;
                self.check_float(x)?;
                Ok((x.dtype(), x.shape().into()))
            }
            Composite::LayerNorm { .. }
            | Composite::RmsNorm { .. }
            | Composite::GroupNorm { .. }
            | Composite::BatchNorm { .. } => normalization::check(self, inputs),
            Composite::BinaryCrossEntropy => binary_cross_entropy::check(self, inputs),
            Composite::ClassIndex { .. } => class_index::check(self, inputs),
            Composite::CrossEntropy { weighted, .. } => cross_entropy::check(self, *weighted, inputs),
            Composite::Attention(attributes) => attention::check(self, attributes, inputs),
            Composite::AttentionGradient(attributes) => attention::check_gradient(self, attributes, inputs),
            Composite::Recurrent(recurrence) => recurrent::check(self, recurrence, inputs),
            Composite::RecurrentGradient(recurrence) => recurrent::check_gradient(self, recurrence, inputs),
            Composite::QuantizeLinear { axis } => quantize::check_quantize(self, *axis, inputs),
            Composite::DequantizeLinear { axis } => quantize::check_dequantize(self, *axis, inputs),
            Composite::Tf32 { shape, .. } => tf32::check(self, shape, inputs),
        }
    }

    /// The result by other operations, recorded over `inputs` (which the composite has been checked against).
    pub(crate) fn body(&self, inputs: &[Term]) -> Result<Term> {
        match self {
            Composite::Softmax { axis } => softmax::softmax(inputs, *axis),
            Composite::LogSoftmax { axis } => softmax::log_softmax(inputs, *axis),
            Composite::Gelu { tanh } => activation::gelu(inputs, *tanh),
            Composite::Silu => activation::silu(inputs),
            Composite::Softplus { beta, threshold } => {
                activation::softplus(inputs, beta.as_f64(), threshold.as_f64())
            }
            Composite::Mish => activation::mish(inputs),
            Composite::LayerNorm { .. }
            | Composite::RmsNorm { .. }
            | Composite::GroupNorm { .. }
            | Composite::BatchNorm { .. } => normalization::body(self, inputs),
            Composite::BinaryCrossEntropy => binary_cross_entropy::body(inputs),
            Composite::ClassIndex { classes, ignore_index, .. } => {
                class_index::body(inputs, *classes, *ignore_index)
            }
            Composite::CrossEntropy { label_smoothing, ignore_index, .. } => {
                cross_entropy::body(inputs, label_smoothing.as_f64(), *ignore_index)
            }
            Composite::Attention(attributes) => attention::body(attributes, inputs),
            Composite::AttentionGradient(attributes) => attention::gradient_body(attributes, inputs),
            Composite::Recurrent(recurrence) => recurrent::body(recurrence, inputs),
            Composite::RecurrentGradient(recurrence) => recurrent::gradient_body(recurrence, inputs),
            Composite::QuantizeLinear { axis } => quantize::quantize(inputs, *axis),
            Composite::DequantizeLinear { axis } => quantize::dequantize(inputs, *axis),
            Composite::Tf32 { op, shape } => tf32::body(op, shape, inputs),
        }
    }

    /// The operands' gradients where a formula of their own serves better than the body's derivative; `None` where the
    /// body is to be differentiated.
    pub(in crate::op) fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        match self {
            Composite::Softmax { axis } => softmax::softmax_gradient(call, *axis).map(Some),
            Composite::LogSoftmax { axis } => softmax::log_softmax_gradient(call, *axis).map(Some),
            Composite::Silu => activation::silu_gradient(call).map(Some),
            Composite::Softplus { beta, threshold } => {
                activation::softplus_gradient(call, beta.as_f64(), threshold.as_f64()).map(Some)
            }
            Composite::Mish => activation::mish_gradient(call).map(Some),
            Composite::LayerNorm { .. } | Composite::RmsNorm { .. } | Composite::GroupNorm { .. } => {
                normalization::gradient(self, call).map(Some)
            }
            Composite::BatchNorm { training: true, .. } => normalization::gradient(self, call).map(Some),
            Composite::BinaryCrossEntropy => binary_cross_entropy::gradient(call).map(Some),
            Composite::CrossEntropy { label_smoothing, ignore_index, .. } => {
                cross_entropy::gradient(call, label_smoothing.as_f64(), *ignore_index)
            }
            Composite::Attention(attributes) => attention::gradient(attributes, call),
            Composite::Recurrent(recurrence) => recurrent::gradient(recurrence, call),
            Composite::Tf32 { op, .. } => tf32::gradient(op, call),
            Composite::Gelu { .. }
            | Composite::BatchNorm { training: false, .. }
            | Composite::ClassIndex { .. }
            | Composite::AttentionGradient(_)
            | Composite::RecurrentGradient(_)
            | Composite::QuantizeLinear { .. }
            | Composite::DequantizeLinear { .. } => Ok(None),
        }
    }

    /// What [`Composite::gradient`], or that of the body, reads.
    pub(in crate::op) fn gradient_reads(&self) -> Reads {
        match self {
            Composite::Softmax { .. } | Composite::LogSoftmax { .. } => Reads::RESULT,
            Composite::Tf32 { op, .. } => rule::reads(op),
            Composite::Attention(_)
            | Composite::AttentionGradient(_)
            | Composite::Recurrent(_)
            | Composite::RecurrentGradient(_) => Reads::EVERYTHING,
            _ => Reads::OPERANDS,
        }
    }

    fn wrong_count(&self, inputs: &[TensorType], expected: usize) -> Error {
        Error::argument(self.name(), format!("takes {expected} tensors, {} were given", inputs.len()))
    }

    fn check_count(&self, inputs: &[TensorType], expected: usize) -> Result<()> {
        if inputs.len() == expected { Ok(()) } else { Err(self.wrong_count(inputs, expected)) }
    }

    fn check_axis(&self, x: &TensorType, axis: usize) -> Result<()> {
        if axis < x.rank() {
            return Ok(());
        }
        Err(Error::Axis { op: self.name(), axis: axis as i64, shape: x.shape().to_vec() })
    }

    fn check_float(&self, x: &TensorType) -> Result<()> {
        if x.dtype().is_float() {
            return Ok(());
        }
        Err(Error::dtype(self.name(), &[x.dtype()], "convert to a floating-point dtype with .to_dtype()"))
    }

    fn check_dtype(&self, x: &TensorType, expected: DType) -> Result<()> {
        if x.dtype() == expected {
            return Ok(());
        }
        Err(Error::dtype(
            self.name(),
            &[x.dtype(), expected],
            "operands have one dtype: convert with .to_dtype()",
        ))
    }

    /// A shape error unless `t` has `expected`, which is called `what` in the message.
    fn check_shape(&self, t: &TensorType, expected: &[usize], what: &str) -> Result<()> {
        if t.shape() == expected {
            return Ok(());
        }
        let hint = format!("{what} must have shape {}", crate::text::show_shape(expected));
        Err(Error::shape(self.name(), &[t.shape()], hint))
    }
}

/// Reads operands in order, those that are optional where a flag says so.
struct Operands<'a, T>(&'a [T]);

impl<'a, T> Operands<'a, T> {
    fn next(&mut self) -> Result<&'a T> {
        let (first, rest) =
            self.0.split_first().ok_or_else(|| Error::internal("composite", "an operand is missing"))?;
        self.0 = rest;
        Ok(first)
    }
    fn next_if(&mut self, there: bool) -> Result<Option<&'a T>> {
        there.then(|| self.next()).transpose()
    }
}

/// Gradients for some of `count` operands.
fn gradients_for(count: usize, found: impl IntoIterator<Item = (usize, Term)>) -> InputGradients {
    let mut all: InputGradients = SmallVec::from_elem(None, count);
    found.into_iter().for_each(|(position, gradient)| all[position] = Some(gradient));
    all
}
