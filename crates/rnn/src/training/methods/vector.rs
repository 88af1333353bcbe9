//! Arithmetic of vectors on the host.

/// Lanes of a sum: as many additions as do not wait for each other.
const LANES: usize = 8;

/// The sum of products.
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

/// The Euclidean length.
pub(super) fn length(a: &[f64]) -> f64 {
    dot(a, a).sqrt()
}

/// The sum of magnitudes.
pub(crate) fn sum_of_magnitudes(a: &[f64]) -> f64 {
    a.iter().map(|x| x.abs()).sum()
}

/// `from + step * direction`.
pub(super) fn along(from: &[f64], step: f64, direction: &[f64]) -> Vec<f64> {
    from.iter().zip(direction).map(|(from, direction)| from + step * direction).collect()
}

/// `a - b`.
pub(super) fn difference(a: &[f64], b: &[f64]) -> Vec<f64> {
    a.iter().zip(b).map(|(a, b)| a - b).collect()
}

/// The vector with all signs changed.
pub(super) fn negative(a: &[f64]) -> Vec<f64> {
    a.iter().map(|x| -x).collect()
}
