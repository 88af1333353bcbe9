//! Resize and Upsample: each axis is resampled on its own, with neighbours and weights that the host computes.

use phynexus::{DType, Tensor, host_memory};

use super::{floats, wide};
use crate::{
    Error, Result, Value,
    graph::{Call, one},
    ops::table_size,
};

/// The greatest number of neighbours that are taken one by one. The weights of more become a matrix.
const FEW: usize = 4;

/// How samples are made of their neighbours.
struct Method<'a> {
    coordinates: &'a str,
    mode: &'a str,
    nearest: &'a str,
    cubic: f64,
    antialias: bool,
    exclude_outside: bool,
    extrapolation: f64,
}

/// An axis and what becomes of it.
struct Axis {
    axis: usize,
    old: usize,
    new: usize,
    /// The new extent before it was rounded.
    length: f64,
    /// The part to crop to, as fractions.
    region: (f64, f64),
}

pub(super) fn resize(call: &Call<'_>) -> Result<Vec<Value>> {
    let x = call.tensor(0)?;
    // Before opset 11, only the mode could be chosen.
    let old = call.opset() < 11 || call.node.operator == "Upsample";
    let cropped = call.string_or("coordinate_transformation_mode", "half_pixel")? == "tf_crop_and_resize";
    let method = Method {
        coordinates: if old {
            "asymmetric"
        } else {
            call.string_or("coordinate_transformation_mode", "half_pixel")?
        },
        mode: call.string_or("mode", "nearest")?,
        nearest: if old { "simple" } else { call.string_or("nearest_mode", "round_prefer_floor")? },
        cubic: call.float_or("cubic_coeff_a", -0.75)?,
        antialias: call.int_or("antialias", 0)? != 0,
        exclude_outside: call.int_or("exclude_outside", 0)? != 0,
        extrapolation: call.float_or("extrapolation_value", 0.0)?,
    };
    let axes: Vec<Axis> =
        axes(call, x.shape(), old, cropped)?.into_iter().filter(|axis| !axis.is_kept()).collect();
    if let Some(axis) = axes.iter().find(|axis| axis.old == 0 && axis.new > 0) {
        return Err(Error::invalid(format!(
            "axis {} is empty and cannot be resized to {}",
            axis.axis, axis.new
        )));
    }
    if axes.iter().any(|axis| axis.new == 0) {
        let mut shape = x.shape().to_vec();
        axes.iter().for_each(|axis| shape[axis.axis] = axis.new);
        return one(Tensor::zeros(&shape, x.dtype(), call.device)?);
    }
    let nearest = match method.mode {
        "nearest" => true,
        "linear" | "cubic" => false,
        other => return Err(Error::invalid(format!("mode {other:?}: there are nearest, linear and cubic"))),
    };
    let mut y = if nearest { x.clone() } else { x.to_dtype(wide(x.dtype()))? };
    for axis in &axes {
        let places = axis.places(method.coordinates)?;
        y = if nearest {
            axis.nearest(&y, &places, method.nearest)?
        } else {
            axis.weighted(&y, &places, &method)?
        };
        let last = axis.old as f64 - 1.0;
        if method.coordinates == "tf_crop_and_resize" && places.iter().any(|&at| at < 0.0 || at > last) {
            let outside: Vec<bool> = places.iter().map(|&at| at < 0.0 || at > last).collect();
            let outside = Tensor::from_slice(&outside, &axis.along(y.shape(), axis.new), call.device)?;
            y = outside.where_(&y.full_like(method.extrapolation)?, &y)?;
        }
    }
    if !nearest && !x.dtype().is_float() {
        y = to_integers(&y, x.dtype())?;
    }
    one(y.to_dtype(x.dtype())?)
}

/// Rounds floats, and clamps them to the range of an integer type.
fn to_integers(x: &Tensor, dtype: DType) -> Result<Tensor> {
    let bits = 8 * dtype.size() as i32;
    let (least, greatest) = match dtype {
        DType::Bool => (0.0, 1.0),
        DType::U8 | DType::U16 | DType::U32 | DType::U64 => (0.0, 2f64.powi(bits) - 1.0),
        _ => (-2f64.powi(bits - 1), 2f64.powi(bits - 1) - 1.0),
    };
    Ok(x.round()?.clamp(Some(least.into()), Some(greatest.into()))?)
}

