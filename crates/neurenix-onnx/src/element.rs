//! ONNX's element types.

use phynexus::DType;

/// The element type of an ONNX tensor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are ONNX's")]
pub enum Element {
    Float = 1,
    Uint8 = 2,
    Int8 = 3,
    Uint16 = 4,
    Int16 = 5,
    Int32 = 6,
    Int64 = 7,
    String = 8,
    Bool = 9,
    Float16 = 10,
    Double = 11,
    Uint32 = 12,
    Uint64 = 13,
    Complex64 = 14,
    Complex128 = 15,
    Bfloat16 = 16,
    Float8E4M3FN = 17,
    Float8E4M3FNUZ = 18,
    Float8E5M2 = 19,
    Float8E5M2FNUZ = 20,
    Uint4 = 21,
    Int4 = 22,
    Float4E2M1 = 23,
    Float8E8M0 = 24,
    Uint2 = 25,
    Int2 = 26,
}

impl Element {
    /// All element types.
    pub const ALL: [Element; 26] = [
        Element::Float,
        Element::Uint8,
        Element::Int8,
        Element::Uint16,
        Element::Int16,
        Element::Int32,
        Element::Int64,
        Element::String,
        Element::Bool,
        Element::Float16,
        Element::Double,
        Element::Uint32,
        Element::Uint64,
        Element::Complex64,
        Element::Complex128,
        Element::Bfloat16,
        Element::Float8E4M3FN,
        Element::Float8E4M3FNUZ,
        Element::Float8E5M2,
        Element::Float8E5M2FNUZ,
        Element::Uint4,
        Element::Int4,
        Element::Float4E2M1,
        Element::Float8E8M0,
        Element::Uint2,
        Element::Int2,
    ];

    /// The type with this number in ONNX's files.
    pub fn of_number(number: i64) -> Option<Element> {
        Element::ALL.into_iter().find(|element| *element as i64 == number)
    }

    /// The type of a tensor of this dtype.
    pub fn of_dtype(dtype: DType) -> Element {
        match dtype {
            DType::Bool => Element::Bool,
            DType::U8 => Element::Uint8,
            DType::U16 => Element::Uint16,
            DType::U32 => Element::Uint32,
            DType::U64 => Element::Uint64,
            DType::I8 => Element::Int8,
            DType::I16 => Element::Int16,
            DType::I32 => Element::Int32,
            DType::I64 => Element::Int64,
            DType::F8E4M3 => Element::Float8E4M3FN,
            DType::F8E5M2 => Element::Float8E5M2,
            DType::F16 => Element::Float16,
            DType::BF16 => Element::Bfloat16,
            DType::F32 => Element::Float,
            DType::F64 => Element::Double,
        }
    }

    /// The dtype of tensors that hold such elements: the engine's own, or one that has all their values. `None` for
    /// strings and complex numbers.
    pub fn dtype(self) -> Option<DType> {
        Some(match self {
            Element::Bool => DType::Bool,
            Element::Uint8 | Element::Uint4 | Element::Uint2 => DType::U8,
            Element::Uint16 => DType::U16,
            Element::Uint32 => DType::U32,
            Element::Uint64 => DType::U64,
            Element::Int8 | Element::Int4 | Element::Int2 => DType::I8,
            Element::Int16 => DType::I16,
            Element::Int32 => DType::I32,
            Element::Int64 => DType::I64,
            Element::Float8E4M3FN => DType::F8E4M3,
            Element::Float8E5M2 => DType::F8E5M2,
            Element::Float16 => DType::F16,
            Element::Bfloat16 => DType::BF16,
            Element::Float
            | Element::Float8E4M3FNUZ
            | Element::Float8E5M2FNUZ
            | Element::Float4E2M1
            | Element::Float8E8M0 => DType::F32,
            Element::Double => DType::F64,
            Element::String | Element::Complex64 | Element::Complex128 => return None,
        })
    }

    /// True if the engine lacks the type: tensors of [`Element::dtype`] hold its values.
    pub fn is_narrow(self) -> bool {
        self.dtype().is_some_and(|dtype| Element::of_dtype(dtype) != self)
    }

    /// Bits of one element; 0 for strings.
    pub fn bits(self) -> usize {
        match self {
            Element::String => 0,
            Element::Uint2 | Element::Int2 => 2,
            Element::Uint4 | Element::Int4 | Element::Float4E2M1 => 4,
            Element::Float8E4M3FNUZ | Element::Float8E5M2FNUZ | Element::Float8E8M0 => 8,
            Element::Complex64 => 64,
            Element::Complex128 => 128,
            other => other.dtype().map_or(0, |dtype| 8 * dtype.size()),
        }
    }

    /// The value of the lowest [`Element::bits`] bits, for narrow types.
    pub(crate) fn decode(self, code: u8) -> f32 {
        match self {
            Element::Uint2 => f32::from(code & 3),
            Element::Int2 => f32::from((code << 6) as i8 >> 6),
            Element::Uint4 => f32::from(code & 15),
            Element::Int4 => f32::from((code << 4) as i8 >> 4),
            Element::Float4E2M1 => small_float(code & 15, 2, 1, 1),
            Element::Float8E8M0 if code == 255 => f32::NAN,
            Element::Float8E8M0 => (f64::from(code) - 127.0).exp2() as f32,
            Element::Float8E4M3FNUZ | Element::Float8E5M2FNUZ if code == 0x80 => f32::NAN,
            Element::Float8E4M3FNUZ => small_float(code, 4, 3, 8),
            Element::Float8E5M2FNUZ => small_float(code, 5, 2, 16),
            _ => f32::from(code),
        }
    }
}

/// The value of a float with a sign, so many exponent and mantissa bits, and no infinities or NaN.
fn small_float(code: u8, exponent_bits: u32, mantissa_bits: u32, bias: i32) -> f32 {
    let negative = code >> (exponent_bits + mantissa_bits) & 1 == 1;
    let exponent = i32::from(code >> mantissa_bits) & ((1 << exponent_bits) - 1);
    let mantissa = f32::from(code & ((1 << mantissa_bits) - 1)) / (1 << mantissa_bits) as f32;
    let magnitude = match exponent {
        0 => mantissa * ((1 - bias) as f32).exp2(),
        _ => (1.0 + mantissa) * ((exponent - bias) as f32).exp2(),
    };
    if negative { -magnitude } else { magnitude }
}
