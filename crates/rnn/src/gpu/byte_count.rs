//! A number of bytes.

use std::{
    cmp::Ordering,
    fmt,
    ops::{Add, Div, Mul, Sub},
};

use serde::{Deserialize, Serialize};

/// A number of bytes. It can be divided by integers, multiplied by fractions, compared with others and with integers,
/// and printed as a number.
///
/// ```
/// use rnn::gpu::ByteCount;
///
/// let (used, total) = (ByteCount(7 << 30), ByteCount(8 << 30));
/// println!("{}/{} MB", used / 1024 / 1024, total / 1024 / 1024);
/// assert!(used < total * 0.9);
/// assert!(total == 8 * 1024 * 1024 * 1024);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ByteCount(pub u64);

impl ByteCount {
    /// The number.
    pub fn bytes(self) -> u64 {
        self.0
    }
}

impl From<usize> for ByteCount {
    fn from(bytes: usize) -> ByteCount {
        ByteCount(bytes as u64)
    }
}
impl From<u64> for ByteCount {
    fn from(bytes: u64) -> ByteCount {
        ByteCount(bytes)
    }
}
impl From<i32> for ByteCount {
    /// For integer literals. Negative numbers become 0.
    fn from(bytes: i32) -> ByteCount {
        ByteCount(u64::try_from(bytes).unwrap_or(0))
    }
}
impl PartialEq<u64> for ByteCount {
    fn eq(&self, other: &u64) -> bool {
        self.0 == *other
    }
}
impl PartialOrd<u64> for ByteCount {
    fn partial_cmp(&self, other: &u64) -> Option<Ordering> {
        self.0.partial_cmp(other)
    }
}
impl Div<u64> for ByteCount {
    type Output = ByteCount;
    /// Rounds down. Division by 0 gives 0.
    fn div(self, by: u64) -> ByteCount {
        ByteCount(self.0.checked_div(by).unwrap_or(0))
    }
}
impl Mul<f64> for ByteCount {
    type Output = ByteCount;
    /// Rounds down.
    fn mul(self, share: f64) -> ByteCount {
        ByteCount((self.0 as f64 * share) as u64)
    }
}
impl Add for ByteCount {
    type Output = ByteCount;
    fn add(self, other: ByteCount) -> ByteCount {
        ByteCount(self.0.saturating_add(other.0))
    }
}
impl Sub for ByteCount {
    type Output = ByteCount;
    fn sub(self, other: ByteCount) -> ByteCount {
        ByteCount(self.0.saturating_sub(other.0))
    }
}
impl fmt::Display for ByteCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}
