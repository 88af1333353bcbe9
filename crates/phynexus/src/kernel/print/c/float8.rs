//! Conversions of 8-bit floats.

use super::{CFamily, Dialect, Printer};
use crate::{DType, Float8};

impl Printer<'_, CFamily> {
    /// The number of these bits.
    pub(super) fn float8_value(&mut self, dtype: DType, format: Float8, bits: &str) -> String {
        let word = self.language().memory_type(DType::U32);
        let normal = format!("(({word})(bits & 0x7f) + {}u) << {}", format.bias(), format.shift());
        let [normal, of_value] =
            [(DType::U32, DType::F32, normal.as_str()), (DType::F32, DType::U32, "value")]
                .map(|(from, to, what)| self.bitcast(from, to, what));
        let signed =
            self.bitcast(DType::U32, DType::F32, &format!("{of_value} | ({word})(bits & 0x80) << 24"));
        let [infinity, nan] = [false, true].map(|nan| self.special(DType::F32, nan));
        let (least, quantum) =
            (1 << format.stored, self.literal(DType::F32, f64::from(format.quantum()).into()));
        let infinite = match format.overflow == format.nan {
            true => String::new(),
            false => format!("if ((bits & 0x7f) == {}) value = {infinity}; ", format.overflow),
        };
        let body = format!(
            "float value = (bits & 0x7f) < {least} ? (float)(bits & 0x7f) * {quantum} : {normal}; \
             if ((bits & 0x7f) > {}) value = {nan}; {infinite}return {signed};",
            format.greatest
        );
        let parameter = format!("{} bits", self.language().memory_type(dtype));
        let name = self.define(format!("{dtype}_to_float"), "float", &parameter, &body);
        format!("{name}({bits})")
    }

    /// The bits of a `float`; see [`Float8::from_f32`].
    pub(super) fn float8_bits(&mut self, dtype: DType, format: Float8, number: &str) -> String {
        let (word, byte) = (self.language().memory_type(DType::U32), self.language().memory_type(dtype));
        let (shift, aligned) = (format.shift(), format.aligned_bits());
        let bits = self.bitcast(DType::F32, DType::U32, "value");
        let magnitude = self.bitcast(DType::U32, DType::F32, "a");
        let zero_point = self.literal(DType::F32, f64::from(f32::from_bits(aligned)).into());
        let sum = self.bitcast(DType::F32, DType::U32, &format!("{magnitude} + {zero_point}"));
        let body = format!(
            "{word} bits = {bits}, a = bits & 0x7fffffffu, rounded; \
             if (a < {}u) rounded = {sum} - {aligned}u; \
             else rounded = (a + {}u + (a >> {shift} & 1) >> {shift}) - {}u; \
             if (rounded > {}u) rounded = {}u; if (a > 0x7f800000u) rounded = {}u; \
             return ({byte})(rounded | (bits >> 24 & 0x80));",
            format.least_bits(),
            (1u32 << (shift - 1)) - 1,
            format.bias(),
            format.greatest,
            format.overflow,
            format.nan
        );
        let name = self.define(format!("{dtype}_from_float"), byte, "float value", &body);
        format!("{name}({number})")
    }
}
