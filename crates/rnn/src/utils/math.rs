//! Functions of matrices, and derivatives by differences.

use ndarray::Array2;

use crate::{NetworkError, Result, convert};

/// Functions of matrices, and derivatives by differences.
#[derive(Clone, Copy, Debug)]
pub struct MathUtils;

impl MathUtils {
    /// The derivative of a function with respect to each element, by differences of `2 h`.
    ///
    /// # Errors
    /// If `h` is not above 0, and the function's.
    pub fn numerical_gradient<F>(func: F, x: &Array2<f64>, h: f64) -> Result<Array2<f64>>
    where
        F: Fn(&Array2<f64>) -> Result<f64>,
    {
        check_step(h)?;
        let mut gradient = Array2::zeros(x.dim());
        for (index, slope) in gradient.indexed_iter_mut() {
            let at = |by: f64| moved(x, &[(index, by)]);
            *slope = (func(&at(h))? - func(&at(-h))?) / (2.0 * h);
        }
        Ok(gradient)
    }

    /// The second derivatives of a function with respect to pairs of elements, which are counted row by row, by differences
    /// of `2 h`.
    ///
    /// # Errors
    /// If `h` is not above 0, or there is no room for so many pairs, and the function's.
    pub fn numerical_hessian<F>(func: F, x: &Array2<f64>, h: f64) -> Result<Array2<f64>>
    where
        F: Fn(&Array2<f64>) -> Result<f64>,
    {
        check_step(h)?;
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

    /// Elements between two numbers.
    pub fn clip(x: &Array2<f64>, min_val: f64, max_val: f64) -> Array2<f64> {
        x.mapv(|x| x.max(min_val).min(max_val))
    }

    /// The root of the sum of squares.
    pub fn l2_norm(x: &Array2<f64>) -> f64 {
        x.iter().map(|x| x * x).sum::<f64>().sqrt()
    }

    /// The same: of a matrix it has Frobenius's name.
    pub fn frobenius_norm(x: &Array2<f64>) -> f64 {
        MathUtils::l2_norm(x)
    }

    /// True if an element is not finite.
    pub fn has_nan_or_inf(x: &Array2<f64>) -> bool {
        x.iter().any(|x| !x.is_finite())
    }

    /// Another number in the places of those that are not finite.
    pub fn replace_nan_inf(x: &Array2<f64>, replacement: f64) -> Array2<f64> {
        x.mapv(|x| if x.is_finite() { x } else { replacement })
    }

    /// Magnitudes.
    pub fn abs(x: &Array2<f64>) -> Array2<f64> {
        x.mapv(f64::abs)
    }

    /// Squares.
    pub fn square(x: &Array2<f64>) -> Array2<f64> {
        x.mapv(|x| x * x)
    }

    /// Square roots; NaN below 0.
    pub fn sqrt(x: &Array2<f64>) -> Array2<f64> {
        x.mapv(f64::sqrt)
    }

    /// Exponentials.
    pub fn exp(x: &Array2<f64>) -> Array2<f64> {
        x.mapv(f64::exp)
    }

    /// Natural logarithms; NaN below 0.
    pub fn log(x: &Array2<f64>) -> Array2<f64> {
        x.mapv(f64::ln)
    }

    /// Quotients, of which denominators nearer to 0 than `epsilon` are taken for that, with their sign. Where one matrix is
    /// smaller, NaN.
    pub fn safe_divide(numerator: &Array2<f64>, denominator: &Array2<f64>, epsilon: f64) -> Array2<f64> {
        let far = |x: f64| if x.abs() < epsilon { epsilon.copysign(x) } else { x };
        Array2::from_shape_fn(numerator.dim(), |index| {
            denominator.get(index).map_or(f64::NAN, |by| numerator[index] / far(*by))
        })
    }
}

fn check_step(h: f64) -> Result<()> {
    if h.is_finite() && h > 0.0 {
        return Ok(());
    }
    Err(NetworkError::invalid_parameter("h", h, "it must be finite and above 0"))
}

/// A matrix with numbers added to some elements.
fn moved(x: &Array2<f64>, by: &[((usize, usize), f64)]) -> Array2<f64> {
    let mut x = x.clone();
    by.iter().for_each(|(index, by)| x[*index] += by);
    x
}
