//! Special functions of one element or two, composed of the op set's functions.

use std::f64::consts::{LN_2, PI};

use super::operands::floating;
use crate::{DType, Result, Scalar, Tensor};

/// Numerator and denominator of a rational function, coefficients from the highest power.
type Ratio = (&'static [f64], &'static [f64]);

// W. J. Cody, "Rational Chebyshev approximations for the error function", 1969: erfc(x) * exp(x * x) between 0.46875 and 4.
const MIDDLE: Ratio = (
    &[
        2.15311535474403846e-8,
        5.64188496988670089e-1,
        8.88314979438837594,
        6.61191906371416295e1,
        2.98635138197400131e2,
        8.81952221241769090e2,
        1.71204761263407058e3,
        2.05107837782607147e3,
        1.23033935479799725e3,
    ],
    &[
        1.0,
        1.57449261107098347e1,
        1.17693950891312499e2,
        5.37181101862009858e2,
        1.62138957456669019e3,
        3.29079923573345963e3,
        4.36261909014324716e3,
        3.43936767414372164e3,
        1.23033935480374942e3,
    ],
);
// The same from 4 on, as a function of 1 / (x * x).
const FAR: Ratio = (
    &[
        1.63153871373020978e-2,
        3.05326634961232344e-1,
        3.60344899949804439e-1,
        1.25781726111229246e-1,
        1.60837851487422766e-2,
        6.58749161529837803e-4,
    ],
    &[
        1.0,
        2.56852019228982242,
        1.87295284992346725,
        5.27905102951428412e-1,
        6.05183413124413191e-2,
        2.33520497626869185e-3,
    ],
);
// M. J. Wichura, "Algorithm AS 241: the percentage points of the normal distribution", 1988.
const CENTRE: Ratio = (
    &[
        2.5090809287301226727e3,
        3.3430575583588128105e4,
        6.7265770927008700853e4,
        4.5921953931549871457e4,
        1.3731693765509461125e4,
        1.9715909503065514427e3,
        1.3314166789178437745e2,
        3.3871328727963666080,
    ],
    &[
        5.2264952788528545610e3,
        2.8729085735721942674e4,
        3.9307895800092710610e4,
        2.1213794301586595867e4,
        5.3941960214247511077e3,
        6.8718700749205790830e2,
        4.2313330701600911252e1,
        1.0,
    ],
);
const TAIL: Ratio = (
    &[
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258,
        3.64784832476320460504,
        5.76949722146069140550,
        4.63033784615654529590,
        1.42343711074968357734,
    ],
    &[
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940,
        2.05319162663775882187,
        1.0,
    ],
);
const END: Ratio = (
    &[
        2.01033439929228813265e-7,
        2.71155556874348757815e-5,
        1.24266094738807843860e-3,
        2.65321895265761230930e-2,
        2.96560571828504891230e-1,
        1.78482653991729133580,
        5.46378491116411436990,
        6.65790464350110377720,
    ],
    &[
        2.04426310338993978564e-15,
        1.42151175831644588870e-7,
        1.84631831751005468180e-5,
        7.86869131145613259100e-4,
        1.48753612908506148525e-2,
        1.36929880922735805310e-1,
        5.99832206555887937690e-1,
        1.0,
    ],
);

impl Tensor {
    /// The tensor in the dtype in which rational approximations are computed: `float64` stays, all others are `float32`.
    fn approximable(&self) -> Result<Tensor> {
        self.to_dtype(if self.dtype() == DType::F64 { DType::F64 } else { DType::F32 })
    }

    /// A polynomial in this tensor by Horner's rule, coefficients from the highest power; at least two.
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

