//! Horizontal reductions.

use phynexus::op::Combine;
use phynexus::{DType, Scalar};

use crate::test_values::{combine_reference, from_bytes, same, to_bytes};
use crate::vector::{InstructionSet, reduce_for, sum_products_for};

const COMBINES: [Combine; 4] = [Combine::Sum, Combine::Prod, Combine::Max, Combine::Min];

fn reduced(set: InstructionSet, combine: Combine, dtype: DType, x: &[Scalar]) -> Option<Scalar> {
    let kernel = reduce_for(set, combine, dtype)?;
    let bytes = to_bytes(x, dtype);
    let mut accumulator = to_bytes(&[combine.identity(dtype)], dtype);
    // SAFETY: x.len() elements and one.
    unsafe { kernel(bytes.as_ptr(), accumulator.as_mut_ptr(), x.len()) };
    from_bytes(&accumulator, dtype).pop()
}

#[test]
fn integers_are_exact() {
    for set in InstructionSet::available() {
        for dtype in DType::INTEGERS.into_iter().chain([DType::Bool]) {
            for combine in COMBINES {
                for n in (0..=70).chain([128, 200, 1000]) {
                    let x: Vec<Scalar> = (0..n)
                        .map(|i| Scalar::Int((i * i * 7919 + 3 * i + 5) % 1009 - 300).cast(dtype))
                        .collect();
                    let Some(got) = reduced(set, combine, dtype, &x) else {
                        assert!(dtype == DType::Bool && matches!(combine, Combine::Sum | Combine::Prod));
                        continue;
                    };
                    let identity = combine.identity(dtype);
                    let expected = x.iter().fold(identity, |a, &b| combine_reference(combine, a, b, dtype));
                    assert!(
                        same(got, expected),
                        "{} {combine:?} {dtype} {n}: {got}, not {expected}",
                        set.name()
                    );
                }
            }
        }
    }
}

#[test]
fn floats_keep_nan_and_lose_little() {
    for set in InstructionSet::available() {
        for (dtype, epsilon) in [(DType::F32, 6e-8), (DType::F64, 1.2e-16)] {
            for n in (0..=70).chain([128, 200, 4096, 100_000]) {
                let x: Vec<Scalar> = (0..n)
                    .map(|i| Scalar::Float(f64::from((i * 7919) % 1009) / 1009.0 + 0.1).cast(dtype))
                    .collect();
                let exact: f64 = x.iter().map(|x| x.as_f64()).sum();
                let sum = reduced(set, Combine::Sum, dtype, &x).unwrap().as_f64();
                let bound = epsilon * (6.0 + f64::from(n) / 64.0) * exact;
                assert!((sum - exact).abs() <= bound.max(1e-13), "{} {dtype} {n}", set.name());
                for (combine, fold) in
                    [(Combine::Max, f64::max as fn(f64, f64) -> f64), (Combine::Min, f64::min)]
                {
                    let expected =
                        x.iter().fold(combine.identity(dtype).as_f64(), |a, b| fold(a, b.as_f64()));
                    assert_eq!(reduced(set, combine, dtype, &x).unwrap().as_f64(), expected);
                }
                for place in [0, 1, n / 2, n - 1] {
                    let mut x = x.clone();
                    let Some(element) = usize::try_from(place).ok().and_then(|place| x.get_mut(place)) else {
                        continue;
                    };
                    *element = Scalar::Float(f64::NAN);
                    for combine in COMBINES {
                        assert!(reduced(set, combine, dtype, &x).unwrap().as_f64().is_nan());
                    }
                }
            }
        }
    }
}

#[test]
fn sums_of_products_lose_little() {
    for set in InstructionSet::available() {
        for (dtype, epsilon) in [(DType::F32, 6e-8), (DType::F64, 1.2e-16)] {
            let kernel = sum_products_for(set, dtype).unwrap();
            for n in (0..=70).chain([127, 128, 1000, 4097]) {
                let number = |i: i32| Scalar::Float(f64::from(i % 1009) / 1009.0 + 0.1).cast(dtype);
                let mut x: Vec<Scalar> = (0..n).map(|i| number(i * 7919)).collect();
                let y: Vec<Scalar> = (0..n).map(|i| number(i * 31 + 500)).collect();
                let sum = |x: &[Scalar]| {
                    let (a, b) = (to_bytes(x, dtype), to_bytes(&y, dtype));
                    let mut accumulator = to_bytes(&[Scalar::Float(2.5).cast(dtype)], dtype);
                    // SAFETY: two vectors of n elements and one element.
                    unsafe { kernel(a.as_ptr(), b.as_ptr(), accumulator.as_mut_ptr(), x.len()) };
                    from_bytes(&accumulator, dtype)[0].as_f64()
                };
                let exact = 2.5 + x.iter().zip(&y).map(|(x, y)| x.as_f64() * y.as_f64()).sum::<f64>();
                let bound = epsilon * (8.0 + f64::from(n) / 64.0) * exact;
                assert!((sum(&x) - exact).abs() <= bound, "{} {dtype} {n}", set.name());
                if let Some(last) = x.last_mut() {
                    *last = Scalar::Float(f64::NAN);
                    assert!(sum(&x).is_nan());
                }
            }
        }
    }
}
