//! Random tensors from a counter-based generator: a seed gives the same bits, integers and uniform numbers on every
//! device.

use std::{f64::consts::TAU, sync::LazyLock};

use crate::{
    DType, Device, Error, Result, Scalar, Tensor,
    op::Op,
    random::{Generator, GeneratorState},
    schedule::{batching, capture, random_state},
    shape::{Dims, checked_element_count},
};

static DEFAULT: LazyLock<Generator> = LazyLock::new(|| Generator::new(0));

/// Seeds the default generator, which the random methods of [`Tensor`] use.
pub fn manual_seed(seed: u64) {
    DEFAULT.set_state(GeneratorState { seed, counter: 0 });
}

impl Generator {
    /// The generator that the random methods of [`Tensor`] use. Its seed is 0 until [`manual_seed`] is called.
    pub fn default_generator() -> &'static Generator {
        &DEFAULT
    }

    /// Restores a state.
    pub fn set_state(&self, state: GeneratorState) {
        capture::note_seeding();
        self.replace_state(state);
    }

    /// Random 32-bit words, `uint32`. Key and counter are a leaf, so repeated computations share a plan.
    pub fn bits(&self, shape: &[usize], device: Device) -> Result<Tensor> {
        let Some(words) = checked_element_count(shape) else {
            return Err(Error::shape("random", &[shape], "the result would exceed the address space"));
        };
        let state = self.draw((words as u64).div_ceil(2), device)?;
        Tensor::record(Op::RandomBits, DType::U32, shape.into(), &[&state])
    }

    /// The state of a draw of so many blocks, `uint32 [4]`.
    pub(crate) fn draw(&self, blocks: u64, device: Device) -> Result<Tensor> {
        // A captured function draws when it is replayed, not now: other threads may draw in between.
        let blocks = blocks.saturating_mul(batching::draws()?);
        let state = if capture::is_capturing() { self.state() } else { self.advance(blocks) };
        let leaf = random_state(state, device)?;
        capture::note_draw(self, blocks, &leaf);
        Ok(leaf)
    }

    /// `count` tensors of random words of the same shape, from one draw.
    fn words(&self, count: usize, shape: &[usize], device: Device) -> Result<Vec<Tensor>> {
        let whole: Dims = std::iter::once(count).chain(shape.iter().copied()).collect();
        let bits = self.bits(&whole, device)?;
        (0..count).map(|i| bits.narrow(0, i, 1)?.squeeze(0)).collect()
    }

    /// Uniform numbers in [0, 1), the same on every device. They are multiples of 2^-24 for `float32`, 2^-53 for
    /// `float64`, 2^-11 for `float16` and 2^-8 for `bfloat16`.
    ///
    /// # Errors
    /// [`Error::DType`] unless `dtype` is a float.
    pub fn rand(&self, shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
        match float("rand", dtype)? {
            DType::F64 => {
                let words = self.words(2, shape, device)?;
                let [high, low] = words.as_slice() else {
                    return Err(Error::internal("rand", "expected two words"));
                };
                unit_f64(high, low)
            }
            narrow => unit(&self.bits(shape, device)?, narrow),
        }
    }

    /// Standard normal numbers (mean 0, variance 1), by the Box-Muller transform of two uniform numbers. Computed in
    /// `float32`, or `float64` for that dtype. Absolute values are at most 5.8 (8.6 for `float64`).
    ///
    /// # Errors
    /// [`Error::DType`] unless `dtype` is a float.
    pub fn randn(&self, shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
        let (radius, angle) = if float("randn", dtype)? == DType::F64 {
            let words = self.words(4, shape, device)?;
            let [a, b, c, d] = words.as_slice() else {
                return Err(Error::internal("randn", "expected four words"));
            };
            (unit_f64(a, b)?, unit_f64(c, d)?)
        } else {
            let words = self.words(2, shape, device)?;
            let [a, b] = words.as_slice() else {
                return Err(Error::internal("randn", "expected two words"));
            };
            (unit(a, DType::F32)?, unit(b, DType::F32)?)
        };
        // 1 - u lies in (0, 1], so the logarithm is finite; the difference is exact.
        let radius = radius.rsub_scalar(1)?.log()?.mul_scalar(-2)?.sqrt()?;
        radius.mul(&angle.mul_scalar(TAU)?.cos()?)?.to_dtype(dtype)
    }

    /// Integers from `low` (inclusive) to `high` (exclusive), the same on every device. Each is a random word modulo
    /// the range, so the probabilities are equal to within a relative range / 2^32 (2^64 for ranges above 2^32).
    ///
    /// # Errors
    /// [`Error::Argument`] if the range is empty or does not fit the dtype; [`Error::DType`] for `bool`.
    pub fn randint(
        &self,
        low: i64,
        high: i64,
        shape: &[usize],
        dtype: DType,
        device: Device,
    ) -> Result<Tensor> {
        if dtype == DType::Bool {
            return Err(Error::dtype(
                "randint",
                &[dtype],
                "expected a numeric dtype; see bernoulli for bool",
            ));
        }
        if low >= high {
            return Err(Error::argument("randint", format!("the range from {low} to {high} is empty")));
        }
        for bound in [low, high - 1] {
            let value = super::operands::fitting("randint", Scalar::Int(bound), dtype)?;
            if !value.as_f64().is_finite() {
                let message = format!("{bound} exceeds the range of {dtype}: choose a wider dtype");
                return Err(Error::argument("randint", message));
            }
        }
        let range = high.wrapping_sub(low) as u64;
        let offset = if range <= 1 << 32 {
            let bits = self.bits(shape, device)?;
            if range < 1 << 32 { bits.remainder_scalar(range)? } else { bits }
        } else {
            let words = self.words(2, shape, device)?;
            let [high, low] = words.as_slice() else {
                return Err(Error::internal("randint", "expected two words"));
            };
            let high = high.to_dtype(DType::U64)?.shift_left_scalar(32)?;
            high.or(&low.to_dtype(DType::U64)?)?.remainder_scalar(range)?
        };
        // Integer addition wraps, so the sum is right modulo the dtype's range, which contains the result.
        let working = if dtype.is_float() { DType::I64 } else { dtype };
        let offset = offset.to_dtype(working)?;
        let moved = if low == 0 { offset } else { offset.add_scalar(low)? };
        moved.to_dtype(dtype)
    }

    /// A random permutation of the integers from 0 to `n - 1`, `int64`.
    pub fn randperm(&self, n: usize, device: Device) -> Result<Tensor> {
        self.bits(&[n], device)?.argsort(0, false)
    }

    /// 1 with probability `p`, otherwise 0.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `p` is between 0 and 1.
    pub fn bernoulli(&self, p: f64, shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::argument(
                "bernoulli",
                format!("the probability must be between 0 and 1, got {p}"),
            ));
        }
        self.rand(shape, DType::F32, device)?.lt_scalar(p)?.to_dtype(dtype)
    }

    /// `count` positions (`int64`) for each row of weights, drawn with probability proportional to the weight: `[N]`
    /// gives `[count]`, `[B, N]` gives `[B, count]`. Without `replacement`, the positions of a row are distinct: those
    /// with the smallest exponential waiting times (Efraimidis and Spirakis, 2006). The weights are computed
    /// immediately to validate them.
    ///
    /// # Errors
    /// [`Error::DType`] unless the weights are floats; [`Error::Shape`] unless they have one or two dimensions;
    /// [`Error::Argument`] for a negative, infinite or NaN weight, weights that sum to 0, no samples, or fewer positive
    /// weights than samples without replacement.
    pub fn multinomial(&self, weights: &Tensor, count: usize, replacement: bool) -> Result<Tensor> {
        let wrong = |message: &str| Err(Error::argument("multinomial", message));
        let &[.., size] = weights.shape() else {
            return Err(Error::shape(
                "multinomial",
                &[weights.shape()],
                "weights must have one or two dimensions",
            ));
        };
        if weights.rank() > 2 {
            return Err(Error::shape(
                "multinomial",
                &[weights.shape()],
                "weights must have one or two dimensions",
            ));
        }
        float("multinomial", weights.dtype())?;
        if count == 0 || size == 0 {
            return wrong("expected at least one sample of at least one weight");
        }
        let x = weights.detach()?;
        if !x.isfinite()?.and(&x.ge_scalar(0)?)?.all(&[], false)?.item::<bool>()? {
            return wrong("a weight is negative, infinite or NaN");
        }
        let positive = x.gt_scalar(0)?.count_nonzero(&[-1], false)?;
        if positive.eq_scalar(0)?.any(&[], false)?.item::<bool>()? {
            return wrong("the weights of a row sum to zero");
        }
        if replacement {
            let sums = x.wide(x.dtype())?.cumsum(-1)?;
            let shape: Dims = x.shape()[..x.rank() - 1].iter().copied().chain([count]).collect();
            let draws = self.rand(&shape, DType::F32, x.device())?.mul(&sums.narrow(-1, size - 1, 1)?)?;
            let passed = match x.rank() {
                1 => sums.searchsorted(&draws, true)?,
                _ => draws.unsqueeze(-1)?.ge(&sums.unsqueeze(-2)?)?.sum(&[-1], false)?,
            };
            return passed.minimum_scalar(size as i64 - 1);
        }
        let few = positive.lt_scalar(i64::try_from(count).unwrap_or(i64::MAX))?;
        if few.any(&[], false)?.item::<bool>()? {
            return wrong("samples without replacement require as many positive weights");
        }
        let uniform = self.rand(x.shape(), DType::F32, x.device())?;
        // A uniform 0 must not be a waiting time of 0, which would win whatever its weight.
        let waiting =
            uniform.neg()?.log1p()?.neg()?.clamp(Some(Scalar::Float(0.5f64.powi(25))), None)?.div(&x)?;
        Ok(waiting.topk(count, -1, false)?.1)
    }
}

