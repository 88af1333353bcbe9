//! Scaled dot-product attention.

use crate::{
    DType, Error, Result, Scalar, Tensor,
    op::composite::{Attention, Composite, attention_output},
    op::formula::Formula,
    shape::{Dims, broadcast, element_count},
    tensor::Generator,
};

/// Optional arguments of [`Tensor::scaled_dot_product_attention`].
#[derive(Clone, Copy, Debug, Default)]
pub struct AttentionOptions {
    /// The probability of dropping an attention weight, a multiple of 2^-16; the others are scaled by its complement's
    /// inverse.
    pub dropout_p: f64,
    /// If true, a query attends only to keys up to its own index.
    pub is_causal: bool,
    /// The factor of the scores; defaults to `1 / sqrt(E)`.
    pub scale: Option<f64>,
    /// Grouped-query attention: there may be a multiple of query heads, and neighbouring ones share a key and value
    /// head.
    pub enable_gqa: bool,
}

const NAME: &str = "scaled_dot_product_attention";

/// `[.., H, L, E]` as `[B, H, L, E]`.
fn four_dimensional(x: &Tensor) -> Result<Tensor> {
    let shape = x.shape();
    match shape.len() {
        0 | 1 => {
            Err(Error::shape(NAME, &[shape], "queries, keys and values must be (.., positions, features)"))
        }
        2 => x.reshape(&[1, 1, shape[0], shape[1]]),
        3 => x.reshape(&[shape[0], 1, shape[1], shape[2]]),
        4 => Ok(x.clone()),
        n => {
            let batch = element_count(&shape[..n - 3]);
            x.reshape(&[batch, shape[n - 3], shape[n - 2], shape[n - 1]])
        }
    }
}

/// Repeats each head for `times` neighbouring query heads.
fn repeated_heads(x: &Tensor, times: usize) -> Result<Tensor> {
    let &[b, h, s, e] = x.shape() else {
        return Err(Error::internal(NAME, "expected four dimensions"));
    };
    x.reshape(&[b, h, 1, s, e])?.expand(&[b, h, times, s, e])?.reshape(&[b, h * times, s, e])
}

impl Tensor {
    /// `softmax(scale * q k^T + mask) v` for this tensor as the queries `[.., L, E]`, keys `[.., S, E]` and values
    /// `[.., S, V]`; the result is `[.., L, V]`. Leading dimensions are broadcast. A mask is broadcast to `[.., L, S]`:
    /// in a `bool` mask, true positions take part; a float mask is added to the scores. If all keys of a query are
    /// masked, its result is 0.
    ///
    /// # Errors
    /// [`Error::Shape`] if the shapes do not fit; [`Error::DType`] unless all operands are floats of the same dtype
    /// (the mask may be `bool`); [`Error::Argument`] unless the dropout probability is between 0 and 1.
    pub fn scaled_dot_product_attention(
        &self,
        key: &Tensor,
        value: &Tensor,
        attn_mask: Option<&Tensor>,
        options: AttentionOptions,
    ) -> Result<Tensor> {
        let generator = Generator::default_generator();
        self.scaled_dot_product_attention_with(key, value, attn_mask, options, generator)
    }

