//! The fully connected layer.

use std::cmp::Ordering;

use phynexus::{DType, Device, Tensor, tensor::Generator};

use super::{Module, Parameter, Visitor, init};
use crate::{Error, Result};

/// `y = x · weightᵀ + bias`.
#[derive(Debug)]
pub struct Linear {
    weight: Parameter,
    bias: Option<Parameter>,
    in_features: usize,
    out_features: usize,
}

impl Linear {
    /// Creates a layer from `in_features` to `out_features`. Weight and bias are drawn uniformly from ±1/√in_features,
    /// as in PyTorch.
    pub fn new(
        in_features: usize,
        out_features: usize,
        bias: bool,
        device: Device,
        generator: &Generator,
    ) -> Result<Linear> {
        if in_features == 0 || out_features == 0 {
            return Err(Error::data("Linear", "in_features and out_features must be at least 1"));
        }
        let bound = 1.0 / (in_features as f64).sqrt();
        let draw = |shape: &[usize]| {
            Parameter::new(&init::uniform(shape, -bound, bound, DType::F32, device, generator)?)
        };
        let weight = draw(&[out_features, in_features])?;
        let bias = if bias { Some(draw(&[out_features])?) } else { None };
        Ok(Linear { weight, bias, in_features, out_features })
    }

    /// The weight, of shape `(out_features, in_features)`.
    pub fn weight(&self) -> &Parameter {
        &self.weight
    }
    /// The bias, of shape `(out_features)`.
    pub fn bias(&self) -> Option<&Parameter> {
        self.bias.as_ref()
    }
}

impl Linear {
    /// The number of leading dimensions of an input; the remaining dimensions are its features.
    fn leading(&self, shape: &[usize]) -> Option<usize> {
        if shape.last() == Some(&self.in_features) {
            return Some(shape.len() - 1);
        }
        // The first dimension is the batch, never a feature.
        let mut features = 1usize;
        for start in (1..shape.len()).rev() {
            features = features.saturating_mul(shape[start]);
            match features.cmp(&self.in_features) {
                // If `in_features` is 1, the last dimension must be 1.
                Ordering::Equal if self.in_features > 1 => return Some(start),
                Ordering::Greater => return None,
                _ => {}
            }
        }
        None
    }
}

impl Module for Linear {
    /// Maps `[.., in_features]` to `[.., out_features]`.
    ///
    /// If the last dimension is not `in_features`, trailing dimensions whose sizes multiply to `in_features` are
    /// flattened first, but never the first dimension (the batch). So a convolution's output `[N, C, H, W]` needs no
    /// flattening. PyTorch rejects such an input.
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let shape = input.shape();
        let Some(leading) = self.leading(shape) else {
            let weight = [self.out_features, self.in_features];
            let hint = format!(
                "the last dimension (or the product of trailing dimensions after the batch) must be {}",
                self.in_features
            );
            return Err(phynexus::Error::shape("Linear", &[shape, &weight], hint).into());
        };
        let flat: Vec<usize> = shape[..leading].iter().copied().chain([self.in_features]).collect();
        let product = input.reshape(&flat)?.matmul(&self.weight.leaf()?.t()?)?;
        Ok(match &self.bias {
            Some(bias) => product.add(&bias.leaf()?)?,
            None => product,
        })
    }

    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.weight("weight", &self.weight);
        visitor.optional("bias", &self.bias);
    }

    fn describe(&self) -> String {
        let (i, o, bias) = (self.in_features, self.out_features, self.bias.is_some());
        format!("Linear(in_features={i}, out_features={o}, bias={bias})")
    }
}
