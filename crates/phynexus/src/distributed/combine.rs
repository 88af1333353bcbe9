//! Combines the contributions of ranks.

use half::{bf16, f16};

use crate::{DType, Error, Result, op::Combine};

/// Elements computed at a time: they stay in the first-level cache.
const BLOCK: usize = 2048;

/// A type of elements: how it is read, combined and written.
trait Contribution: Copy {
    type Sum: Copy;
    const BYTES: usize;
    fn read(bytes: &[u8]) -> Self::Sum;
    fn write(sum: Self::Sum, bytes: &mut [u8]);
    fn combine(by: Combine, a: Self::Sum, b: Self::Sum) -> Self::Sum;
}

macro_rules! integers {
    ($($t:ty)+) => { $(
        impl Contribution for $t {
            type Sum = $t;
            const BYTES: usize = size_of::<$t>();
            fn read(bytes: &[u8]) -> $t {
                <$t>::from_le_bytes(bytes.try_into().unwrap_or_default())
            }
            fn write(sum: $t, bytes: &mut [u8]) {
                bytes.copy_from_slice(&sum.to_le_bytes());
            }
            fn combine(by: Combine, a: $t, b: $t) -> $t {
                match by {
                    Combine::Sum => a.wrapping_add(b),
                    Combine::Prod => a.wrapping_mul(b),
                    Combine::Max => a.max(b),
                    Combine::Min => a.min(b),
                }
            }
        }
    )+ };
}

macro_rules! floats {
    ($($t:ty, $sum:ty, |$v:ident| $widen:expr, |$s:ident| $narrow:expr;)+) => { $(
        impl Contribution for $t {
            type Sum = $sum;
            const BYTES: usize = size_of::<$t>();
            fn read(bytes: &[u8]) -> $sum {
                let $v = <$t>::from_le_bytes(bytes.try_into().unwrap_or_default());
                $widen
            }
            fn write($s: $sum, bytes: &mut [u8]) {
                bytes.copy_from_slice(&<$t>::to_le_bytes($narrow));
            }
            fn combine(by: Combine, a: $sum, b: $sum) -> $sum {
                match by {
                    Combine::Sum => a + b,
                    Combine::Prod => a * b,
                    // NaN wins, as in reductions of tensors.
                    Combine::Max => if a.is_nan() || a > b { a } else { b },
                    Combine::Min => if a.is_nan() || a < b { a } else { b },
                }
            }
        }
    )+ };
}

integers!(u8 u16 u32 u64 i8 i16 i32 i64);
floats! {
    f16, f32, |v| v.to_f32(), |s| f16::from_f32(s);
    bf16, f32, |v| v.to_f32(), |s| bf16::from_f32(s);
    f32, f32, |v| v, |s| s;
    f64, f64, |v| v, |s| s;
}

/// Combines arrays of equal length, one per rank, in order. 16-bit floats are combined in `float32` and rounded once.
///
/// # Errors
/// [`Error::Internal`] for dtypes that collectives refuse.
pub fn combine(ranks: &[&[u8]], result: &mut [u8], dtype: DType, by: Combine) -> Result<()> {
    match dtype {
        DType::U8 => run::<u8>(ranks, result, by),
        DType::U16 => run::<u16>(ranks, result, by),
        DType::U32 => run::<u32>(ranks, result, by),
        DType::U64 => run::<u64>(ranks, result, by),
        DType::I8 => run::<i8>(ranks, result, by),
        DType::I16 => run::<i16>(ranks, result, by),
        DType::I32 => run::<i32>(ranks, result, by),
        DType::I64 => run::<i64>(ranks, result, by),
        DType::F16 => run::<f16>(ranks, result, by),
        DType::BF16 => run::<bf16>(ranks, result, by),
        DType::F32 => run::<f32>(ranks, result, by),
        DType::F64 => run::<f64>(ranks, result, by),
        DType::Bool | DType::F8E4M3 | DType::F8E5M2 => {
            return Err(Error::internal("distributed", format!("{dtype} is not combined")));
        }
    }
    Ok(())
}

fn run<T: Contribution>(ranks: &[&[u8]], result: &mut [u8], by: Combine) {
    // One loop per combination, so that each is vectorised.
    match by {
        Combine::Sum => blocks::<T>(ranks, result, |a, b| T::combine(Combine::Sum, a, b)),
        Combine::Prod => blocks::<T>(ranks, result, |a, b| T::combine(Combine::Prod, a, b)),
        Combine::Max => blocks::<T>(ranks, result, |a, b| T::combine(Combine::Max, a, b)),
        Combine::Min => blocks::<T>(ranks, result, |a, b| T::combine(Combine::Min, a, b)),
    }
}

fn blocks<T: Contribution>(ranks: &[&[u8]], result: &mut [u8], combine: impl Fn(T::Sum, T::Sum) -> T::Sum) {
    let Some((first, rest)) = ranks.split_first() else { return };
    let mut sums: Vec<T::Sum> = Vec::with_capacity(BLOCK);
    for (at, result) in result.chunks_mut(BLOCK * T::BYTES).enumerate() {
        let start = at * BLOCK * T::BYTES;
        let block = |of: &[u8]| start..of.len().min(start + result.len());
        sums.clear();
        sums.extend(first[block(first)].chunks_exact(T::BYTES).map(T::read));
        for other in rest {
            let values = other[block(other)].chunks_exact(T::BYTES).map(T::read);
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum = combine(*sum, value));
        }
        result.chunks_exact_mut(T::BYTES).zip(&sums).for_each(|(bytes, &sum)| T::write(sum, bytes));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sixteen_bit_floats_are_rounded_once() {
        let bytes = |x: f32| f16::from_f32(x).to_le_bytes();
        let (large, small) = (bytes(2048.0), bytes(1.0));
        let mut sum = [0; 2];
        combine(&[&large, &small, &small], &mut sum, DType::F16, Combine::Sum).unwrap();
        assert_eq!(f16::from_le_bytes(sum).to_f32(), 2050.0);
    }

    #[test]
    fn extremes_keep_nan_and_long_arrays_are_combined_whole() {
        let bytes = |values: &[f32]| values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let floats = |bytes: &[u8]| -> Vec<f32> { bytes.chunks_exact(4).map(f32::read).collect() };
        let mut result = vec![0; 8];
        combine(&[&bytes(&[f32::NAN, 1.0]), &bytes(&[2.0, f32::NAN])], &mut result, DType::F32, Combine::Max)
            .unwrap();
        assert!(floats(&result).iter().all(|x| x.is_nan()));
        let all: Vec<f32> = (0..5000).map(|i| i as f32).collect();
        let mut result = vec![0; 20000];
        combine(&[&bytes(&all), &bytes(&all), &bytes(&all)], &mut result, DType::F32, Combine::Sum).unwrap();
        assert_eq!(floats(&result), all.iter().map(|x| 3.0 * x).collect::<Vec<_>>());
    }
}
