//! All conversions.

use half::{bf16, f16};
use phynexus::{DType, Scalar};

use crate::test_values::{from_bytes, same, to_bytes};
use crate::vector::{InstructionSet, cast_for};

/// Numbers near every possible boundary of a conversion.
fn candidates() -> Vec<Scalar> {
    let mut values: Vec<Scalar> = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(Scalar::Float).to_vec();
    for power in (-160..=70).chain([-1074, -1022, 127, 128, 1023]) {
        let x = 2f64.powi(power);
        for y in [
            x,
            x * 1.5,
            x * (1.0 + f64::EPSILON),
            x * (1.0 - f64::EPSILON / 2.0),
            x * 1.000_244_140_625,
            x * 1.0037,
        ] {
            values.extend([Scalar::Float(y), Scalar::Float(-y)]);
        }
    }
    for power in 0..64 {
        let x = 1u64 << power;
        for y in [x, x - 1, x + 1, x + x / 2, x | x >> 8 | x >> 9, x | x >> 11 | 1, x | x >> 24 | x >> 25] {
            values.extend([Scalar::UInt(y), Scalar::Int((y as i64).wrapping_neg())]);
        }
    }
    values
        .extend([300.7, -1.0, -0.5, 0.5, 65504.0, 65519.9, 65520.0, 3.3895e38, 0.0, -0.0].map(Scalar::Float));
    values
}

/// A float rounded once to a 16-bit type with `bits` significant bits and `least` as the smallest exponent of its last
/// place.
fn round_once(x: f64, bits: i32, least: i32, overflow: f64) -> f64 {
    if !x.is_finite() || x == 0.0 {
        return x;
    }
    let exponent = (x.abs().to_bits() >> 52).max(1) as i32 - 1023;
    let last = 2f64.powi((exponent - bits + 1).max(least));
    let rounded = (x / last).round_ties_even() * last;
    if rounded.abs() >= overflow { f64::INFINITY.copysign(x) } else { rounded }
}

fn reference(x: Scalar, to: DType) -> Scalar {
    let exact = match x {
        Scalar::Float(x) => x,
        other => other.as_f64(),
    };
    match (to, x) {
        (DType::F16, _) => Scalar::Float(round_once(exact, 11, -24, 65520.0)),
        (DType::BF16, _) => Scalar::Float(round_once(exact, 8, -133, 3.4e38)),
        (DType::F32, Scalar::Int(x)) => Scalar::Float((x as f32).into()),
        (DType::F32, Scalar::UInt(x)) => Scalar::Float((x as f32).into()),
        _ => x.cast(to),
    }
}

#[test]
fn all_pairs_convert_exactly() {
    let candidates = candidates();
    for set in InstructionSet::available() {
        for from in DType::ALL {
            let x: Vec<Scalar> = candidates.iter().map(|x| x.cast(from)).collect();
            let bytes = to_bytes(&x, from);
            for to in DType::ALL {
                let kernel = cast_for(set, from, to);
                // The whole vector, and short pieces in which blocks with and without unusual values alternate.
                for piece in [x.len(), 64, 7, 1] {
                    let mut out = vec![0u8; x.len() * to.size()];
                    for start in (0..x.len()).step_by(piece) {
                        let n = piece.min(x.len() - start);
                        // SAFETY: both have n elements from start on.
                        unsafe {
                            kernel(
                                bytes.as_ptr().add(start * from.size()),
                                out.as_mut_ptr().add(start * to.size()),
                                n,
                            );
                        }
                    }
                    for (i, got) in from_bytes(&out, to).into_iter().enumerate() {
                        let expected = reference(x[i], to);
                        assert!(
                            same(got, expected),
                            "{} {from} -> {to}: {} -> {got}, not {expected}",
                            set.name(),
                            x[i]
                        );
                    }
                }
            }
        }
    }
}

#[test]
fn all_sixteen_bit_floats_survive() {
    for set in InstructionSet::available() {
        let bits: Vec<u16> = (0..=u16::MAX).collect();
        for (half, exact) in [
            (DType::F16, (|b| f16::from_bits(b).to_f32()) as fn(u16) -> f32),
            (DType::BF16, |b| bf16::from_bits(b).to_f32()),
        ] {
            let (mut wide, mut back) = (vec![0f32; bits.len()], vec![0u16; bits.len()]);
            // SAFETY: slices of equal length.
            unsafe {
                cast_for(set, half, DType::F32)(bits.as_ptr().cast(), wide.as_mut_ptr().cast(), bits.len());
                cast_for(set, DType::F32, half)(wide.as_ptr().cast(), back.as_mut_ptr().cast(), bits.len());
            }
            for (i, &b) in bits.iter().enumerate() {
                let expected = exact(b);
                if expected.is_nan() {
                    assert!(wide[i].is_nan() && exact(back[i]).is_nan());
                } else {
                    assert_eq!(wide[i].to_bits(), expected.to_bits());
                    assert_eq!(back[i], b);
                }
            }
        }
    }
}

#[test]
fn floats_round_to_sixteen_bits_as_the_half_crate_does() {
    let x: Vec<f32> = (0..=u32::MAX).step_by(4099).map(f32::from_bits).collect();
    for set in InstructionSet::available() {
        let mut y = vec![0u16; x.len()];
        // SAFETY: slices of equal length.
        unsafe { cast_for(set, DType::F32, DType::F16)(x.as_ptr().cast(), y.as_mut_ptr().cast(), x.len()) };
        for (x, y) in x.iter().zip(&y) {
            let expected = f16::from_f32_const(*x);
            assert!(expected.to_bits() == *y || x.is_nan() && f16::from_bits(*y).is_nan(), "{x}");
        }
        // SAFETY: slices of equal length.
        unsafe { cast_for(set, DType::F32, DType::BF16)(x.as_ptr().cast(), y.as_mut_ptr().cast(), x.len()) };
        for (x, y) in x.iter().zip(&y) {
            let expected = bf16::from_f32_const(*x);
            assert!(expected.to_bits() == *y || x.is_nan() && bf16::from_bits(*y).is_nan(), "{x}");
        }
    }
}
