//! The number formats of quantized tensors.

use neurenix_onnx::Element;
use serde::{Deserialize, Serialize};

/// A number format of quantized tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Format {
    /// Integers from 0 to 255.
    Uint8,
    /// Integers from -128 to 127; symmetric ones from -127.
    Int8,
    /// Integers from 0 to 65535.
    Uint16,
    /// Integers from -32768 to 32767; symmetric ones from -32767.
    Int16,
    /// Integers from -8 to 7.
    Int4,
    /// Integers from 0 to 15.
    Uint4,
    /// Floats with 4 exponent and 3 mantissa bits, up to 448.
    Float8E4M3,
    /// Floats with 5 exponent and 2 mantissa bits, up to 57344.
    Float8E5M2,
}

impl Format {
    /// All formats.
    pub const ALL: [Format; 8] = [
        Format::Uint8,
        Format::Int8,
        Format::Uint16,
        Format::Int16,
        Format::Int4,
        Format::Uint4,
        Format::Float8E4M3,
        Format::Float8E5M2,
    ];

    /// The least and the greatest number.
    pub fn range(self) -> (f64, f64) {
        match self {
            Format::Uint8 => (0.0, 255.0),
            Format::Int8 => (-128.0, 127.0),
            Format::Uint16 => (0.0, 65535.0),
            Format::Int16 => (-32768.0, 32767.0),
            Format::Int4 => (-8.0, 7.0),
            Format::Uint4 => (0.0, 15.0),
            Format::Float8E4M3 => (-448.0, 448.0),
            Format::Float8E5M2 => (-57344.0, 57344.0),
        }
    }

    /// ONNX's element type.
    pub fn element(self) -> Element {
        match self {
            Format::Uint8 => Element::Uint8,
            Format::Int8 => Element::Int8,
            Format::Uint16 => Element::Uint16,
            Format::Int16 => Element::Int16,
            Format::Int4 => Element::Int4,
            Format::Uint4 => Element::Uint4,
            Format::Float8E4M3 => Element::Float8E4M3FN,
            Format::Float8E5M2 => Element::Float8E5M2,
        }
    }

    /// Bits of one element.
    pub fn bits(self) -> usize {
        self.element().bits()
    }

    /// Whether its numbers are floats.
    pub fn is_float(self) -> bool {
        matches!(self, Format::Float8E4M3 | Format::Float8E5M2)
    }

    /// Whether it has no negative numbers.
    pub fn is_unsigned(self) -> bool {
        self.range().0 == 0.0
    }

    /// The format of this element type.
    pub fn of_element(element: Element) -> Option<Format> {
        Format::ALL.into_iter().find(|format| format.element() == element)
    }

    /// The least opset in which `QuantizeLinear` makes such numbers.
    pub fn opset(self) -> i64 {
        match self {
            // 13 brings scales per channel.
            Format::Uint8 | Format::Int8 => 13,
            Format::Float8E4M3 | Format::Float8E5M2 => 19,
            Format::Uint16 | Format::Int16 | Format::Int4 | Format::Uint4 => 21,
        }
    }
}

impl std::fmt::Display for Format {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(match self {
            Format::Uint8 => "uint8",
            Format::Int8 => "int8",
            Format::Uint16 => "uint16",
            Format::Int16 => "int16",
            Format::Int4 => "int4",
            Format::Uint4 => "uint4",
            Format::Float8E4M3 => "float8_e4m3",
            Format::Float8E5M2 => "float8_e5m2",
        })
    }
}