/// The axes that `sizes` or `scales` name.
fn axes(call: &Call<'_>, shape: &[usize], old: bool, cropped: bool) -> Result<Vec<Axis>> {
    let places = match call.ints("axes")? {
        Some(axes) => {
            axes.into_iter().map(|axis| call.axis(axis, shape.len())).collect::<Result<Vec<_>>>()?
        }
        None => (0..shape.len()).collect(),
    };
    let fit = |what: &str, count: usize, expected: usize| match count == expected {
        true => Ok(()),
        false => Err(Error::invalid(format!("{what} has {count} numbers, it needs {expected}"))),
    };
    let given = |input: usize| call.has(input).then(|| call.floats(input)).transpose();
    let scales = match call.float_list("scales")? {
        Some(scales) => Some(scales.into_iter().map(f64::from).collect()),
        None => given(if old { 1 } else { 2 })?,
    };
    let sizes = if old { None } else { call.optional_integers(3)? };
    let region = match cropped {
        true => call.floats(1)?,
        false => [vec![0.0; places.len()], vec![1.0; places.len()]].concat(),
    };
    fit("roi", region.len(), 2 * places.len())?;
    // Files of opset 11 have an empty input in place of one that is left out. As in ONNX's shape inference, a region
    // does not change the extents that scales give.
    let extents: Vec<(usize, f64)> = match (scales.filter(|all| !all.is_empty()), sizes) {
        (Some(scales), _) => {
            fit("scales", scales.len(), places.len())?;
            if let Some(bad) = scales.iter().find(|scale| !(scale.is_finite() && **scale > 0.0)) {
                return Err(Error::invalid(format!("scales must be positive and finite, not {bad}")));
            }
            places.iter().zip(scales).map(|(&axis, scale)| scaled(shape[axis], scale)).collect()
        }
        (None, Some(sizes)) => {
            fit("sizes", sizes.len(), places.len())?;
            let sizes = sizes.iter().map(|&size| usize::try_from(size)).collect::<Result<Vec<_>, _>>();
            let sizes = sizes.map_err(|_| Error::invalid("sizes must not be negative"))?;
            let policy = call.string_or("keep_aspect_ratio_policy", "stretch")?;
            let ratios = sizes.iter().zip(&places).map(|(&size, &axis)| size as f64 / shape[axis] as f64);
            let ratio = match policy {
                "stretch" => None,
                "not_larger" => Some(ratios.fold(f64::INFINITY, f64::min)),
                "not_smaller" => Some(ratios.fold(0.0, f64::max)),
                other => {
                    return Err(Error::invalid(format!("keep_aspect_ratio_policy {other:?} is unknown")));
                }
            };
            let extent = |(&axis, &size): (&usize, &usize)| match ratio {
                None => (size, size as f64),
                Some(ratio) => {
                    let length = ratio * shape[axis] as f64;
                    ((length + 0.5).floor() as usize, length)
                }
            };
            places.iter().zip(&sizes).map(extent).collect()
        }
        (None, None) if places.is_empty() => Vec::new(),
        (None, None) => return Err(Error::invalid("neither scales nor sizes are given")),
    };
    let axis = |(at, (&axis, &(new, length))): (usize, (&usize, &(usize, f64)))| {
        let region = (region[at], region[at + places.len()]);
        Axis { axis, old: shape[axis], new, length, region }
    };
    Ok(places.iter().zip(&extents).enumerate().map(axis).collect())
}

/// The new extent of an axis, and its length before rounding. A `float32` scale that is the ratio of the extents, but
/// for its rounding, stands for that ratio.
fn scaled(old: usize, scale: f64) -> (usize, f64) {
    let new = (old as f32 * scale as f32).floor();
    match new / old as f32 == scale as f32 {
        true => (new as usize, f64::from(new)),
        false => (new as usize, old as f64 * scale),
    }
}

impl Axis {
    fn is_kept(&self) -> bool {
        self.new == self.old && self.length == self.old as f64 && self.region == (0.0, 1.0)
    }

    /// A shape that lets a vector vary along this axis only.
    fn along(&self, shape: &[usize], extent: usize) -> Vec<usize> {
        (0..shape.len()).map(|axis| if axis == self.axis { extent } else { 1 }).collect()
    }

    /// The position of each new sample among the old ones.
    fn places(&self, coordinates: &str) -> Result<Vec<f64>> {
        let (old, length) = (self.old as f64, self.length);
        let (start, end) = self.region;
        let place = |at: f64| {
            let centred = (at + 0.5) * old / length - 0.5;
            Some(match coordinates {
                "half_pixel" => centred,
                "half_pixel_symmetric" => centred + old / 2.0 * (1.0 - self.new as f64 / length),
                "pytorch_half_pixel" if length > 1.0 => centred,
                "pytorch_half_pixel" => 0.0,
                "asymmetric" => at * old / length,
                "align_corners" if length == 1.0 => 0.0,
                "align_corners" => at * (old - 1.0) / (length - 1.0),
                "tf_half_pixel_for_nn" => centred + 0.5,
                "tf_crop_and_resize" if length > 1.0 => {
                    start * (old - 1.0) + at * (end - start) * (old - 1.0) / (length - 1.0)
                }
                "tf_crop_and_resize" => 0.5 * (start + end) * (old - 1.0),
                _ => return None,
            })
        };
        let mut places = host_memory::room(table_size(self.new)?)?;
        for at in 0..self.new {
            let unknown =
                || Error::invalid(format!("coordinate_transformation_mode {coordinates:?} is unknown"));
            places.push(place(at as f64).ok_or_else(unknown)?);
        }
        Ok(places)
    }

