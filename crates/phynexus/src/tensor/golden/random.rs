//! Random tensors have their specified distributions, within bounds that these fixed seeds satisfy.

use super::{null_device, values_of};
use crate::{DType, Tensor, tensor::Generator};

const COUNT: usize = 20_000;

fn values(tensor: &Tensor) -> Vec<f64> {
    values_of(tensor).unwrap().unwrap()
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// The mean of a power of the values.
fn moment(values: &[f64], power: i32) -> f64 {
    mean(&values.iter().map(|v| v.powi(power)).collect::<Vec<_>>())
}

#[test]
fn uniforms_fill_the_unit_interval_in_steps_of_their_precision() {
    for (dtype, bits) in [(DType::F16, 11), (DType::BF16, 8), (DType::F32, 24), (DType::F64, 53)] {
        let drawn = values(&Generator::new(3).rand(&[COUNT], dtype, null_device()).unwrap());
        assert!(
            drawn.iter().all(|u| (0.0..1.0).contains(u) && (u * 2f64.powi(bits)).fract() == 0.0),
            "{dtype}"
        );
        // Four standard errors: of the mean 0.0021, of the mean square 0.0084.
        assert!((mean(&drawn) - 0.5).abs() < 0.0084 + 0.5f64.powi(bits), "{dtype}");
        assert!((moment(&drawn, 2) - 1.0 / 3.0).abs() < 0.0085 + 0.5f64.powi(bits), "{dtype}");
        let mut deciles = [0; 10];
        drawn.iter().for_each(|u| deciles[(u * 10.0) as usize] += 1);
        assert!(deciles.iter().all(|&n| (1750..2250).contains(&n)), "{dtype} {deciles:?}");
    }
}

#[test]
fn normals_have_the_moments_of_the_normal_distribution() {
    for dtype in [DType::F32, DType::F64] {
        let drawn = values(&Generator::new(4).randn(&[COUNT], dtype, null_device()).unwrap());
        // Within four standard errors: moments 1 to 4 have variances 1, 2, 15 and 96 over the count.
        for (power, expected, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)] {
            let error = 4.0 * f64::sqrt(variance / COUNT as f64);
            assert!((moment(&drawn, power) - expected).abs() < error, "{dtype}: moment {power}");
        }
        let neighbours: Vec<f64> = drawn.windows(2).map(|pair| pair[0] * pair[1]).collect();
        assert!(mean(&neighbours).abs() < 0.03, "{dtype}: neighbours are correlated");
    }
}

#[test]
fn integers_cover_their_range_evenly() {
    let drawn = values(&Generator::new(5).randint(-3, 4, &[COUNT], DType::I8, null_device()).unwrap());
    for value in -3..4 {
        let times = drawn.iter().filter(|&&v| v == f64::from(value)).count();
        assert!((2650..3065).contains(&times), "{value} occurs {times} times");
    }
    let (low, high) = (-(1i64 << 40), 1i64 << 40);
    let wide = values(&Generator::new(5).randint(low, high, &[COUNT], DType::I64, null_device()).unwrap());
    assert!(wide.iter().all(|&v| v >= low as f64 && v < high as f64));
    assert!((mean(&wide) / high as f64).abs() < 0.0164);
    let coins = values(&Generator::new(6).bernoulli(0.3, &[COUNT], DType::U8, null_device()).unwrap());
    assert!((mean(&coins) - 0.3).abs() < 0.013);
}

#[test]
fn permutations_are_complete_and_draws_differ() {
    let generator = Generator::new(8);
    let first = values(&generator.randperm(100, null_device()).unwrap());
    let second = values(&generator.randperm(100, null_device()).unwrap());
    assert_ne!(first, second);
    let mut sorted = first.clone();
    sorted.sort_by(f64::total_cmp);
    assert!(sorted.iter().enumerate().all(|(i, &v)| v == i as f64));
    let again = values(&Generator::new(8).randperm(100, null_device()).unwrap());
    assert_eq!(first, again);
}
