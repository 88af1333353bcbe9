//! Scales and zero points.

use neurenix_onnx::{
    edit::{floats as stored_floats, integers, stored},
    proto::TensorProto,
};
use phynexus::{DType, Device, Tensor};

use crate::{Error, Format, Result};

/// The range of a tensor's numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Range {
    pub(crate) least: f64,
    pub(crate) greatest: f64,
}

impl Range {
    /// The range of nothing but zero.
    pub(crate) const ZERO: Range = Range { least: 0.0, greatest: 0.0 };

    /// The least range of zero and these numbers.
    pub(crate) fn of(numbers: &[f32]) -> Range {
        numbers
            .iter()
            .fold(Range::ZERO, |range, &x| range.union(Range { least: x.into(), greatest: x.into() }))
    }

    /// The least range that has both.
    pub(crate) fn union(self, other: Range) -> Range {
        Range { least: self.least.min(other.least), greatest: self.greatest.max(other.greatest) }
    }

    /// The greatest absolute number.
    pub(crate) fn magnitude(self) -> f64 {
        self.least.abs().max(self.greatest.abs())
    }
}

/// How integers stand for numbers: `x = scale (q - zero_point)`. For float formats, the zero point is 0.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scheme {
    pub(crate) scale: f32,
    pub(crate) zero_point: i64,
}

impl Scheme {
    /// The scheme that covers a range, which is extended to zero. A symmetric one has a zero point in the middle and
    /// uses as many numbers below it as above.
    pub(crate) fn of_range(range: Range, format: Format, symmetric: bool) -> Scheme {
        let Range { least, greatest } = range.union(Range::ZERO);
        let (lowest, highest) = format.range();
        let magnitude = least.abs().max(greatest);
        if format.is_float() {
            return Scheme { scale: positive(magnitude / highest), zero_point: 0 };
        }
        if symmetric {
            let zero_point = ((lowest + highest) / 2.0).ceil();
            return Scheme {
                scale: positive(magnitude / (highest - zero_point)),
                zero_point: zero_point as i64,
            };
        }
        let mut scale = positive((greatest - least) / (highest - lowest));
        // Not beyond the greatest number, which may be the limit of a rectifier.
        if least == 0.0 && f64::from(scale * (highest - lowest) as f32) > greatest && greatest > 0.0 {
            scale = scale.next_down().max(f32::MIN_POSITIVE);
        }
        let zero_point = (lowest - least / f64::from(scale)).round_ties_even().clamp(lowest, highest);
        Scheme { scale, zero_point: zero_point as i64 }
    }

    /// A number as an integer of the format, rounded to even and saturated as `QuantizeLinear` does.
    pub(crate) fn quantize(self, x: f32, format: Format, symmetric: bool) -> i64 {
        let (lowest, highest) = bounds(format, symmetric);
        let whole = f64::from((x / self.scale).round_ties_even()) + self.zero_point as f64;
        whole.clamp(lowest, highest) as i64
    }
}

/// The least and the greatest integer that numbers become. Symmetric ones have as many below zero as above, apart from
/// those of 4 bits, where one more number of sixteen counts.
pub(crate) fn bounds(format: Format, symmetric: bool) -> (f64, f64) {
    let (lowest, highest) = format.range();
    match symmetric && !format.is_unsigned() && format.bits() > 4 {
        true => (-highest, highest),
        false => (lowest, highest),
    }
}

/// A scale: a positive number of `float32`. Where there is nothing but zero, any scale is exact.
fn positive(scale: f64) -> f32 {
    let scale = if scale > 0.0 { scale } else { 1.0 };
    (scale as f32).clamp(f32::MIN_POSITIVE, f32::MAX)
}

/// The scale of a normalization's bias, whose integers have up to 24 bits: floats hold them exactly, and no result has
/// steps as fine.
pub(crate) fn bias_scale(bias: &[f32]) -> f32 {
    positive(Range::of(bias).magnitude() / f64::from(1 << 23))
}

