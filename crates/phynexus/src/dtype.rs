//! Element types (dtypes), their properties, and promotion.

use std::fmt;

use half::{bf16, f16};

mod elements;
pub mod float8;

pub use elements::{Elements, ElementsMut, read_scalars, scalar_bytes};
use float8::Float8;

/// The type of a tensor's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum DType {
    /// Booleans, one byte each, 0 or 1.
    Bool,
    /// Unsigned 8-bit integers.
    U8,
    /// Unsigned 16-bit integers.
    U16,
    /// Unsigned 32-bit integers.
    U32,
    /// Unsigned 64-bit integers.
    U64,
    /// Signed 8-bit integers.
    I8,
    /// Signed 16-bit integers.
    I16,
    /// Signed 32-bit integers.
    I32,
    /// Signed 64-bit integers.
    I64,
    /// 8-bit floats with 4 significant bits, largest value 448, without infinities. Values of it are stored, moved,
    /// converted and multiplied as matrices; nothing else is computed with them.
    F8E4M3,
    /// 8-bit floats with 3 significant bits, largest finite value 57344, for the same.
    F8E5M2,
    /// IEEE 754 half precision: 11 significant bits, largest finite value 65504.
    F16,
    /// The upper half of a float32: 8 significant bits, float32's range.
    BF16,
    /// IEEE 754 single precision.
    F32,
    /// IEEE 754 double precision.
    F64,
}

/// The kind of values of a [`DType`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum DTypeKind {
    /// `bool`.
    Bool,
    /// `u8` to `u64`.
    Unsigned,
    /// `i8` to `i64`.
    Signed,
    /// `f8e4m3`, `f8e5m2`, `f16`, `bf16`, `f32`, `f64`.
    Float,
}

use DType::*;

