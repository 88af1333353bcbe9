//! Roots of unity, computed in `float64` and kept on the device.

use std::{
    collections::VecDeque,
    f64::consts::PI,
    sync::{LazyLock, Mutex, PoisonError},
};

use phynexus::{DType, Device, Result, Tensor};

use crate::complex::Complex;

/// What a constant holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The transform of `n` numbers, as the real matrix (2n, 2n) that multiplies rows of pairs.
    Matrix,
    /// `exp(-2 pi i j k / n)` (n / radix, radix) for row j and column k.
    Twiddles {
        /// The number of columns.
        radix: usize,
    },
    /// `exp(-2 pi i k / n)` (n / 2 + 1) for k.
    Half,
    /// `exp(-pi i j^2 / n)` (n) for j.
    Chirp,
    /// The transform (`length`) of the conjugate chirp, continued to negative j, divided by the length.
    ChirpTransform {
        /// A power of two of at least 2n - 1.
        length: usize,
    },
}

#[derive(Clone, PartialEq, Eq)]
struct Key {
    kind: Kind,
    n: usize,
    inverse: bool,
    dtype: DType,
    device: Device,
}

/// The constants that were used last, the latest at the end.
static KEPT: LazyLock<Mutex<VecDeque<(Key, Tensor)>>> = LazyLock::new(Mutex::default);
/// The most constants that are kept, and their elements.
const MOST: usize = 64;
const MOST_ELEMENTS: usize = 1 << 24;

/// A constant of transforms of `n` numbers.
pub(super) fn constant(kind: Kind, n: usize, inverse: bool, dtype: DType, device: Device) -> Result<Tensor> {
    let key = Key { kind, n, inverse, dtype, device };
    {
        let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = kept.iter().position(|(known, _)| *known == key)
            && let Some(found) = kept.remove(place)
        {
            let tensor = found.1.clone();
            kept.push_back(found);
            return Ok(tensor);
        }
    }
    let tensor = made(&key)?;
    let mut dropped = Vec::new();
    let mut kept = KEPT.lock().unwrap_or_else(PoisonError::into_inner);
    kept.push_back((key, tensor.clone()));
    while kept.len() > MOST || kept.iter().map(|(_, tensor)| tensor.len()).sum::<usize>() > MOST_ELEMENTS {
        match kept.pop_front() {
            Some(least) => dropped.push(least),
            None => break,
        }
    }
    // Tensors are freed after the lock is released.
    drop(kept);
    drop(dropped);
    Ok(tensor)
}

/// As [`constant`], for complex numbers.
pub(super) fn complex(kind: Kind, n: usize, inverse: bool, like: &Complex) -> Result<Complex> {
    Complex::from_pair(&constant(kind, n, inverse, like.component(), like.pair().device())?)
}

/// `exp(-i pi halves / n)`, or its conjugate.
fn root(halves: usize, n: usize, inverse: bool) -> [f64; 2] {
    // The angle is reduced exactly to at most an eighth of a turn, where sine and cosine are most accurate.
    let (turn, n) = (2 * (halves % (2 * n)) as i64, n as i64);
    let quarters = (2 * turn + n) / (2 * n);
    let (sin, cos) = (PI * (turn - quarters * n) as f64 / (2 * n) as f64).sin_cos();
    let [x, y] = match quarters % 4 {
        0 => [cos, sin],
        1 => [-sin, cos],
        2 => [-cos, -sin],
        _ => [sin, -cos],
    };
    [x, if inverse { y } else { -y }]
}

fn made(key: &Key) -> Result<Tensor> {
    let (n, inverse) = (key.n, key.inverse);
    let (values, shape): (Vec<f64>, Vec<usize>) = match key.kind {
        Kind::Matrix => {
            let mut values = Vec::with_capacity(4 * n * n);
            for j in 0..n {
                for imaginary in [false, true] {
                    for k in 0..n {
                        let [x, y] = root(2 * (j * k % n), n, inverse);
                        values.extend(if imaginary { [-y, x] } else { [x, y] });
                    }
                }
            }
            (values, vec![2 * n, 2 * n])
        }
        Kind::Twiddles { radix } => {
            let rows = n / radix;
            let each = (0..rows).flat_map(|j| (0..radix).map(move |k| (j, k)));
            (each.flat_map(|(j, k)| root(2 * (j * k), n, inverse)).collect(), vec![rows, radix, 2])
        }
        Kind::Half => ((0..=n / 2).flat_map(|k| root(2 * k, n, inverse)).collect(), vec![n / 2 + 1, 2]),
        Kind::Chirp => (chirp(n, inverse).concat(), vec![n, 2]),
        Kind::ChirpTransform { length } => {
            let mut values = vec![[0.0; 2]; length];
            for (j, [x, y]) in chirp(n, inverse).into_iter().enumerate() {
                values[j] = [x, -y];
                values[(length - j) % length] = [x, -y];
            }
            let found = on_host(&values);
            (found.into_iter().flat_map(|part| part.map(|x| x / length as f64)).collect(), vec![length, 2])
        }
    };
    match key.dtype {
        DType::F64 => Tensor::from_slice(&values, &shape, key.device),
        _ => Tensor::from_slice(&values.iter().map(|&x| x as f32).collect::<Vec<_>>(), &shape, key.device),
    }
}

fn chirp(n: usize, inverse: bool) -> Vec<[f64; 2]> {
    // The square is reduced exactly, in integers.
    (0..n).map(|j| root((j as u128 * j as u128 % (2 * n as u128)) as usize, n, inverse)).collect()
}

/// The forward transform of a power of two, by halves.
fn on_host(values: &[[f64; 2]]) -> Vec<[f64; 2]> {
    let n = values.len();
    if n < 2 {
        return values.to_vec();
    }
    let side = |start: usize| on_host(&values.iter().skip(start).step_by(2).copied().collect::<Vec<_>>());
    let (even, odd) = (side(0), side(1));
    let mut found = vec![[0.0; 2]; n];
    for k in 0..n / 2 {
        let ([a, b], [c, d], [x, y]) = (even[k], odd[k], root(2 * k, n, false));
        let (re, im) = (c * x - d * y, c * y + d * x);
        found[k] = [a + re, b + im];
        found[k + n / 2] = [a - re, b - im];
    }
    found
}