    /// An old sample for each place.
    fn nearest(&self, x: &Tensor, places: &[f64], rounding: &str) -> Result<Tensor> {
        let round: fn(f64) -> f64 = match rounding {
            "round_prefer_floor" => |at| (at - 0.5).ceil(),
            "round_prefer_ceil" => |at| (at + 0.5).floor(),
            "ceil" => f64::ceil,
            "simple" if self.length < self.old as f64 => f64::ceil,
            "floor" | "simple" => f64::floor,
            other => return Err(Error::invalid(format!("nearest_mode {other:?} is unknown"))),
        };
        let mut index = host_memory::room(places.len())?;
        index.extend(places.iter().map(|&at| self.clamped(round(at))));
        Ok(x.index_select(self.axis as i64, &Tensor::from_slice(&index, &[index.len()], x.device())?)?)
    }

    /// The nearest position of an old sample.
    fn clamped(&self, at: f64) -> i64 {
        at.clamp(0.0, self.old as f64 - 1.0) as i64
    }

    /// A weighted sum of old samples for each place.
    fn weighted(&self, x: &Tensor, places: &[f64], method: &Method<'_>) -> Result<Tensor> {
        // A filter is stretched over the samples that fall between two new ones.
        let stretch = if method.antialias { (self.length / self.old as f64).min(1.0) } else { 1.0 };
        let cubic = method.mode == "cubic";
        let half = ((if cubic { 2.0 } else { 1.0 }) / stretch).ceil() as i64;
        let kernel = |distance: f64| match (cubic, distance.abs()) {
            (true, x) => cubic_kernel(x, method.cubic),
            (false, x) => (1.0 - x).max(0.0),
        };
        let taps: Vec<i64> = (1 - half..=half).collect();
        let mut weights = host_memory::filled(vec![0.0; 0], places.len())?;
        for (row, &at) in weights.iter_mut().zip(places) {
            phynexus::interrupt::check()?;
            let first = at.floor();
            row.extend(taps.iter().map(|&tap| {
                let inside = (0.0..self.old as f64).contains(&(first + tap as f64));
                if inside || !method.exclude_outside {
                    kernel((first + tap as f64 - at) * stretch)
                } else {
                    0.0
                }
            }));
            let sum: f64 = row.iter().sum();
            if (method.antialias || method.exclude_outside) && sum != 0.0 {
                row.iter_mut().for_each(|weight| *weight /= sum);
            }
        }
        let index = |at: f64, tap: i64| self.clamped(at.floor() + tap as f64);
        if taps.len() <= FEW {
            let shape = self.along(x.shape(), places.len());
            let mut sum: Option<Tensor> = None;
            for (column, &tap) in taps.iter().enumerate() {
                let places: Vec<i64> = places.iter().map(|&at| index(at, tap)).collect();
                let weights: Vec<f64> = weights.iter().map(|row| row[column]).collect();
                let neighbour = x.index_select(
                    self.axis as i64,
                    &Tensor::from_slice(&places, &[places.len()], x.device())?,
                )?;
                let term = neighbour.mul(&floats(&weights, &shape, x.dtype(), x.device())?)?;
                sum = Some(match sum {
                    None => term,
                    Some(sum) => sum.add(&term)?,
                });
            }
            return sum.ok_or_else(|| Error::invalid("the filter has no weights"));
        }
        let size = places.len().saturating_mul(self.old);
        let mut matrix = host_memory::filled(0.0, size)?;
        for ((row, weights), &at) in matrix.chunks_mut(self.old).zip(&weights).zip(places) {
            for (&tap, weight) in taps.iter().zip(weights) {
                row[index(at, tap) as usize] += weight;
            }
        }
        let matrix = floats(&matrix, &[places.len(), self.old], x.dtype(), x.device())?;
        let last = x.move_axis(self.axis as i64, -1)?;
        let vector = last.rank() == 1;
        let rows = if vector { last.unsqueeze(0)? } else { last };
        let product = rows.matmul(&matrix.t()?)?;
        let product = if vector { product.squeeze(0)? } else { product };
        Ok(product.move_axis(-1, self.axis as i64)?)
    }
}

/// The weight of a sample at this distance in cubic convolution (Keys, 1981).
fn cubic_kernel(x: f64, a: f64) -> f64 {
    match x {
        _ if x <= 1.0 => ((a + 2.0) * x - (a + 3.0)) * x * x + 1.0,
        _ if x < 2.0 => ((a * x - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a,
        _ => 0.0,
    }
}