impl DType {
    /// All dtypes.
    pub const ALL: [DType; 15] =
        [Bool, U8, U16, U32, U64, I8, I16, I32, I64, F8E4M3, F8E5M2, F16, BF16, F32, F64];
    /// The dtypes that all operations take: all but the 8-bit floats.
    pub const COMPUTED: [DType; 13] = [Bool, U8, U16, U32, U64, I8, I16, I32, I64, F16, BF16, F32, F64];
    /// The floating-point dtypes that all operations take.
    pub const FLOATS: [DType; 4] = [F16, BF16, F32, F64];
    /// The integer dtypes, without `bool`.
    pub const INTEGERS: [DType; 8] = [U8, U16, U32, U64, I8, I16, I32, I64];

    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Bool | U8 | I8 | F8E4M3 | F8E5M2 => 1,
            U16 | I16 | F16 | BF16 => 2,
            U32 | I32 | F32 => 4,
            U64 | I64 | F64 => 8,
        }
    }

    /// Returns the kind of its values.
    pub const fn kind(self) -> DTypeKind {
        match self {
            Bool => DTypeKind::Bool,
            U8 | U16 | U32 | U64 => DTypeKind::Unsigned,
            I8 | I16 | I32 | I64 => DTypeKind::Signed,
            F8E4M3 | F8E5M2 | F16 | BF16 | F32 | F64 => DTypeKind::Float,
        }
    }

    /// The format of an 8-bit float.
    pub const fn float8(self) -> Option<Float8> {
        match self {
            F8E4M3 => Some(Float8::E4M3),
            F8E5M2 => Some(Float8::E5M2),
            _ => None,
        }
    }

    /// Returns true for floats of any size.
    pub const fn is_float(self) -> bool {
        matches!(self.kind(), DTypeKind::Float)
    }

    /// Returns true for the integer dtypes, signed and unsigned, and false for `bool`.
    pub const fn is_integer(self) -> bool {
        matches!(self.kind(), DTypeKind::Signed | DTypeKind::Unsigned)
    }

    /// The public name: `"float32"`, `"int64"`, `"bool"`.
    pub const fn name(self) -> &'static str {
        match self {
            Bool => "bool",
            U8 => "uint8",
            U16 => "uint16",
            U32 => "uint32",
            U64 => "uint64",
            I8 => "int8",
            I16 => "int16",
            I32 => "int32",
            I64 => "int64",
            F8E4M3 => "float8_e4m3fn",
            F8E5M2 => "float8_e5m2",
            F16 => "float16",
            BF16 => "bfloat16",
            F32 => "float32",
            F64 => "float64",
        }
    }

    /// Parses [`DType::name`] or the short Rust name (`"f32"`).
    pub fn parse(name: &str) -> Option<DType> {
        let short = match name {
            "u8" => U8,
            "u16" => U16,
            "u32" => U32,
            "u64" => U64,
            "i8" => I8,
            "i16" => I16,
            "i32" => I32,
            "i64" => I64,
            "f8e4m3" => F8E4M3,
            "f8e5m2" => F8E5M2,
            "f16" => F16,
            "bf16" => BF16,
            "f32" => F32,
            "f64" => F64,
            _ => return DType::ALL.into_iter().find(|d| d.name() == name),
        };
        Some(short)
    }

    /// Returns the dtype of `a op b`. This follows the promotion table of the Python array API standard 2024.12. Cases
    /// that the standard leaves open follow PyTorch: an integer with a float gives the float, and `bool` with any
    /// other dtype gives the other. `f16` with `bf16` gives `f32`, as do two different 8-bit floats and an integer
    /// with one of them, and `u64` with a signed integer gives `f32`.
    pub fn promote(self, other: DType) -> DType {
        if self == other {
            return self;
        }
        let (a, b) = if self.kind() <= other.kind() { (self, other) } else { (other, self) };
        match (a.kind(), b.kind()) {
            (DTypeKind::Bool, _) => b,
            (DTypeKind::Float, DTypeKind::Float) => match (a, b) {
                (F16, BF16) | (BF16, F16) | (F8E4M3, F8E5M2) | (F8E5M2, F8E4M3) => F32,
                _ => a.max(b),
            },
            // An integer may be beyond the numbers of 8-bit floats.
            (DTypeKind::Unsigned | DTypeKind::Signed, DTypeKind::Float) if b.size() == 1 => F32,
            (_, DTypeKind::Float) => b,
            (DTypeKind::Unsigned, DTypeKind::Signed) if a.size() < b.size() => b,
            (DTypeKind::Unsigned, DTypeKind::Signed) => match a {
                U8 => I16,
                U16 => I32,
                U32 => I64,
                _ => F32,
            },
            _ => a.max(b),
        }
    }

    /// Returns the default dtype of sums and products of this dtype: 64-bit integers for integers and `bool`, otherwise
    /// the dtype itself.
    pub const fn accumulator(self) -> DType {
        match self.kind() {
            DTypeKind::Bool | DTypeKind::Signed => I64,
            DTypeKind::Unsigned => U64,
            DTypeKind::Float => self,
        }
    }

    /// Returns the dtype in which kernels compute: `f32` for 8-bit and 16-bit floats, otherwise the dtype itself.
    pub const fn compute(self) -> DType {
        match self {
            F8E4M3 | F8E5M2 | F16 | BF16 => F32,
            other => other,
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A Rust type that can be a tensor element.
pub trait Element: Copy + Default + PartialEq + PartialOrd + fmt::Debug + Send + Sync + 'static {
    /// Its [`DType`].
    const DTYPE: DType;
    /// Converts the value to a scalar, exactly.
    fn to_scalar(self) -> Scalar;
    /// Converts from a scalar as a cast does: floats are truncated to integers and saturate at the type's limits,
    /// integers wrap, and NaN becomes 0.
    fn from_scalar(scalar: Scalar) -> Self;
    /// Appends the little-endian bytes of `values`.
    fn write_bytes(values: &[Self], out: &mut Vec<u8>);
    /// Reads values from little-endian bytes. Trailing bytes that do not fill an element are ignored.
    fn read_bytes(bytes: &[u8]) -> Vec<Self>;
    /// Returns the values, if they have this type.
    fn elements<'a>(elements: &'a Elements<'_>) -> Option<&'a [Self]>;
    /// Returns the values, if they have this type.
    fn elements_mut<'a>(elements: &'a mut ElementsMut<'_>) -> Option<&'a mut [Self]>;
}

/// One exact number of any dtype, used for constants and fill values.
#[derive(Clone, Copy, Debug)]
pub enum Scalar {
    /// A boolean.
    Bool(bool),
    /// A signed integer.
    Int(i64),
    /// An unsigned integer.
    UInt(u64),
    /// A floating-point number.
    Float(f64),
}

impl Scalar {
    /// Converts to a float. Integers beyond 2^53 are rounded.
    pub fn as_f64(self) -> f64 {
        match self {
            Scalar::Bool(b) => f64::from(u8::from(b)),
            Scalar::Int(i) => i as f64,
            Scalar::UInt(u) => u as f64,
            Scalar::Float(x) => x,
        }
    }

    /// Converts to a signed integer. Floats saturate, unsigned integers wrap.
    pub fn as_i64(self) -> i64 {
        match self {
            Scalar::Bool(b) => i64::from(b),
            Scalar::Int(i) => i,
            Scalar::UInt(u) => u as i64,
            Scalar::Float(x) => x as i64,
        }
    }

    /// Converts to an unsigned integer. Floats saturate, signed integers wrap.
    pub fn as_u64(self) -> u64 {
        match self {
            Scalar::Bool(b) => u64::from(b),
            Scalar::Int(i) => i as u64,
            Scalar::UInt(u) => u,
            Scalar::Float(x) => x as u64,
        }
    }

    /// Returns true unless the value is zero. NaN is true.
    pub fn as_bool(self) -> bool {
        match self {
            Scalar::Bool(b) => b,
            Scalar::Int(i) => i != 0,
            Scalar::UInt(u) => u != 0,
            Scalar::Float(x) => x != 0.0,
        }
    }

    /// Converts to a value that `dtype` can hold. Floats are rounded to its precision. Integers wrap to its width;
    /// floats converted to integers saturate, and NaN becomes 0.
    pub fn cast(self, dtype: DType) -> Scalar {
        macro_rules! via {
            ($t:ty) => {
                <$t>::from_scalar(self).to_scalar()
            };
        }
        match dtype {
            Bool => via!(bool),
            U8 => via!(u8),
            U16 => via!(u16),
            U32 => via!(u32),
            U64 => via!(u64),
            I8 => via!(i8),
            I16 => via!(i16),
            I32 => via!(i32),
            I64 => via!(i64),
            F8E4M3 => via!(float8::F8E4M3),
            F8E5M2 => via!(float8::F8E5M2),
            F16 => via!(f16),
            BF16 => via!(bf16),
            F32 => via!(f32),
            F64 => via!(f64),
        }
    }

    /// Returns the bits that identify the constant. NaN equals itself, and -0.0 differs from 0.0.
    pub fn key(self) -> (u8, u64) {
        match self {
            Scalar::Bool(b) => (0, u64::from(b)),
            Scalar::Int(i) => (1, i as u64),
            Scalar::UInt(u) => (2, u),
            Scalar::Float(x) => (3, x.to_bits()),
        }
    }

    /// Returns the kind of the value.
    pub const fn kind(self) -> DTypeKind {
        match self {
            Scalar::Bool(_) => DTypeKind::Bool,
            Scalar::Int(_) => DTypeKind::Signed,
            Scalar::UInt(_) => DTypeKind::Unsigned,
            Scalar::Float(_) => DTypeKind::Float,
        }
    }
}

impl PartialEq for Scalar {
    fn eq(&self, other: &Scalar) -> bool {
        self.key() == other.key()
    }
}
impl Eq for Scalar {}
impl std::hash::Hash for Scalar {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.key().hash(state);
    }
}

