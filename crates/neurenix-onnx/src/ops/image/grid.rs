//! Sampling at the points of a grid, and affine grids.

use phynexus::{DType, Scalar, Tensor};

use super::wide;
use crate::{
    Error, Result, Value,
    graph::{Call, one},
    ops::counted,
};

/// The parameter of the cubic convolution of `GridSample`.
const CUBIC: f64 = -0.75;

/// What samples outside of an image are.
#[derive(Clone, Copy, PartialEq)]
enum Padding {
    Zeros,
    Border,
    Reflection,
}

/// An axis of an image.
struct Axis {
    extent: usize,
    /// Where samples are reflected.
    bounds: (f64, f64),
    padding: Padding,
}

pub(super) fn grid_sample(call: &Call<'_>) -> Result<Vec<Value>> {
    let (x, grid) = (call.tensor(0)?, call.tensor(1)?);
    let ([batch, channels, extents @ ..], [grids, points @ .., dimensions]) = (x.shape(), grid.shape())
    else {
        return Err(Error::invalid("the image must have the shape (N, C, ..), the grid (N, .., r)"));
    };
    if batch != grids || extents.len() != *dimensions || points.len() != *dimensions || extents.is_empty() {
        let message = format!(
            "an image of the shape {:?} cannot be sampled by a grid of {:?}",
            x.shape(),
            grid.shape()
        );
        return Err(Error::invalid(message));
    }
    let result_shape = [&[*batch, *channels], points].concat();
    if result_shape.contains(&0) {
        return one(Tensor::zeros(&result_shape, x.dtype(), call.device)?);
    }
    if extents.contains(&0) {
        return Err(Error::invalid("an image without elements cannot be sampled"));
    }
    let mode = call.string_or("mode", "linear")?;
    let padding = match call.string_or("padding_mode", "zeros")? {
        "zeros" => Padding::Zeros,
        "border" => Padding::Border,
        "reflection" => Padding::Reflection,
        other => return Err(Error::invalid(format!("padding_mode {other:?} is unknown"))),
    };
    let corners = call.int_or("align_corners", 0)? != 0;
    let wide = if grid.dtype() == DType::F64 { DType::F64 } else { wide(x.dtype()) };
    let points: usize = points.iter().product();
    let coordinates = grid.to_dtype(wide)?.reshape(&[*batch, points, *dimensions])?;
    // The place of each neighbour of each point among the elements of an image, its weight and whether it is inside.
    let mut place = Tensor::zeros(&[*batch, points, 1], DType::I64, call.device)?;
    let mut weight = Tensor::ones(&[*batch, points, 1], wide, call.device)?;
    let mut inside = Tensor::ones(&[*batch, points, 1], DType::Bool, call.device)?;
    for (at, &extent) in extents.iter().enumerate() {
        let (size, last) = (extent as f64, extent as f64 - 1.0);
        // A grid has the last axis first.
        let from_zero = coordinates.narrow(-1, dimensions - 1 - at, 1)?.add_scalar(1.0)?;
        let source = match corners {
            true => from_zero.mul_scalar(last / 2.0)?,
            false => from_zero.mul_scalar(size / 2.0)?.sub_scalar(0.5)?,
        };
        let bounds = if corners { (0.0, last) } else { (-0.5, size - 0.5) };
        let axis = Axis { extent, bounds, padding };
        let (neighbours, weights) = neighbours(&axis, &source, mode)?;
        let within = neighbours.ge_scalar(0)?.logical_and(&neighbours.le_scalar(last)?)?;
        let index = axis.index(&neighbours)?;
        let count = place.shape()[2] * index.shape()[2];
        let outer = |a: &Tensor, b: &Tensor, join: fn(&Tensor, &Tensor) -> phynexus::Result<Tensor>| {
            join(&a.unsqueeze(3)?, &b.unsqueeze(2)?)?.reshape(&[*batch, points, count])
        };
        place = outer(&place.mul_scalar(extent as i64)?, &index, Tensor::add)?;
        weight = outer(&weight, &weights, Tensor::mul)?;
        inside = outer(&inside, &within, Tensor::logical_and)?;
    }
    let area: usize = extents.iter().product();
    let pixels =
        x.reshape(&[*batch, *channels, area])?.transpose(1, 2)?.reshape(&[batch * area, *channels])?;
    let image = counted(*batch, call.device)?.mul_scalar(area as i64)?;
    let mut taken = pixels.take(&place.add(&image.reshape(&[*batch, 1, 1])?)?, Some(0))?;
    if padding == Padding::Zeros {
        taken = inside.unsqueeze(3)?.where_(&taken, &taken.zeros_like()?)?;
    }
    let sampled = match mode {
        "nearest" => taken.squeeze(2)?,
        _ => taken.to_dtype(wide)?.mul(&weight.unsqueeze(3)?)?.sum(&[2], false)?.to_dtype(x.dtype())?,
    };
    one(sampled.transpose(1, 2)?.reshape(&result_shape)?)
}

