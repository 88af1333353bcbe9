//! Reproducible choices and values for generated cases.

use crate::{
    DType,
    op::{
        SampleOperand, SampleValues,
        reference::{Number, OracleArray, from_scalar, greatest, least_normal, round, ulp, wrap},
    },
    shape::element_count,
};

/// A small generator of 64-bit numbers (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom number
/// generators", 2014).
#[derive(Clone, Debug)]
pub struct Choice(u64);

impl Choice {
    /// Starts the sequence of this seed.
    pub fn new(seed: u64) -> Choice {
        Choice(seed)
    }

    /// The next number.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    /// A number in `0..n`; 0 if `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        if n == 0 { 0 } else { (self.bits() % n as u64) as usize }
    }

    /// True with probability 1 / `n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }

    /// One of these.
    pub fn of<T: Copy>(&mut self, items: &[T]) -> T {
        items[self.below(items.len())]
    }

    /// A number between -1 and 1.
    fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

/// The distribution of a leaf's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Small numbers of both signs, typical of networks.
    Tame,
    /// Small numbers above zero.
    Positive,
    /// Includes NaN, infinities, both zeros, subnormals and the extremes of the dtype.
    Special,
}

/// A leaf with random values.
pub fn random_array(choice: &mut Choice, values: Distribution, dtype: DType, shape: &[usize]) -> OracleArray {
    let element =
        |_| if dtype.is_float() { float(choice, values, dtype) } else { whole(choice, values, dtype) };
    OracleArray { dtype, shape: shape.into(), elements: (0..element_count(shape)).map(element).collect() }
}

fn float(choice: &mut Choice, values: Distribution, dtype: DType) -> Number {
    let special = [
        f64::NAN,
        f64::INFINITY,
        f64::NEG_INFINITY,
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        2.5,
        round(f64::MAX, dtype),
        greatest(dtype),
        -greatest(dtype),
        least_normal(dtype),
        ulp(0.0, dtype),
        -ulp(0.0, dtype) * 3.0,
        least_normal(dtype) * 0.3,
        least_normal(dtype) * -0.7,
    ];
    let x = match values {
        Distribution::Special if choice.one_in(3) => choice.of(&special),
        Distribution::Special => choice.unit() * 2f64.powi(choice.below(24) as i32 - 12),
        Distribution::Positive => choice.unit().abs() * 2.0 + 0.05,
        // Often integers, so that equal values occur.
        Distribution::Tame if choice.one_in(4) => (choice.unit() * 4.0).round(),
        Distribution::Tame => choice.unit() * 2.0,
    };
    Number::float(round(x, dtype))
}

fn whole(choice: &mut Choice, values: Distribution, dtype: DType) -> Number {
    let x = match values {
        Distribution::Special if choice.one_in(3) => {
            let extremes =
                [0, -1, 1, 1 << 63, (1 << 63) - 1, 1 << 31, (1 << 31) - 1, 1 << 7, 127, i128::from(u64::MAX)];
            choice.of(&extremes)
        }
        Distribution::Special => i128::from(choice.bits()),
        Distribution::Positive => 1 + choice.below(9) as i128,
        Distribution::Tame => choice.below(13) as i128 - 6,
    };
    Number::Integer(wrap(x, dtype))
}

/// Positions from -`rows` to `rows` - 1 that fit `dtype`.
pub fn random_index(choice: &mut Choice, rows: usize, count: usize, dtype: DType) -> OracleArray {
    let reach = rows.min(127);
    let element = |_| {
        let i = choice.below(reach) as i128;
        let signed = dtype.kind() == crate::DTypeKind::Signed && choice.one_in(2);
        Number::Integer(if signed { i - reach as i128 } else { i })
    };
    OracleArray { dtype, shape: [count].as_slice().into(), elements: (0..count).map(element).collect() }
}

/// Values for an operand of a sample, where the dtype `tested` is tested; `values` for one that may have any.
pub fn random_operand(
    choice: &mut Choice,
    operand: &SampleOperand,
    tested: DType,
    values: Distribution,
) -> OracleArray {
    let (dtype, shape) = (operand.dtype.for_tested(tested), operand.shape.as_slice());
    match operand.values {
        SampleValues::Signed => random_array(choice, values, dtype, shape),
        SampleValues::Positive => random_array(choice, Distribution::Positive, dtype, shape),
        SampleValues::Probability | SampleValues::Weights => {
            let size = 0.25 / (shape.last().copied().unwrap_or(1).max(1) as f64).sqrt();
            let element = |_| {
                let number = match operand.values {
                    SampleValues::Weights => choice.unit() * size,
                    _ if choice.one_in(8) => choice.of(&[0.0, 1.0]),
                    _ => choice.unit().abs(),
                };
                Number::float(round(number, dtype))
            };
            let elements = (0..element_count(shape)).map(element).collect();
            OracleArray { dtype, shape: shape.into(), elements }
        }
        SampleValues::Class(classes) => {
            // Those of an unsigned dtype are not negative.
            let indices = random_index(choice, classes, element_count(shape), DType::U8);
            OracleArray { dtype, shape: shape.into(), ..indices }
        }
        SampleValues::Index(rows) => random_index(choice, rows, element_count(shape), dtype),
        SampleValues::Sorted => random_sorted(choice, dtype, element_count(shape)),
    }
}

/// A vector in ascending order, NaN last.
pub fn random_sorted(choice: &mut Choice, dtype: DType, count: usize) -> OracleArray {
    let mut array = random_array(choice, Distribution::Tame, dtype, &[count]);
    let key = |n: &Number| match n {
        Number::Integer(x) => *x as f64,
        Number::Float(x) => x.value,
        Number::Undetermined => 0.0,
    };
    array.elements.sort_by(|a, b| key(a).total_cmp(&key(b)));
    // The order of -0 and +0 is not defined by comparison: make all zeros positive.
    for element in &mut array.elements {
        if key(element) == 0.0 && dtype.is_float() {
            *element = from_scalar(crate::Scalar::Float(0.0));
        }
    }
    array
}
