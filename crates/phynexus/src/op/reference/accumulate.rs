//! Sums, products and extremes of many numbers, in any order that a device may choose.

use super::{
    float::{binary, product},
    integer,
    number::{Interval, Number, greatest, least_normal, ulp, unit_roundoff},
};
use crate::{DType, op::Combine};

/// Combines numbers of one dtype. The bounds of the result hold for every order of combination and for fused
/// multiply-adds. A sum of n terms is within n + 1 roundings of the sum of their magnitudes (Higham, "Accuracy and
/// Stability of Numerical Algorithms", 4.2). A product of n factors is within n roundings of its value.
#[derive(Clone, Debug)]
pub(crate) struct Accumulator {
    combine: Combine,
    dtype: DType,
    /// The type to which each combination is rounded.
    precision: DType,
    count: usize,
    integer: i128,
    float: Interval,
    /// Sum: the sum of the terms' magnitudes. Product: the product of the factors' magnitudes above 1.
    largest: f64,
    /// Product: the product of the factors' magnitudes below 1, except zeros.
    smallest: f64,
    /// Whether infinite terms or factors occurred, negative and positive.
    infinities: [bool; 2],
    /// Sum: whether finite terms below and above zero may have occurred.
    signs: [bool; 2],
    /// Sum: whether terms are products, which may underflow.
    products: bool,
    /// Product: whether a factor may have been zero.
    zero: bool,
    /// Product: the sign of the finite factors.
    negative: bool,
    /// Product: the number of factors that were -inf.
    negative_infinities: usize,
    nan: bool,
    undetermined: bool,
}

impl Accumulator {
    /// An empty combination; 16-bit floats are combined in `f32`.
    pub(crate) fn new(combine: Combine, dtype: DType) -> Accumulator {
        Accumulator::with_precision(combine, dtype, dtype.compute())
    }

    /// An empty combination whose steps may each be rounded to `precision`.
    pub(crate) fn with_precision(combine: Combine, dtype: DType, precision: DType) -> Accumulator {
        let identity = combine.identity(dtype);
        Accumulator {
            combine,
            dtype,
            precision,
            count: 0,
            integer: if dtype.is_float() { 0 } else { scalar_integer(identity) },
            float: Interval::point(identity.as_f64()),
            largest: if combine == Combine::Prod { 1.0 } else { 0.0 },
            smallest: 1.0,
            infinities: [false; 2],
            signs: [false; 2],
            products: false,
            zero: false,
            negative: false,
            negative_infinities: 0,
            nan: false,
            undetermined: false,
        }
    }

    /// Adds a number to the combination.
    pub(crate) fn push(&mut self, number: Number) {
        self.count += 1;
        match number {
            Number::Undetermined => self.undetermined = true,
            Number::Integer(x) => match integer::binary(self.combine.binary(), self.integer, x, self.dtype) {
                Some(combined) => self.integer = combined,
                None => self.undetermined = true,
            },
            Number::Float(x) if x.is_nan() => self.nan = true,
            Number::Float(x) => self.push_float(x),
        }
    }

    /// Adds a product of two numbers, which a device may or may not round before the addition.
    pub(crate) fn push_product(&mut self, a: Number, b: Number) {
        self.products = true;
        match (a, b) {
            (Number::Integer(a), Number::Integer(b)) => self.push(Number::Integer(a.wrapping_mul(b))),
            (Number::Float(a), Number::Float(b)) => match product(a, b) {
                // Overflows `f64`: an infinity if the product is rounded, finite if a fused addition brings it back.
                Number::Float(p)
                    if p.magnitude().is_infinite()
                        && a.magnitude().is_finite()
                        && b.magnitude().is_finite() =>
                {
                    self.count += 1;
                    self.largest = f64::INFINITY;
                    self.add(p);
                }
                rounded => self.push(rounded),
            },
            _ => self.push(Number::Undetermined),
        }
    }

    /// Adds zero times this number, which a device may skip. It has an effect only if the product is NaN.
    pub(crate) fn push_zero_times(&mut self, number: Number) {
        self.undetermined |= match number {
            Number::Integer(_) => false,
            Number::Float(x) => !x.magnitude().is_finite(),
            Number::Undetermined => true,
        };
    }

    /// Adds a term of a sum.
    fn add(&mut self, x: Interval) {
        self.float.value += x.value;
        self.float.low += x.low;
        self.float.high += x.high;
        self.signs[0] |= x.low < 0.0;
        self.signs[1] |= x.high > 0.0;
    }

