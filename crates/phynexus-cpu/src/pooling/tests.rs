//! Tests pooling against explicit windows.

use super::*;
use proptest::{prelude::*, test_runner::RngSeed};

/// The places of every window in the plane, ascending.
fn windows(shape: &PoolShape<'_>) -> Vec<Vec<usize>> {
    let g = shape.geometry;
    let rank = shape.input.len();
    let count = |v: &[usize]| v.iter().product::<usize>();
    let index = |mut flat: usize, extents: &[usize]| {
        let mut at = vec![0; extents.len()];
        for d in (0..extents.len()).rev() {
            (at[d], flat) = (flat % extents[d], flat / extents[d]);
        }
        at
    };
    (0..count(shape.output))
        .map(|o| {
            let window = index(o, shape.output);
            (0..count(&g.kernel))
                .filter_map(|k| {
                    let tap = index(k, &g.kernel);
                    (0..rank).try_fold(0, |flat, d| {
                        let at =
                            (window[d] * g.stride[d] + tap[d] * g.dilation[d]).checked_sub(g.padding[d].0)?;
                        (at < shape.input[d]).then_some(flat * shape.input[d] + at)
                    })
                })
                .collect()
        })
        .collect()
}

fn pool_f32<R: Copy + Default>(kind: PoolKind, shape: &PoolShape<'_>, source: &[f32], size: usize) -> Vec<R> {
    let mut out = vec![R::default(); size];
    // SAFETY: the vectors hold the tensors.
    unsafe { pooling(kind, DType::F32, shape, source.as_ptr().cast(), out.as_mut_ptr().cast()).unwrap() };
    out
}

fn check(planes: usize, input: &[usize], geometry: &Geometry) {
    let output: Option<Vec<usize>> = (0..input.len()).map(|d| geometry.output_size(d, input[d])).collect();
    let Some(output) = output else { return };
    let shape = PoolShape { planes, input, output: &output, geometry };
    let (inputs, outputs): (usize, usize) = (input.iter().product(), output.iter().product());
    // Small integers: sums are exact, and there are ties, NaNs and infinities.
    let value = |i: usize| match (i * 7919 + i / 13) % 23 {
        0 => f32::NAN,
        1 => f32::NEG_INFINITY,
        n => (n % 7) as f32,
    };
    let x: Vec<f32> = (0..planes * inputs).map(value).collect();
    let places = windows(&shape);
    let same = |a: f32, b: f32| a == b || (a.is_nan() && b.is_nan());
    let max: Vec<f32> = pool_f32(PoolKind::Max, &shape, &x, planes * outputs);
    let argmax: Vec<i64> = pool_f32(PoolKind::ArgMax, &shape, &x, planes * outputs);
    let sum: Vec<f32> = pool_f32(PoolKind::Sum, &shape, &x, planes * outputs);
    let gradient: Vec<f32> = (0..planes * outputs).map(|i| (i % 11) as f32).collect();
    let scattered: Vec<f32> = pool_f32(PoolKind::SumBackward, &shape, &gradient, planes * inputs);
    let mut of_max = vec![f32::NAN; planes * inputs];
    // SAFETY: the vectors hold the tensors.
    unsafe {
        let (x, gradient) = (x.as_ptr().cast(), gradient.as_ptr().cast());
        max_pool_gradient(DType::F32, &shape, x, gradient, of_max.as_mut_ptr().cast()).unwrap();
    }
    let mut expected_of_max = vec![0.0; planes * inputs];
    for (i, &place) in argmax.iter().enumerate().filter(|_| inputs > 0) {
        expected_of_max[i / outputs * inputs + place as usize] += gradient[i];
    }
    assert_eq!(of_max, expected_of_max, "{input:?} {geometry:?}");
    let mut expected_scattered = vec![0f32; planes * inputs];
    for plane in 0..planes {
        for (o, window) in places.iter().enumerate() {
            let (at, here) = (plane * outputs + o, |i: usize| x[plane * inputs + i]);
            let first_nan = window.iter().find(|&&i| here(i).is_nan());
            let first_best = window.iter().fold(None, |best: Option<usize>, &i| match best {
                Some(b) if here(b) >= here(i) => Some(b),
                _ => Some(i),
            });
            let best = first_nan.copied().or(first_best);
            assert!(same(max[at], best.map_or(f32::NEG_INFINITY, here)), "{shape:?} {at}");
            assert_eq!(argmax[at], best.unwrap_or(0) as i64, "{shape:?} {at}");
            assert!(same(sum[at], window.iter().map(|&i| here(i)).sum::<f32>() + 0.0), "{shape:?} {at}");
            window.iter().for_each(|&i| expected_scattered[plane * inputs + i] += gradient[at]);
        }
    }
    assert_eq!(scattered, expected_scattered, "{shape:?}");
}

fn geometry(kernel: &[usize], stride: &[usize], dilation: &[usize], padding: &[(usize, usize)]) -> Geometry {
    let (kernel, stride, dilation) = (kernel.into(), stride.into(), dilation.into());
    Geometry { kernel, stride, dilation, padding: padding.into(), groups: 1 }
}

