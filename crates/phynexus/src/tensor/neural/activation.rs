//! Activation functions. Derivatives at kinks are PyTorch's; NaN is propagated.

use crate::{
    DType, Error, Result, Tensor,
    op::composite::{Composite, Gelu, Softmax},
    shape::normalize_axis,
};

/// How [`Tensor::gelu`] computes the cumulative normal distribution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum GeluApproximation {
    /// With the error function.
    #[default]
    None,
    /// With a tanh approximation, within 5e-4.
    Tanh,
}

/// The constants of `selu` (Klambauer et al., 2017) in double precision.
const SELU_ALPHA: f64 = 1.673_263_242_354_377_2;
const SELU_SCALE: f64 = 1.050_700_987_355_480_5;

/// Above this, softplus is the identity in every dtype.
const EXACT_THRESHOLD: f64 = 50.0;

impl Tensor {
    /// `exp(x) / sum(exp(x))` along `dim`. 16-bit floats are computed in `float32`.
    ///
    /// # Errors
    /// [`Error::DType`] unless the dtype is a float.
    pub fn softmax(&self, dim: i64) -> Result<Tensor> {
        let axis = normalize_axis("softmax", dim, self.shape())?;
        Composite::apply(Softmax { axis, logarithm: false }, &[self])
    }

    /// The logarithm of [`Tensor::softmax`], computed without rounding the softmax.
    pub fn log_softmax(&self, dim: i64) -> Result<Tensor> {
        let axis = normalize_axis("log_softmax", dim, self.shape())?;
        Composite::apply(Softmax { axis, logarithm: true }, &[self])
    }

    /// [`Tensor::softmax`] of the negated elements.
    pub fn softmin(&self, dim: i64) -> Result<Tensor> {
        self.neg()?.softmax(dim)
    }

    /// `x * P(X <= x)` for a standard normal X (Hendrycks and Gimpel, 2016).
    pub fn gelu(&self, approximate: GeluApproximation) -> Result<Tensor> {
        Composite::apply(Gelu { tanh: approximate == GeluApproximation::Tanh }, &[self])
    }

    /// `log(sigmoid(x))`, without overflow or loss of precision.
    pub fn logsigmoid(&self) -> Result<Tensor> {
        self.neg()?.softplus(1.0, EXACT_THRESHOLD)?.neg()
    }

    /// x clamped to `min_val..=max_val`. The derivative is 0 at both bounds and outside.
    pub fn hardtanh(&self, min_val: f64, max_val: f64) -> Result<Tensor> {
        if min_val > max_val {
            let message = format!("min_val {min_val} exceeds max_val {max_val}");
            return Err(Error::argument("hardtanh", message));
        }
        let x = self.float("hardtanh")?;
        let raised = x.le_scalar(min_val)?.where_(&x.full_like(min_val)?, x)?;
        x.ge_scalar(max_val)?.where_(&x.full_like(max_val)?, &raised)
    }

    /// `min(max(x, 0), 6)`.
    pub fn relu6(&self) -> Result<Tensor> {
        self.hardtanh(0.0, 6.0)
    }

    /// x where x is positive, `negative_slope * x` elsewhere.
    pub fn leaky_relu(&self, negative_slope: f64) -> Result<Tensor> {
        let x = self.float("leaky_relu")?;
        x.gt_scalar(0)?.where_(x, &x.mul_scalar(negative_slope)?)
    }

    /// x where x is positive, `weight * x` elsewhere. The weight has one element, or one per channel (axis 1).
    pub fn prelu(&self, weight: &Tensor) -> Result<Tensor> {
        let x = self.float("prelu")?;
        let channels = x.shape().get(1).copied().unwrap_or(1);
        let weight = match (weight.len(), x.rank()) {
            (1, rank) => weight.reshape(&vec![1; rank])?,
            (n, rank) if n == channels && rank > 1 => {
                let mut shape = vec![1; rank];
                shape[1] = n;
                weight.reshape(&shape)?
            }
            _ => {
                let hint =
                    format!("the weight must have one element, or one for each of the {channels} channels");
                return Err(Error::shape("prelu", &[x.shape(), weight.shape()], hint));
            }
        };
        x.gt_scalar(0)?.where_(x, &x.mul(&weight)?)
    }

    /// x where x is positive, `alpha * (exp(x) - 1)` elsewhere.
    pub fn elu(&self, alpha: f64) -> Result<Tensor> {
        self.float("elu")?
            .in_compute_dtype(|x| x.where_positive(&x.where_negative()?.expm1()?.mul_scalar(alpha)?))
    }

