//! Compares a device's results with the oracle's.

use std::fmt;

use crate::dtype::read_scalars;
use crate::{
    DType,
    op::reference::{Interval, Number, OracleArray, every_coordinate, from_scalar},
    shape::Dims,
};

/// An element outside the oracle's bounds.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// The coordinates.
    pub index: Dims,
    /// The oracle's value.
    pub expected: Number,
    /// The device's value.
    pub actual: Number,
}

/// The result of a comparison.
#[derive(Clone, Debug, Default)]
pub struct Comparison {
    /// Number of elements compared.
    pub compared: usize,
    /// Number of elements skipped because several values are right.
    pub skipped: usize,
    /// Number of wrong elements.
    pub mismatches: usize,
    /// The first wrong element.
    pub first: Option<Mismatch>,
    /// The greatest error of the right, finite elements, as a fraction of the error that the oracle allows there: 0 is
    /// the rounded `f64` value, 1 is the bound.
    pub worst_share: f64,
    /// A fault other than a wrong element: the dtype or the number of bytes.
    pub malformed: Option<String>,
}

impl Comparison {
    /// True if no fault was found.
    pub fn passed(&self) -> bool {
        self.mismatches == 0 && self.malformed.is_none()
    }

    /// Adds the counts of another comparison.
    pub fn merge(&mut self, other: Comparison) {
        self.compared += other.compared;
        self.skipped += other.skipped;
        self.mismatches += other.mismatches;
        self.worst_share = self.worst_share.max(other.worst_share);
        self.first = self.first.take().or(other.first);
        self.malformed = self.malformed.take().or(other.malformed);
    }
}

/// Compares a device's result (row-major little-endian bytes) with the oracle's.
pub fn compare(expected: &OracleArray, actual: &[u8], dtype: DType) -> Comparison {
    let mut result = Comparison::default();
    if dtype != expected.dtype || actual.len() != expected.elements.len() * dtype.size() {
        let (want, have) = (expected.elements.len() * expected.dtype.size(), actual.len());
        result.malformed =
            Some(format!("{have} bytes of {dtype} instead of {want} bytes of {}", expected.dtype));
        return result;
    }
    if let Some(byte) = actual.iter().find(|b| dtype == DType::Bool && **b > 1) {
        result.malformed = Some(format!("a bool of {byte}: expected 0 or 1"));
        return result;
    }
    let places = every_coordinate(&expected.shape);
    for ((number, scalar), index) in expected.elements.iter().zip(read_scalars(actual, dtype)).zip(places) {
        let actual = from_scalar(scalar);
        match judge(*number, actual, dtype) {
            Verdict::Right(share) => {
                result.compared += 1;
                result.worst_share = result.worst_share.max(share);
            }
            Verdict::Open => result.skipped += 1,
            Verdict::Wrong => {
                result.compared += 1;
                result.mismatches += 1;
                result.first.get_or_insert(Mismatch { index, expected: *number, actual });
            }
        }
    }
    result
}

enum Verdict {
    /// Right, with this fraction of the allowed error.
    Right(f64),
    /// Undetermined: any value is right.
    Open,
    Wrong,
}

fn judge(expected: Number, actual: Number, dtype: DType) -> Verdict {
    let (expected, actual) = match (expected, actual) {
        (Number::Undetermined, _) => return Verdict::Open,
        (Number::Integer(x), Number::Integer(y)) if x == y => return Verdict::Right(0.0),
        (Number::Float(x), Number::Float(y)) => (x, y.value),
        _ => return Verdict::Wrong,
    };
    if expected.is_nan() || actual.is_nan() {
        return if expected.is_nan() && actual.is_nan() { Verdict::Right(0.0) } else { Verdict::Wrong };
    }
    let stored = expected.rounded(dtype);
    if stored.low == f64::NEG_INFINITY && stored.high == f64::INFINITY {
        return Verdict::Open;
    }
    if actual < stored.low || actual > stored.high {
        return Verdict::Wrong;
    }
    let one_zero = stored.low == 0.0 && stored.high == 0.0 && stored.low.to_bits() == stored.high.to_bits();
    if one_zero && actual.to_bits() != stored.low.to_bits() {
        return Verdict::Wrong;
    }
    let distance = (actual - stored.value).abs();
    let bound = if actual > stored.value { stored.high - stored.value } else { stored.value - stored.low };
    // If there is no error, the bound may be 0; if it is infinite, the fraction is meaningless.
    Verdict::Right(if distance > 0.0 && bound.is_finite() { distance / bound } else { 0.0 })
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Number::Integer(x) => write!(f, "{x}"),
            Number::Float(x) => write!(f, "{x}"),
            Number::Undetermined => f.write_str("undetermined"),
        }
    }
}

impl fmt::Display for Interval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_nan() || self.low.to_bits() == self.high.to_bits() {
            write!(f, "{:?}", self.value)
        } else {
            write!(f, "{:?} (from {:?} to {:?})", self.value, self.low, self.high)
        }
    }
}

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {:?}: expected {}, got {}", self.index.as_slice(), self.expected, self.actual)
    }
}

impl fmt::Display for Comparison {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(malformed) = &self.malformed {
            return f.write_str(malformed);
        }
        write!(f, "{} of {} elements wrong, {} skipped", self.mismatches, self.compared, self.skipped)?;
        match &self.first {
            Some(first) => write!(f, "; first {first}"),
            None => write!(f, ", at most {:.2} of the allowed error", self.worst_share),
        }
    }
}
