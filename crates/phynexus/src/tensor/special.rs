//! Special functions of one or two arguments, composed of the primitive functions.

use std::f64::consts::{LN_2, PI};

use super::operands::{floating, promote2};
use crate::{DType, Result, Scalar, Tensor};

/// A rational function: coefficients of numerator and denominator, from the highest power down.
type Ratio = (&'static [f64], &'static [f64]);

// W. J. Cody, "Rational Chebyshev approximations for the error function", 1969: erfc(x) * exp(x * x) between 0.46875 and 4.
const MIDDLE: Ratio = (
    &[
        2.1531153547440383e-8,
        5.641884969886701e-1,
        8.883149794388377,
        6.611919063714163e1,
        2.986351381974001e2,
        8.81952221241769e2,
        1.7120476126340707e3,
        2.0510783778260716e3,
        1.2303393547979972e3,
    ],
    &[
        1.0,
        1.5744926110709835e1,
        1.176939508913125e2,
        5.371811018620099e2,
        1.6213895745666903e3,
        3.2907992357334597e3,
        4.362619090143247e3,
        3.4393676741437216e3,
        1.2303393548037495e3,
    ],
);
// The same from 4 on, as a function of 1 / (x * x).
const FAR: Ratio = (
    &[
        1.6315387137302097e-2,
        3.0532663496123236e-1,
        3.6034489994980445e-1,
        1.2578172611122926e-1,
        1.6083785148742275e-2,
        6.587491615298378e-4,
    ],
    &[
        1.0,
        2.568520192289822,
        1.8729528499234673,
        5.279051029514285e-1,
        6.051834131244132e-2,
        2.3352049762686918e-3,
    ],
);
// M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", 1988.
const CENTRE: Ratio = (
    &[
        2.5090809287301227e3,
        3.343057558358813e4,
        6.72657709270087e4,
        4.592195393154987e4,
        1.373169376550946e4,
        1.9715909503065513e3,
        1.3314166789178438e2,
        3.3871328727963665,
    ],
    &[
        5.226495278852854e3,
        2.8729085735721943e4,
        3.930789580009271e4,
        2.1213794301586597e4,
        5.394196021424751e3,
        6.871870074920579e2,
        4.231333070160091e1,
        1.0,
    ],
);
const TAIL: Ratio = (
    &[
        7.745450142783414e-4,
        2.2723844989269184e-2,
        2.417807251774506e-1,
        1.2704582524523684,
        3.6478483247632045,
        5.769497221460691,
        4.630337846156546,
        1.4234371107496835,
    ],
    &[
        1.0507500716444169e-9,
        5.475938084995345e-4,
        1.5198666563616457e-2,
        1.4810397642748008e-1,
        6.897673349851e-1,
        1.6763848301838038,
        2.053191626637759,
        1.0,
    ],
);
const END: Ratio = (
    &[
        2.0103343992922881e-7,
        2.7115555687434876e-5,
        1.2426609473880784e-3,
        2.6532189526576124e-2,
        2.9656057182850487e-1,
        1.7848265399172913,
        5.463784911164114,
        6.657904643501103,
    ],
    &[
        2.0442631033899397e-15,
        1.421511758316446e-7,
        1.8463183175100548e-5,
        7.868691311456133e-4,
        1.4875361290850615e-2,
        1.369298809227358e-1,
        5.99832206555888e-1,
        1.0,
    ],
);

impl Tensor {
    /// Converts to the dtype of the rational approximations: `float64` is kept, all other floats become `float32`.
    fn approximable(&self) -> Result<Tensor> {
        self.wide(if floating(self.dtype()) == DType::F64 { DType::F64 } else { DType::F32 })
    }

    /// A polynomial in this tensor by Horner's rule. There are at least two coefficients, from the highest power down.
    fn polynomial(&self, coefficients: &[f64]) -> Result<Tensor> {
        let [first, second, rest @ ..] = coefficients else {
            return self.full_like(coefficients.first().copied().unwrap_or(0.0));
        };
        let begin = self.mul_scalar(*first)?.add_scalar(*second)?;
        rest.iter().try_fold(begin, |total, &coefficient| total.mul(self)?.add_scalar(coefficient))
    }

    fn ratio(&self, (numerator, denominator): Ratio) -> Result<Tensor> {
        self.polynomial(numerator)?.div(&self.polynomial(denominator)?)
    }

    fn between(&self, min: f64, max: f64) -> Result<Tensor> {
        self.clamp(Some(Scalar::Float(min)), Some(Scalar::Float(max)))
    }

    /// The complementary error function `1 - erf(x)`, without cancellation for large x. Uses W. J. Cody's rational
    /// approximations (1969) above 0.5, and `1 - erf(x)` below.
    ///
    /// The shape is kept. Floats keep their dtype (16-bit floats are computed in `float32`); integers and `bool` give
    /// `float32`.
    pub fn erfc(&self) -> Result<Tensor> {
        let x = self.approximable()?;
        // Clamp each part to a neighbourhood of the range where it is selected, so that unselected parts have finite
        // gradients. The bounds lie outside that range, since a clamp has no gradient at its bounds.
        let (middle, far) = (x.between(0.25, 5.0)?, x.between(3.0, 30.0)?);
        let inverse = far.square()?.rdiv_scalar(1.0)?;
        let beyond = inverse.mul(&inverse.ratio(FAR)?)?.rsub_scalar(1.0 / PI.sqrt())?.div(&far)?;
        let tail = x.lt_scalar(4.0)?.where_(&middle.ratio(MIDDLE)?, &beyond)?;
        // exp(-x * x): split x into a short number, whose square is exact, and a small remainder.
        let bounded = x.between(0.25, 30.0)?;
        let short = bounded.detach()?.mul_scalar(16.0)?.floor()?.div_scalar(16.0)?;
        let left = short.sub(&bounded)?.mul(&bounded.add(&short)?)?;
        let decay = short.neg()?.mul(&short)?.exp()?.mul(&left.exp()?)?;
        let near = x.erf()?.rsub_scalar(1.0)?;
        x.gt_scalar(0.5)?.where_(&decay.mul(&tail)?, &near)?.to_dtype(floating(self.dtype()))
    }

