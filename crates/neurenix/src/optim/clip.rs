//! Gradient clipping.

use phynexus::{DType, Scalar, Tensor, gradient::Gradients};

use crate::{Error, Result};

/// The Euclidean norm of all gradients together, a scalar on the device of the first; `None` if there are no gradients.
pub fn gradient_norm(gradients: &Gradients) -> Result<Option<Tensor>> {
    let mut total: Option<Tensor> = None;
    for gradient in gradients.iter() {
        let wide =
            if gradient.dtype() == DType::F64 { gradient.clone() } else { gradient.to_dtype(DType::F32)? };
        let sum = wide.mul(&wide)?.sum(&[], false)?;
        total = Some(match total {
            Some(total) => total.add(&sum.to_device(total.device())?)?,
            None => sum,
        });
    }
    Ok(total.map(|total| total.sqrt()).transpose()?)
}

/// Scales all gradients by one factor so that their joint Euclidean norm is at most `limit`, like PyTorch's
/// `clip_grad_norm_`. The norm is computed together with the update; nothing is read here.
pub fn clip_gradient_norm(gradients: Gradients, limit: f64) -> Result<Gradients> {
    if !(limit.is_finite() && limit > 0.0) {
        return Err(Error::data("clip_norm", format!("{limit} is not a finite number above 0")));
    }
    match gradient_norm(&gradients)? {
        Some(norm) => scale_to_norm(gradients, &norm, limit),
        None => Ok(gradients),
    }
}

/// Like [`clip_gradient_norm`], with a given norm.
pub(crate) fn scale_to_norm(gradients: Gradients, norm: &Tensor, limit: f64) -> Result<Gradients> {
    // min(limit / (norm + 1e-6), 1)
    let scale = norm.add_scalar(1e-6)?.rdiv_scalar(limit)?.clamp(None, Some(Scalar::Float(1.0)))?;
    Ok(gradients.try_map(|g| g.mul(&scale.to_device(g.device())?.to_dtype(g.dtype())?))?)
}

/// Clamps every element of every gradient to `-limit..=limit`.
pub fn clip_gradient_value(gradients: Gradients, limit: f64) -> Result<Gradients> {
    if !(limit.is_finite() && limit > 0.0) {
        return Err(Error::data("clip_value", format!("{limit} is not a finite number above 0")));
    }
    Ok(gradients.try_map(|g| g.clamp(Some(Scalar::Float(-limit)), Some(Scalar::Float(limit))))?)
}