impl fmt::Display for Scalar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Scalar::Bool(b) => write!(f, "{b}"),
            Scalar::Int(i) => write!(f, "{i}"),
            Scalar::UInt(u) => write!(f, "{u}"),
            Scalar::Float(x) => write!(f, "{x}"),
        }
    }
}

macro_rules! typed {
    ($dtype:ident) => {
        fn elements<'a>(elements: &'a Elements<'_>) -> Option<&'a [Self]> {
            if let Elements::$dtype(values) = elements { Some(values) } else { None }
        }
        fn elements_mut<'a>(elements: &'a mut ElementsMut<'_>) -> Option<&'a mut [Self]> {
            if let ElementsMut::$dtype(values) = elements { Some(values) } else { None }
        }
    };
}

macro_rules! element {
    ($t:ty, $dtype:ident, |$v:ident| $to:expr, |$s:ident| $from:expr) => {
        impl Element for $t {
            const DTYPE: DType = $dtype;
            fn to_scalar(self) -> Scalar {
                let $v = self;
                $to
            }
            fn from_scalar($s: Scalar) -> $t {
                $from
            }
            fn write_bytes(values: &[$t], out: &mut Vec<u8>) {
                out.reserve(std::mem::size_of_val(values));
                for v in values {
                    out.extend_from_slice(&v.to_le_bytes());
                }
            }
            fn read_bytes(bytes: &[u8]) -> Vec<$t> {
                bytes.as_chunks().0.iter().map(|c| <$t>::from_le_bytes(*c)).collect()
            }
            typed!($dtype);
        }
        impl From<$t> for Scalar {
            fn from(value: $t) -> Scalar {
                value.to_scalar()
            }
        }
    };
}

