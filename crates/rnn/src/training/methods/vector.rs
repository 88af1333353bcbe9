//! Vector arithmetic on the host.

/// The number of independent partial sums.
const LANES: usize = 8;

/// The dot product.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    let (a, b) = (&a[..a.len().min(b.len())], &b[..a.len().min(b.len())]);
    let mut lanes = [0.0; LANES];
    let (a_parts, a_rest) = a.as_chunks::<LANES>();
    let (b_parts, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_parts.iter().zip(b_parts) {
        for ((lane, a), b) in lanes.iter_mut().zip(a).zip(b) {
            *lane += a * b;
        }
    }
    lanes.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
}

/// The Euclidean norm.
pub(super) fn length(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// The sum of magnitudes.
pub(super) fn sum_of_magnitudes(a: &[f64]) -> f64 {
    a.iter().map(|x| x.abs()).sum()
}

/// `from + step * direction`.
pub(super) fn along(from: &[f64], step: f64, direction: &[f64]) -> Vec<f64> {
    from.iter().zip(direction).map(|(from, direction)| from + step * direction).collect()
}

/// `a - b`.
pub(crate) fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// `-a`.
pub(super) fn negative(a: &[f64]) -> Vec<f64> {
    a.iter().map(|x| -x).collect()
}
