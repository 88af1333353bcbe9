//! Maps a run-time dtype to a Rust type.

/// Evaluates an expression with the Rust type of a dtype bound to a name. The type for `bool` is given by the caller:
/// `bool`, or `u8` for the bytes 0 and 1. There is none for 8-bit floats: operations that compute with elements refuse
/// them when they are recorded.
macro_rules! by_dtype {
    ($dtype:expr, bool is $bool:ty, $t:ident => $body:expr) => {{
        use phynexus::DType;
        macro_rules! with {
            ($type:ty) => {{
                type $t = $type;
                $body
            }};
        }
        match $dtype {
            DType::Bool => with!($bool),
            DType::U8 => with!(u8),
            DType::U16 => with!(u16),
            DType::U32 => with!(u32),
            DType::U64 => with!(u64),
            DType::I8 => with!(i8),
            DType::I16 => with!(i16),
            DType::I32 => with!(i32),
            DType::I64 => with!(i64),
            DType::F16 => with!(half::f16),
            DType::BF16 => with!(half::bf16),
            DType::F32 => with!(f32),
            DType::F64 => with!(f64),
            DType::F8E4M3 | DType::F8E5M2 => unreachable!("an operation that computes with 8-bit floats"),
        }
    }};
}
pub(crate) use by_dtype;
