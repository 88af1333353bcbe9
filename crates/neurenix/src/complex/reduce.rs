//! Sums and products over axes, all axes if none are given, and scans.

use phynexus::{Result, Tensor};

use super::Complex;

impl Complex {
    /// The sum over axes.
    pub fn sum(&self, axes: &[i64], keepdim: bool) -> Result<Complex> {
        let axes = self.axes("sum", axes)?;
        if axes.is_empty() {
            return Ok(self.clone());
        }
        self.on_pair(|pair| pair.sum(&axes, keepdim))
    }

    /// The mean over axes.
    pub fn mean(&self, axes: &[i64], keepdim: bool) -> Result<Complex> {
        let axes = self.axes("mean", axes)?;
        if axes.is_empty() {
            return Ok(self.clone());
        }
        self.on_pair(|pair| pair.mean(&axes, keepdim))
    }

    /// The product over axes.
    pub fn prod(&self, axes: &[i64], keepdim: bool) -> Result<Complex> {
        let mut axes = self.axes("prod", axes)?;
        axes.sort_unstable();
        axes.dedup();
        let mut found = self.clone();
        for &axis in axes.iter().rev() {
            found = found.product_over(axis)?;
        }
        if keepdim {
            return Ok(found);
        }
        let mut shape = found.shape().to_vec();
        for &axis in axes.iter().rev() {
            shape.remove(axis as usize);
        }
        found.reshape(&shape)
    }

    /// The product over one axis, which stays with size 1: the halves are multiplied until one is left.
    fn product_over(&self, axis: i64) -> Result<Complex> {
        let mut found = self.clone();
        let mut size = found.shape()[axis as usize];
        if size == 0 {
            let mut shape = self.shape().to_vec();
            shape[axis as usize] = 1;
            let ones = Tensor::ones(&shape, self.component(), self.pair.device())?;
            return Complex::from_real(&ones);
        }
        while size > 1 {
            let half = size / 2;
            let product = found.narrow(axis, 0, half)?.mul(&found.narrow(axis, half, half)?)?;
            found = match size % 2 {
                0 => product,
                _ => Complex::cat(&[&product, &found.narrow(axis, size - 1, 1)?], axis)?,
            };
            size = half + size % 2;
        }
        Ok(found)
    }

    /// The cumulative sum along an axis.
    pub fn cumsum(&self, axis: i64) -> Result<Complex> {
        let axis = self.axis("cumsum", axis)?;
        self.on_pair(|pair| pair.cumsum(axis))
    }

    /// The cumulative product along an axis, in a number of steps that is the logarithm of its size.
    pub fn cumprod(&self, axis: i64) -> Result<Complex> {
        let axis = self.axis("cumprod", axis)?;
        let size = self.shape()[axis as usize];
        let (mut found, mut step) = (self.clone(), 1);
        while step < size {
            // Each number is that of the products of up to `step` numbers that end there.
            let later = found.narrow(axis, step, size - step)?;
            let product = later.mul(&found.narrow(axis, 0, size - step)?)?;
            found = Complex::cat(&[&found.narrow(axis, 0, step)?, &product], axis)?;
            step *= 2;
        }
        Ok(found)
    }

    /// True where all numbers over axes are not zero.
    pub fn all(&self, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        self.is_nonzero()?.all(axes, keepdim)
    }

    /// True where a number over axes is not zero.
    pub fn any(&self, axes: &[i64], keepdim: bool) -> Result<Tensor> {
        self.is_nonzero()?.any(axes, keepdim)
    }

    /// The mean of squared distances from the mean. `correction` is subtracted from the count.
    pub fn var(&self, axes: &[i64], correction: f64, keepdim: bool) -> Result<Tensor> {
        let (a, b) = self.parts()?;
        a.var(axes, correction, keepdim)?.add(&b.var(axes, correction, keepdim)?)
    }
}