/// Checks a stored tensor: NaN and infinities have no integers.
///
/// # Errors
/// [`Error::NotFinite`] with the first such number.
pub(crate) fn check_finite(name: &str, numbers: &[f32]) -> Result<()> {
    match numbers.iter().find(|number| !number.is_finite()) {
        Some(&found) => Err(Error::NotFinite { value: name.to_owned(), found, sample: None }),
        None => Ok(()),
    }
}

/// A tensor of numbers in a format: one scheme, or one for each index of an axis.
pub(crate) struct Packed {
    pub(crate) numbers: TensorProto,
    pub(crate) scale: TensorProto,
    pub(crate) zero_point: TensorProto,
}

/// The names of a tensor's parts.
pub(crate) struct Names<'a> {
    pub(crate) numbers: &'a str,
    pub(crate) scale: &'a str,
    pub(crate) zero_point: &'a str,
}

/// Which elements of a tensor each scheme is for.
#[derive(Clone, Copy)]
pub(crate) struct Channels {
    /// How many schemes there are.
    pub(crate) count: usize,
    /// The number of adjacent elements of a channel.
    pub(crate) inner: usize,
}

impl Channels {
    /// Those of an axis, or all elements as one.
    pub(crate) fn of(shape: &[usize], axis: Option<usize>) -> Channels {
        match axis.and_then(|axis| Some((shape.get(axis)?, shape.get(axis + 1..)?))) {
            Some((&count, after)) => Channels { count, inner: after.iter().product() },
            None => Channels { count: 1, inner: 1 },
        }
    }

    /// The channel of an element.
    pub(crate) fn of_element(self, element: usize) -> usize {
        element / self.inner.max(1) % self.count.max(1)
    }

    /// The numbers of each channel.
    pub(crate) fn split(self, numbers: &[f32]) -> Vec<Vec<f32>> {
        let mut parts = vec![Vec::new(); self.count];
        for (element, &x) in numbers.iter().enumerate() {
            if let Some(part) = parts.get_mut(self.of_element(element)) {
                part.push(x);
            }
        }
        parts
    }
}

/// A stored tensor in a format. `schemes` has one scheme for each channel.
pub(crate) fn pack(
    names: &Names<'_>,
    shape: &[usize],
    numbers: &[f32],
    channels: Channels,
    format: Format,
    schemes: &[Scheme],
    symmetric: bool,
) -> Result<Packed> {
    let own = |element: usize| schemes.get(channels.of_element(element)).copied();
    let own = |element: usize| own(element).unwrap_or(Scheme { scale: 1.0, zero_point: 0 });
    let numbers = if format.is_float() {
        let (lowest, highest) = format.range();
        let quotients: Vec<f32> = (numbers.iter().enumerate())
            .map(|(at, x)| (x / own(at).scale).clamp(lowest as f32, highest as f32))
            .collect();
        let dtype = format.element().dtype().unwrap_or(DType::F32);
        let tensor = Tensor::from_slice(&quotients, shape, Device::find("cpu")?)?.to_dtype(dtype)?;
        stored(names.numbers, &tensor)?
    } else {
        let whole: Vec<i64> =
            numbers.iter().enumerate().map(|(at, &x)| own(at).quantize(x, format, symmetric)).collect();
        integers(names.numbers, format.element(), shape, &whole)
    };
    let parameter_shape: &[usize] =
        if schemes.len() == 1 && channels.count == 1 { &[] } else { &[schemes.len()] };
    let scales: Vec<f32> = schemes.iter().map(|scheme| scheme.scale).collect();
    let zero_points: Vec<i64> = schemes.iter().map(|scheme| scheme.zero_point).collect();
    Ok(Packed {
        numbers,
        scale: stored_floats(names.scale, parameter_shape, &scales),
        zero_point: integers(names.zero_point, format.element(), parameter_shape, &zero_points),
    })
}
