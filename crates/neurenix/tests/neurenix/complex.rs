//! Complex numbers and Fourier transforms against sums and identities in `f64`.

use std::f64::consts::PI;

use neurenix::{complex::Complex, fft, fft::Norm};
use phynexus::{DType, Device, Result, Tensor, tensor::Generator};

fn device() -> Device {
    neurenix::register_cpu();
    Device::find("cpu").unwrap()
}

fn drawn(shape: &[usize], seed: u64) -> Complex {
    let pair = Generator::new(seed).randn(&[shape, &[2]].concat(), DType::F64, device()).unwrap();
    Complex::from_pair(&pair).unwrap()
}

/// The greatest distance between two tensors.
fn distance(a: &Complex, b: &Complex) -> f64 {
    a.sub(b).unwrap().abs().unwrap().max(&[], false).unwrap().item().unwrap()
}

#[test]
fn transforms_are_sums() {
    for n in [1, 2, 6, 64, 66, 67, 74, 96, 134, 259] {
        let x = drawn(&[2, n], n as u64);
        let values = x.pair().to_vec::<f64>().unwrap();
        let mut expected = Vec::new();
        for row in values.chunks(2 * n) {
            for k in 0..n {
                let (mut re, mut im) = (0.0, 0.0);
                for (j, part) in row.chunks(2).enumerate() {
                    let (sin, cos) = (-2.0 * PI * ((j * k) % n) as f64 / n as f64).sin_cos();
                    re += part[0] * cos - part[1] * sin;
                    im += part[0] * sin + part[1] * cos;
                }
                expected.extend([re, im]);
            }
        }
        let expected = Tensor::from_slice(&expected, &[2, n, 2], device()).unwrap();
        let found = fft::fft(&x, &[n], &[-1], Norm::Backward).unwrap();
        assert!(distance(&found, &Complex::from_pair(&expected).unwrap()) < 1e-11, "{n}");
        assert!(distance(&fft::ifft(&found, &[], &[-1], Norm::Backward).unwrap(), &x) < 1e-12, "{n}");
        let real = x.real().unwrap();
        let half = fft::rfft(&real, &[n], &[-1], Norm::Ortho).unwrap();
        let whole = fft::fft(&Complex::from_real(&real).unwrap(), &[n], &[-1], Norm::Ortho).unwrap();
        assert!(distance(&half, &whole.narrow(-1, 0, n / 2 + 1).unwrap()) < 1e-12, "{n}");
        let back = fft::irfft(&half, &[n], &[-1], Norm::Ortho).unwrap();
        assert!(distance(&Complex::from_real(&back).unwrap(), &Complex::from_real(&real).unwrap()) < 1e-12);
    }
}

#[test]
fn inverse_functions_undo_functions() {
    type Function = fn(&Complex) -> Result<Complex>;
    let pairs: [(Function, Function); 8] = [
        (Complex::log, Complex::exp),
        (Complex::sqrt, Complex::square),
        (Complex::asin, Complex::sin),
        (Complex::acos, Complex::cos),
        (Complex::atan, Complex::tan),
        (Complex::asinh, Complex::sinh),
        (Complex::acosh, Complex::cosh),
        (Complex::atanh, Complex::tanh),
    ];
    let z = drawn(&[200], 1);
    for (place, (inverse, function)) in pairs.iter().enumerate() {
        assert!(distance(&function(&inverse(&z).unwrap()).unwrap(), &z) < 1e-12, "{place}");
    }
    assert!(distance(&z.log1p().unwrap().expm1().unwrap(), &z) < 1e-12);
    assert!(distance(&z.div(&z).unwrap(), &z.powi(0).unwrap()) < 1e-14);
}

#[test]
fn factors_give_the_matrix() {
    for shape in [[4, 4], [5, 3], [3, 5], [1, 1]] {
        let a = drawn(&[&[2], &shape[..]].concat(), 7);
        let (q, r) = a.qr(false).unwrap();
        assert!(distance(&q.matmul(&r).unwrap(), &a) < 1e-13);
        let (u, values, vh) = a.svd(false).unwrap();
        let scaled = u.mul_real(&values.unsqueeze(-2).unwrap()).unwrap();
        assert!(distance(&scaled.matmul(&vh).unwrap(), &a) < 1e-13);
    }
    let a = drawn(&[4, 4], 8);
    let hermitian = a.add(&a.adjoint().unwrap()).unwrap();
    let (values, vectors) = hermitian.eigh().unwrap();
    let scaled = vectors.mul_real(&values).unwrap();
    assert!(distance(&hermitian.matmul(&vectors).unwrap(), &scaled) < 1e-13);
    let one = a.matmul(&a.inv().unwrap()).unwrap();
    let identity = Complex::from_real(&Tensor::eye(4, 4, DType::F64, device()).unwrap()).unwrap();
    assert!(distance(&one, &identity) < 1e-12);
}

#[test]
fn the_gradient_of_a_square_is_twice_the_number() {
    let pair = drawn(&[3], 2).pair().with_grad().unwrap();
    let z = Complex::from_pair(&pair).unwrap();
    z.abs().unwrap().square().unwrap().sum(&[], false).unwrap().backward().unwrap();
    let gradient = Complex::from_pair(&pair.grad().unwrap()).unwrap();
    assert!(distance(&gradient, &z.mul_scalar(2.0).unwrap()) < 1e-14);
}

#[test]
fn mistakes_are_errors() {
    let x = Tensor::ones(&[3], DType::F32, device()).unwrap();
    assert!(Complex::from_pair(&x).is_err());
    assert!(Complex::from_pair(&Tensor::ones(&[2], DType::I64, device()).unwrap()).is_err());
    let z = Complex::from_real(&x).unwrap();
    assert!(fft::fft(&z, &[], &[1], Norm::Backward).is_err());
    assert!(fft::fft(&z, &[0], &[0], Norm::Backward).is_err());
    assert!(fft::fft(&z, &[2, 2], &[], Norm::Backward).is_err());
    assert!(z.matmul(&z.narrow(0, 0, 2).unwrap()).is_err());
    assert!(z.inv().is_err() && z.qr(false).is_err());
}