/// The positions of the neighbours of points along an axis, and their weights, along a last axis.
fn neighbours(axis: &Axis, source: &Tensor, mode: &str) -> Result<(Tensor, Tensor)> {
    let source = if mode == "nearest" { source.round()? } else { source.clone() };
    let source = axis.padded(&source)?;
    let first = source.floor()?;
    let after = source.sub(&first)?;
    let before = after.rsub_scalar(1.0)?;
    let weights = match mode {
        "nearest" => return Ok((source.clone(), source.ones_like()?)),
        "linear" | "bilinear" => vec![before, after],
        "cubic" | "bicubic" => {
            let near = |x: &Tensor| {
                x.mul_scalar(CUBIC + 2.0)?.sub_scalar(CUBIC + 3.0)?.mul(&x.square()?)?.add_scalar(1.0)
            };
            let far = |x: &Tensor| {
                let inner = x.mul_scalar(CUBIC)?.sub_scalar(5.0 * CUBIC)?.mul(x)?.add_scalar(8.0 * CUBIC)?;
                inner.mul(x)?.sub_scalar(4.0 * CUBIC)
            };
            vec![far(&after.add_scalar(1.0)?)?, near(&after)?, near(&before)?, far(&before.add_scalar(1.0)?)?]
        }
        other => return Err(Error::invalid(format!("mode {other:?}: there are nearest, linear and cubic"))),
    };
    let start = 1 - weights.len() as i64 / 2;
    let places = (0..weights.len() as i64).map(|tap| first.add_scalar((start + tap) as f64));
    let places = places.collect::<phynexus::Result<Vec<_>>>()?;
    let joined = |all: &[Tensor]| Tensor::cat(&all.iter().collect::<Vec<_>>(), -1);
    Ok((joined(&places)?, joined(&weights)?))
}

impl Axis {
    fn last(&self) -> f64 {
        self.extent as f64 - 1.0
    }

    /// Moves points from outside of the image.
    fn padded(&self, source: &Tensor) -> Result<Tensor> {
        let (low, high) = self.bounds;
        let clamped = |low: f64, high: f64| source.clamp(Some(Scalar::Float(low)), Some(Scalar::Float(high)));
        let moved = match self.padding {
            // Neighbours of points farther away are all outside, too.
            Padding::Zeros => return Ok(clamped(-4.0, self.extent as f64 + 4.0)?),
            Padding::Border => clamped(0.0, self.last())?,
            Padding::Reflection => self.reflected(source)?,
        };
        Ok(source.lt_scalar(low)?.logical_or(&source.gt_scalar(high)?)?.where_(&moved, source)?)
    }

    /// Reflects points at the bounds until they are within.
    fn reflected(&self, source: &Tensor) -> Result<Tensor> {
        let (low, high) = self.bounds;
        let span = high - low;
        if span == 0.0 {
            return Ok(source.full_like(low)?);
        }
        let distance = source.sub_scalar(low)?.abs()?.remainder_scalar(2.0 * span)?;
        Ok(distance.sub_scalar(span)?.abs()?.rsub_scalar(high)?)
    }

    /// The elements that neighbours stand for.
    fn index(&self, neighbours: &Tensor) -> Result<Tensor> {
        let moved = match self.padding {
            Padding::Reflection => self.reflected(neighbours)?,
            Padding::Zeros | Padding::Border => neighbours.clone(),
        };
        // What NaN becomes as an integer depends on the device.
        let index =
            moved.clamp(Some(Scalar::Float(0.0)), Some(Scalar::Float(self.last())))?.to_dtype(DType::I64)?;
        Ok(index.clamp(Some(Scalar::Int(0)), Some(Scalar::Int(self.extent as i64 - 1)))?)
    }
}

pub(super) fn affine_grid(call: &Call<'_>) -> Result<Vec<Value>> {
    let theta = call.tensor(0)?;
    let sizes = call.integers(1)?.into_iter().map(usize::try_from).collect::<Result<Vec<_>, _>>();
    let sizes = sizes.map_err(|_| Error::invalid("a size is negative"))?;
    let (batch, extents) = match (theta.shape(), sizes.as_slice()) {
        (&[batch, rows, columns], [images, _, extents @ ..])
            if *images == batch && rows == extents.len() && columns == rows + 1 && rows > 0 =>
        {
            (batch, extents)
        }
        (shape, sizes) => {
            return Err(Error::invalid(format!(
                "matrices of the shape {shape:?} do not fit the size {sizes:?}"
            )));
        }
    };
    let corners = call.int_or("align_corners", 0)? != 0;
    let wide = wide(theta.dtype());
    let vector = |&extent: &usize| {
        let edge = match (corners, extent) {
            (_, 0 | 1) => 0.0,
            (true, _) => 1.0,
            (false, _) => 1.0 - 1.0 / extent as f64,
        };
        Tensor::linspace(-edge, edge, extent, wide, call.device)
    };
    let vectors = extents.iter().map(vector).collect::<phynexus::Result<Vec<_>>>()?;
    let mut places = Tensor::meshgrid(&vectors.iter().collect::<Vec<_>>())?;
    places.reverse();
    places.push(Tensor::ones(extents, wide, call.device)?);
    let count = extents.iter().try_fold(1usize, |count, &extent| count.checked_mul(extent));
    let count = count.ok_or_else(|| Error::invalid("the grid is too large"))?;
    let places =
        Tensor::stack(&places.iter().collect::<Vec<_>>(), 0)?.reshape(&[extents.len() + 1, count])?;
    let grid = theta.to_dtype(wide)?.matmul(&places)?.transpose(1, 2)?;
    let shape = [&[batch], extents, &[extents.len()]].concat();
    one(grid.reshape(&shape)?.to_dtype(theta.dtype())?)
}
