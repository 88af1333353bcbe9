//! Composites: named operations with a body of other operations. A device may claim the name; other devices run the
//! body. Fast libraries, exchange formats and whole-graph runtimes therefore see the operation, and every device can
//! run it.
//!
//! A body depends on its operands' shapes and dtypes and on the attributes only, never on data, so that it can be
//! recorded over operands that have none. Bodies compute 16-bit floats in `float32` and round the result.
//!
//! An operation with several results writes them one after another into one flat buffer; the results are slices of it.
//!
//! Each composite is a struct with its attributes, which implements `Definition` in a file of its own.

mod attention;
mod attention_gradient;
mod batch_norm;
mod binary_cross_entropy;
mod check;
mod class_index;
mod cross_entropy;
mod dequantize_linear;
mod float8_product;
mod gelu;
mod group_norm;
mod layer_norm;
mod max_pool_gradient;
mod mish;
mod normalization;
mod pack;
pub(crate) mod precision;
mod quantize;
mod quantize_linear;
mod recurrent;
mod silu;
mod softmax;
mod softplus;
mod sparse_product;
#[cfg(test)]
mod tests;
pub(crate) use attention::{DROPOUT_BLOCK, output as attention_output};
pub use precision::{
    MatmulPrecision, float32_matmul_precision, set_float32_matmul_precision, set_thread_matmul_precision,
};
pub use recurrent::Cell;
pub(crate) use sparse_product::{compressed_shape, decompressed};

use smallvec::SmallVec;

use super::{
    Op,
    gradient::rule::{Call, InputGradients, Reads},
    ir::{Ir, IrNode},
    operation::{Check, Operation},
    reference::{Interval, Number, OracleArray, evaluate, round_to_tf32},
    sample::{self, Sample},
    term::draft,
};
use crate::{
    DType, Error, Result,
    op::term::{TensorType, Term},
    shape::Dims,
};

/// Everything that the engine knows of a composite.
pub(crate) trait Definition {
    /// The name in messages and listings.
    fn name(&self) -> &'static str;

    /// The attributes for listings: `axis=1`.
    fn attributes(&self) -> String {
        String::new()
    }

    /// The result's dtype and shape, or an error if the operands' number, shapes or dtypes do not fit. There is at
    /// least one operand. The default takes one of a floating-point dtype; the result has its dtype and shape.
    fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        check::one_float(self.name(), operands)
    }

    /// The result by other operations. `check` has accepted the operands.
    fn body(&self, operands: &[Term]) -> Result<Term>;

    /// The operands' gradients where a formula is better than the body's derivative; `None` where the body is to be
    /// differentiated.
    fn gradient(&self, _: &Call) -> Result<Option<InputGradients>> {
        Ok(None)
    }

    /// What `gradient`, or the body's derivative, reads.
    fn gradient_reads(&self) -> Reads {
        Reads::OPERANDS
    }

    /// Whether computing it is an error for some values of its operands.
    fn can_fail(&self) -> bool {
        false
    }

    /// True if each element of the result depends on the element of the one operand at the same index.
    fn is_elementwise(&self) -> bool {
        false
    }

    /// Bounds what a device's own kernel rounds within to the 16-bit dtype of its operands: for each element of the
    /// result, the sum of the magnitudes of the rounded terms. `None` if it must not round.
    fn rounded(&self) -> Option<Build<'_>> {
        None
    }

    /// Calls for tests: every value of the attributes that matters, sizes for which devices choose other kernels, and
    /// small operands. Finite differences check calls with at most 64 elements in an operand and 128 in all.
    fn samples() -> Vec<Sample>
    where
        Self: Sized;
}

/// The greatest error of rounding a subnormal number of `float16`.
const LEAST_ROUNDING: f64 = 1.0 / (1 << 25) as f64;

/// Records operations over operands.
type Build<'a> = Box<dyn Fn(&[Term]) -> Result<Term> + 'a>;

