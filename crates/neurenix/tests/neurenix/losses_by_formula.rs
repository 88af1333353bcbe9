//! The losses that PyTorch lacks, against their formulas on plain numbers, and their gradients against finite
//! differences.

use neurenix::{Result, loss::Loss};
use phynexus::{DType, Device, Tensor, tensor::Reduction};

const ROWS: usize = 4;
const COLUMNS: usize = 3;

fn device() -> Device {
    neurenix::register_all();
    Device::default_device().unwrap()
}

fn tensor(numbers: &[f64], dtype: DType) -> Tensor {
    let tensor = Tensor::from_slice(numbers, &[ROWS, COLUMNS], device()).unwrap();
    tensor.to_dtype(dtype).unwrap()
}

fn values(tensor: &Tensor) -> Vec<f64> {
    tensor.to_dtype(DType::F64).unwrap().to_vec().unwrap()
}

fn numbers(phase: f64) -> Vec<f64> {
    (0..ROWS * COLUMNS).map(|i| (1.7 * i as f64 + phase).sin()).collect()
}

/// The loss of each element or row.
type Formula = fn(&[f64], &[f64]) -> Vec<f64>;

fn each(p: &[f64], t: &[f64], cost: impl Fn(f64, f64) -> f64) -> Vec<f64> {
    p.iter().zip(t).map(|(p, t)| cost(*p, *t)).collect()
}

fn cosines(p: &[f64], t: &[f64]) -> Vec<f64> {
    let rows = p.chunks(COLUMNS).zip(t.chunks(COLUMNS));
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    rows.map(|(p, t)| 1.0 - dot(p, t) / (dot(p, p).sqrt() * dot(t, t).sqrt())).collect()
}

/// Loss, formula, inputs and targets.
fn cases() -> Vec<(Loss, Formula, Vec<f64>, Vec<f64>)> {
    let (x, t) = (numbers(0.3), numbers(2.1));
    let scaled = |by: f64| x.iter().map(|x| by * x).collect::<Vec<_>>();
    let signs: Vec<f64> = t.iter().map(|t| t.signum()).collect();
    let counts: Vec<f64> = t.iter().map(|t| (4.0 * t.abs()).round()).collect();
    let expected: Vec<f64> = x.iter().map(|x| x + 1.5).collect();
    vec![
        (Loss::PoissonNLL, |p, t| each(p, t, |p, t| p - t * (p + 1e-8).ln()), expected, counts),
        (
            Loss::Hinge { squared: false },
            |p, t| each(p, t, |p, t| (1.0 - p * t).max(0.0)),
            scaled(2.0),
            signs.clone(),
        ),
        (
            Loss::Hinge { squared: true },
            |p, t| each(p, t, |p, t| (1.0 - p * t).max(0.0).powi(2)),
            scaled(2.0),
            signs,
        ),
        (Loss::LogCosh, |p, t| each(p, t, |p, t| (p - t).cosh().ln()), scaled(9.0), t.clone()),
        (
            Loss::Quantile { quantile: 0.8 },
            |p, t| each(p, t, |p, t| if t > p { 0.8 * (t - p) } else { 0.2 * (p - t) }),
            scaled(3.0),
            t.clone(),
        ),
        (Loss::CosineSimilarity, cosines, scaled(2.0), t),
    ]
}

#[test]
fn values_are_those_of_the_formulas() -> Result<()> {
    for (loss, formula, x, t) in cases() {
        let expected = formula(&x, &t);
        let sum: f64 = expected.iter().sum();
        for (dtype, tolerance) in [(DType::F64, 1e-12), (DType::F32, 2e-6)] {
            let (x, t) = (tensor(&x, dtype), tensor(&t, dtype));
            let check = |reduction, expected: &[f64]| -> Result<()> {
                let found = values(&loss.forward(&x, &t, reduction)?);
                assert_eq!(found.len(), expected.len(), "{loss:?}");
                for (found, expected) in found.iter().zip(expected) {
                    let close = (found - expected).abs() <= tolerance * (1.0 + expected.abs());
                    assert!(close, "{loss:?} in {dtype}: {found} is not {expected}");
                }
                Ok(())
            };
            check(Reduction::None, &expected)?;
            check(Reduction::Sum, &[sum])?;
            check(Reduction::Mean, &[sum / expected.len() as f64])?;
        }
    }
    Ok(())
}

#[test]
fn gradients_are_those_of_differences() -> Result<()> {
    for (loss, formula, x, t) in cases() {
        let leaf = tensor(&x, DType::F64).with_grad()?;
        loss.forward(&leaf, &tensor(&t, DType::F64), Reduction::Mean)?.backward()?;
        let found = values(&leaf.grad().expect("a gradient"));
        let mut greatest = 0f64;
        for (i, found) in found.iter().enumerate() {
            let at = |by: f64| {
                let mut x = x.clone();
                x[i] += by;
                let all = formula(&x, &t);
                all.iter().sum::<f64>() / all.len() as f64
            };
            let expected = (at(1e-6) - at(-1e-6)) / 2e-6;
            assert!((found - expected).abs() < 1e-8, "{loss:?}, element {i}: {found} is not {expected}");
            greatest = greatest.max(found.abs());
        }
        assert!(greatest > 0.01, "{loss:?}: no gradient");
    }
    Ok(())
}

#[test]
fn what_does_not_fit_is_refused() {
    let (x, t) = (tensor(&numbers(0.3), DType::F64), tensor(&numbers(0.1), DType::F64));
    let column = t.narrow(1, 0, 1).unwrap();
    for (loss, ..) in cases() {
        let message = loss.forward(&x, &column, Reduction::Mean).unwrap_err().to_string();
        assert!(message.contains("input and target must have"), "{message}");
    }
    for quantile in [-0.1, 1.1, f64::NAN] {
        let message = Loss::Quantile { quantile }.forward(&x, &t, Reduction::Mean).unwrap_err().to_string();
        assert!(message.contains("between 0 and 1"), "{message}");
    }
}