    /// `scale * elu(x, alpha)` with the constants that preserve mean 0 and variance 1 (Klambauer et al., 2017).
    pub fn selu(&self) -> Result<Tensor> {
        self.float("selu")?.in_compute_dtype(|x| x.elu(SELU_ALPHA)?.mul_scalar(SELU_SCALE))
    }

    /// x where x is positive, `alpha * (exp(x / alpha) - 1)` elsewhere.
    pub fn celu(&self, alpha: f64) -> Result<Tensor> {
        if alpha == 0.0 {
            return Err(Error::argument("celu", "alpha must not be 0"));
        }
        self.float("celu")?.in_compute_dtype(|x| {
            let scaled = x.where_negative()?.div_scalar(alpha)?;
            x.where_positive(&scaled.expm1()?.mul_scalar(alpha)?)
        })
    }

    /// `min(max(x / 6 + 1/2, 0), 1)`.
    pub fn hardsigmoid(&self) -> Result<Tensor> {
        let limited = self.hardtanh(-3.0, 3.0)?;
        limited.in_compute_dtype(|x| x.div_scalar(6)?.add_scalar(0.5))
    }

    /// `x * hardsigmoid(x)`.
    pub fn hardswish(&self) -> Result<Tensor> {
        self.float("hardswish")?.in_compute_dtype(|x| {
            let middle = x.mul(&x.add_scalar(3)?)?.div_scalar(6)?;
            let upper = x.ge_scalar(3)?.where_(x, &middle)?;
            x.le_scalar(-3)?.where_(&x.zeros_like()?, &upper)
        })
    }

    /// `x / (1 + |x|)`.
    pub fn softsign(&self) -> Result<Tensor> {
        self.float("softsign")?.in_compute_dtype(|x| x.div(&x.abs()?.add_scalar(1)?))
    }

    /// `x - tanh(x)`.
    pub fn tanhshrink(&self) -> Result<Tensor> {
        self.float("tanhshrink")?.in_compute_dtype(|x| x.sub(&x.tanh()?))
    }

    /// x where `|x| > lambd`, 0 elsewhere.
    pub fn hardshrink(&self, lambd: f64) -> Result<Tensor> {
        let x = self.float("hardshrink")?;
        x.abs()?.le_scalar(lambd)?.where_(&x.zeros_like()?, x)
    }

    /// x moved towards 0 by `lambd`; 0 where `|x| <= lambd`.
    pub fn softshrink(&self, lambd: f64) -> Result<Tensor> {
        let x = self.float("softshrink")?;
        let moved = x.sub(&x.sign()?.mul_scalar(lambd)?)?;
        x.abs()?.le_scalar(lambd)?.where_(&x.zeros_like()?, &moved)
    }

    /// x where x exceeds `threshold`, `value` elsewhere.
    pub fn threshold(&self, threshold: f64, value: f64) -> Result<Tensor> {
        let x = self.float("threshold")?;
        x.le_scalar(threshold)?.where_(&x.full_like(value)?, x)
    }

    /// The first half along `dim` times the sigmoid of the second half.
    ///
    /// # Errors
    /// [`Error::Shape`] unless the size along `dim` is even.
    pub fn glu(&self, dim: i64) -> Result<Tensor> {
        let axis = normalize_axis("glu", dim, self.shape())?;
        let size = self.shape()[axis];
        if !size.is_multiple_of(2) {
            return Err(Error::shape(
                "glu",
                &[self.shape()],
                "the axis is split in two halves: its size must be even",
            ));
        }
        let half = |start| self.narrow(dim, start, size / 2);
        let wide = self.dtype().compute();
        let gated = half(0)?.wide(wide)?.mul(&half(size / 2)?.wide(wide)?.sigmoid()?)?;
        gated.to_dtype(self.dtype())
    }

    /// Returns this tensor if its dtype is a float.
    fn float(&self, op: &'static str) -> Result<&Tensor> {
        if self.dtype().is_float() {
            return Ok(self);
        }
        Err(Error::dtype(op, &[self.dtype()], format!("convert to a float with .to_dtype({})", DType::F32)))
    }

    /// x where x is positive, `otherwise` elsewhere.
    fn where_positive(&self, otherwise: &Tensor) -> Result<Tensor> {
        self.gt_scalar(0)?.where_(self, otherwise)
    }

    /// 0 where x is positive, x elsewhere: an argument for which the function of the negative half cannot overflow.
    fn where_negative(&self) -> Result<Tensor> {
        self.gt_scalar(0)?.where_(&self.zeros_like()?, self)
    }
}