/// Calls a macro with the functions of composites: `macro! { rows }`. A row is
///
/// ```text
/// /// What it computes, in words for users of every language.
/// precision name(argument: Kind = default, ..) => the composite;
/// ```
///
/// It makes a method of tensors in Rust and in Python, and a function of Python's `nn.functional`. An argument is an
/// `Operand` (a tensor or nothing; the composite reads it in the first operand's dtype or in the one that this is
/// computed in), a `Count` or a `Number`; defaults are Python's. The precision says what the function of
/// `nn.functional` does:
///
/// - `own`: it computes in the dtype of its operands;
/// - `in_place`: the same, and it accepts PyTorch's argument `inplace`, which has no effect;
/// - `full`: within `autocast` it computes in `float32`.
///
/// A function that needs more is a method of its own in `tensor/neural`.
#[macro_export]
#[doc(hidden)]
macro_rules! composite_functions {
    ($consumer:ident) => {
        $consumer! {
            /// ``x * sigmoid(x)``, also called swish.
            in_place silu() => Silu;
            /// ``x * tanh(softplus(x))`` (Misra, 2019).
            in_place mish() => Mish;
            /// ``log(1 + exp(beta * x)) / beta``; ``x`` where ``beta * x`` exceeds ``threshold``. ``beta`` must be
            /// positive.
            own softplus(beta: Number = 1.0, threshold: Number = 20.0) => Softplus {
                beta: Scalar::Float(beta),
                threshold: Scalar::Float(threshold),
            };
            /// Normalises each of ``num_groups`` groups of channels in each sample of ``(N, C, ...)``. ``weight`` and
            /// ``bias`` are ``(C)``.
            full group_norm(
                num_groups: Count, weight: Operand = None, bias: Operand = None, eps: Number = 1e-5
            ) => GroupNorm {
                groups: num_groups,
                epsilon: Scalar::Float(eps),
                weight: weight.is_some(),
                bias: bias.is_some(),
            };
        }
    };
}

/// Makes the enum of these composites and everything that lists them.
macro_rules! composites {
    ($($module:ident::$name:ident,)*) => {
        $(pub use $module::$name;)*

        /// A named operation with a body.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum Composite {
            $(#[doc = concat!("See [`struct@", stringify!($name), "`].")] $name($name),)*
        }

        $(impl From<$name> for Composite {
            fn from(definition: $name) -> Composite {
                Composite::$name(definition)
            }
        })*

        impl Composite {
            fn definition(&self) -> &dyn Definition {
                match self {
                    $(Composite::$name(definition) => definition,)*
                }
            }
        }

        /// Calls of every composite, for tests.
        fn samples() -> Vec<Sample> {
            [$($name::samples()),*].concat()
        }
    };
}

composites! {
    softmax::Softmax,
    gelu::Gelu,
    silu::Silu,
    softplus::Softplus,
    mish::Mish,
    layer_norm::LayerNorm,
    group_norm::GroupNorm,
    batch_norm::BatchNorm,
    binary_cross_entropy::BinaryCrossEntropy,
    class_index::ClassIndex,
    cross_entropy::CrossEntropy,
    max_pool_gradient::MaxPoolGradient,
    attention::Attention,
    attention_gradient::AttentionGradient,
    recurrent::Recurrent,
    recurrent::RecurrentGradient,
    recurrent::RecurrentSteps,
    quantize_linear::QuantizeLinear,
    dequantize_linear::DequantizeLinear,
    precision::InPrecision,
    float8_product::Float8Product,
    sparse_product::SparseProduct,
}

