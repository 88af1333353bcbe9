//! Functions of matrices, and numerical derivatives.

use ndarray::Array2;

use crate::{Result, convert, error::positive};

/// Functions of matrices, and numerical derivatives.
#[derive(Clone, Copy, Debug)]
pub struct MathUtils;

impl MathUtils {
    /// The derivatives of a function with respect to each element, by central differences with the step `h`.
    ///
    /// # Errors
    /// If `h` is not above 0, or the function fails.
    pub fn numerical_gradient<F>(func: F, x: &Array2<f64>, h: f64) -> Result<Array2<f64>>
    where
        F: Fn(&Array2<f64>) -> Result<f64>,
    {
        positive("h", h)?;
        let mut gradient = Array2::zeros(x.dim());
        for (index, derivative) in gradient.indexed_iter_mut() {
            let at = |by: f64| moved(x, &[(index, by)]);
            *derivative = (func(&at(h))? - func(&at(-h))?) / (2.0 * h);
        }
        Ok(gradient)
    }

    /// The second derivatives of a function with respect to pairs of elements, in row-major order, by central
    /// differences with the step `h`.
    ///
    /// # Errors
    /// If `h` is not above 0, there is not enough memory, or the function fails.
    pub fn numerical_hessian<F>(func: F, x: &Array2<f64>, h: f64) -> Result<Array2<f64>>
    where
        F: Fn(&Array2<f64>) -> Result<f64>,
    {
        positive("h", h)?;
        let places: Vec<(usize, usize)> = x.indexed_iter().map(|(index, _)| index).collect();
        let mut hessian = convert::made((places.len(), places.len()), || 0.0)?;
        for (i, &first) in places.iter().enumerate() {
            for (j, &second) in places.iter().enumerate().take(i + 1) {
                let at = |a: f64, b: f64| func(&moved(x, &[(first, a), (second, b)]));
                let value = (at(h, h)? - at(h, -h)? - at(-h, h)? + at(-h, -h)?) / (4.0 * h * h);
                (hessian[[i, j]], hessian[[j, i]]) = (value, value);
            }
        }
        Ok(hessian)
    }

    /// Clamps elements to a range.
    pub fn clip(x: &Array2<f64>, min_val: f64, max_val: f64) -> Array2<f64> {
        x.mapv(|x| x.max(min_val).min(max_val))
    }

    /// The Euclidean norm of all elements.
    pub fn l2_norm(x: &Array2<f64>) -> f64 {
        x.iter().map(|x| x * x).sum::<f64>().sqrt()
    }

    /// The Frobenius norm, which is [`MathUtils::l2_norm`].
    pub fn frobenius_norm(x: &Array2<f64>) -> f64 {
        MathUtils::l2_norm(x)
    }

    /// True if an element is not finite.
    pub fn has_nan_or_inf(x: &Array2<f64>) -> bool {
        x.iter().any(|x| !x.is_finite())
    }

    /// Replaces elements that are not finite.
    pub fn replace_nan_inf(x: &Array2<f64>, replacement: f64) -> Array2<f64> {
        x.mapv(|x| if x.is_finite() { x } else { replacement })
    }

    /// Absolute values.
    pub fn abs(x: &Array2<f64>) -> Array2<f64> {
        x.mapv(f64::abs)
    }

    /// Squares.
    pub fn square(x: &Array2<f64>) -> Array2<f64> {
        x.mapv(|x| x * x)
    }

    /// Square roots; NaN for negative elements.
    pub fn sqrt(x: &Array2<f64>) -> Array2<f64> {
        x.mapv(f64::sqrt)
    }

    /// Exponentials.
    pub fn exp(x: &Array2<f64>) -> Array2<f64> {
        x.mapv(f64::exp)
    }

    /// Natural logarithms; NaN for negative elements.
    pub fn log(x: &Array2<f64>) -> Array2<f64> {
        x.mapv(f64::ln)
    }

    /// Quotients. Denominators closer to 0 than `epsilon` are replaced by `epsilon` with their sign. Elements without a
    /// denominator are NaN.
    pub fn safe_divide(numerator: &Array2<f64>, denominator: &Array2<f64>, epsilon: f64) -> Array2<f64> {
        let far = |x: f64| if x.abs() < epsilon { epsilon.copysign(x) } else { x };
        Array2::from_shape_fn(numerator.dim(), |index| {
            denominator.get(index).map_or(f64::NAN, |by| numerator[index] / far(*by))
        })
    }
}

/// A copy of a matrix with numbers added to some elements.
fn moved(x: &Array2<f64>, by: &[((usize, usize), f64)]) -> Array2<f64> {
    let mut x = x.clone();
    by.iter().for_each(|(index, by)| x[*index] += by);
    x
}
