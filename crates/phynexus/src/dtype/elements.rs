//! Elements of any dtype, in host memory and as bytes.

use std::borrow::Cow;

use half::{bf16, f16};

use super::{
    DType, Element, Scalar,
    float8::{F8E4M3, F8E5M2},
};

macro_rules! elements {
    ($($variant:ident $t:ty),+) => {
        /// Elements in memory of the host, to read.
        #[allow(missing_docs)]
        pub enum Elements<'a> {
            $($variant(Cow<'a, [$t]>)),+
        }

        /// Elements in memory of the host, to write.
        #[allow(missing_docs)]
        pub enum ElementsMut<'a> {
            $($variant(&'a mut [$t])),+
        }

        impl Elements<'_> {
            /// Returns the dtype.
            pub fn dtype(&self) -> DType {
                match self { $(Elements::$variant(_) => DType::$variant),+ }
            }
            /// Reads little-endian bytes.
            pub(crate) fn from_bytes(dtype: DType, bytes: &[u8]) -> Elements<'static> {
                match dtype { $(DType::$variant => Elements::$variant(Cow::Owned(<$t>::read_bytes(bytes)))),+ }
            }
            /// Appends little-endian bytes.
            pub(crate) fn write_bytes(&self, out: &mut Vec<u8>) {
                match self { $(Elements::$variant(values) => <$t>::write_bytes(values, out)),+ }
            }
            /// Returns mutable elements. Borrowed ones are copied first.
            pub(crate) fn to_mut(&mut self) -> ElementsMut<'_> {
                match self { $(Elements::$variant(values) => ElementsMut::$variant(values.to_mut())),+ }
            }
        }

        impl ElementsMut<'_> {
            /// Returns the dtype.
            pub fn dtype(&self) -> DType {
                match self { $(ElementsMut::$variant(_) => DType::$variant),+ }
            }
            /// Copies elements from `others`, which must have the same dtype and length.
            pub(crate) fn copy_from(&mut self, others: &Elements<'_>) {
                match (self, others) {
                    $((ElementsMut::$variant(own), Elements::$variant(others)) => own.copy_from_slice(others),)+
                    _ => {}
                }
            }
        }
    };
}

elements!(
    Bool bool, U8 u8, U16 u16, U32 u32, U64 u64, I8 i8, I16 i16, I32 i32, I64 i64, F8E4M3 F8E4M3, F8E5M2 F8E5M2, F16 f16, BF16 bf16, F32 f32, F64 f64
);

/// Returns the bytes of a scalar as an element of `dtype`.
pub fn scalar_bytes(scalar: Scalar, dtype: DType) -> smallvec::SmallVec<[u8; 8]> {
    macro_rules! bytes {
        ($t:ty) => {
            <$t>::from_scalar(scalar).to_le_bytes().as_slice().into()
        };
    }
    match dtype {
        DType::Bool => [u8::from(scalar.as_bool())].as_slice().into(),
        DType::U8 => bytes!(u8),
        DType::U16 => bytes!(u16),
        DType::U32 => bytes!(u32),
        DType::U64 => bytes!(u64),
        DType::I8 => bytes!(i8),
        DType::I16 => bytes!(i16),
        DType::I32 => bytes!(i32),
        DType::I64 => bytes!(i64),
        DType::F8E4M3 => bytes!(F8E4M3),
        DType::F8E5M2 => bytes!(F8E5M2),
        DType::F16 => bytes!(f16),
        DType::BF16 => bytes!(bf16),
        DType::F32 => bytes!(f32),
        DType::F64 => bytes!(f64),
    }
}

/// Reads the elements in these little-endian bytes.
pub fn read_scalars(bytes: &[u8], dtype: DType) -> Vec<Scalar> {
    fn read<T: Element>(bytes: &[u8]) -> Vec<Scalar> {
        T::read_bytes(bytes).into_iter().map(T::to_scalar).collect()
    }
    match dtype {
        DType::Bool => read::<bool>(bytes),
        DType::U8 => read::<u8>(bytes),
        DType::U16 => read::<u16>(bytes),
        DType::U32 => read::<u32>(bytes),
        DType::U64 => read::<u64>(bytes),
        DType::I8 => read::<i8>(bytes),
        DType::I16 => read::<i16>(bytes),
        DType::I32 => read::<i32>(bytes),
        DType::I64 => read::<i64>(bytes),
        DType::F8E4M3 => read::<F8E4M3>(bytes),
        DType::F8E5M2 => read::<F8E5M2>(bytes),
        DType::F16 => read::<f16>(bytes),
        DType::BF16 => read::<bf16>(bytes),
        DType::F32 => read::<f32>(bytes),
        DType::F64 => read::<f64>(bytes),
    }
}