    fn push_float(&mut self, x: Interval) {
        match self.combine {
            Combine::Sum | Combine::Prod if x.magnitude().is_infinite() => {
                if x.is_point() {
                    self.infinities[usize::from(x.value > 0.0)] = true;
                    self.negative_infinities += usize::from(x.value < 0.0);
                } else {
                    self.undetermined = true;
                }
            }
            Combine::Sum => {
                self.add(x);
                self.largest += x.magnitude();
            }
            Combine::Prod => {
                self.largest *= x.magnitude().max(1.0);
                if x.contains_zero() {
                    self.zero = true;
                } else {
                    self.smallest *= x.low.abs().min(x.high.abs()).min(1.0);
                }
                self.undetermined |= x.contains_zero() && !x.is_point();
                match product(self.float, x) {
                    Number::Float(p) => self.float = p,
                    _ => self.undetermined = true,
                }
                self.negative ^= x.high < 0.0;
            }
            Combine::Max | Combine::Min => {
                let op = self.combine.binary();
                if let Number::Float(extreme) = binary(op, self.float, x, DType::F64) {
                    self.float = extreme;
                }
            }
        }
    }

    /// The combination of all numbers so far.
    pub(crate) fn result(&self) -> Number {
        if self.undetermined {
            // A NaN is final.
            return if self.nan { Number::NAN } else { Number::Undetermined };
        }
        if !self.dtype.is_float() {
            return Number::Integer(self.integer);
        }
        if self.nan {
            return Number::NAN;
        }
        match self.combine {
            Combine::Sum => self.sum(),
            Combine::Prod => self.product(),
            Combine::Max | Combine::Min => Number::Float(self.float.settled(self.dtype)),
        }
    }

    /// The same for sums of which a device may lose this much beside its roundings.
    pub(crate) fn result_within(&self, error: f64) -> Number {
        match self.result() {
            Number::Float(x) if x.value.is_finite() && error.is_finite() => {
                Number::Float(Interval { low: x.low - error, high: x.high + error, ..x })
            }
            other => other,
        }
    }

    fn roundings(&self) -> f64 {
        let count = self.count as f64 + 1.0;
        // The oracle's own sums are rounded to `f64` as well.
        let own = if self.precision == DType::F64 { count } else { 0.0 };
        (count + own) * unit_roundoff(self.precision)
    }

    fn sum(&self) -> Number {
        let underflow = if self.products { self.count as f64 * ulp(0.0, self.precision) } else { 0.0 };
        let bound = self.roundings() * self.largest + underflow;
        let may_overflow = self.largest + bound > greatest(self.precision);
        match self.infinities {
            [true, true] => return Number::NAN,
            [false, false] => {}
            // If a partial sum may overflow to the opposite infinity, the result may be NaN.
            _ if may_overflow => return Number::Undetermined,
            [_, positive] => {
                let sign = if positive { 1.0 } else { -1.0 };
                return Number::float(sign * f64::INFINITY);
            }
        }
        if may_overflow && self.signs == [true, true] {
            return Number::Undetermined;
        }
        let mut sum = self.float;
        if self.count > 1 || self.products {
            sum.low = (sum.low - bound).next_down();
            sum.high = (sum.high + bound).next_up();
        } else if sum.low == 0.0 && sum.high == 0.0 {
            // Either zero is right: a device may start from +0 or from a negative zero.
            (sum.low, sum.high) = (-0.0, 0.0);
        }
        if sum.low.is_nan() || sum.high.is_nan() {
            return Number::Undetermined;
        }
        Number::Float(sum.settled(self.dtype))
    }

    fn product(&self) -> Number {
        let infinite = self.infinities.contains(&true);
        if infinite && self.zero {
            return Number::NAN;
        }
        // Another order may overflow or underflow on the way.
        let overflow = self.largest * 2.0 > greatest(self.precision);
        let underflow = self.smallest / 2.0 < least_normal(self.precision);
        if self.count > 1
            && (overflow && (self.zero || self.smallest < 1.0)
                || underflow && (infinite || self.largest > 1.0))
        {
            return Number::Undetermined;
        }
        if infinite {
            let negative = self.negative ^ (self.negative_infinities % 2 == 1);
            return Number::float(if negative { f64::NEG_INFINITY } else { f64::INFINITY });
        }
        if self.float.is_nan() {
            return Number::Undetermined;
        }
        if self.count <= 1 {
            return Number::Float(self.float.settled(self.dtype));
        }
        let relative = self.roundings();
        let absolute = if underflow { self.count as f64 * ulp(0.0, self.precision) } else { 0.0 };
        let product = Interval {
            low: self.float.low - relative * self.float.low.abs() - absolute,
            high: self.float.high + relative * self.float.high.abs() + absolute,
            ..self.float
        };
        Number::Float(product.settled(self.dtype))
    }
}

/// The identity of an integer reduction.
fn scalar_integer(scalar: crate::Scalar) -> i128 {
    match scalar {
        crate::Scalar::UInt(u) => u.into(),
        other => other.as_i64().into(),
    }
}
