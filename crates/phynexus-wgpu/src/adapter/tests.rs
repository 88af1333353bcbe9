//! Bit-exact tests of the arithmetic that kernels emulate if a device's own is not exact. lavapipe suffices.

use phynexus::{
    DType, Device, Error, Result, Tensor,
    gpu::Gpu,
    oracle::{Comparison, compare, evaluate, generate::random_case},
    schedule::execute_ir,
};

use super::*;
use crate::driver::Wgpu;

/// Every adapter that can run kernels: unchanged, and treated as inexact.
fn devices() -> Vec<Device> {
    let mut all = Vec::new();
    for (number, adapter) in adapters(Backends::VULKAN | Backends::METAL | Backends::DX12).iter().enumerate()
    {
        if !adapter.features().contains(NEEDED) {
            continue;
        }
        let inexact = WgslArithmetic { divisions: false, subnormals: false };
        for arithmetic in [None, Some(inexact)] {
            let which = if arithmetic.is_some() { "treated as inexact" } else { "as it is" };
            let mut found = describe(adapter, format!("adapter {number} {which}"));
            found.arithmetic = arithmetic.unwrap_or(found.arithmetic);
            all.push(phynexus::device::register(Box::new(Gpu::new(Wgpu::new(found)))));
        }
    }
    all
}

/// A pseudorandom generator (Marsaglia, "Xorshift RNGs", 2003).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        for shift in [13, -7, 17] {
            self.0 ^= if shift > 0 { self.0 << shift } else { self.0 >> -shift };
        }
        self.0
    }
}

/// Values at the edges of rounding and range.
const EDGES: [u32; 14] = [
    0, 1, 2, 0x400000, 0x7fffff, 0x800000, 0x800001, 0x3f7fffff, 0x3f800000, 0x3f800001, 0x40400000,
    0x7f7fffff, 0x7f800000, 0x7fc00000,
];

/// Dividends and divisors: all edges, random bits, and quotients near representable numbers and ties.
fn pairs() -> (Vec<f32>, Vec<f32>) {
    let signed = || EDGES.into_iter().flat_map(|bits| [bits, bits | 1 << 31]).map(f32::from_bits);
    let mut all: Vec<(f32, f32)> = signed().flat_map(|a| signed().map(move |b| (a, b))).collect();
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for at in 0..1 << 20 {
        let bits = random.next();
        let (a, b) = (bits as u32, (bits >> 32) as u32);
        let around_one = |bits: u32| f32::from_bits(bits & 0x7fffff | 0x3f80_0000);
        all.push(match at % 3 {
            0 => (f32::from_bits(a), f32::from_bits(b)),
            // Near a product, so that the quotient is near a representable number.
            1 => (
                f32::from_bits((around_one(a) * around_one(b)).to_bits() + (bits >> 62) as u32),
                around_one(b),
            ),
            // 12-bit factors have an exact product; the quotient is subnormal, and a tie if it is odd.
            _ => {
                let (a, b) = (around_one(a & 0x7ff000), around_one(b & 0x7ff000));
                (a * b * f32::MIN_POSITIVE, b * 8192.0)
            }
        });
    }
    all.into_iter().unzip()
}

fn check(what: &str, device: Device, actual: &Tensor, expected: impl Iterator<Item = f32>) -> Result<()> {
    let same = |a: f32, b: f32| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    let actual = actual.to_dtype(DType::F32)?.to_vec::<f32>()?;
    let pairs = actual.into_iter().zip(expected).enumerate();
    let wrong: Vec<_> = pairs.filter(|&(_, (actual, expected))| !same(actual, expected)).collect();
    let first = &wrong[..wrong.len().min(4)];
    assert!(wrong.is_empty(), "{what} on {device}: {} wrong, as {first:?}", wrong.len());
    Ok(())
}

#[test]
fn quotients_and_roots_are_correctly_rounded() -> Result<()> {
    let (a, b) = pairs();
    for device in devices() {
        let x = Tensor::from_slice(&a, &[a.len()], device)?;
        let y = Tensor::from_slice(&b, &[b.len()], device)?;
        let each = || a.iter().zip(&b);
        check("quotients", device, &x.div(&y)?, each().map(|(a, b)| a / b))?;
        check("reciprocals", device, &x.reciprocal()?, a.iter().map(|a| 1.0 / a))?;
        check("roots", device, &x.sqrt()?, a.iter().map(|a| a.sqrt()))?;
    }
    Ok(())
}

#[test]
fn subnormal_numbers_are_seen() -> Result<()> {
    let (a, b) = pairs();
    // Subnormal numbers, zeros, infinities and NaN.
    let tiny = |x: &f32| match x.is_finite() {
        true => f32::from_bits(x.to_bits() & 0x807f_ffff),
        false => *x,
    };
    let (a, b): (Vec<f32>, Vec<f32>) = (a.iter().map(tiny).collect(), b.iter().map(tiny).collect());
    let holds = |holds: bool| f32::from(u8::from(holds));
    for device in devices() {
        let x = Tensor::from_slice(&a, &[a.len()], device)?;
        let y = Tensor::from_slice(&b, &[b.len()], device)?;
        let each = || a.iter().zip(&b);
        check("less", device, &x.lt(&y)?, each().map(|(a, b)| holds(a < b)))?;
        check("less or equal", device, &x.le(&y)?, each().map(|(a, b)| holds(a <= b)))?;
        check("equal", device, &x.eq(&y)?, each().map(|(a, b)| holds(a == b)))?;
        check("different", device, &x.ne(&y)?, each().map(|(a, b)| holds(a != b)))?;
        check("truth", device, &x.to_dtype(DType::Bool)?, a.iter().map(|&a| holds(a != 0.0)))?;
        check("magnitudes", device, &x.abs()?, a.iter().map(|a| a.abs()))?;
        // Devices without `float64` refuse the conversion.
        if let Ok(wide) = x.to_dtype(DType::F64).and_then(|wide| wide.evaluate().map(|()| wide)) {
            let part = |a: &f32| (f64::from(*a) * 0.7) as f32;
            check("rounded", device, &wide.mul_scalar(0.7)?.to_dtype(DType::F32)?, a.iter().map(part))?;
        }
    }
    Ok(())
}

#[test]
fn random_graphs_agree_with_the_oracle() -> Result<()> {
    for device in devices() {
        for seed in 1000..1012 {
            let case = random_case(seed, 10);
            let run = || -> Result<Comparison> {
                let expected = evaluate(&case.ir, &case.values())?;
                let leaves =
                    case.leaves.iter().map(|leaf| leaf.upload(device)).collect::<Result<Vec<_>>>()?;
                let mut all = Comparison::default();
                for (expected, actual) in expected.iter().zip(&execute_ir(&case.ir, &leaves, device)?) {
                    all.merge(compare(expected, &actual.to_bytes()?, actual.dtype()));
                }
                Ok(all)
            };
            match run() {
                Ok(comparison) => assert!(comparison.passed(), "{device}: {case}\n{comparison}"),
                Err(Error::Unsupported { message, .. }) if message.contains("WGSL has no") => {}
                Err(error) => panic!("{device}: {case}\n{error}"),
            }
        }
    }
    Ok(())
}