    /// The complementary error function `1 - erf(x)`, accurate where it is small: rational approximations by W. J. Cody
    /// (1969) above 0.5, and `1 - erf(x)` below.
    ///
    /// The shape stays; floats keep their dtype (16-bit floats are computed in `float32`), integers and `bool` give
    /// `float32`.
    pub fn erfc(&self) -> Result<Tensor> {
        let x = self.approximable()?;
        // Each part is kept near where it is chosen: what is not chosen must have a finite gradient, and there is none at
        // a limit.
        let (middle, far) = (x.between(0.25, 5.0)?, x.between(3.0, 30.0)?);
        let inverse = far.square()?.rdiv_scalar(1.0)?;
        let beyond = inverse.mul(&inverse.ratio(FAR)?)?.rsub_scalar(1.0 / PI.sqrt())?.div(&far)?;
        let tail = x.lt_scalar(4.0)?.where_(&middle.ratio(MIDDLE)?, &beyond)?;
        // exp(-x * x): the square of a number of few bits does not round, and what is left is small.
        let bounded = x.between(0.25, 30.0)?;
        let short = bounded.detach()?.mul_scalar(16.0)?.floor()?.div_scalar(16.0)?;
        let left = short.sub(&bounded)?.mul(&bounded.add(&short)?)?;
        let decay = short.neg()?.mul(&short)?.exp()?.mul(&left.exp()?)?;
        let near = x.erf()?.rsub_scalar(1.0)?;
        x.gt_scalar(0.5)?.where_(&decay.mul(&tail)?, &near)?.to_dtype(floating(self.dtype()))
    }

    /// The inverse of [`Tensor::erf`]: infinite for 1 and -1, NaN beyond them. Rational approximations by M. J. Wichura
    /// ("Algorithm AS 241", 1988).
    ///
    /// The shape stays; floats keep their dtype (16-bit floats are computed in `float32`), integers and `bool` give
    /// `float32`.
    pub fn erfinv(&self) -> Result<Tensor> {
        let x = self.approximable()?;
        let half = x.mul_scalar(0.5)?;
        let centre = half.between(-0.43, 0.43)?;
        // The share of the distribution beyond the place, which may be very small; 0 has no logarithm.
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

    /// `self * log(other)`; 0 where this tensor is 0 and `other` is not NaN, with a slope by this tensor of `log(other)`
    /// where that is finite and of 0 elsewhere.
    ///
    /// Shapes are broadcast, dtypes promoted; an `other` of integers or `bool` is taken as `float32`.
    ///
    /// # Errors
    /// [`crate::Error::Shape`] if the shapes cannot be broadcast.
    pub fn xlogy(&self, other: &Tensor) -> Result<Tensor> {
        let y = other.floating()?;
        // There the logarithm is left out; elsewhere a factor of 0 makes it 0, with a slope of log(y).
        let limit = y.le_scalar(0)?.or(&y.eq_scalar(f64::INFINITY)?)?;
        let without = self.eq_scalar(0)?.and(&limit)?;
        self.mul(&without.where_(&y.ones_like()?, &y)?.log()?)
    }

    /// `sqrt(self^2 + other^2)` without overflow: the greater magnitude times `sqrt(1 + ratio^2)`. Infinite if either is
    /// infinite, even beside NaN; otherwise NaN if either is NaN.
    ///
    /// Shapes are broadcast, dtypes promoted; integers give `float32`.
    ///
    /// # Errors
    /// [`crate::Error::DType`] for `bool`; [`crate::Error::Shape`] if the shapes cannot be broadcast.
    pub fn hypot(&self, other: &Tensor) -> Result<Tensor> {
        let (a, b) = (self.abs()?, other.abs()?);
        let (big, small) = (a.maximum(&b)?, a.minimum(&b)?);
        let divisor = big.eq_scalar(0)?.where_(&big.ones_like()?, &big)?;
        let ratio = small.div(&divisor)?;
        let result = big.mul(&ratio.square()?.add_scalar(1)?.sqrt()?)?;
        a.isinf()?.or(&b.isinf()?)?.where_(&result.full_like(f64::INFINITY)?, &result)
    }

    /// `log(exp(self) + exp(other))` without overflow: `max + log1p(exp(min - max))`. Equal infinities stay; NaN if either
    /// is NaN.
    ///
    /// Shapes are broadcast, dtypes promoted; integers give `float32`.
    ///
    /// # Errors
    /// [`crate::Error::DType`] for `bool`; [`crate::Error::Shape`] if the shapes cannot be broadcast.
    pub fn logaddexp(&self, other: &Tensor) -> Result<Tensor> {
        let (big, small) = (self.maximum(other)?, self.minimum(other)?);
        let sum = big.add(&small.sub(&big)?.exp()?.log1p()?)?;
        big.eq(&small)?.where_(&big.add_scalar(LN_2)?, &sum)
    }
}
