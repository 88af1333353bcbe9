//! Functions of real tensors that the complex ones share. Signs and scales are constants to the gradient, which is exact
//! because the functions are odd or homogeneous.

use phynexus::{DType, Result, Tensor};

/// 1, or -1 where the sign bit is set.
pub(super) fn sign(x: &Tensor) -> Result<Tensor> {
    x.signbit()?.to_dtype(x.dtype())?.mul_scalar(-2.0)?.add_scalar(1.0)
}

/// `x` where the mask holds, else `y`.
pub(super) fn select(mask: &Tensor, x: &Tensor, y: &Tensor) -> Result<Tensor> {
    mask.where_(x, y)
}

/// A constant where the mask holds, else `y`.
pub(super) fn select_number(mask: &Tensor, x: f64, y: &Tensor) -> Result<Tensor> {
    mask.where_(&Tensor::full(&[], x, y.dtype(), y.device())?, y)
}

/// True where one of both is infinite.
pub(super) fn any_infinite(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    x.isinf()?.or(&y.isinf()?)
}

/// True where one of both is infinite or NaN.
pub(super) fn any_special(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    x.isfinite()?.and(&y.isfinite()?)?.logical_not()
}

/// Two numbers multiplied by a power of two, so that their squares neither overflow nor underflow.
pub(super) struct Scaled {
    pub(super) x: Tensor,
    pub(super) y: Tensor,
    /// True where the numbers were very large, and very small.
    large: Tensor,
    small: Tensor,
    exponents: Exponents,
}

/// Powers of two: the bounds of numbers that are squared as they are, and the even exponents of both factors.
struct Exponents {
    above: i32,
    below: i32,
    shrink: i32,
    grow: i32,
}

impl Scaled {
    pub(super) fn new(x: &Tensor, y: &Tensor) -> Result<Scaled> {
        let exponents = match x.dtype() {
            DType::F64 => Exponents { above: 500, below: -450, shrink: -520, grow: 600 },
            _ => Exponents { above: 60, below: -55, shrink: -70, grow: 100 },
        };
        let greatest = x.detach()?.abs()?.maximum(&y.detach()?.abs()?)?;
        let large = greatest.gt_scalar(2f64.powi(exponents.above))?;
        let small = greatest.lt_scalar(2f64.powi(exponents.below))?;
        let mut scaled = Scaled { x: x.clone(), y: y.clone(), large, small, exponents };
        let factor = scaled.power(1)?;
        (scaled.x, scaled.y) = (x.mul(&factor)?, y.mul(&factor)?);
        Ok(scaled)
    }

    fn by_case(&self, large: f64, small: f64, other: f64) -> Result<Tensor> {
        let usual = Tensor::full(self.x.shape(), other, self.x.dtype(), self.x.device())?;
        select_number(&self.large, large, &select_number(&self.small, small, &usual)?)
    }

    /// The factor to the power of half of `halves`, negated if it is negative: -2 undoes the factor, -1 its square root.
    fn factor(&self, halves: i32) -> Result<Tensor> {
        let power = |exponent: i32| 2f64.powi(exponent / 2 * halves);
        self.by_case(power(self.exponents.shrink), power(self.exponents.grow), 1.0)
    }

    /// The factor to an integer power.
    pub(super) fn power(&self, exponent: i32) -> Result<Tensor> {
        self.factor(2 * exponent)
    }

    /// The inverse of the factor's square root.
    pub(super) fn inverse_root(&self) -> Result<Tensor> {
        self.factor(-1)
    }

    /// The logarithm of the factor.
    pub(super) fn logarithm(&self) -> Result<Tensor> {
        let logarithm = |exponent: i32| f64::from(exponent) * std::f64::consts::LN_2;
        self.by_case(logarithm(self.exponents.shrink), logarithm(self.exponents.grow), 0.0)
    }

    /// The sum of squares, 1 in place of 0, and where it is 0.
    pub(super) fn squares(&self) -> Result<(Tensor, Tensor)> {
        let sum = self.x.square()?.add(&self.y.square()?)?;
        let zero = sum.eq_scalar(0)?;
        Ok((select_number(&zero, 1.0, &sum)?, zero))
    }
}

/// `sqrt(x * x + y * y)` without overflow; infinite if one is, even beside NaN. The gradient at 0 is 0.
pub(super) fn length(x: &Tensor, y: &Tensor) -> Result<Tensor> {
    let scaled = Scaled::new(x, y)?;
    let (sum, zero) = scaled.squares()?;
    let found = select_number(&zero, 0.0, &sum.sqrt()?.mul(&scaled.power(-1)?)?)?;
    select_number(&any_infinite(x, y)?, f64::INFINITY, &found)
}
