//! Random numbers from normal, gamma and beta distributions.

use neurenix::data::random::RandomStream;

/// A standard normal number (Box and Muller, 1958).
pub(crate) fn normal(random: &mut RandomStream) -> f64 {
    let (u, v) = (random.uniform().max(f64::MIN_POSITIVE), random.uniform());
    (-2.0f64 * u.ln()).sqrt() * (2.0 * std::f64::consts::PI * v).cos()
}

/// `count` standard normal numbers.
pub(crate) fn normals(count: usize, random: &mut RandomStream) -> Vec<f64> {
    (0..count).map(|_| normal(random)).collect()
}

/// A number from the symmetric beta distribution: a gamma number divided by the sum of two.
pub(super) fn beta(alpha: f64, random: &mut RandomStream) -> f64 {
    let first = gamma(alpha, random);
    let second = gamma(alpha, random);
    if first + second > 0.0 { first / (first + second) } else { 0.5 }
}

/// A number from the gamma distribution (Marsaglia and Tsang, 2000).
fn gamma(shape: f64, random: &mut RandomStream) -> f64 {
    if shape < 1.0 {
        let power = random.uniform().max(f64::MIN_POSITIVE).powf(1.0 / shape);
        return gamma(shape + 1.0, random) * power;
    }
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let normal = normal(random);
        let cube = (1.0 + c * normal).powi(3);
        if cube > 0.0 {
            let accepted = random.uniform().max(f64::MIN_POSITIVE).ln();
            if accepted < 0.5 * normal * normal + d - d * cube + d * cube.ln() {
                return d * cube;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_those_of_the_distributions() {
        let mut random = RandomStream::new(5, 1);
        let mut moments = |draw: &dyn Fn(&mut RandomStream) -> f64| {
            let numbers: Vec<f64> = (0..20_000).map(|_| draw(&mut random)).collect();
            let mean = numbers.iter().sum::<f64>() / 20_000.0;
            (mean, numbers.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / 20_000.0)
        };
        let near = |(mean, variance): (f64, f64), expected: (f64, f64)| {
            assert!((mean - expected.0).abs() < 0.05, "{mean} is not {}", expected.0);
            assert!(
                (variance - expected.1).abs() < 0.08 * expected.1 + 0.01,
                "{variance} is not {}",
                expected.1
            );
        };
        near(moments(&normal), (0.0, 1.0));
        for shape in [0.4, 1.0, 3.5] {
            near(moments(&|random| gamma(shape, random)), (shape, shape));
            near(moments(&|random| beta(shape, random)), (0.5, 0.25 / (2.0 * shape + 1.0)));
        }
    }
}