impl Composite {
    /// The name in messages and listings.
    pub fn name(&self) -> &'static str {
        self.definition().name()
    }

    /// The attributes for listings: `axis=1`.
    pub fn attributes(&self) -> String {
        self.definition().attributes()
    }

    /// The result's dtype and shape.
    ///
    /// # Errors
    /// If the operands' number, shapes or dtypes do not fit.
    pub(crate) fn check(&self, operands: &[TensorType]) -> Result<(DType, Dims)> {
        if operands.is_empty() {
            check::count(self.name(), operands, 1)?;
        }
        self.definition().check(operands)
    }

    /// Checks the operands and records the operation.
    pub(crate) fn term(composite: impl Into<Composite>, operands: &[&Term]) -> Result<Term> {
        let composite = composite.into();
        let types: SmallVec<[TensorType; 4]> = operands.iter().map(|operand| operand.tensor_type()).collect();
        let (dtype, shape) = composite.check(&types)?;
        Term::record(Op::Composite(composite), dtype, shape, operands)
    }

    /// True if each element of the result depends on the element of the one operand at the same index.
    pub fn is_elementwise(&self) -> bool {
        self.definition().is_elementwise()
    }

    /// The body over leaves of these types, as an IR with one output.
    ///
    /// # Errors
    /// If the body cannot be built, which is a bug.
    pub fn draft(&self, operands: &[TensorType]) -> Result<Ir> {
        draft(operands, |leaves| self.body(leaves))
    }

    /// The result by other operations, recorded over operands that the composite has been checked against.
    pub(crate) fn body(&self, operands: &[Term]) -> Result<Term> {
        self.definition().body(operands)
    }

    /// The elements of the result by the body, except that the signs of zeros are open: a device's own kernel may
    /// compute them differently.
    pub(crate) fn evaluate(&self, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        let types: Vec<TensorType> = inputs.iter().map(|i| TensorType::new(i.dtype, &i.shape)).collect();
        let body = self.draft(&types)?;
        let mut operands: Vec<OracleArray> = inputs.iter().copied().cloned().collect();
        let precision = match self {
            Composite::InPrecision(InPrecision { precision, .. }) => *precision,
            _ => MatmulPrecision::Highest,
        };
        if precision == MatmulPrecision::High {
            operands.iter_mut().flat_map(|operand| &mut operand.elements).for_each(round_to_tf32);
        }
        let mut outputs = evaluate(&body, &operands)?;
        self.widen(&types, &operands, &mut outputs)?;
        let unsigned = |number: Number| match number {
            // Parts of an infinity times zero are NaN.
            Number::Float(x) if precision == MatmulPrecision::Split && x.magnitude().is_infinite() => {
                Number::Undetermined
            }
            Number::Float(x) if x.low == 0.0 && x.high == 0.0 => {
                Number::Float(Interval { low: -0.0, high: 0.0, ..x })
            }
            other => other,
        };
        Ok(outputs.into_iter().next().into_iter().flat_map(|output| output.elements).map(unsigned).collect())
    }
}

impl Composite {
    /// Admits what a device's own kernel rounds within.
    fn widen(
        &self,
        types: &[TensorType],
        operands: &[OracleArray],
        outputs: &mut [OracleArray],
    ) -> Result<()> {
        let precision = match types[0].dtype() {
            // A rounding error is at most half of the distance between neighbours.
            DType::F16 => 2f64.powi(-11),
            DType::BF16 => 2f64.powi(-8),
            _ => return Ok(()),
        };
        let Some(rounded) = self.definition().rounded() else { return Ok(()) };
        let magnitudes = evaluate(&draft(types, rounded)?, operands)?;
        let dtype = outputs[0].dtype;
        for (number, magnitude) in
            outputs[0].elements.iter_mut().zip(magnitudes.iter().flat_map(|array| &array.elements))
        {
            if let (Number::Float(x), Number::Float(magnitude)) = (number, magnitude) {
                // The error of several roundings and of the magnitude itself is covered by the tenth.
                let error = 1.1 * precision * magnitude.high;
                if error.is_finite() && x.value.is_finite() {
                    (x.low, x.high) = (x.low - error, x.high + error);
                    // The body rounded its result, the device rounds one that differs before.
                    if dtype.size() == 2 && error > 0.0 {
                        let least = if dtype == DType::F16 { LEAST_ROUNDING } else { 0.0 };
                        let rounding = precision * x.magnitude() + least;
                        *x = Interval { low: x.low - rounding, high: x.high + rounding, ..*x }.rounded(dtype);
                    }
                }
            }
        }
        Ok(())
    }
}

impl Operation for Composite {
    fn name(&self) -> &'static str {
        self.definition().name()
    }

    fn operands(&self) -> Option<usize> {
        None
    }

    /// Composites are checked when they are recorded.
    fn check(&self, _: &IrNode, _: &[&IrNode]) -> Check {
        Ok(())
    }

    fn gradient(&self, call: &Call) -> Result<Option<InputGradients>> {
        self.definition().gradient(call)
    }

    fn gradient_reads(&self) -> Reads {
        self.definition().gradient_reads()
    }

    fn can_fail(&self) -> bool {
        self.definition().can_fail()
    }

    fn reference(&self, _: &IrNode, inputs: &[&OracleArray]) -> Result<Vec<Number>> {
        self.evaluate(inputs)
    }

    fn samples() -> Vec<Sample> {
        samples()
    }
}

/// Reads operands in order; a flag says whether an optional one is given.
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