macro_rules! integer {
    ($t:ty, $dtype:ident, $number:ident, $wide:ident) => {
        // `as` saturates floats and wraps integers.
        element!($t, $dtype, |v| Scalar::$number(v.into()), |s| match s {
            Scalar::Float(x) => x as $t,
            whole => whole.$wide() as $t,
        });
    };
}

integer!(u8, U8, UInt, as_u64);
integer!(u16, U16, UInt, as_u64);
integer!(u32, U32, UInt, as_u64);
integer!(u64, U64, UInt, as_u64);
integer!(i8, I8, Int, as_i64);
integer!(i16, I16, Int, as_i64);
integer!(i32, I32, Int, as_i64);
integer!(i64, I64, Int, as_i64);
element!(float8::F8E4M3, F8E4M3, |v| Scalar::Float(v.to_f64()), |s| float8::F8E4M3::from_f64(s.as_f64()));
element!(float8::F8E5M2, F8E5M2, |v| Scalar::Float(v.to_f64()), |s| float8::F8E5M2::from_f64(s.as_f64()));
element!(f16, F16, |v| Scalar::Float(v.to_f64()), |s| f16::from_f64(s.as_f64()));
element!(bf16, BF16, |v| Scalar::Float(v.to_f64()), |s| bf16::from_f64(s.as_f64()));
element!(f32, F32, |v| Scalar::Float(v.into()), |s| s.as_f64() as f32);
element!(f64, F64, |v| Scalar::Float(v), |s| s.as_f64());

impl Element for bool {
    const DTYPE: DType = Bool;
    fn to_scalar(self) -> Scalar {
        Scalar::Bool(self)
    }
    fn from_scalar(scalar: Scalar) -> bool {
        scalar.as_bool()
    }
    fn write_bytes(values: &[bool], out: &mut Vec<u8>) {
        out.extend(values.iter().map(|b| u8::from(*b)));
    }
    fn read_bytes(bytes: &[u8]) -> Vec<bool> {
        bytes.iter().map(|b| *b != 0).collect()
    }
    typed!(Bool);
}
impl From<bool> for Scalar {
    fn from(value: bool) -> Scalar {
        Scalar::Bool(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn promotion_is_commutative_and_idempotent() {
        for a in DType::ALL {
            assert_eq!(a.promote(a), a);
            for b in DType::ALL {
                assert_eq!(a.promote(b), b.promote(a), "{a} {b}");
            }
        }
    }

    #[test]
    fn promotion_follows_the_array_api_table() {
        assert_eq!(U8.promote(I8), I16);
        assert_eq!(U32.promote(I8), I64);
        assert_eq!(U8.promote(I32), I32);
        assert_eq!(I16.promote(I64), I64);
        assert_eq!(F32.promote(F64), F64);
        assert_eq!(F16.promote(BF16), F32);
        assert_eq!(I64.promote(F16), F16);
        assert_eq!(Bool.promote(U8), U8);
    }

    #[test]
    fn names_round_trip() {
        for d in DType::ALL {
            assert_eq!(DType::parse(d.name()), Some(d));
        }
        assert_eq!(DType::parse("f32"), Some(F32));
        assert_eq!(DType::parse("complex64"), None);
    }

    #[test]
    fn scalars_cast_as_kernels_do() {
        assert_eq!(Scalar::Float(300.7).cast(U8), Scalar::UInt(255));
        assert_eq!(Scalar::Float(-1.5).cast(U64), Scalar::UInt(0));
        assert_eq!(Scalar::Float(f64::INFINITY).cast(I32), Scalar::Int(i32::MAX.into()));
        assert_eq!(Scalar::Float(f64::NEG_INFINITY).cast(I16), Scalar::Int(i16::MIN.into()));
        assert_eq!(Scalar::Int(300).cast(U8), Scalar::UInt(44));
        assert_eq!(Scalar::Float(f64::NAN).cast(I32), Scalar::Int(0));
        assert_eq!(Scalar::Int(-1).cast(U16), Scalar::UInt(65535));
        assert_eq!(Scalar::Float(0.1).cast(F32), Scalar::Float(f64::from(0.1f32)));
        assert_eq!(Scalar::Float(f64::NAN).cast(Bool), Scalar::Bool(true));
    }
}
