//! Dropout and embedding.

use std::sync::Arc;

use phynexus::{DType, Device, Tensor, tensor::Generator};

use super::{Mode, Module, Parameter, Visitor, init};
use crate::{Error, Result};

/// Dropout: in training, zeros elements with probability `p` and scales the others by `1 / (1 - p)`.
#[derive(Debug)]
pub struct Dropout {
    probability: f64,
    generator: Option<Arc<Generator>>,
    mode: Mode,
}

impl Dropout {
    /// Uses the default generator.
    pub fn new(probability: f64) -> Result<Dropout> {
        if !(0.0..=1.0).contains(&probability) {
            return Err(Error::data(
                "Dropout",
                format!("the probability must be between 0 and 1, got {probability}"),
            ));
        }
        Ok(Dropout { probability, generator: None, mode: Mode::default() })
    }

    /// Replaces the random generator.
    #[must_use]
    pub fn with_generator(mut self, generator: Arc<Generator>) -> Dropout {
        self.generator = Some(generator);
        self
    }
}

impl Module for Dropout {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        let generator = self.generator.as_deref().unwrap_or_else(|| Generator::default_generator());
        Ok(input.dropout_with(self.probability, self.mode.is_training(), generator)?)
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.mode(&self.mode);
    }
    fn describe(&self) -> String {
        format!("Dropout(p={})", self.probability)
    }
}

/// A table of vectors that are looked up by integer index.
#[derive(Debug)]
pub struct Embedding {
    weight: Parameter,
    padding_index: Option<i64>,
}

impl Embedding {
    /// Creates `count` vectors of `features` numbers drawn from the standard normal distribution. The row at
    /// `padding_index` is zero and gets no gradient. A negative index counts from the end.
    ///
    /// # Errors
    /// If `padding_index` is out of range.
    pub fn new(
        count: usize,
        features: usize,
        padding_index: Option<i64>,
        device: Device,
        generator: &Generator,
    ) -> Result<Embedding> {
        let row = match padding_index {
            None => None,
            Some(index) => {
                let rows = i64::try_from(count).unwrap_or(i64::MAX);
                if !(-rows..rows).contains(&index) {
                    return Err(phynexus::Error::Index {
                        op: "Embedding",
                        index,
                        size: count,
                        axis: Some(0),
                    }
                    .into());
                }
                Some(if index < 0 { index + rows } else { index })
            }
        };
        let mut weight = init::normal(&[count, features], 0.0, 1.0, DType::F32, device, generator)?;
        if let Some(row) = row {
            let rows = Tensor::arange(0, count as i64, 1, DType::I64, device)?.unsqueeze(-1)?;
            weight = rows.eq_scalar(row)?.where_(&weight.zeros_like()?, &weight)?;
        }
        Ok(Embedding { weight: Parameter::new(&weight)?, padding_index })
    }

    /// The table, of shape `(count, features)`.
    pub fn weight(&self) -> &Parameter {
        &self.weight
    }
}

impl Module for Embedding {
    fn forward(&self, input: &Tensor) -> Result<Tensor> {
        Ok(input.embedding(&self.weight.leaf()?, self.padding_index)?)
    }
    fn visit(&self, visitor: &mut Visitor<'_>) {
        visitor.weight("weight", &self.weight);
    }
    fn describe(&self) -> String {
        let shape = self.weight.tensor().shape().to_vec();
        format!("Embedding({}, {})", shape[0], shape[1])
    }
}