    /// The inverse of [`Tensor::erf`]: infinite at 1 and -1, NaN outside. Uses M. J. Wichura's rational approximations
    /// ("Algorithm AS 241", 1988).
    ///
    /// The shape is kept. Floats keep their dtype (16-bit floats are computed in `float32`); integers and `bool` give
    /// `float32`.
    pub fn erfinv(&self) -> Result<Tensor> {
        let x = self.approximable()?;
        let half = x.mul_scalar(0.5)?;
        let centre = half.between(-0.43, 0.43)?;
        // The tail probability, which may be tiny; clamped, since 0 has no logarithm.
        let beyond = half.abs()?.rsub_scalar(0.5)?.between(1e-37, 0.1)?;
        let root = beyond.log()?.neg()?.sqrt()?;
        let tail = root.clamp(None, Some(Scalar::Float(6.0)))?.sub_scalar(1.6)?;
        let end = root.clamp(Some(Scalar::Float(4.0)), None)?.sub_scalar(5.0)?;
        let size = root.le_scalar(5.0)?.where_(&tail.ratio(TAIL)?, &end.ratio(END)?)?;
        let outside = x.lt_scalar(0)?.where_(&size.neg()?, &size)?;
        let inside = centre.mul(&centre.square()?.rsub_scalar(0.180625)?.ratio(CENTRE)?)?;
        let result = half.abs()?.le_scalar(0.425)?.where_(&inside, &outside)?.mul_scalar(0.5f64.sqrt())?;
        let result = x.eq_scalar(-1)?.where_(&x.full_like(f64::NEG_INFINITY)?, &result)?;
        let result = x.eq_scalar(1)?.where_(&x.full_like(f64::INFINITY)?, &result)?;
        let inside = x.abs()?.le_scalar(1)?;
        inside.where_(&result, &x.full_like(f64::NAN)?)?.to_dtype(floating(self.dtype()))
    }

    /// `self * log(other)`, and 0 where this tensor is 0 and `other` is not NaN. There, the gradient of this tensor is
    /// `log(other)` if that is finite and 0 otherwise.
    ///
    /// Shapes are broadcast, dtypes promoted. Integer and `bool` values of `other` are converted to `float32`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if the shapes cannot be broadcast.
    pub fn xlogy(&self, other: &Tensor) -> Result<Tensor> {
        let y = other.floating()?;
        // Where the logarithm is not finite, replace it by log(1). Elsewhere the factor 0 gives 0 with the gradient
        // log(y).
        let limit = y.le_scalar(0)?.or(&y.eq_scalar(f64::INFINITY)?)?;
        let without = self.eq_scalar(0)?.and(&limit)?;
        self.mul(&without.where_(&y.ones_like()?, &y)?.log()?)
    }

    /// Both operands in the floating-point dtype in which a function of them is computed: integers would wrap.
    fn floats(&self, other: &Tensor, op: &'static str) -> Result<(Tensor, Tensor)> {
        if self.dtype() == DType::Bool || other.dtype() == DType::Bool {
            let hint = "bool is not numeric: convert with .to_dtype()";
            return Err(crate::Error::dtype(op, &[self.dtype(), other.dtype()], hint));
        }
        let (a, b) = promote2(self, other)?;
        Ok((a.floating()?, b.floating()?))
    }

    /// `sqrt(self^2 + other^2)` without overflow: the greater magnitude times `sqrt(1 + ratio^2)`. Infinite if either
    /// operand is infinite, even if the other is NaN; otherwise NaN if either is NaN.
    ///
    /// Shapes are broadcast, dtypes promoted. Integers give `float32`.
    ///
    /// # Errors
    /// [`crate::Error::DType`] for `bool`; [`crate::Error::Shape`] if the shapes cannot be broadcast.
    pub fn hypot(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = self.floats(other, "hypot")?;
        let (a, b) = (a.abs()?, b.abs()?);
        let (big, small) = (a.maximum(&b)?, a.minimum(&b)?);
        let divisor = big.eq_scalar(0)?.where_(&big.ones_like()?, &big)?;
        let ratio = small.div(&divisor)?;
        let result = big.mul(&ratio.square()?.add_scalar(1)?.sqrt()?)?;
        a.isinf()?.or(&b.isinf()?)?.where_(&result.full_like(f64::INFINITY)?, &result)
    }

    /// `log(exp(self) + exp(other))` without overflow: `max + log1p(exp(min - max))`. Equal infinities give that
    /// infinity; NaN if either operand is NaN.
    ///
    /// Shapes are broadcast, dtypes promoted. Integers give `float32`.
    ///
    /// # Errors
    /// [`crate::Error::DType`] for `bool`; [`crate::Error::Shape`] if the shapes cannot be broadcast.
    pub fn logaddexp(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = self.floats(other, "logaddexp")?;
        let (big, small) = (a.maximum(&b)?, a.minimum(&b)?);
        let sum = big.add(&small.sub(&big)?.exp()?.log1p()?)?;
        big.eq(&small)?.where_(&big.add_scalar(LN_2)?, &sum)
    }
}
