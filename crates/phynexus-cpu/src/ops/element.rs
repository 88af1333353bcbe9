//! Element types and their combination in scans and scatters.

use half::{bf16, f16};
use phynexus::Element;
use phynexus::op::Combine;

/// An element and the type in which it is combined: `f32` for 16-bit floats, `f64` in [`InDouble`], otherwise its own
/// type.
pub(super) trait Combinable: Copy + Send + Sync + 'static {
    type Accumulator: Element;
    fn widen(self) -> Self::Accumulator;
    fn narrow(accumulator: Self::Accumulator) -> Self;
    fn add(a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator;
    fn mul(a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator;
    /// NaN if either is NaN.
    fn max(a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator;
    /// NaN if either is NaN.
    fn min(a: Self::Accumulator, b: Self::Accumulator) -> Self::Accumulator;
}

macro_rules! combinable {
    ($($t:ty, $a:ty, |$x:ident| $widen:expr, |$y:ident| $narrow:expr, $add:expr, $mul:expr, $nan:expr;)*) => {
        $(impl Combinable for $t {
            type Accumulator = $a;
            #[inline(always)]
            fn widen(self) -> $a {
                let $x = self;
                $widen
            }
            #[inline(always)]
            fn narrow($y: $a) -> $t {
                $narrow
            }
            #[inline(always)]
            fn add(a: $a, b: $a) -> $a {
                $add(a, b)
            }
            #[inline(always)]
            fn mul(a: $a, b: $a) -> $a {
                $mul(a, b)
            }
            #[inline(always)]
            fn max(a: $a, b: $a) -> $a {
                if a > b || $nan(a) { a } else { b }
            }
            #[inline(always)]
            fn min(a: $a, b: $a) -> $a {
                if a < b || $nan(a) { a } else { b }
            }
        })*
    };
}

macro_rules! own {
    ($($t:ty, $add:expr, $mul:expr, $nan:expr;)*) => {
        combinable!($($t, $t, |x| x, |y| y, $add, $mul, $nan;)*);
    };
}

own!(
    u8, u8::wrapping_add, u8::wrapping_mul, |_| false;
    u16, u16::wrapping_add, u16::wrapping_mul, |_| false;
    u32, u32::wrapping_add, u32::wrapping_mul, |_| false;
    u64, u64::wrapping_add, u64::wrapping_mul, |_| false;
    i8, i8::wrapping_add, i8::wrapping_mul, |_| false;
    i16, i16::wrapping_add, i16::wrapping_mul, |_| false;
    i32, i32::wrapping_add, i32::wrapping_mul, |_| false;
    i64, i64::wrapping_add, i64::wrapping_mul, |_| false;
    f32, |a, b| a + b, |a, b| a * b, f32::is_nan;
    f64, |a, b| a + b, |a, b| a * b, f64::is_nan;
);

/// A float that is combined in `f64`: a running sum of many elements would lose too much precision in `f32`. It is rounded
/// to 16 bits through `f32`, as elsewhere.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct InDouble<T>(T);

combinable!(
    InDouble<f16>, f64, |x| x.0.to_f64(), |y| InDouble(f16::from_f32(y as f32)), |a, b| a + b, |a, b| a * b, f64::is_nan;
    InDouble<bf16>, f64, |x| x.0.to_f64(), |y| InDouble(bf16::from_f32(y as f32)), |a, b| a + b, |a, b| a * b, f64::is_nan;
    InDouble<f32>, f64, |x| f64::from(x.0), |y| InDouble(y as f32), |a, b| a + b, |a, b| a * b, f64::is_nan;
    f16, f32, |x| x.to_f32(), |y| f16::from_f32(y), |a, b| a + b, |a, b| a * b, f32::is_nan;
    bf16, f32, |x| x.to_f32(), |y| bf16::from_f32(y), |a, b| a + b, |a, b| a * b, f32::is_nan;
);

/// The [`Combinable`] with which an element is scanned.
pub(super) trait Scannable {
    type Combinable: Combinable;
}

macro_rules! scannable {
    ($($t:ty => $combinable:ty),*) => {
        $(impl Scannable for $t {
            type Combinable = $combinable;
        })*
    };
}
scannable!(
    u8 => u8, u16 => u16, u32 => u32, u64 => u64, i8 => i8, i16 => i16, i32 => i32, i64 => i64,
    f16 => InDouble<f16>, bf16 => InDouble<bf16>, f32 => InDouble<f32>, f64 => f64
);

/// A combination of two accumulators as a type, so that a loop is compiled for each.
pub(super) trait Combiner<T: Combinable>: Copy + Send + Sync {
    fn combine(a: T::Accumulator, b: T::Accumulator) -> T::Accumulator;
    /// The neutral element.
    fn identity() -> T::Accumulator;
}

macro_rules! combiner {
    ($($name:ident $f:ident $combine:ident),*) => {
        $(#[derive(Clone, Copy)]
        pub(super) struct $name;
        impl<T: Combinable> Combiner<T> for $name {
            #[inline(always)]
            fn combine(a: T::Accumulator, b: T::Accumulator) -> T::Accumulator {
                T::$f(a, b)
            }
            fn identity() -> T::Accumulator {
                T::Accumulator::from_scalar(Combine::$combine.identity(T::Accumulator::DTYPE))
            }
        })*
    };
}
combiner!(Add add Sum, Multiply mul Prod, Greatest max Max, Least min Min);

/// Evaluates an expression with the [`Combiner`] of a combination bound to a name.
macro_rules! by_combine {
    ($combine:expr, $c:ident => $body:expr) => {{
        use $crate::ops::element;
        macro_rules! with {
            ($type:ty) => {{
                type $c = $type;
                $body
            }};
        }
        match $combine {
            Combine::Sum => with!(element::Add),
            Combine::Prod => with!(element::Multiply),
            Combine::Max => with!(element::Greatest),
            Combine::Min => with!(element::Least),
        }
    }};
}
pub(super) use by_combine;

/// True if the combination is supported: sums and products of `bool` are not.
pub(super) fn combines(dtype: phynexus::DType, combine: Combine) -> bool {
    dtype != phynexus::DType::Bool || matches!(combine, Combine::Max | Combine::Min)
}