#[test]
fn windows_of_every_kind() {
    check(3, &[8, 8], &geometry(&[2, 2], &[2, 2], &[1, 1], &[(0, 0), (0, 0)]));
    check(2, &[9, 40], &geometry(&[3, 3], &[1, 2], &[1, 1], &[(1, 1), (1, 0)]));
    check(0, &[8, 8], &geometry(&[2, 2], &[2, 2], &[1, 1], &[(0, 0), (0, 0)]));
    check(2, &[3], &geometry(&[2], &[3], &[1], &[(5, 4)]));
    check(1, &[4, 5, 6], &geometry(&[3, 2, 2], &[1, 2, 4], &[1, 3, 2], &[(2, 2), (0, 1), (1, 1)]));
    check(200, &[64], &geometry(&[3], &[1], &[1], &[(1, 1)]));
    check(2, &[0, 3], &geometry(&[2, 2], &[1, 1], &[1, 1], &[(1, 1), (0, 0)]));
}

#[test]
fn integers_keep_their_order_and_wrap_around() {
    macro_rules! check {
        ($($t:ident $dtype:ident)*) => { $({
            let geometry = geometry(&[3], &[2], &[1], &[(1, 2)]);
            let shape = PoolShape { planes: 2, input: &[5], output: &[3], geometry: &geometry };
            let (low, high) = ($t::MIN, $t::MAX);
            let x: [$t; 10] = [low, low, 1, high, high, high, high, 3, low, low];
            let pool = |kind, x: &[$t], out: *mut u8| {
                // SAFETY: the arrays hold the tensors.
                unsafe { pooling(kind, DType::$dtype, &shape, x.as_ptr().cast(), out).unwrap() }
            };
            let (mut y, mut places, mut back) = ([0 as $t; 6], [0i64; 6], [0 as $t; 10]);
            pool(PoolKind::Max, &x, y.as_mut_ptr().cast());
            assert_eq!(y, [low, high, high, high, high, low]);
            pool(PoolKind::ArgMax, &x, places.as_mut_ptr().cast());
            assert_eq!(places, [0, 3, 3, 0, 1, 3]);
            pool(PoolKind::Sum, &x, y.as_mut_ptr().cast());
            let sum = |terms: &[$t]| terms.iter().fold(0 as $t, |a, b| a.wrapping_add(*b));
            let sums = [
                sum(&x[..2]), sum(&x[1..4]), sum(&x[3..5]), sum(&x[5..7]), sum(&x[6..9]), sum(&x[8..]),
            ];
            assert_eq!(y, sums);
            let gradient = [high, high, 2, low, 1, high];
            pool(PoolKind::SumBackward, &gradient, back.as_mut_ptr().cast());
            let scattered = [
                high, sum(&[high, high]), high, sum(&[high, 2]), 2,
                low, sum(&[low, 1]), 1, sum(&[1, high]), high,
            ];
            assert_eq!(back, scattered);
        })* };
    }
    check!(i8 I8 i16 I16 i32 I32 i64 I64 u8 U8 u16 U16 u32 U32 u64 U64);
}

#[test]
fn bools_have_a_maximum_but_no_sum() {
    let geometry = geometry(&[2], &[2], &[1], &[(0, 0)]);
    let shape = PoolShape { planes: 1, input: &[4], output: &[2], geometry: &geometry };
    let (x, mut y) = ([false, false, false, true], [true, false]);
    // SAFETY: the arrays hold the tensors.
    let mut pool =
        |kind| unsafe { pooling(kind, DType::Bool, &shape, x.as_ptr().cast(), y.as_mut_ptr().cast()) };
    assert!(matches!(pool(PoolKind::Sum), Err(Error::DType { .. })));
    assert!(matches!(pool(PoolKind::SumBackward), Err(Error::DType { .. })));
    pool(PoolKind::Max).unwrap();
    assert_eq!(y, [false, true]);
}

#[test]
fn half_precision_sums_are_rounded_once() {
    let geometry = geometry(&[64], &[64], &[1], &[(0, 0)]);
    let shape = PoolShape { planes: 1, input: &[64], output: &[1], geometry: &geometry };
    let x: Vec<f16> = (0..64).map(|i| f16::from_f32(if i == 0 { 2048.0 } else { 1.0 })).collect();
    let mut out = [f16::ZERO];
    // SAFETY: the vectors hold the tensors.
    unsafe {
        pooling(PoolKind::Sum, DType::F16, &shape, x.as_ptr().cast(), out.as_mut_ptr().cast()).unwrap()
    };
    assert_eq!(out[0], f16::from_f32(2111.0));
}

#[test]
fn sizes_and_types_that_do_not_fit_are_errors() {
    let geometry = geometry(&[2], &[2], &[1], &[(0, 0)]);
    let mut nothing = 0u64;
    let p = (&raw mut nothing).cast::<u8>();
    let call = |output: &[usize], dtype: DType| {
        let shape = PoolShape { planes: 1, input: &[4], output, geometry: &geometry };
        // SAFETY: nothing is read or written if the sizes do not match.
        unsafe { pooling(PoolKind::Max, dtype, &shape, p, p) }
    };
    assert!(matches!(call(&[3], DType::F32), Err(Error::Shape { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { rng_seed: RngSeed::Fixed(1), ..ProptestConfig::with_cases(200) })]
    #[test]
    fn any_window((planes, axes) in (0usize..4, prop::collection::vec(
        (1usize..14, 1usize..4, 1usize..5, 1usize..3, (0usize..4, 0usize..4)), 1..4))) {
        let kernel: Vec<usize> = axes.iter().map(|a| a.1).collect();
        let stride: Vec<usize> = axes.iter().map(|a| a.2).collect();
        let dilation: Vec<usize> = axes.iter().map(|a| a.3).collect();
        let padding: Vec<(usize, usize)> = axes.iter().map(|a| a.4).collect();
        let input: Vec<usize> = axes.iter().map(|a| a.0).collect();
        check(planes, &input, &geometry(&kernel, &stride, &dilation, &padding));
    }
}
