//! Embedding and dropout.

use crate::{
    Error, Result, Tensor,
    shape::Dims,
    tensor::{Generator, select::check_range},
};

impl Tensor {
    /// Looks up rows of `weight` `[N, D]` by these indices (any integer dtype and shape). The result has the shape of
    /// the indices, then D. The row `padding_idx` receives no gradient.
    ///
    /// # Errors
    /// [`Error::DType`] unless the indices are integers; [`Error::Shape`] unless the weight is a matrix;
    /// [`Error::Index`] for a padding index out of range, and for indices as [`Tensor::take`].
    pub fn embedding(&self, weight: &Tensor, padding_idx: Option<i64>) -> Result<Tensor> {
        let &[rows, _] = weight.shape() else {
            return Err(Error::shape("embedding", &[weight.shape()], "the weight must be (rows, features)"));
        };
        check_range("embedding", Some(0), rows, self)?;
        let found = weight.take(self, Some(0))?;
        let Some(padding) = padding_idx else { return Ok(found) };
        let outside = Error::Index { op: "embedding", index: padding, size: rows, axis: Some(0) };
        let Ok(rows) = i64::try_from(rows) else { return Err(outside) };
        if !(-rows..rows).contains(&padding) {
            return Err(outside);
        }
        // Indices may be negative too.
        let from_end = if padding < 0 { padding } else { padding - rows };
        let is_padding = self.eq_scalar(from_end + rows)?.or(&self.eq_scalar(from_end)?)?.unsqueeze(-1)?;
        is_padding.where_(&found.detach()?, &found)
    }

    /// If `training`, sets elements to zero with probability `p` and divides the others by `1 - p`; otherwise returns
    /// this tensor. Uses the default generator.
    ///
    /// # Errors
    /// [`Error::Argument`] unless `p` is between 0 and 1.
    pub fn dropout(&self, p: f64, training: bool) -> Result<Tensor> {
        self.dropout_with(p, training, Generator::default_generator())
    }

    /// [`Tensor::dropout`] with a given generator.
    pub fn dropout_with(&self, p: f64, training: bool, generator: &Generator) -> Result<Tensor> {
        self.dropped("dropout", p, training, self.shape(), generator)
    }

    /// [`Tensor::dropout`] of whole channels of `[N, C, ..]`: PyTorch's `dropout1d`, `dropout2d` and `dropout3d`.
    pub fn feature_dropout(&self, p: f64, training: bool) -> Result<Tensor> {
        if self.rank() < 2 {
            return Err(Error::shape("feature_dropout", &[self.shape()], "the input must be (N, C, ..)"));
        }
        let channel = |(axis, &size)| if axis < 2 { size } else { 1 };
        let shape: Dims = self.shape().iter().enumerate().map(channel).collect();
        self.dropped("feature_dropout", p, training, &shape, Generator::default_generator())
    }

    /// Dropout by random words of `shape`, which is broadcast to this shape.
    fn dropped(
        &self,
        op: &'static str,
        p: f64,
        training: bool,
        shape: &[usize],
        generator: &Generator,
    ) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&p) {
            return Err(Error::argument(op, format!("the probability must be between 0 and 1, got {p}")));
        }
        if !self.dtype().is_float() {
            return Err(Error::dtype(
                op,
                &[self.dtype()],
                "expected a float dtype: convert with .to_dtype()",
            ));
        }
        if !training || p == 0.0 {
            return Ok(self.clone());
        }
        if p == 1.0 {
            return self.mul_scalar(0);
        }
        // Words below 2^32 (1 - p) keep their element.
        let kept = generator.bits(shape, self.device())?.lt_scalar(((1.0 - p) * 2f64.powi(32)) as u64)?;
        kept.where_(&self.mul_scalar(1.0 / (1.0 - p))?, &self.zeros_like()?)
    }
}