    /// [`Tensor::scaled_dot_product_attention`] with a given generator for dropout.
    pub fn scaled_dot_product_attention_with(
        &self,
        key: &Tensor,
        value: &Tensor,
        attn_mask: Option<&Tensor>,
        options: AttentionOptions,
        generator: &Generator,
    ) -> Result<Tensor> {
        if !(0.0..=1.0).contains(&options.dropout_p) {
            let message = format!("the probability must be between 0 and 1, got {}", options.dropout_p);
            return Err(Error::argument(NAME, message));
        }
        let shapes = [self.shape(), key.shape(), value.shape()];
        if shapes.iter().any(|shape| shape.len() < 2) {
            return Err(Error::shape(
                NAME,
                &shapes,
                "queries, keys and values must be (.., positions, features)",
            ));
        }
        let mut batch: Vec<Dims> = shapes.iter().map(|shape| shape[..shape.len() - 2].into()).collect();
        let mut key = key.clone();
        let mut value = value.clone();
        if options.enable_gqa && shapes.iter().all(|shape| shape.len() >= 3) {
            let heads = batch.iter().map(|b| b[b.len() - 1]).collect::<Vec<_>>();
            if heads[1] == 0 || heads[2] != heads[1] || !heads[0].is_multiple_of(heads[1]) {
                let hint =
                    "keys and values must have the same heads, of which the query heads are a multiple";
                return Err(Error::shape(NAME, &shapes, hint));
            }
            let times = heads[0] / heads[1];
            let repeat = |x: &Tensor| -> Result<Tensor> {
                let mut shape: Vec<usize> = x.shape().into();
                let heads = shape.len() - 3;
                shape[heads] *= times;
                repeated_heads(&four_dimensional(&x.unsqueeze(0)?)?, times)?.reshape(&shape)
            };
            if times > 1 {
                (key, value) = (repeat(&key)?, repeat(&value)?);
                batch[1..].iter_mut().for_each(|b| {
                    let last = b.len() - 1;
                    b[last] *= times;
                });
            }
        }
        let common = broadcast(NAME, &batch[0], &batch[1]).and_then(|both| broadcast(NAME, &both, &batch[2]));
        let common = common.map_err(|_| {
            let hint = "batch and heads must be equal or 1; for several query heads per key and value head, set \
                        enable_gqa";
            Error::shape(NAME, &shapes, hint)
        })?;
        let full = |x: &Tensor, rows: usize, columns: usize| -> Result<Tensor> {
            let shape: Dims = common.iter().copied().chain([rows, columns]).collect();
            four_dimensional(&x.expand(&shape)?)
        };
        let last = |x: &Tensor| (x.shape()[x.rank() - 2], x.shape()[x.rank() - 1]);
        let ((l, e), (s, ke), (vs, v)) = (last(self), last(&key), last(&value));
        if e != ke || s != vs {
            let hint = "queries and keys must have the same features, keys and values the same positions";
            return Err(Error::shape(NAME, &shapes, hint));
        }
        let (q, k, value) = (full(self, l, e)?, full(&key, s, e)?, full(&value, s, v)?);
        let mask = |mask: &Tensor| -> Result<Tensor> {
            let mask = match mask.dtype() {
                DType::Bool => mask.clone(),
                dtype if dtype.is_float() => near_zero(&mask.to_dtype(q.dtype())?)?,
                dtype => {
                    let hint =
                        "the mask must be bool (true takes part) or floats, which are added to the scores";
                    return Err(Error::dtype(NAME, &[dtype], hint));
                }
            };
            full(&mask, l, s).map_err(|_| {
                let hint = "the mask (the last shape) must be (.., queries, keys), where leading dimensions may be 1";
                Error::shape(NAME, &[q.shape(), k.shape(), mask.shape()], hint)
            })
        };
        let mask = attn_mask.map(mask).transpose()?;
        let scale = Scalar::Float(options.scale.unwrap_or(1.0 / (e.max(1) as f64).sqrt()));
        // What is dropped is one of 65,536 shares; all is dropped by a product with 0. The greatest factor of what is kept
        // fits 16 bits.
        let dropped = (options.dropout_p * 65_536.0).round();
        let dropout = if options.dropout_p == 1.0 { 0 } else { dropped.clamp(0.0, 65_534.0) as u16 };
        let attention = Attention { causal: options.is_causal, scale, mask: mask.is_some(), dropout };
        let state = match dropout {
            0 => None,
            _ => {
                let blocks = Attention::draws([q.shape()[0], q.shape()[1], l, s]);
                Some(generator.draw(blocks, q.device())?)
            }
        };
        let operands: Vec<&Tensor> = [&q, &k, &value].into_iter().chain(&mask).chain(&state).collect();
        let packed = Composite::apply(attention, &operands)?;
        let output = attention_output(Formula::of(&packed), q.shape(), value.shape());
        let mut output = output.tensor()?.to_dtype(self.dtype())?;
        if options.dropout_p == 1.0 {
            output = output.mul_scalar(0)?;
        }
        let shape: Dims = common.iter().copied().chain([l, v]).collect();
        output.reshape(&shape)
    }
}

/// A mask that is added, less each row's greatest value. That changes no weight, but scores that are all far from 0 would
/// not tell the gradient how they differ from their logarithm.
fn near_zero(mask: &Tensor) -> Result<Tensor> {
    if mask.rank() == 0 || mask.is_empty() {
        return Ok(mask.clone());
    }
    let greatest = mask.detach()?.max(&[-1], true)?;
    mask.sub(&greatest.isfinite()?.where_(&greatest, &greatest.zeros_like()?)?)
}
