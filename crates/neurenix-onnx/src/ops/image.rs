//! Images: resampling, sampling grids and boxes.

mod boxes;
mod grid;
mod resize;

use phynexus::{DType, Device, Tensor};

use super::Rows;
use crate::Result;

pub(super) const ROWS: Rows = &[
    ("AffineGrid", grid::affine_grid),
    ("GridSample", grid::grid_sample),
    ("NonMaxSuppression", boxes::non_max_suppression),
    ("Resize", resize::resize),
    ("Upsample", resize::resize),
];

/// The float type in which weighted sums of elements are computed.
fn wide(dtype: DType) -> DType {
    if dtype.size() >= 4 && dtype != DType::F32 { DType::F64 } else { DType::F32 }
}

/// A tensor of host numbers, as `float32` or `float64`.
fn floats(values: &[f64], shape: &[usize], dtype: DType, device: Device) -> Result<Tensor> {
    if dtype == DType::F64 {
        return Ok(Tensor::from_slice(values, shape, device)?);
    }
    let mut narrow = phynexus::host_memory::room(values.len())?;
    narrow.extend(values.iter().map(|&value| value as f32));
    Ok(Tensor::from_slice(&narrow, shape, device)?)
}