/// Requires a float dtype.
fn float(op: &'static str, dtype: DType) -> Result<DType> {
    let hint = match dtype.float8() {
        Some(_) => "draw float32 numbers and convert them with .to_dtype()",
        None if dtype.is_float() => return Ok(dtype),
        None => "expected a float dtype; see randint for integers",
    };
    Err(Error::dtype(op, &[dtype], hint))
}

/// The leading bits of each word as a fraction with the precision of the dtype.
fn unit(bits: &Tensor, dtype: DType) -> Result<Tensor> {
    let kept = match dtype {
        DType::F16 => 11,
        DType::BF16 => 8,
        _ => 24,
    };
    bits.shift_right_scalar(32 - kept)?.to_dtype(dtype)?.mul_scalar(0.5f64.powi(kept))
}

/// 53 bits of two words as a fraction.
fn unit_f64(high: &Tensor, low: &Tensor) -> Result<Tensor> {
    let high = high.to_dtype(DType::F64)?.mul_scalar(0.5f64.powi(32))?;
    high.add(&low.shift_right_scalar(11)?.to_dtype(DType::F64)?.mul_scalar(0.5f64.powi(53))?)
}

impl Tensor {
    /// [`Generator::rand`] of the default generator.
    pub fn rand(shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
        DEFAULT.rand(shape, dtype, device)
    }

    /// [`Generator::randn`] of the default generator.
    pub fn randn(shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
        DEFAULT.randn(shape, dtype, device)
    }

    /// [`Generator::randint`] of the default generator.
    pub fn randint(low: i64, high: i64, shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
        DEFAULT.randint(low, high, shape, dtype, device)
    }

    /// [`Generator::randperm`] of the default generator.
    pub fn randperm(n: usize, device: Device) -> Result<Tensor> {
        DEFAULT.randperm(n, device)
    }

    /// [`Generator::bernoulli`] of the default generator.
    pub fn bernoulli(p: f64, shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
        DEFAULT.bernoulli(p, shape, dtype, device)
    }

    /// [`Generator::multinomial`] of the default generator, with this tensor as the weights.
    ///
    /// # Errors
    /// As [`Generator::multinomial`].
    pub fn multinomial(&self, count: usize, replacement: bool) -> Result<Tensor> {
        DEFAULT.multinomial(self, count, replacement)
    }
}
